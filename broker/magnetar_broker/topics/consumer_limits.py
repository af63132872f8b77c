"""Limits of a topic's consumers, which are checked when one joins: by policies, or by the brokers' settings."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.system_topics import is_events_topic, is_system_topic
from magnetar_protos.broker_pb2 import ErrorCode, SubscriptionType
from magnetar_wire.process.addresses import get_host
from magnetar_wire.topic_name import TopicName

__all__ = ["check_consumers", "check_type"]


def check_type(topic: TopicName, settings: SubscriptionSettings, type_: SubscriptionType) -> None:
    """Raise `BrokerError` if consumers must not use this type of subscriptions."""
    enabled = settings.subscription_types_enabled
    if is_events_topic(topic) or SubscriptionType.Name(type_) in [one.upper() for one in enabled]:
        return
    raise BrokerError(
        ErrorCode.NOT_ALLOWED,
        f"topic {topic} has no {SubscriptionType.Name(type_).capitalize()} subscriptions: use "
        f"{' or '.join(enabled)} (subscription_types_enabled, policy or setting)",
    )


def check_consumers(topic: TopicName, settings: SubscriptionSettings, connected: Sequence[str], address: str) -> None:
    """Raise `BrokerError` if the topic has as many consumers as allowed. `connected`: their addresses; `address`: that
    of a new one."""
    per_topic, per_host = settings.max_consumers_per_topic, settings.max_same_address_consumers_per_topic
    if is_system_topic(topic):
        return
    if 0 < per_topic <= len(connected):
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"topic {topic} has as many consumers as max_consumers_per_topic allows ({per_topic}): close some, or "
            "raise the policy or setting",
        )
    host = get_host(address)
    if 0 < per_host <= sum(get_host(one) == host for one in connected):
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"topic {topic} has as many consumers from {host} as max_same_address_consumers_per_topic allows "
            f"({per_host}): close some, or raise the setting",
        )
