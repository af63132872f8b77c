"""Settings of the rates of publishes, dispatches and subscribe requests. Names are Pulsar's."""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["NO_RATE", "DispatchRate", "DispatchRateSettings", "PublishRateSettings", "Rate", "SubscribeRate"]


class Rate(NamedTuple):
    """A maximum rate. 0: no limit."""

    # Per period.
    messages: float = 0
    bytes: float = 0
    period_seconds: float = 1


NO_RATE: Final = Rate()


class DispatchRate(NamedTuple):
    """A maximum rate of dispatches."""

    limit: Rate
    # The rate at which the topic is published to is added to it.
    is_relative: bool = False


class SubscribeRate(NamedTuple):
    """How often a consumer may subscribe in a period. 0: no limit."""

    per_consumer: int
    period_seconds: float


class PublishRateSettings(Configuration):
    max_publish_rate_per_topic_in_messages: int = setting(
        0,
        "Maximum number of messages per second that are published to one topic. Publishing waits at it. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="messages per second",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    max_publish_rate_per_topic_in_bytes: int = setting(
        0,
        "Maximum number of bytes per second that are published to one topic, as they are stored. Publishing waits at "
        "it. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="bytes per second",
        ge=0,
        named_by="Pulsar",
        dynamic=True,
    )
    broker_publisher_throttling_max_message_rate: int = setting(
        0,
        "Maximum number of messages per second that are published to all topics of one broker together. Publishing "
        "waits at it. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="messages per second",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    broker_publisher_throttling_max_byte_rate: int = setting(
        0,
        "Maximum number of bytes per second that are published to all topics of one broker together, as they are "
        "stored. Publishing waits at it. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="bytes per second",
        ge=0,
        named_by="Pulsar",
        dynamic=True,
    )

    @property
    def topic_publish_rate(self) -> Rate:
        """The maximum rate of publishes to one topic. A policy replaces it (catalog/policy_settings.py)."""
        return Rate(self.max_publish_rate_per_topic_in_messages, self.max_publish_rate_per_topic_in_bytes)

    @property
    def broker_publish_rate(self) -> Rate:
        """The maximum rate of publishes to all topics of a broker together."""
        return Rate(self.broker_publisher_throttling_max_message_rate, self.broker_publisher_throttling_max_byte_rate)


class DispatchRateSettings(Configuration):
    dispatch_throttling_rate_per_topic_in_msg: int = setting(
        0,
        "Maximum number of messages per second that are dispatched to all subscriptions of one topic. "
        "Dispatch waits at it. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="messages per second",
        ge=-1,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_rate_per_topic_in_byte: int = setting(
        0,
        "Maximum number of bytes per second that are dispatched to all subscriptions of a topic, as they are stored. "
        "Dispatch waits at it. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="bytes per second",
        ge=-1,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_rate_per_subscription_in_msg: int = setting(
        0,
        "Maximum number of messages per second that are dispatched to one subscription. "
        "Dispatch waits at it. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="messages per second",
        ge=-1,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_rate_per_subscription_in_byte: int = setting(
        0,
        "Maximum number of bytes per second that are dispatched to one subscription, as they are stored. "
        "Dispatch waits at it. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="bytes per second",
        ge=-1,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_rate_in_msg: int = setting(
        0,
        "Maximum number of messages per second that are dispatched by one broker. "
        "Dispatch waits at it. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="messages per second",
        ge=-1,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    dispatch_throttling_rate_in_byte: int = setting(
        0,
        "Maximum number of bytes per second that are dispatched by one broker, as they are stored. "
        "Dispatch waits at it. 0 or below: no limit.",
        subject=Subject.DELIVERY,
        unit="bytes per second",
        ge=-1,
        named_by="Pulsar",
        dynamic=True,
    )
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
        messages, size_bytes = (
            self.dispatch_throttling_rate_per_topic_in_msg,
            self.dispatch_throttling_rate_per_topic_in_byte,
        )
        return DispatchRate(_rate(messages, size_bytes), self.dispatch_throttling_rate_relative_to_publish_rate)

    @property
    def subscription_dispatch_rate(self) -> DispatchRate:
        """The maximum rate of dispatches of one subscription."""
        messages, size_bytes = (
            self.dispatch_throttling_rate_per_subscription_in_msg,
            self.dispatch_throttling_rate_per_subscription_in_byte,
        )
        return DispatchRate(_rate(messages, size_bytes), self.dispatch_throttling_rate_relative_to_publish_rate)

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
