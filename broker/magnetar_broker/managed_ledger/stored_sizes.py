"""The bytes that a log stores after a position, and the position after which it stores at most some bytes.

A ledger's entries count as equally large, as in Pulsar: the sizes of single entries are known to bookies only. Neither
function looks at more than a few ledgers (`ListedLedger.bytes_before`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.ledger_list import ListedLedger
from magnetar_broker.position import EARLIEST, Position

__all__ = ["count_bytes_after", "find_position_before_bytes"]

_ledger_id: Final = attrgetter("ledger_id")
_bytes_up_to: Final = attrgetter("bytes_up_to")


def count_bytes_after(ledgers: Sequence[ListedLedger], position: Position) -> int:
    """Return the bytes of the entries after the position."""
    at = bisect_left(ledgers, position.ledger_id, key=_ledger_id)
    if at == len(ledgers):
        return 0
    ledger, end = ledgers[at], ledgers[-1].bytes_up_to
    if ledger.ledger_id > position.ledger_id:
        return end - ledger.bytes_before
    left = ledger.entries - min(max(0, position.entry_id + 1), ledger.entries)
    return end - ledger.bytes_up_to + (ledger.length_bytes * left // ledger.entries if left else 0)


def find_position_before_bytes(ledgers: Sequence[ListedLedger], size_bytes: int) -> Position:
    """Return the first position after which there are at most that many bytes."""
    if not ledgers:
        return EARLIEST
    end = ledgers[-1].bytes_up_to
    ledger = ledgers[min(bisect_left(ledgers, end - size_bytes, key=_bytes_up_to), len(ledgers) - 1)]
    # The entries of this ledger that may be left: the most for which `count_bytes_after` counts no more.
    capacity = size_bytes - (end - ledger.bytes_up_to)
    left = ledger.entries
    if ledger.length_bytes:
        left = min(left, ((capacity + 1) * ledger.entries - 1) // ledger.length_bytes)
    return Position(ledger.ledger_id, ledger.entries - left - 1)
