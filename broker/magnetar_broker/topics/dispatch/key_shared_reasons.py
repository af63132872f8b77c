"""Why entries of a Key_Shared subscription wait, for statistics and explanations only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.held_keys import HeldKeys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingKeys
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["find_waiting_keys"]

# Slots that are looked at: statistics take a bounded time, and count fewer then.
_MAX_SLOTS: Final = 1_000


def find_waiting_keys(
    waiting: WaitingKeys,
    held: HeldKeys,
    select: Callable[[int], BaseConsumer | None],
    *,
    some_have_capacity: bool = False,
) -> Iterator[DeliveryReason]:
    """Yield why keys wait that a consumer with capacity could not get, or whose consumer has none while others have
    some. `select` returns a slot's consumer."""
    held_entries = held_slots = free_entries = 0
    first_held = first_free = -1
    owned: Counter[BaseConsumer] = Counter()
    for slot in islice(waiting.slots(), _MAX_SLOTS):
        hold, selected = held.find(slot), select(slot)
        if hold is not None and hold.consumer is not selected:
            if waiting.first(slot) in hold.positions or held.has_incomplete_message(slot):
                owned[hold.consumer] += waiting.count(slot)  # it goes to the old consumer
            else:
                held_entries += waiting.count(slot)
                held_slots += 1
                first_held = slot if first_held < 0 else first_held
        elif selected is None:
            free_entries += waiting.count(slot)
            first_free = slot if first_free < 0 else first_free
        else:
            owned[selected] += waiting.count(slot)
    if held_slots and (hold := held.find(first_held)) is not None:
        yield delivery_reasons.KEY_HELD(
            entries=held_entries,
            slots=held_slots,
            slot=first_held,
            holder=hold.consumer.name,
            unacked=len(hold.positions),
        )
    if free_entries:
        yield delivery_reasons.SLOT_WITHOUT_CONSUMER(entries=free_entries, slot=first_free)
    if some_have_capacity:
        yield from _find_busy(owned)


def _find_busy(owned: Counter[BaseConsumer]) -> Iterator[DeliveryReason]:
    """Yield what holds consumers back for which entries wait. The cause is that of the one with the most entries."""
    shortages = [
        (consumer, entries, shortage)
        for consumer, entries in owned.most_common()
        if (shortage := consumer.find_shortage()) is not None
    ]
    if shortages:
        consumer, _, shortage = shortages[0]
        total = sum(entries for _, entries, _ in shortages)
        yield delivery_reasons.KEYS_WAIT(entries=total, who=f"consumer {consumer.name}", cause=shortage.text)
