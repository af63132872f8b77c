"""The synchronous client.

All clients of a process share one event loop on a thread of its own (`_threads/event_loop.py`). A method of the client
runs the core's coroutine there, and waits for it. `aio/_client.py` is the same for asyncio, with the same parameters:
tests/unit/client/test_signatures.py compares them, and the options' models.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from magnetar._acknowledging.redelivery_backoff import RedeliveryBackoff
from magnetar._client_core import ClientCore, Member
from magnetar._connections.connection_pool import LazyGrpcTransport
from magnetar._connections.endpoint_check import check_service_url
from magnetar._consumer import Consumer
from magnetar._consuming.consumer_options import (
    ConsumerBatchReceivePolicy,
    ReaderOptions,
    TableViewOptions,
    consumer_options,
)
from magnetar._consuming.key_shared_policy import ConsumerKeySharedPolicy
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer, open_consumer, open_reader
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
from magnetar._intercepted_consumer import InterceptedConsumer
from magnetar._intercepted_producer import InterceptedProducer
from magnetar._interceptors.interceptor import (
    ConsumerInterceptor,
    ProducerInterceptor,
    ReaderInterceptor,
    check_interceptors,
)
from magnetar._letters.letter_rules import ConsumerDeadLetterPolicy
from magnetar._listeners.event_listener import ConsumerEventListener, check_event_listener, notify_event_listener
from magnetar._listeners.listener_threads import ListenerThreads, MessageListenerExecutor, check_executor
from magnetar._listeners.message_listener import check_listener
from magnetar._listeners.thread_listener import finish_listeners
from magnetar._loggers import ConsoleLogger, FileLogger
from magnetar._message import Message
from magnetar._options import KEEP_ALIVE_INTERVAL_S, check_options, client_options, producer_options, suggest_keywords
from magnetar._producer import Producer
from magnetar._producing.topic_producer import TopicProducer, open_producer
from magnetar._public_object import Unpicklable
from magnetar._reader import Reader
from magnetar._table_view import TableView
from magnetar._threads.event_loop import background
from magnetar._typed_producer import TypedProducer
from magnetar._unsupported import (
    Authentication,
    CryptoKeyReader,
    ServiceInfo,
)
from magnetar.exceptions import AlreadyClosed, Timeout
from magnetar.schema._schema import Schema, T
from magnetar_wire.message_id import MessageId
from magnetar_wire.transport import Transport

__all__ = ["Client"]

M = TypeVar("M", bound=Member)
F = TypeVar("F")

# How long an interrupted close waits for callbacks to be called.
_LAST_CALLBACKS_S: Final = 1.0


class Client(Unpicklable):
    """A client of the service at `service_url`, `magnetar://host:port[,host:port…]`. Its producers, consumers and
    readers share its connections. Close it, or use it as a context manager.

    The client connects at the first call that needs a broker. After a fork, both the parent and the child can use it:
    producers, consumers and readers that were created before the fork go on in the parent, and are closed in the child.
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
    ) -> None:
        options = client_options(locals())
        self._url = service_url
        check_service_url(service_url)
        self._options = options
        self._transport = _transport
        # Producers, consumers and readers, which have to be closed in the child after a fork.
        self._created: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = False
        self._listener_threads = ListenerThreads(options.message_listener_threads)
        # Created by the first call that needs it. Several threads may make that call.
        self._core: ClientCore | None = None
        self._core_lock = threading.Lock()

    @suggest_keywords
    def create_producer(
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

        - `schema`: a dataclass or a pydantic model, whose instances are sent in Avro's format, `str`, or a schema, such
          as `JsonSchema(Reading)`. Without one, messages are bytes. If it is not compatible with that of the topic,
          this raises IncompatibleSchema.
        - `producer_name` is unique on the topic. Without one, the broker chooses it.
        - `initial_sequence_id`: the first message gets the next sequence id.
        - `send_timeout_millis`: a message that is not known to be persisted after this time fails. 0: no limit.
        - `max_pending_messages` and `max_pending_bytes` limit the messages that are not known to be persisted; see
          `Producer.send_async`.
        - Messages are batched, up to `batching_max_messages`, `batching_max_allowed_size_in_bytes` or
          `batching_max_publish_delay_ms`, whichever comes first; after half of the send timeout at the latest.
        - With `chunking_enabled`, which needs `batching_enabled=False`, a message that is too large for one entry is
          sent in chunks.
        - `message_routing_mode`, `message_router` and `hashing_scheme` decide which partition a message goes to.
        - `interceptors` are instances of `ProducerInterceptor`, which see each message, in this order.
        - An option that is not supported yet raises OperationNotSupported, which names the alternative.
        """
        options = producer_options(locals())
        check_interceptors(interceptors, ProducerInterceptor)
        core = self._get_core()

        def make_producer(opened: TopicProducer) -> Producer[T]:
            if interceptors:
                return InterceptedProducer(opened, interceptors, core.callbacks.call_later)
            value_schema: Schema[T] | None = opened.options.value_schema
            return Producer(opened) if value_schema is None else TypedProducer(opened, value_schema)

        return self._create(core, open_producer(core, topic, options), make_producer)

    @suggest_keywords
    def subscribe(
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
        - `message_listener` is called with the consumer and each message, in order, always on the same one of the
          client's `message_listener_threads`. With Key_Shared, keys are distributed among all of them.
          `message_listener_executor` replaces these threads: a `concurrent.futures.Executor`, or an object with the
          method `execute(message, run)`, which has `run` called in a thread and order of its choice.
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
        - Messages that were sent in chunks are joined, up to `max_pending_chunked_message` of a partition and
          `max_pending_chunked_bytes` of the consumer at a time; not on a Shared or Key_Shared subscription. If no chunk
          comes for `expire_time_of_incomplete_chunked_message_ms`, an incomplete one is discarded.
        - `consumer_event_listener` has the methods `became_active` and `became_inactive(consumer, partition)`. They are
          called on the callback thread when the consumer becomes, or stops being, the consumer of a Failover
          subscription that gets the messages of a partition.
        - `interceptors` are instances of `ConsumerInterceptor`, which see each message, in this order.
        - An option that is not supported yet raises OperationNotSupported, which names the alternative.
        """
        options = consumer_options(locals())
        check_listener("message_listener", message_listener)
        check_event_listener(consumer_event_listener)
        check_executor(message_listener_executor)
        check_interceptors(interceptors, ConsumerInterceptor)
        core = self._get_core()

        def make_consumer(opened: MultiTopicConsumer) -> Consumer[T]:
            shared = (opened, background.run, message_listener, self._listener_threads)
            consumer: Consumer[T] = (
                InterceptedConsumer(*shared, interceptors, core.callbacks.call_later)
                if interceptors
                else Consumer(*shared)
            )
            notify_event_listener(opened, consumer, consumer_event_listener, core.callbacks.call_later)
            return consumer

        return self._create(core, open_consumer(core, topic, options), make_consumer)

    @suggest_keywords
    def create_reader(
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
        check_listener("reader_listener", reader_listener)
        check_interceptors(interceptors, ReaderInterceptor)
        core = self._get_core()
        opening, threads = open_reader(core, topic, start_message_id, options), self._listener_threads
        shared = (background.run, reader_listener, threads, interceptors, core.callbacks.call_later)
        return self._create(core, opening, lambda opened: Reader(opened, *shared))

    @suggest_keywords
    def create_table_view(
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
        core = self._get_core()
        reader_options, name = options.to_reader_options(), options.subscription_name
        opening = open_reader(core, topic, MessageId.earliest, reader_options, name)
        view = self._create(core, opening, lambda opened: TableView[T](opened, background.run))
        try:
            view.refresh()
        except BaseException:
            background.call_soon(partial(core.discard, view._core))
            raise
        return view

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the names of the topic's partitions, or the topic's own name if it has none."""
        return background.run(self._get_core().get_topic_partitions(topic))

    def close(self) -> None:
        """Close the client and all that it created. Pending messages and acknowledgements are sent before."""
        self._end(lambda core: core.close(), None)

    def shutdown(self) -> None:
        """Close the client and all that it created at once. Pending messages fail."""
        self._end(lambda core: core.shutdown(), None, waits=False)

    def get_service_info(self) -> ServiceInfo:
        """Not supported yet."""
        return ServiceInfo()

    def __repr__(self) -> str:
        return f"Client({self._url!r}{', closed' if self._closed else ''})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get_core(self) -> ClientCore:
        """Return the core. Create it, and start the loop's thread, if this is the first call that needs it."""
        if self._closed:
            raise AlreadyClosed("the client is closed")
        core = self._core
        if core is None:
            with self._core_lock:
                core = self._core
                if core is None:
                    transport = self._transport
                    if transport is None:
                        transport = LazyGrpcTransport(self._options.keep_alive_interval_seconds)
                        transport.load()
                    background.enter(self)
                    try:
                        core = self._core = background.run(self._create_core(transport))
                    except BaseException:
                        background.leave(self)
                        raise
        return core

    async def _create_core(self, transport: Transport) -> ClientCore:
        return ClientCore(self._url, self._options, background.call_soon, transport=transport)

    def _create(self, core: ClientCore, opening: Coroutine[Any, Any, M], make: Callable[[M], F]) -> F:
        """Open a member on the loop, and return the object that `make` creates for the application.

        If Ctrl-C interrupts this, nobody would ever close the member, so it is closed here.
        """
        member: M | None = None
        try:
            member = background.run(opening, undo=core.discard)
            created = make(member)
            self._created.add(created)
            return created
        except BaseException:
            if member is not None:
                background.call_soon(partial(core.discard, member))
            raise

    def _end(
        self,
        end_core: Callable[[ClientCore], Coroutine[Any, Any, None]],
        timeout_s: float | None,
        *,
        waits: bool = True,
    ) -> None:
        """`waits`: for calls of listeners."""
        core, self._core, self._closed = self._core, None, True
        if core is None:
            return
        try:
            if waits:
                self._finish_listeners(core.operations.timeout_s if timeout_s is None else timeout_s)
            background.run(end_core(core), timeout_s)
        except BaseException:  # interrupted or timed out: end the members without waiting for them
            background.call_soon(core.end_members)
            timeout_s = _LAST_CALLBACKS_S
            raise
        finally:
            background.leave(self)
            self._listener_threads.stop()
            core.callbacks.close(timeout_s)

    def _finish_listeners(self, timeout_s: float) -> None:
        created = [one for one in list(self._created) if isinstance(one, Consumer | Reader)]
        finish_listeners([one._listener for one in created if one._listener is not None], time.monotonic, timeout_s)

    # Called by the event loop: see `Forkable`.

    async def _suspend(self) -> None:
        if self._core is not None:
            await self._core.suspend()

    def _resume(self) -> None:
        if self._core is not None:
            self._core.resume()

    def _forked(self) -> None:
        core, self._core, self._core_lock = self._core, None, threading.Lock()
        self._listener_threads = ListenerThreads(self._options.message_listener_threads)
        if core is not None:
            core.closed = True
        error = AlreadyClosed("it was created before the process forked: create another one in the child")
        for created in list(self._created):
            if isinstance(created, Producer):
                created._forked(error)
            else:
                created._core.forked(error)

    def _close_at_exit(self, timeout_s: float) -> None:
        try:
            self._end(lambda core: core.close(), timeout_s)
        except TimeoutError as error:
            raise Timeout("pending messages could not be sent before the process ended") from error
