"""Key_Shared: the statistics of a subscription's keys, and of its consumers', from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.key_shared import KeySharedRule
from magnetar_broker.topics.dispatch.key_shared_policy import SlotRange

__all__ = ["ConsumerKeys", "DrainingSlot", "SubscriptionKeys", "describe_keys"]

_MAX_RANGES: Final = 1_000
_MAX_DRAINING: Final = 100


@dataclass(frozen=True, slots=True)
class DrainingSlot:
    """A slot that has another consumer now, and waits until its old one has acknowledged its entries."""

    slot: int
    # Of the old consumer.
    unacked_entries: int
    # How many attempts to deliver entries this has blocked.
    blocked_attempts: int


@dataclass(slots=True)
class ConsumerKeys:
    # At most 1,000.
    ranges: Sequence[SlotRange]
    # How many slots it has drained.
    drained_slots: int
    # The slots that it drains, at most 100; and all of them, with their entries.
    draining: list[DrainingSlot] = field(default_factory=list)
    draining_slots: int = 0
    draining_entries: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionKeys:
    mode: str
    allow_out_of_order_delivery: bool
    consumers: Mapping[BaseConsumer, ConsumerKeys]


def describe_keys(rule: KeySharedRule) -> SubscriptionKeys:
    consumers = {
        one: ConsumerKeys(rule.find_ranges(one)[:_MAX_RANGES], rule.order.held.count_cleared(one))
        for one in rule.consumers
    }
    for slot, hold, blocked_attempts in rule.order.held.draining():
        keys = consumers[hold.consumer]
        keys.draining_slots += 1
        keys.draining_entries += hold.entries
        if keys.draining_slots <= _MAX_DRAINING:
            keys.draining.append(DrainingSlot(slot, hold.entries, blocked_attempts))
    return SubscriptionKeys(rule.policy.mode, rule.policy.allow_out_of_order_delivery, consumers)
