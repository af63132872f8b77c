"""Settings of the rates of publishes, dispatches and subscribe requests. Names are Pulsar's."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["NO_RATE", "DispatchRate", "DispatchRateSettings", "PublishRateSettings", "Rate", "SubscribeRate"]

_Unit = Literal["messages", "bytes"]
_ALL_TOPICS: Final = "all topics of one broker together"
_ALL_SUBSCRIPTIONS: Final = "to all subscriptions of one topic"


class Rate(NamedTuple):
    """The maximum numbers of messages and bytes in a period. 0: no limit."""

    messages: float = 0
    bytes: float = 0
    period_seconds: float = 1


NO_RATE: Final = Rate()


class DispatchRate(NamedTuple):
    """A maximum rate of dispatches."""

    limit: Rate
    # Whether the topic's publish rate is added to the limit.
    is_relative: bool = False


class SubscribeRate(NamedTuple):
    """How often a consumer may subscribe in a period. 0: no limit."""

    per_consumer: int
    period_seconds: float


def _rate_setting(unit: _Unit, what: str, effect: str, subject: Subject, minimum: int) -> Any:
    as_stored = ", as they are stored" if unit == "bytes" else ""
    bounds: dict[str, Any] = {"ge": minimum}
    if unit == "messages":
        bounds["le"] = MAX_COUNT
    return setting(
        0,
        f"Maximum number of {unit} per second that are {what}{as_stored}. {effect}",
        subject=subject,
        unit=f"{unit} per second",
        named_by="Pulsar",
        dynamic=True,
        **bounds,
    )


def _publish_rate(unit: _Unit, target: str) -> Any:
    effect = "Publishing waits at it. 0: no limit."
    return _rate_setting(unit, f"published to {target}", effect, Subject.PUBLISHING, 0)


def _dispatch_rate(unit: _Unit, target: str) -> Any:
    effect = "Dispatch waits at it. 0 or below: no limit."
    return _rate_setting(unit, f"dispatched {target}", effect, Subject.DELIVERY, -1)


class PublishRateSettings(Configuration):
    max_publish_rate_per_topic_in_messages: int = _publish_rate("messages", "one topic")
    max_publish_rate_per_topic_in_bytes: int = _publish_rate("bytes", "one topic")
    broker_publisher_throttling_max_message_rate: int = _publish_rate("messages", _ALL_TOPICS)
    broker_publisher_throttling_max_byte_rate: int = _publish_rate("bytes", _ALL_TOPICS)

    @property
    def topic_publish_rate(self) -> Rate:
        """The maximum rate of publishes to one topic. A policy replaces it (catalog/policy_settings.py)."""
        return Rate(self.max_publish_rate_per_topic_in_messages, self.max_publish_rate_per_topic_in_bytes)

    @property
    def broker_publish_rate(self) -> Rate:
        """The maximum rate of publishes to all topics of a broker together."""
        return Rate(self.broker_publisher_throttling_max_message_rate, self.broker_publisher_throttling_max_byte_rate)


class DispatchRateSettings(Configuration):
    dispatch_throttling_rate_per_topic_in_msg: int = _dispatch_rate("messages", _ALL_SUBSCRIPTIONS)
    dispatch_throttling_rate_per_topic_in_byte: int = _dispatch_rate("bytes", _ALL_SUBSCRIPTIONS)
    dispatch_throttling_rate_per_subscription_in_msg: int = _dispatch_rate("messages", "to one subscription")
    dispatch_throttling_rate_per_subscription_in_byte: int = _dispatch_rate("bytes", "to one subscription")
    dispatch_throttling_rate_in_msg: int = _dispatch_rate("messages", "by one broker")
    dispatch_throttling_rate_in_byte: int = _dispatch_rate("bytes", "by one broker")
    dispatch_throttling_rate_relative_to_publish_rate: bool = setting(
        False,
        "Whether the rate of publishes to a topic is added to the limits of dispatches of the topic and of its "
        "subscriptions.",
        subject=Subject.DELIVERY,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_on_non_backlog_consumer_enabled: bool = setting(
        True,
        "Whether rates of dispatches limit subscriptions without a backlog, too: those that are at most 1,000 entries "
        "behind.",
        subject=Subject.DELIVERY,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_on_batch_message_enabled: bool = setting(
        False,
        "Whether a batch counts as one message in rates of dispatches.",
        subject=Subject.DELIVERY,
        named_by="Pulsar",
    )
    subscribe_throttling_rate_per_consumer: int = setting(
        0,
        "Maximum number of times that one consumer may subscribe to a topic in "
        "subscribe_rate_period_per_consumer_in_second. Further requests are refused. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="requests",
        ge=-1,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    subscribe_rate_period_per_consumer_in_second: int = setting(
        30,
        "Period, in seconds, of subscribe_throttling_rate_per_consumer.",
        subject=Subject.DELIVERY,
        unit="seconds",
        ge=1,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )

    # Policies replace these (catalog/policy_settings.py).

    @property
    def topic_dispatch_rate(self) -> DispatchRate:
        """The maximum rate of dispatches of one topic, to all subscriptions together."""
        limit = _rate(self.dispatch_throttling_rate_per_topic_in_msg, self.dispatch_throttling_rate_per_topic_in_byte)
        return DispatchRate(limit, self.dispatch_throttling_rate_relative_to_publish_rate)

    @property
    def subscription_dispatch_rate(self) -> DispatchRate:
        """The maximum rate of dispatches of one subscription."""
        limit = _rate(
            self.dispatch_throttling_rate_per_subscription_in_msg,
            self.dispatch_throttling_rate_per_subscription_in_byte,
        )
        return DispatchRate(limit, self.dispatch_throttling_rate_relative_to_publish_rate)

    @property
    def subscribe_rate(self) -> SubscribeRate:
        """How often one consumer may subscribe."""
        per_consumer = max(0, self.subscribe_throttling_rate_per_consumer)
        return SubscribeRate(per_consumer, self.subscribe_rate_period_per_consumer_in_second)

    # No policy replaces this.

    @property
    def broker_dispatch_rate(self) -> Rate:
        """The maximum rate of dispatches of one broker."""
        return _rate(self.dispatch_throttling_rate_in_msg, self.dispatch_throttling_rate_in_byte)


def _rate(messages: int, size_bytes: int) -> Rate:
    return Rate(max(0, messages), max(0, size_bytes))
