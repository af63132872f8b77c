"""What of one place one subscription's consumers acknowledged: announced, and with a receipt since when.

The acknowledgement of a whole entry (batch index -1) is one of all messages in it; one up to an id is one of all that
is not above it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from tests.faults.checker.ids import end_of_entry, is_whole_entry

__all__ = ["Acknowledged"]

_NEVER: Final = float("inf")


class Acknowledged:
    def __init__(self) -> None:
        self._announced = bytearray()
        self._announced_up_to = -1
        self._receipts = array("d")
        # Both ascend: from when on everything up to what has a receipt.
        self._up_to: list[int] = []
        self._up_to_at: list[float] = []

    def announce(self, slot: int) -> None:
        if slot >= len(self._announced):
            self._announced.extend(bytes(slot + 1 - len(self._announced)))
        self._announced[slot] = 1

    def announce_up_to(self, packed: int) -> None:
        self._announced_up_to = max(self._announced_up_to, _last_of(packed))

    def receipt(self, slot: int, at: float) -> None:
        if slot >= len(self._receipts):
            self._receipts.extend([_NEVER] * (slot + 1 - len(self._receipts)))
        self._receipts[slot] = min(at, self._receipts[slot])

    def receipt_up_to(self, packed: int, at: float) -> None:
        last = _last_of(packed)
        if not self._up_to or last > self._up_to[-1]:
            self._up_to.append(last)
            self._up_to_at.append(at)

    def is_announced(self, packed: int, slot: int, entry_slot: int | None) -> bool:
        """`entry_slot`: of the id of the whole entry, if there is one."""
        announced = self._announced
        return (
            packed <= self._announced_up_to
            or (slot < len(announced) and announced[slot] == 1)
            or (entry_slot is not None and entry_slot < len(announced) and announced[entry_slot] == 1)
        )

    def receipt_at(self, packed: int, slot: int, entry_slot: int | None) -> float:
        """Since when it has a receipt; infinity: it has none."""
        receipts = self._receipts
        at = receipts[slot] if slot < len(receipts) else _NEVER
        if entry_slot is not None and entry_slot < len(receipts):
            at = min(at, receipts[entry_slot])
        if self._up_to and packed <= self._up_to[-1]:
            at = min(at, self._up_to_at[bisect_left(self._up_to, packed)])
        return at


def _last_of(packed: int) -> int:
    return end_of_entry(packed) if is_whole_entry(packed) else packed
