"""Why entries of a Key_Shared subscription wait, for statistics and explanations only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Final

from magnetar_broker.topics.dispatch.held_keys import HeldKeys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingKeys
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["find_waiting_keys"]

# Slots that are looked at: statistics take a bounded time, and count fewer then.
_MAX_SLOTS: Final = 1_000


def find_waiting_keys(
    waiting: WaitingKeys, held: HeldKeys, *, some_have_capacity: bool = False
) -> Iterator[DeliveryReason]:
    """Yield why keys wait that a consumer with capacity could not get, or whose consumer has none while others have
    some."""
    held_entries = held_slots = free_entries = 0
    first_held = first_free = -1
    for slot, positions in islice(waiting.blocked(), _MAX_SLOTS):
        if held.find(slot) is None:
            free_entries += len(positions)
            first_free = slot if first_free < 0 else first_free
        else:
            held_entries += len(positions)
            held_slots += 1
            first_held = slot if first_held < 0 else first_held
    if held_slots and (hold := held.find(first_held)) is not None:
        yield delivery_reasons.KEY_HELD(
            entries=held_entries,
            slots=held_slots,
            slot=first_held,
            holder=hold.consumer.name,
            unacked=hold.entries,
        )
    if free_entries:
        yield delivery_reasons.SLOT_WITHOUT_CONSUMER(entries=free_entries, slot=first_free)
    if some_have_capacity:
        yield from _find_busy(waiting)


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
