"""What is checked when a consumer subscribes: its request, and the limits of a topic's and a subscription's consumers.

The limits are the policies that apply to the topic, or the brokers' settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.cursors.subscription_limits import check_properties, check_subscription_name
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.system_topics import is_events_topic, is_system_topic
from magnetar_broker.topics.dispatch.key_shared_policy import read_key_shared_options
from magnetar_broker.topics.dispatch.subscription_types import DISPATCH_RULES, name_type
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer, SubscriptionType
from magnetar_wire.process.addresses import get_host
from magnetar_wire.topic_name import TopicName

__all__ = ["check_consumers", "check_joining", "check_subscribe_request", "check_type"]

_MAX_NAME_BYTES: Final = 768


def check_subscribe_request(opened: OpenConsumer) -> None:
    """Refuse a request that no subscription can fulfil. Raises `BrokerError`."""
    check_subscription_name(opened.subscription)
    if opened.type == SubscriptionType.KEY_SHARED:
        read_key_shared_options(opened.key_shared)
    if opened.type not in DISPATCH_RULES:
        *others, last = map(name_type, DISPATCH_RULES)
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"unknown subscription type {opened.type}: use {', '.join(others)} or {last}"
        )
    if opened.read_compacted:
        raise BrokerError(ErrorCode.UNSUPPORTED, "compacted topics are not supported yet: read without read_compacted")
    size = len(opened.consumer_name.encode())
    if size > _MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a consumer's name has {size} bytes, above the limit of {_MAX_NAME_BYTES}",
        )
    check_properties("consumer", opened.properties)
    check_properties("subscription", opened.subscription_properties)


def check_type(topic: TopicName, settings: SubscriptionSettings, type_: SubscriptionType) -> None:
    """Raise `BrokerError` if consumers must not use this type of subscriptions."""
    enabled = settings.subscription_types_enabled
    if is_events_topic(topic) or SubscriptionType.Name(type_) in [one.upper() for one in enabled]:
        return
    raise BrokerError(
        ErrorCode.NOT_ALLOWED,
        f"topic {topic} has no {name_type(type_)} subscriptions: use "
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


def check_joining(
    topic: TopicName,
    subscription: str,
    settings: SubscriptionSettings,
    *,
    requested: SubscriptionType,
    present: SubscriptionType,
    consumers: int,
    exclusive_consumer: str,
) -> None:
    """Raise `BrokerError` if the connected consumers of a subscription exclude one more. `requested` is the type of the
    new one, and `present` that of the others. `exclusive_consumer` describes the one that excludes all others; empty:
    there is none."""
    if not consumers:
        return
    if requested != present:
        wanted, has = SubscriptionType.Name(requested), SubscriptionType.Name(present)
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"subscription {subscription} has {consumers} consumer(s) of type {has}, so one of type {wanted} can't "
            f"join: use {has}, or another subscription, or wait until they have disconnected",
        )
    if exclusive_consumer:
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"Exclusive consumer is already connected: {exclusive_consumer} uses subscription {subscription}; use "
            "Failover, Shared or Key_Shared to have more than one",
        )
    limit = settings.max_consumers_per_subscription
    if 0 < limit <= consumers and not is_system_topic(topic):
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"subscription {subscription} has as many consumers as max_consumers_per_subscription allows ({limit}): "
            "close some, or raise the policy or setting",
        )
