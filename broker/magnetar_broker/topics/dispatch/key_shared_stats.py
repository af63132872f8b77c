"""Key_Shared: the statistics of a subscription's keys, and of its consumers', from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.key_shared import DrainingSlot, KeySharedRule
from magnetar_broker.topics.dispatch.key_shared_policy import SlotRange

__all__ = ["ConsumerKeys", "SubscriptionKeys", "describe_keys"]

_MAX_RANGES: Final = 1_000
_MAX_DRAINING: Final = 100


@dataclass(frozen=True, slots=True)
class ConsumerKeys:
    # At most 1,000.
    ranges: Sequence[SlotRange]
    # The slots that it drains, at most 100; and all of them, with their entries.
    draining: Sequence[DrainingSlot]
    draining_slots: int
    draining_entries: int
    # How many slots it has drained.
    drained_slots: int


@dataclass(frozen=True, slots=True)
class SubscriptionKeys:
    mode: str
    allow_out_of_order_delivery: bool
    consumers: Mapping[BaseConsumer, ConsumerKeys]


def describe_keys(rule: KeySharedRule) -> SubscriptionKeys:
    draining = rule.find_draining()
    return SubscriptionKeys(
        rule.policy.mode,
        rule.policy.allow_out_of_order_delivery,
        {one: _describe_consumer(rule, one, draining.get(one, ())) for one in rule.consumers},
    )


def _describe_consumer(rule: KeySharedRule, consumer: BaseConsumer, draining: Sequence[DrainingSlot]) -> ConsumerKeys:
    return ConsumerKeys(
        ranges=rule.find_ranges(consumer)[:_MAX_RANGES],
        draining=list(islice(draining, _MAX_DRAINING)),
        draining_slots=len(draining),
        draining_entries=sum(one.unacked_entries for one in draining),
        drained_slots=rule.held.count_cleared(consumer),
    )
