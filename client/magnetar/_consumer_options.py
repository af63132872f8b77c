"""What can be set about consumers and readers. Names and defaults are Pulsar's, but where the project's own differ:
parts of batches are acknowledged (`batch_index_ack_enabled`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field, field_validator

from magnetar._enums import ConsumerType, InitialPosition, RegexSubscriptionMode
from magnetar._nacks import FixedDelay, RedeliveryBackoff
from magnetar._options import checked, refuse_unsupported
from magnetar.exceptions import InvalidConfiguration, InvalidTopicName, OperationNotSupported
from magnetar_protos.broker_pb2 import OpenConsumer, StartAt, SubscriptionType
from magnetar_wire.configuration import Configuration
from magnetar_wire.errors import InvalidTopicName as InvalidName
from magnetar_wire.topic_name import TopicName

__all__ = ["ConsumerBatchReceivePolicy", "ConsumerOptions", "consumer_options", "open_request", "topic_names"]

# What a batch may come to by default, in bytes.
_BATCH_BYTES: Final = 10 * 1024 * 1024


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
    # None: one is drawn.
    consumer_name: str | None = Field(default=None, min_length=1)
    # 0 is served first.
    priority_level: int = Field(default=0, ge=0, lt=2**31)
    # Messages that may wait here; 0: one at a time, when it is asked for.
    receiver_queue_size: int = Field(default=1_000, ge=0, lt=2**31)
    max_total_receiver_queue_size_across_partitions: int = Field(default=50_000, gt=0, lt=2**31)
    # What they are expected to take at most, going by the size of those seen of late. Fewer wait where they are large.
    receiver_queue_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    batch_receive_policy: ConsumerBatchReceivePolicy = Field(default_factory=ConsumerBatchReceivePolicy)
    # How long acknowledgements gather, and how many at most; 0 ms: not at all.
    ack_grouping_time_ms: float = Field(default=100, ge=0)
    ack_grouping_max_size: int = Field(default=1_000, gt=0)
    # Acknowledging returns when it is durable at the broker.
    ack_receipt_enabled: bool = False
    # A part of a batch can be acknowledged; otherwise it is when all of it is.
    batch_index_ack_enabled: bool = True
    negative_ack_redelivery_delay_ms: float = Field(default=60_000, ge=0)
    # In place of that delay.
    negative_ack_redelivery_backoff: Any = None
    initial_position: InitialPosition = InitialPosition.Latest
    # A seek to a message begins with that one, and not behind it.
    start_message_id_inclusive: bool = False
    properties: Mapping[str, str] = Field(default_factory=dict)
    subscription_properties: Mapping[str, str] = Field(default_factory=dict)
    # How often is looked whether topics have more partitions; 0: never.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)

    @field_validator("negative_ack_redelivery_backoff")
    @classmethod
    def _is_a_backoff(cls, value: Any) -> Any:
        if value is not None and not (callable(getattr(value, "next", None)) and hasattr(value, "min_delay_ms")):
            raise ValueError("use a MultiplierRedeliveryBackoff, or what has its `next` and `min_delay_ms`")
        return value

    @field_validator("batch_receive_policy", mode="before")
    @classmethod
    def _default_policy(cls, value: Any) -> Any:
        return ConsumerBatchReceivePolicy() if value is None else value

    @property
    def backoff(self) -> RedeliveryBackoff:
        own: RedeliveryBackoff | None = self.negative_ack_redelivery_backoff
        return own or FixedDelay(self.negative_ack_redelivery_delay_ms)


# What consumers are asked for elsewhere and can't do yet, with the value that asks for nothing.
_NOT_YET: Final[Mapping[str, Any]] = {
    "schema": None,
    "unacked_messages_timeout_ms": 0,
    "is_read_compacted": False,
    "crypto_key_reader": None,
    "crypto_failure_action": None,
    "replicate_subscription_state_enabled": False,
    "max_pending_chunked_message": 10,
    "auto_ack_oldest_chunked_message_on_queue_full": False,
    "key_shared_policy": None,
    "dead_letter_policy": None,
    "regex_subscription_mode": RegexSubscriptionMode.PersistentOnly,
    "enable_retry": False,
}
# What says nothing here: how often something is looked at that is not there, or is always known.
_WITHOUT_EFFECT: Final = frozenset({"broker_consumer_stats_cache_time_ms", "pattern_auto_discovery_period"})


def consumer_options(given: Mapping[str, Any]) -> ConsumerOptions:
    """Checked. Raises InvalidConfiguration, or OperationNotSupported for what is not there yet."""
    refuse_unsupported({name: value for name, value in given.items() if name in _NOT_YET}, _NOT_YET)
    left_out = _WITHOUT_EFFECT | _NOT_YET.keys()
    options = checked(ConsumerOptions, {name: value for name, value in given.items() if name not in left_out})
    if options.consumer_type is ConsumerType.KeyShared:
        raise OperationNotSupported("consumer_type = KeyShared is not supported yet: use Shared, Failover or Exclusive")
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
