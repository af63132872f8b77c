"""The options of consumers and readers, which are the parameters of `subscribe`, `create_reader` and
`create_table_view`.

Names and defaults are Pulsar's, except for `batch_index_ack_enabled`: single messages of a batch are acknowledged by
default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from magnetar._acknowledging.redelivery_backoff import MAX_DELAY_MS, FixedDelay, RedeliveryBackoff, is_delay
from magnetar._consuming.key_shared_policy import ConsumerKeySharedPolicy
from magnetar._enums import (
    ConsumerCryptoFailureAction,
    ConsumerType,
    DecodeFailureAction,
    InitialPosition,
    RegexSubscriptionMode,
)
from magnetar._letters.letter_rules import ConsumerDeadLetterPolicy
from magnetar._options import NO_ENCRYPTION, ValueSchema, check_options, unsupported
from magnetar._patterns.topic_pattern import TopicPattern
from magnetar.exceptions import InvalidConfiguration, InvalidTopicName
from magnetar_wire.configuration import Configuration
from magnetar_wire.errors import InvalidTopicName as InvalidName
from magnetar_wire.topic_name import TopicName

__all__ = [
    "ConsumerBatchReceivePolicy",
    "ConsumerOptions",
    "ReaderOptions",
    "TableViewOptions",
    "consumer_options",
    "topic_names",
    "topic_pattern",
]

_DEFAULT_BATCH_BYTES: Final = 10 * 1024 * 1024
# Those of Pulsar's Java client.
_SHORTEST_ACK_TIMEOUT_MS: Final = 1_000
_SHORTEST_TICK_MS: Final = 100
_NO_COMPACTION: Final = "topics are not compacted, so leave it out"


class ConsumerBatchReceivePolicy:
    """When `batch_receive` returns: as soon as one of the limits is reached. A value below 1 is no limit.

    At least one limit must be set. Without `messages_from_multi_topics_enabled`, all messages of a batch are of one
    topic or partition; then it may have fewer than the limits allow.
    """

    def __init__(
        self,
        max_num_message: int = -1,
        max_num_bytes: int = _DEFAULT_BATCH_BYTES,
        timeout_ms: int = 100,
        messages_from_multi_topics_enabled: bool = True,
    ) -> None:
        for limit in (max_num_message, max_num_bytes, timeout_ms):
            if not isinstance(limit, int) or isinstance(limit, bool):
                raise InvalidConfiguration(f"a limit of a batch_receive_policy is an int, not {limit!r}")
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise InvalidConfiguration(
                f"a batch_receive_policy needs at least one limit above 0, not {max_num_message=}, {max_num_bytes=}, "
                f"{timeout_ms=}"
            )
        self.max_num_message = max_num_message
        self.max_num_bytes = max_num_bytes
        self.timeout_ms = timeout_ms
        self.messages_from_multi_topics_enabled = messages_from_multi_topics_enabled

    def __repr__(self) -> str:
        return (
            f"ConsumerBatchReceivePolicy({self.max_num_message}, {self.max_num_bytes}, {self.timeout_ms}, "
            f"{self.messages_from_multi_topics_enabled})"
        )


class ConsumerOptions(Configuration):
    model_config = Configuration.model_config | {"arbitrary_types_allowed": True}

    subscription_name: str = Field(min_length=1)
    consumer_type: ConsumerType = ConsumerType.Exclusive
    value_schema: ValueSchema = Field(default=None, alias="schema")
    # The maximum number of messages in the receiver queue; 0: one at a time, when the application waits for it.
    receiver_queue_size: int = Field(default=1_000, ge=0, lt=2**31)
    max_total_receiver_queue_size_across_partitions: int = Field(default=50_000, gt=0, lt=2**31)
    # None: a random name.
    consumer_name: str | None = Field(default=None, min_length=1)
    # A received message that is not acknowledged for so long is redelivered. None, 0: never.
    unacked_messages_timeout_ms: int | None = Field(default=None, lt=MAX_DELAY_MS)
    # No effect: a consumer has no statistics to cache.
    broker_consumer_stats_cache_time_ms: int = 30_000
    negative_ack_redelivery_delay_ms: float = Field(default=60_000, ge=0, lt=MAX_DELAY_MS)
    is_read_compacted: bool = unsupported(False, _NO_COMPACTION)
    properties: Mapping[str, str] = Field(default_factory=dict)
    # How often a pattern's topics are listed, in seconds, if brokers refuse to report changes.
    pattern_auto_discovery_period: int = Field(default=60, gt=0)
    initial_position: InitialPosition = InitialPosition.Latest
    crypto_key_reader: Any = unsupported(instead=NO_ENCRYPTION)
    replicate_subscription_state_enabled: bool = unsupported(False, "there is no replication, so leave it out")
    # How many messages in chunks of a topic or partition may be incomplete; 0: no limit.
    max_pending_chunked_message: int = Field(default=10, ge=0)
    # Acknowledge an incomplete message that is dropped for others, which loses it. Otherwise it is redelivered later.
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    # A seek to a message's id continues with that message, not behind it.
    start_message_id_inclusive: bool = False
    batch_receive_policy: ConsumerBatchReceivePolicy = Field(default_factory=ConsumerBatchReceivePolicy)
    # None: AutoSplit. For ConsumerType.KeyShared only.
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    # Single messages of a batch are acknowledged. Otherwise a batch is, when all of its messages are.
    batch_index_ack_enabled: bool = True
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    # When a message goes to a dead letter topic instead of being redelivered.
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = unsupported(ConsumerCryptoFailureAction.FAIL, NO_ENCRYPTION)
    # The following options are the project's own, or those of Pulsar's other clients.
    # A topic that is a str is a regular expression.
    is_pattern_topic: bool = False
    # Allows `reconsume_later`, and subscribes to the retry letter topic.
    enable_retry: bool = False
    # Consumers of priority 0 are served first.
    priority_level: int = Field(default=0, ge=0, lt=2**31)
    # The maximum size of the messages in the receiver queue, as expected from the average size of recent ones. If they
    # are large, the queue has fewer.
    receiver_queue_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    # How long acknowledgements are collected, and how many at most; 0 ms: they are sent at once.
    ack_grouping_time_ms: float = Field(default=100, ge=0)
    ack_grouping_max_size: int = Field(default=1_000, gt=0)
    # `acknowledge` returns when the acknowledgement is durable at the broker.
    ack_receipt_enabled: bool = False
    # Used instead of `negative_ack_redelivery_delay_ms`.
    negative_ack_redelivery_backoff: Any = None
    # `unacked_messages_timeout_ms` is counted in ticks of this length. A shorter one is more precise.
    ack_timeout_tick_time_ms: int = Field(default=1_000, ge=_SHORTEST_TICK_MS)
    # Its delay is added to `unacked_messages_timeout_ms`.
    ack_timeout_redelivery_backoff: Any = None
    subscription_properties: Mapping[str, str] = Field(default_factory=dict)
    # How often new partitions of the topics are looked for; 0: never.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)
    # How a message whose payload can't be decoded is handled.
    decode_failure_action: DecodeFailureAction = DecodeFailureAction.RAISE
    # An incomplete message in chunks is discarded if no chunk of it comes for so long; 0: never.
    expire_time_of_incomplete_chunked_message_ms: int = Field(default=60_000, ge=0)
    # The maximum size of the chunks of incomplete messages, in all topics and partitions.
    max_pending_chunked_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    # The application's own threads for its listener. None: those of the client.
    message_listener_executor: Any = None
    interceptors: Any = None

    @field_validator("unacked_messages_timeout_ms")
    @classmethod
    def _is_long_enough(cls, value: int | None) -> int | None:
        if value and value < _SHORTEST_ACK_TIMEOUT_MS:
            raise ValueError(f"use at least {_SHORTEST_ACK_TIMEOUT_MS} ms, or 0 for no timeout")
        return value

    @model_validator(mode="after")
    def _policy_with_its_type(self) -> ConsumerOptions:
        if self.key_shared_policy is not None and self.consumer_type is not ConsumerType.KeyShared:
            raise ValueError(
                f"key_shared_policy has no effect with {self.consumer_type}: use consumer_type = ConsumerType.KeyShared"
            )
        return self

    @model_validator(mode="after")
    def _backoff_with_a_timeout(self) -> ConsumerOptions:
        timeout_ms = self.unacked_messages_timeout_ms
        if not timeout_ms and self.ack_timeout_redelivery_backoff is not None:
            raise ValueError("ack_timeout_redelivery_backoff is added to unacked_messages_timeout_ms: set that, too")
        if timeout_ms and self.ack_timeout_tick_time_ms > timeout_ms:
            raise ValueError(
                f"ack_timeout_tick_time_ms = {self.ack_timeout_tick_time_ms} is longer than "
                f"unacked_messages_timeout_ms = {timeout_ms}: use a shorter tick"
            )
        return self

    @field_validator("negative_ack_redelivery_backoff", "ack_timeout_redelivery_backoff")
    @classmethod
    def _is_a_backoff(cls, value: Any) -> Any:
        if value is None:
            return value
        if not (callable(getattr(value, "next", None)) and hasattr(value, "min_delay_ms")):
            raise ValueError("use a MultiplierRedeliveryBackoff, or an object with the same `next` and `min_delay_ms`")
        if not is_delay(value.min_delay_ms):
            raise ValueError(f"its min_delay_ms is {value.min_delay_ms!r}: use a number of ms, 0 or more")
        return value

    @model_validator(mode="after")
    def _letters_of_single_messages(self) -> ConsumerOptions:
        if self.delivers_in_order and (self.dead_letter_policy is not None or self.enable_retry):
            raise ValueError(
                "dead_letter_policy and enable_retry need single messages to be redelivered, which Exclusive and "
                "Failover do not: use consumer_type = ConsumerType.Shared, or KeyShared"
            )
        policy = self.dead_letter_policy
        if policy is not None and policy.retry_letter_topic is not None and not self.enable_retry:
            raise ValueError(
                f"dead_letter_policy has retry_letter_topic = {policy.retry_letter_topic!r}, without effect: set "
                "enable_retry = True, or leave it out"
            )
        return self

    @property
    def delivers_in_order(self) -> bool:
        """Whether a consumer gets all messages of a partition in order. Then it may acknowledge cumulatively, and a
        redelivery is of everything; otherwise single entries are redelivered."""
        return self.consumer_type in (ConsumerType.Exclusive, ConsumerType.Failover)

    @property
    def backoff(self) -> RedeliveryBackoff:
        own: RedeliveryBackoff | None = self.negative_ack_redelivery_backoff
        return own or FixedDelay(self.negative_ack_redelivery_delay_ms)


class ReaderOptions(Configuration):
    value_schema: ValueSchema = Field(default=None, alias="schema")
    receiver_queue_size: int = Field(default=1_000, ge=0, lt=2**31)
    # None: a random name.
    reader_name: str | None = Field(default=None, min_length=1)
    # The prefix of its subscription's name.
    subscription_role_prefix: str | None = None
    is_read_compacted: bool = unsupported(False, _NO_COMPACTION)
    crypto_key_reader: Any = unsupported(instead=NO_ENCRYPTION)
    # Reading starts with the message at `start_message_id`, not behind it.
    start_message_id_inclusive: bool = False
    crypto_failure_action: ConsumerCryptoFailureAction = unsupported(ConsumerCryptoFailureAction.FAIL, NO_ENCRYPTION)
    # The following options are those of ConsumerOptions.
    max_total_receiver_queue_size_across_partitions: int = Field(default=50_000, gt=0, lt=2**31)
    receiver_queue_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    properties: Mapping[str, str] = Field(default_factory=dict)
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)
    # How a message whose payload can't be decoded is handled.
    decode_failure_action: DecodeFailureAction = DecodeFailureAction.RAISE
    max_pending_chunked_message: int = Field(default=0, ge=0)
    expire_time_of_incomplete_chunked_message_ms: int = Field(default=60_000, ge=0)
    max_pending_chunked_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    interceptors: Any = None

    def to_consumer_options(self, subscription_name: str) -> ConsumerOptions:
        """Return the options of the reader's consumer."""
        own = {"value_schema", "reader_name", "subscription_role_prefix", "interceptors"}
        shared = {name: getattr(self, name) for name in ReaderOptions.model_fields if name not in own}
        renamed: dict[str, Any] = {"schema": self.value_schema, "consumer_name": self.reader_name}
        return ConsumerOptions(subscription_name=subscription_name, **renamed, **shared)


