"""Options of consumers and readers. Names and defaults are Pulsar's, except where the project's own differ: parts of
batches are acknowledged (`batch_index_ack_enabled`). As in _options.py, fields are the parameters of `subscribe` and
`create_reader`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field, field_validator

from magnetar._enums import ConsumerCryptoFailureAction, ConsumerType, InitialPosition, RegexSubscriptionMode
from magnetar._nacks import FixedDelay, RedeliveryBackoff
from magnetar._options import NO_ENCRYPTION, NO_SCHEMA, check_options, unsupported
from magnetar.exceptions import InvalidConfiguration, InvalidTopicName, OperationNotSupported
from magnetar_protos.broker_pb2 import OpenConsumer, StartAt, SubscriptionType
from magnetar_wire.configuration import Configuration
from magnetar_wire.errors import InvalidTopicName as InvalidName
from magnetar_wire.topic_name import TopicName

__all__ = [
    "ConsumerBatchReceivePolicy",
    "ConsumerOptions",
    "ReaderOptions",
    "consumer_options",
    "open_request",
    "topic_names",
]

# What a batch may come to by default, in bytes.
_BATCH_BYTES: Final = 10 * 1024 * 1024
_NO_COMPACTION: Final = "topics are not compacted, so leave it out"


class ConsumerBatchReceivePolicy:
    """When `batch_receive` returns: as soon as one of these is reached. One below 1 sets no bound; one at least is
    set."""

    def __init__(self, max_num_message: int = -1, max_num_bytes: int = _BATCH_BYTES, timeout_ms: int = 100) -> None:
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise InvalidConfiguration(
                f"a batch ends by number, bytes or time: at least one must be above 0, of {max_num_message=}, "
                f"{max_num_bytes=}, {timeout_ms=}"
            )
        self.max_num_message = max_num_message
        self.max_num_bytes = max_num_bytes
        self.timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"ConsumerBatchReceivePolicy({self.max_num_message}, {self.max_num_bytes}, {self.timeout_ms})"


class ConsumerOptions(Configuration):
    model_config = Configuration.model_config | {"arbitrary_types_allowed": True}

    subscription_name: str = Field(min_length=1)
    consumer_type: ConsumerType = ConsumerType.Exclusive
    value_schema: Any = unsupported(instead=NO_SCHEMA, alias="schema")
    # Messages that may wait here; 0: one at a time, when it is asked for.
    receiver_queue_size: int = Field(default=1_000, ge=0, lt=2**31)
    max_total_receiver_queue_size_across_partitions: int = Field(default=50_000, gt=0, lt=2**31)
    # None: one is drawn.
    consumer_name: str | None = Field(default=None, min_length=1)
    unacked_messages_timeout_ms: int | None = unsupported(
        instead="a message that is not acknowledged comes again when its consumer is closed, or call "
        "negative_acknowledge"
    )
    # Without effect: there are no statistics to cache in a consumer.
    broker_consumer_stats_cache_time_ms: int = 30_000
    negative_ack_redelivery_delay_ms: float = Field(default=60_000, ge=0)
    is_read_compacted: bool = unsupported(False, _NO_COMPACTION)
    properties: Mapping[str, str] = Field(default_factory=dict)
    # Without effect: patterns of topics are not supported.
    pattern_auto_discovery_period: int = 60
    initial_position: InitialPosition = InitialPosition.Latest
    crypto_key_reader: Any = unsupported(instead=NO_ENCRYPTION)
    replicate_subscription_state_enabled: bool = unsupported(False, "there is no replication, so leave it out")
    max_pending_chunked_message: int = unsupported(10, "messages sent in chunks are not delivered, so leave it out")
    auto_ack_oldest_chunked_message_on_queue_full: bool = unsupported(
        False, "messages sent in chunks are not delivered, so leave it out"
    )
    # A seek to a message begins with that one, and not behind it.
    start_message_id_inclusive: bool = False
    batch_receive_policy: ConsumerBatchReceivePolicy = Field(default_factory=ConsumerBatchReceivePolicy)
    key_shared_policy: Any = unsupported(
        instead="use ConsumerType.Failover on a partitioned topic, which keeps the order of each key"
    )
    # A part of a batch can be acknowledged; otherwise it is when all of it is.
    batch_index_ack_enabled: bool = True
    regex_subscription_mode: RegexSubscriptionMode = unsupported(
        RegexSubscriptionMode.PersistentOnly, "patterns of topics are not supported, so leave it out"
    )
    dead_letter_policy: Any = unsupported(
        instead="publish a message to a topic of your own when its redelivery_count() is too high, and acknowledge it"
    )
    crypto_failure_action: ConsumerCryptoFailureAction = unsupported(ConsumerCryptoFailureAction.FAIL, NO_ENCRYPTION)
    # From here on the project's own, or of Pulsar's other clients.
    is_pattern_topic: bool = unsupported(False, "give a list of topics")
    enable_retry: bool = unsupported(False, "call negative_acknowledge, with negative_ack_redelivery_backoff")
    # 0 is served first.
    priority_level: int = Field(default=0, ge=0, lt=2**31)
    # What messages that wait here are expected to take at most, going by the size of those seen of late. Fewer wait
    # where they are large.
    receiver_queue_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    # How long acknowledgements gather, and how many at most; 0 ms: not at all.
    ack_grouping_time_ms: float = Field(default=100, ge=0)
    ack_grouping_max_size: int = Field(default=1_000, gt=0)
    # Acknowledging returns when it is durable at the broker.
    ack_receipt_enabled: bool = False
    # In place of `negative_ack_redelivery_delay_ms`.
    negative_ack_redelivery_backoff: Any = None
    subscription_properties: Mapping[str, str] = Field(default_factory=dict)
    # How often is looked whether topics have more partitions; 0: never.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)

    @field_validator("negative_ack_redelivery_backoff")
    @classmethod
    def _is_a_backoff(cls, value: Any) -> Any:
        if value is not None and not (callable(getattr(value, "next", None)) and hasattr(value, "min_delay_ms")):
            raise ValueError("use a MultiplierRedeliveryBackoff, or what has its `next` and `min_delay_ms`")
        return value

    @property
    def backoff(self) -> RedeliveryBackoff:
        own: RedeliveryBackoff | None = self.negative_ack_redelivery_backoff
        return own or FixedDelay(self.negative_ack_redelivery_delay_ms)


class ReaderOptions(Configuration):
    value_schema: Any = unsupported(instead=NO_SCHEMA, alias="schema")
    receiver_queue_size: int = Field(default=1_000, ge=0, lt=2**31)
    # None: one is drawn.
    reader_name: str | None = Field(default=None, min_length=1)
    # What the name of its subscription begins with.
    subscription_role_prefix: str | None = None
    is_read_compacted: bool = unsupported(False, _NO_COMPACTION)
    crypto_key_reader: Any = unsupported(instead=NO_ENCRYPTION)
    # It begins with the message at `start_message_id`, and not behind it.
    start_message_id_inclusive: bool = False
    crypto_failure_action: ConsumerCryptoFailureAction = unsupported(ConsumerCryptoFailureAction.FAIL, NO_ENCRYPTION)
    # The rest is as in ConsumerOptions.
    max_total_receiver_queue_size_across_partitions: int = Field(default=50_000, gt=0, lt=2**31)
    receiver_queue_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    properties: Mapping[str, str] = Field(default_factory=dict)
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)

    def for_consumer(self, subscription_name: str) -> ConsumerOptions:
        """The options of the consumer that a reader is."""
        own = {"value_schema", "reader_name", "subscription_role_prefix"}
        shared = {name: getattr(self, name) for name in ReaderOptions.model_fields if name not in own}
        return ConsumerOptions(subscription_name=subscription_name, consumer_name=self.reader_name, **shared)


def consumer_options(arguments: Mapping[str, Any]) -> ConsumerOptions:
    """Raises InvalidConfiguration or OperationNotSupported."""
    options = check_options(ConsumerOptions, arguments)
    if options.consumer_type is ConsumerType.KeyShared:
        raise OperationNotSupported(
            "consumer_type = KeyShared is not supported yet: use Failover on a partitioned topic, which keeps the "
            "order of each key, or Shared"
        )
    return options


def topic_names(topic: str | Sequence[str] | re.Pattern[str]) -> list[TopicName]:
    """What `subscribe` was given as topics, each once."""
    if isinstance(topic, re.Pattern):
        raise OperationNotSupported(
            f"a pattern of topics, {topic.pattern!r}, is not supported yet: give a list of them"
        )
    texts = [topic] if isinstance(topic, str) else list(topic)
    if not texts:
        raise InvalidTopicName("there are no topics to subscribe to: name at least one")
    try:
        return list(dict.fromkeys(map(TopicName.parse, texts)))
    except InvalidName as error:
        raise InvalidTopicName(str(error)) from None


def open_request(
    options: ConsumerOptions,
    consumer_id: int,
    topic: str,
    consumer_name: str,
    durable: bool,
    start: StartAt,
    incarnation: str,
) -> OpenConsumer:
    """What a broker is told of them."""
    return OpenConsumer(
        consumer_id=consumer_id,
        topic=topic,
        subscription=options.subscription_name,
        type=SubscriptionType.Name(options.consumer_type.value),
        consumer_name=consumer_name,
        priority_level=options.priority_level,
        durable=durable,
        start=start,
        broker_metadata=True,
        incarnation=incarnation,
        properties=dict(options.properties),
        subscription_properties=dict(options.subscription_properties),
    )
