"""Finds the first entry that a broker took at a certain time or later: broker times never fall, so it is searched for
by halves, among ledgers first, which know the times of their ends, and then in one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from magnetar_broker.core.ledger_list import LedgerList
from magnetar_broker.core.log_entry import LogEntry
from magnetar_broker.core.position import Position

__all__ = ["first_at_time"]


class _Entries(Protocol):
    async def read_at(self, positions: Sequence[Position]) -> list[LogEntry | None]: ...


async def first_at_time(log: _Entries, listed: LedgerList, time_ms: int) -> Position:
    """Behind the last entry where there is none. Raises `BrokerError`."""
    ledgers = [one for one in listed.ledgers if one.entries]
    at = bisect_left(ledgers, time_ms, key=lambda one: one.last_time_ms)
    if at == len(ledgers):
        return listed.first_after(listed.last)
    ledger = ledgers[at]
    low, high = 0, ledger.entries - 1
    while low < high and ledger.first_time_ms < time_ms:
        middle = (low + high) // 2
        (entry,) = await log.read_at([Position(ledger.ledger_id, middle)])
        if entry is not None and entry.broker_time_ms >= time_ms:
            high = middle
        else:
            low = middle + 1
    return Position(ledger.ledger_id, low)
