"""Why entries of a Key_Shared subscription wait, for statistics and explanations only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final

from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.held_keys import HeldKeys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingKeys
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["find_consumers_of_held_keys", "find_waiting_keys"]

# Slots that are looked at: statistics take a bounded time, and count fewer then.
_MAX_SLOTS: Final = 1_000


def find_waiting_keys(
    waiting: WaitingKeys, held: HeldKeys, *, some_have_capacity: bool = False
) -> Iterator[DeliveryReason]:
    """Yield why keys wait that a consumer with capacity could not get, or whose consumer has none while others have
    some."""
    of_held, of_free = _BlockedEntries(), _BlockedEntries()
    for slot, positions in islice(waiting.blocked(), _MAX_SLOTS):
        (of_held if held.find(slot) is not None else of_free).add(slot, len(positions))
    if of_held.slots:
        yield _describe_held(of_held, held)
    if of_free.slots:
        yield delivery_reasons.SLOT_WITHOUT_CONSUMER(entries=of_free.entries, slot=of_free.first_slot)
    if some_have_capacity:
        yield from _find_busy(waiting)


def find_consumers_of_held_keys(
    waiting: WaitingKeys, held: HeldKeys, select: Callable[[int], BaseConsumer | None]
) -> dict[BaseConsumer, DeliveryReason]:
    """Return the consumers that get keys only when other consumers have acknowledged what they got of them. `select`
    returns a slot's consumer."""
    found: dict[BaseConsumer, _BlockedEntries] = {}
    for slot, positions in islice(waiting.blocked(), _MAX_SLOTS):
        if held.find(slot) is not None and (consumer := select(slot)) is not None:
            found.setdefault(consumer, _BlockedEntries()).add(slot, len(positions))
    return {consumer: _describe_held(blocked, held) for consumer, blocked in found.items()}


@dataclass(slots=True)
class _BlockedEntries:
    """Entries that no consumer may get now, and their slots."""

    entries: int = 0
    slots: int = 0
    first_slot: int = -1

    def add(self, slot: int, entries: int) -> None:
        if not self.slots:
            self.first_slot = slot
        self.slots += 1
        self.entries += entries


def _describe_held(blocked: _BlockedEntries, held: HeldKeys) -> DeliveryReason:
    hold = held.find(blocked.first_slot)
    assert hold is not None, "nobody holds the slot"
    return delivery_reasons.KEY_HELD(
        entries=blocked.entries,
        slots=blocked.slots,
        slot=blocked.first_slot,
        holder=hold.consumer.name,
        unacked=hold.entries,
    )


def _find_busy(waiting: WaitingKeys) -> Iterator[DeliveryReason]:
    """Yield what holds consumers back for which entries wait. The cause is that of the one with the most entries."""
    shortages = [
        (consumer, entries, shortage)
        for consumer, entries in sorted(waiting.queues(), key=itemgetter(1), reverse=True)
        if (shortage := consumer.find_shortage()) is not None
    ]
    if shortages:
        consumer, _, shortage = shortages[0]
        total = sum(entries for _, entries, _ in shortages)
        yield delivery_reasons.KEYS_WAIT(entries=total, who=f"consumer {consumer.name}", cause=shortage.text)
