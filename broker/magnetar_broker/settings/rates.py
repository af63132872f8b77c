"""Settings of the rates of publishing. Names are Pulsar's."""

from __future__ import annotations

from typing import NamedTuple

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["PublishRateSettings", "Rate"]


class Rate(NamedTuple):
    """A maximum rate. 0: no limit."""

    # Per period.
    messages: float = 0
    bytes: float = 0
    period_seconds: float = 1


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
