"""Describe the keys of Key_Shared subscriptions and of their consumers in the responses of admin calls."""

from __future__ import annotations

from typing import Final

from magnetar_broker.topics.dispatch.key_shared_stats import ConsumerKeys, SubscriptionKeys
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import SlotRange

__all__ = ["DRAINING", "add_keys", "describe_consumer_keys", "describe_subscription_keys"]

# Sums over consumers, and over partitions.
DRAINING: Final = ("draining_slots", "draining_entries", "drained_slots")


def describe_subscription_keys(shown: pb.SubscriptionStats, keys: SubscriptionKeys) -> None:
    shown.key_shared_mode = keys.mode
    shown.allow_out_of_order_delivery = keys.allow_out_of_order_delivery
    for name in DRAINING:
        setattr(shown, name, sum(getattr(one, name) for one in keys.consumers.values()))


def describe_consumer_keys(shown: pb.ConsumerStats, keys: ConsumerKeys) -> None:
    shown.key_ranges.extend(SlotRange(first=first, last=last) for first, last in keys.ranges)
    for one in keys.draining:
        shown.draining.add(slot=one.slot, entries=one.unacked_entries, blocked=one.blocked_attempts)
    for name in DRAINING:
        setattr(shown, name, getattr(keys, name))


def add_keys(total: pb.SubscriptionStats, one: pb.SubscriptionStats) -> None:
    """Add the statistics of a partition."""
    total.key_shared_mode = total.key_shared_mode or one.key_shared_mode
    total.allow_out_of_order_delivery |= one.allow_out_of_order_delivery
    for name in ("mixed_batches", *DRAINING):
        setattr(total, name, getattr(total, name) + getattr(one, name))
