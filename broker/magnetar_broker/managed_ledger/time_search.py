"""Finds the first entry that a broker received at a certain time or later.

Broker times never fall, so this is a binary search: first among ledgers, whose list has the times of their ends, and
then in one of them. Where the entry to compare is lost, one behind it is read instead. The position found may be that
of a lost entry: readers that begin there pass over it, and miss nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.readable_entry import ReadsEntries, read_if_readable

__all__ = ["find_first_at_time"]

# The search reads each of up to 64 consecutive lost entries. Beyond that its steps grow, and the position may be early.
_EXACT: Final = 64


async def find_first_at_time(log: ReadsEntries, listed: LedgerList, time_ms: int) -> Position:
    """Return its position, or the one behind the last entry where there is none. Raises `BrokerError`."""
    ledgers = [one for one in listed.ledgers if one.entries]
    at = bisect_left(ledgers, time_ms, key=lambda one: one.last_time_ms)
    if at == len(ledgers):
        return listed.first_after(listed.last)
    ledger = ledgers[at]
    low, high = 0, ledger.entries - 1
    while low < high and ledger.first_time_ms < time_ms:
        middle = (low + high) // 2
        looked_at = middle
        while (entry := await read_if_readable(log, Position(ledger.ledger_id, looked_at))) is None:
            looked_at += max(1, (looked_at - middle) // _EXACT)
            if looked_at >= high:
                break
        if entry is None or entry.broker_time_ms >= time_ms:
            high = middle
        else:
            low = looked_at + 1
    return Position(ledger.ledger_id, low)
