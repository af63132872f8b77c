"""When one subscription's consumers acknowledged the messages of one partition: announced, and with a receipt."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from tests.faults.checker.ids import end_of_entry, is_whole_entry

__all__ = ["NEVER", "Acknowledged", "FirstTimes"]

NEVER: Final = float("inf")


class FirstTimes:
    """The time of the first line about each message."""

    def __init__(self) -> None:
        self._slots = array("d")
        # Both ascend: since when of everything up to what.
        self._up_to: list[int] = []
        self._up_to_at: list[float] = []

    def one(self, slot: int, at: float) -> None:
        if slot >= len(self._slots):
            self._slots.extend([NEVER] * (slot + 1 - len(self._slots)))
        self._slots[slot] = min(at, self._slots[slot])

    def up_to(self, packed: int, at: float) -> None:
        last = end_of_entry(packed) if is_whole_entry(packed) else packed
        if not self._up_to or last > self._up_to[-1]:
            self._up_to.append(last)
            self._up_to_at.append(at)

    def at(self, packed: int, slot: int, entry_slot: int | None) -> float:
        """Infinity: it was not. `entry_slot`: of the id of the whole entry, if there is one."""
        slots = self._slots
        at = slots[slot] if slot < len(slots) else NEVER
        if entry_slot is not None and entry_slot < len(slots):
            at = min(at, slots[entry_slot])
        if self._up_to and packed <= self._up_to[-1]:
            at = min(at, self._up_to_at[bisect_left(self._up_to, packed)])
        return at


class Acknowledged:
    def __init__(self) -> None:
        self.announced = FirstTimes()
        self.receipts = FirstTimes()
