"""The asyncio client, on the loop on which it is first used.

A loop that ends before the client was closed cancels its tasks. One task of the client waits for that and shuts the
client down, because otherwise it would reconnect on a loop that has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Self

from magnetar._acknowledging.redelivery_backoff import RedeliveryBackoff
from magnetar._client_core import ClientCore
from magnetar._connections.endpoint_check import check_service_url
from magnetar._consuming.consumer_options import (
    ConsumerBatchReceivePolicy,
    ReaderOptions,
    TableViewOptions,
    consumer_options,
)
from magnetar._consuming.key_shared_policy import ConsumerKeySharedPolicy
from magnetar._consuming.multi_topic_consumer import open_consumer, open_reader
from magnetar._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    DecodeFailureAction,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar._interceptors.interceptor import (
    ConsumerInterceptor,
    ProducerInterceptor,
    ReaderInterceptor,
    check_interceptors,
)
from magnetar._letters.letter_rules import ConsumerDeadLetterPolicy
from magnetar._listeners.event_listener import ConsumerEventListener, check_event_listener, notify_event_listener
from magnetar._listeners.listener_threads import MessageListenerExecutor, check_executor
from magnetar._listeners.message_listener import check_listener
from magnetar._loggers import ConsoleLogger, FileLogger
from magnetar._message import Message
from magnetar._options import KEEP_ALIVE_INTERVAL_S, check_options, client_options, producer_options, suggest_keywords
from magnetar._producing.topic_producer import open_producer
from magnetar._public_object import Unpicklable
from magnetar._unsupported import (
    Authentication,
    CryptoKeyReader,
    ServiceInfo,
)
from magnetar.aio._consumer import Consumer
from magnetar.aio._intercepted_consumer import InterceptedConsumer
from magnetar.aio._intercepted_producer import InterceptedProducer
from magnetar.aio._producer import Producer
from magnetar.aio._reader import Reader
from magnetar.aio._table_view import TableView
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration
from magnetar.schema._schema import Schema, T
from magnetar_wire.clock import Clock
from magnetar_wire.message_id import MessageId
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = ["Client"]


class Client(Unpicklable):
    """A client of the service at `service_url`, `magnetar://host:port[,host:port…]`, on the running event loop.

    Options are those of `magnetar.Client`. The client connects at the first call that needs a broker.
    """

    @suggest_keywords
    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        operation_timeout_seconds: float = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50_000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: logging.Logger | ConsoleLogger | FileLogger | None = None,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        *,
        keep_alive_interval_seconds: float = KEEP_ALIVE_INTERVAL_S,
        _transport: Transport | None = None,
        _clock: Clock | None = None,
        _randomness: Randomness | None = None,
    ) -> None:
        options = client_options(locals())
        check_service_url(service_url)
        self._url = service_url
        self._options = options
        self._parts = {"transport": _transport, "clock": _clock, "randomness": _randomness}
        self._closed = False
        self._core: ClientCore | None = None
        # The process that created the core.
        self._core_pid = 0
        # Waits for the end of the loop.
        self._loop_watch: asyncio.Task[None] | None = None
        # Closes the connections after `shutdown`.
        self._shutdown_task: asyncio.Task[None] | None = None

    @suggest_keywords
    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: type[T] | Schema[T] | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1_000,
        max_pending_messages_across_partitions: int = 50_000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1_000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: Mapping[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Any, int], int] | None = None,
        *,
        hashing_scheme: HashingScheme = HashingScheme.JavaStringHash,
        max_pending_bytes: int = 64 * 1024 * 1024,
        auto_update_partitions_interval_seconds: float = 60,
        interceptors: Sequence[ProducerInterceptor] | None = None,
    ) -> Producer[T]:
        """Create a producer of a topic. The topic is created if the broker's configuration allows it.

        Returns when the broker has opened the producer.

        - `schema`: a dataclass or a pydantic model, whose instances are sent in Avro's format, or a schema, such as
          `JsonSchema(Reading)`. Without one, messages are bytes. If it is not compatible with that of the topic, this
          raises IncompatibleSchema.
        - `producer_name` is unique on the topic. Without one, the broker chooses it.
        - `initial_sequence_id`: the first message gets the next sequence id.
        - `send_timeout_millis`: a message that is not known to be persisted after this time fails. 0: no limit.
        - `max_pending_messages` and `max_pending_bytes` limit the messages that are not known to be persisted; see
          `Producer.send`.
        - Messages are batched, up to `batching_max_messages`, `batching_max_allowed_size_in_bytes` or
          `batching_max_publish_delay_ms`, whichever comes first; after half of the send timeout at the latest.
        - `message_routing_mode`, `message_router` and `hashing_scheme` decide which partition a message goes to.
        - `interceptors` are instances of `ProducerInterceptor`, which see each message, in this order.
        - An option that is not supported yet raises OperationNotSupported, which names the alternative.
        """
        options = producer_options(locals())
        check_interceptors(interceptors, ProducerInterceptor)
        opened = await open_producer(self._get_core(), topic, options)
        return InterceptedProducer(opened, interceptors) if interceptors else Producer(opened)

    @suggest_keywords
    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: type[T] | Schema[T] | None = None,
        message_listener: Callable[[Consumer[T], Message[T]], object] | None = None,
        receiver_queue_size: int = 1_000,
        max_total_receiver_queue_size_across_partitions: int = 50_000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30_000,
        negative_ack_redelivery_delay_ms: float = 60_000,
        is_read_compacted: bool = False,
        properties: Mapping[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = True,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        *,
        is_pattern_topic: bool = False,
        enable_retry: bool = False,
        priority_level: int = 0,
        receiver_queue_bytes: int = 64 * 1024 * 1024,
        ack_grouping_time_ms: float = 100,
        ack_grouping_max_size: int = 1_000,
        ack_receipt_enabled: bool = False,
        negative_ack_redelivery_backoff: RedeliveryBackoff | None = None,
        ack_timeout_tick_time_ms: int = 1_000,
        ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None,
        subscription_properties: Mapping[str, str] | None = None,
        auto_update_partitions_interval_seconds: float = 60,
        decode_failure_action: DecodeFailureAction = DecodeFailureAction.RAISE,
        expire_time_of_incomplete_chunked_message_ms: int = 60_000,
        max_pending_chunked_bytes: int = 256 * 1024 * 1024,
        message_listener_executor: Executor | MessageListenerExecutor | None = None,
        interceptors: Sequence[ConsumerInterceptor] | None = None,
        consumer_event_listener: ConsumerEventListener | None = None,
    ) -> Consumer[T]:
        """Create a consumer of a topic, of several, or of a pattern's. The subscription is created if it is missing.

        - `topic`: a name, a list of names, or a pattern: a `re.Pattern`, or a str with `is_pattern_topic`. A pattern
          matches whole names of one namespace, in the domains of `regex_subscription_mode`. Topics that are created
          later join: brokers report them, or list them every `pattern_auto_discovery_period` seconds, if they refuse.
        - `schema`: see `create_producer`. Messages that were encoded with another version of the topic's schema are
          decoded by Avro's rules of evolution. `decode_failure_action` decides what happens to those that can't be.
        - `consumer_type` decides how the subscription's consumers share its messages, `initial_position` where a new
          subscription begins.
        - `key_shared_policy` decides how a Key_Shared subscription distributes its keys.
        - `message_listener`, a function or a coroutine function, is called with the consumer and each message, in
          order, in a task of its own. With Key_Shared, keys are distributed among `message_listener_threads` tasks.
        - `receiver_queue_size` and `receiver_queue_bytes` limit how many messages the client prefetches.
        - `negative_ack_redelivery_delay_ms` is the time between negative_acknowledge and the redelivery of the message;
          it is redelivered earlier if the connection breaks.
          `negative_ack_redelivery_backoff` replaces it.
        - A message that was received and not acknowledged for `unacked_messages_timeout_ms` is redelivered, as after a
          negative acknowledgement; None: never. It is counted in ticks of `ack_timeout_tick_time_ms`.
          `ack_timeout_redelivery_backoff` adds a delay that grows with each redelivery.
        - `dead_letter_policy` sends a message that was redelivered too often to a dead letter topic. `enable_retry`
          allows `reconsume_later`, and subscribes to the retry letter topic. Both need Shared or KeyShared.
        - Acknowledgements are sent every `ack_grouping_time_ms`, or when there are `ack_grouping_max_size` of them.
          With `ack_receipt_enabled`, acknowledge returns when they are durable.
        - `consumer_event_listener` has the methods `became_active` and `became_inactive(consumer, partition)`. They are
          called when the consumer becomes, or stops being, the consumer of a Failover subscription that gets the
          messages of a partition.
        - `interceptors` are instances of `ConsumerInterceptor`, which see each message, in this order.
        - An option that is not supported yet raises OperationNotSupported, which names the alternative.
        """
        options = consumer_options(locals())
        check_listener("message_listener", message_listener, awaited=True)
        check_event_listener(consumer_event_listener)
        check_executor(message_listener_executor)
        check_interceptors(interceptors, ConsumerInterceptor)
        if message_listener_executor is not None:
            raise InvalidConfiguration(
                "message_listener_executor has threads, and an asyncio client calls listeners in tasks: leave it out, "
                "or use magnetar.Client"
            )
        core = await open_consumer(self._get_core(), topic, options)
        shared = (core, message_listener, self._options.message_listener_threads)
        consumer: Consumer[T] = InterceptedConsumer(*shared, interceptors) if interceptors else Consumer(*shared)
        notify_event_listener(core, consumer, consumer_event_listener)
        return consumer

    @suggest_keywords
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | int,
        schema: type[T] | Schema[T] | None = None,
        reader_listener: Callable[[Reader[T], Message[T]], object] | None = None,
        receiver_queue_size: int = 1_000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        *,
        max_total_receiver_queue_size_across_partitions: int = 50_000,
        receiver_queue_bytes: int = 64 * 1024 * 1024,
        properties: Mapping[str, str] | None = None,
        auto_update_partitions_interval_seconds: float = 60,
        decode_failure_action: DecodeFailureAction = DecodeFailureAction.RAISE,
        max_pending_chunked_message: int = 0,
        expire_time_of_incomplete_chunked_message_ms: int = 60_000,
        max_pending_chunked_bytes: int = 256 * 1024 * 1024,
        interceptors: Sequence[ReaderInterceptor] | None = None,
    ) -> Reader[T]:
        """Create a reader of a topic. It begins after `start_message_id`, or at it with `start_message_id_inclusive`.

        `start_message_id` is the id of a message, `MessageId.earliest`, `MessageId.latest`, or a time in milliseconds
        since 1970. `schema` and `decode_failure_action`: as of `subscribe`. `interceptors` are instances of
        `ReaderInterceptor`, which see each message, in this order.
        """
        options = check_options(ReaderOptions, locals())
        check_listener("reader_listener", reader_listener, awaited=True)
        check_interceptors(interceptors, ReaderInterceptor)
        opened = await open_reader(self._get_core(), topic, start_message_id, options)
        return Reader(opened, reader_listener, interceptors)

    @suggest_keywords
    async def create_table_view(
        self,
        topic: str,
        subscription_name: str | None = None,
        schema: type[T] | Schema[T] | None = None,
        *,
        auto_update_partitions_interval_seconds: float = 60,
        max_pending_chunked_bytes: int = 256 * 1024 * 1024,
    ) -> TableView[T]:
        """Create a view of the latest value of each key of a topic.

        Returns when everything that was published before this call is in the view. It reads all partitions from the
        earliest message on.

        - `subscription_name`: the name of the reader's subscription, which is not durable. Default: a random name.
        - `schema`: see `create_producer`.
        - `max_pending_chunked_bytes`: how much of incomplete messages in chunks is held, for all partitions. If that is
          not enough, the view raises MemoryBufferIsFull.
        """
        options = check_options(TableViewOptions, locals())
        reader_options, name = options.to_reader_options(), options.subscription_name
        core = self._get_core()
        view: TableView[T] = TableView(await open_reader(core, topic, MessageId.earliest, reader_options, name))
        try:
            await view.refresh()
        except BaseException:
            await asyncio.shield(view.close())
            raise
        return view

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the names of the topic's partitions, or the topic's own name if it has none."""
        return await self._get_core().get_topic_partitions(topic)

    async def close(self) -> None:
        """Close the client and all that it created. Pending messages and acknowledgements are sent before. After
        `shutdown`, return when the connections are closed."""
        if (core := self._release_core()) is not None:
            await core.close()
        if self._shutdown_task is not None:
            await asyncio.wait([self._shutdown_task])

    def shutdown(self) -> None:
        """Close the client and all that it created at once. Pending messages fail. The connections are closed in a
        task; `close` waits for it."""
        if (core := self._release_core()) is not None:
            core.end_members()
            self._shutdown_task = asyncio.get_running_loop().create_task(core.shutdown())

    def get_service_info(self) -> ServiceInfo:
        """Not supported yet."""
        return ServiceInfo()

    def __repr__(self) -> str:
        return f"aio.Client({self._url!r}{', closed' if self._closed else ''})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _get_core(self) -> ClientCore:
        """Return the core. Create it if this is the first call that needs it."""
        if self._closed:
            raise AlreadyClosed("the client is closed")
        if self._core is not None and self._core_pid != os.getpid():
            raise AlreadyClosed("the client was used before the process forked: create another one in the child")
        if self._core is None:
            self._core_pid = os.getpid()
            parts: dict[str, Any] = self._parts
            loop = asyncio.get_running_loop()
            self._core = ClientCore(self._url, self._options, _call_soon(loop), **parts)
            self._loop_watch = loop.create_task(self._shut_down_with_loop(loop.create_future()))
        return self._core

    def _release_core(self) -> ClientCore | None:
        """Mark the client closed, and return the core that is to be closed, if there is one."""
        core, self._core, self._closed = self._core, None, True
        if core is not None and self._core_pid != os.getpid():  # the core is the parent's
            self._loop_watch = None
            return None
        if self._loop_watch is not None:
            self._loop_watch.cancel()
        return core

    async def _shut_down_with_loop(self, never: asyncio.Future[None]) -> None:
        try:
            await never
        finally:
            core, self._core, self._closed = self._core, None, True
            if core is not None:
                text = f"the client of {self._url} was not closed before its loop ended"
                warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
                await core.shutdown()


def _call_soon(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], object]], object]:
    """Return a `call_soon` for callers on the loop. Nothing of an asyncio client runs on another thread."""

    def call(callback: Callable[[], object]) -> None:
        loop.call_soon(callback)

    return call
