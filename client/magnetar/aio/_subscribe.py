"""`subscribe` and `create_reader` of the asyncio client.

Each option is a parameter; _consumer_options.py has the models that check their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magnetar._client_core import ClientCore
from magnetar._consumer_options import ConsumerBatchReceivePolicy, ReaderOptions, consumer_options
from magnetar._enums import ConsumerCryptoFailureAction, ConsumerType, InitialPosition, RegexSubscriptionMode
from magnetar._keywords import suggest_keywords
from magnetar._message import Message
from magnetar._message_listener import (
    ConsumerEventListener,
    check_event_listener,
    check_listener,
    notify_event_listener,
)
from magnetar._multi_topic_consumer import open_consumer, open_reader
from magnetar._negative_acks import RedeliveryBackoff
from magnetar._options import check_options
from magnetar._unsupported import ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy, CryptoKeyReader
from magnetar.aio import _consumer, _reader
from magnetar.schema import Schema
from magnetar_wire.message_id import MessageId

__all__ = ["AioSubscribing"]


class AioSubscribing:
    """Of the asyncio client."""

    async def _begun(self) -> ClientCore:
        raise NotImplementedError

    @suggest_keywords
    async def subscribe(
        self,
        topic: str | Sequence[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        message_listener: Callable[[_consumer.Consumer, Message], object] | None = None,
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
        subscription_properties: Mapping[str, str] | None = None,
        auto_update_partitions_interval_seconds: float = 60,
        consumer_event_listener: ConsumerEventListener | None = None,
    ) -> _consumer.Consumer:
        """Create a consumer of a topic, or of each topic in a list, in a subscription, which is created if needed.

        - `consumer_type` says how the subscription's consumers share its messages, `initial_position` where a new
          subscription begins.
        - `message_listener`, a function or a coroutine function, is called with the consumer and each message, in a
          task of its own.
        - `receiver_queue_size` and `receiver_queue_bytes` bound how many messages wait here.
        - `negative_ack_redelivery_delay_ms`, or a `negative_ack_redelivery_backoff` in place of it, is how long after
          negative_acknowledge a message comes again.
        - Acknowledgements leave every `ack_grouping_time_ms`, or at `ack_grouping_max_size`; with
          `ack_receipt_enabled`, acknowledge returns when they are durable.
        - `consumer_event_listener` has `became_active` and `became_inactive(consumer, partition)`, called when
          the consumer begins or ceases to be the one of a Failover subscription that gets a partition's messages.
        - What is not supported yet raises OperationNotSupported, which says what to do instead.
        """
        options = consumer_options(locals())
        check_listener("message_listener", message_listener, awaited=True)
        check_event_listener(consumer_event_listener)
        core = await open_consumer(await self._begun(), topic, options)
        consumer = _consumer.Consumer(core, message_listener)
        notify_event_listener(core, consumer, consumer_event_listener)
        return consumer

    @suggest_keywords
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | int,
        schema: Schema | None = None,
        reader_listener: Callable[[_reader.Reader, Message], object] | None = None,
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
    ) -> _reader.Reader:
        """Create a reader of a topic: from behind a message (from it, with `start_message_id_inclusive`), from
        `MessageId.earliest` or `latest`, or from a time, in ms since 1970."""
        options = check_options(ReaderOptions, locals())
        check_listener("reader_listener", reader_listener, awaited=True)
        core = await open_reader(await self._begun(), topic, start_message_id, options)
        return _reader.Reader(core, reader_listener)