class TableViewOptions(Configuration):
    # None: a random name.
    subscription_name: str | None = Field(default=None, min_length=1)
    value_schema: ValueSchema = Field(default=None, alias="schema")
    # As in ConsumerOptions.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)
    max_pending_chunked_bytes: int = Field(default=256 * 1024 * 1024, gt=0)

    def to_reader_options(self) -> ReaderOptions:
        """Return the options of the view's reader."""
        own: dict[str, Any] = {"schema": self.value_schema}
        return ReaderOptions(
            auto_update_partitions_interval_seconds=self.auto_update_partitions_interval_seconds,
            max_pending_chunked_bytes=self.max_pending_chunked_bytes,
            **own,
        )


def consumer_options(arguments: Mapping[str, Any]) -> ConsumerOptions:
    """Check the arguments of `subscribe`. Raises InvalidConfiguration or OperationNotSupported."""
    return check_options(ConsumerOptions, arguments)


def topic_pattern(topic: str | Sequence[str] | re.Pattern[str], options: ConsumerOptions) -> TopicPattern | None:
    """Return the pattern given to `subscribe`; None: it was a topic, or a list of topics."""
    if isinstance(topic, re.Pattern) or (options.is_pattern_topic and isinstance(topic, str)):
        if options.receiver_queue_size == 0:
            raise InvalidConfiguration("receiver_queue_size = 0 needs a single topic, not a pattern: use 1 or more")
        return TopicPattern(topic, options.regex_subscription_mode)
    if options.is_pattern_topic:
        raise InvalidConfiguration(f"is_pattern_topic = True needs a topic that is a pattern, not {topic!r:.200}")
    return None


def topic_names(topic: str | Sequence[str]) -> list[TopicName]:
    """Parse the topics given to `subscribe`, and drop duplicates."""
    texts = [topic] if isinstance(topic, str) else list(topic) if isinstance(topic, Iterable) else [topic]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"subscribe takes a topic, a list of topics or a pattern, and {text!r:.200} is none")
    if not texts:
        raise InvalidTopicName("the list of topics is empty: name at least one")
    try:
        return list(dict.fromkeys(map(TopicName.parse, texts)))
    except InvalidName as error:
        raise InvalidTopicName(str(error)) from None
