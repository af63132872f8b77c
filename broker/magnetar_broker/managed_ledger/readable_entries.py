"""Searches in a topic's log that pass over lost entries: the last readable entry, and the first one at a time.

Broker times never fall, so the search for a time is a binary search: first among ledgers, whose list has the times of
their ends, and then in one of them. If the entry to compare is lost, one after it is read instead. The position found
may be that of a lost entry: readers that begin there pass over it, and miss nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from magnetar_broker.errors import UnreadableEntry
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.lost_entry_facts import find_nearest_readable
from magnetar_broker.position import Position

__all__ = ["find_first_at_time", "find_last_readable", "read_if_readable", "run_search"]

F = TypeVar("F")
R = TypeVar("R")
# The search reads each of up to 64 consecutive lost entries. Beyond that its steps grow, and the position may be early.
_EXACT: Final = 64


class _ReadsEntries(Protocol):
    async def read_at(self, positions: Sequence[Position]) -> list[LogEntry | None]: ...


async def read_if_readable(log: _ReadsEntries, position: Position) -> LogEntry | None:
    """Read an entry. None: it does not exist (any more), or is lost. Raises `BrokerError` if it can't be read now."""
    try:
        (entry,) = await log.read_at([position])
    except UnreadableEntry:
        return None
    return entry


async def find_last_readable(log: _ReadsEntries, ledger_list: LedgerList) -> LogEntry | None:
    """Return the last readable entry, or None. Raises `BrokerError`.

    If the last entries are lost, the search goes backwards, ledger by ledger, by the rules of lost_entry_facts.py.
    """
    last = ledger_list.last
    position: Position | None = last if last > ledger_list.before_first else None
    while position is not None:
        if (entry := await read_if_readable(log, position)) is not None:
            return entry
        search: Generator[Position, LogEntry | None, LogEntry | None] = find_nearest_readable(position, -1)
        if (entry := await run_search(search, partial(read_if_readable, log))) is not None:
            return entry
        position = ledger_list.last_before(Position(position.ledger_id, 0))
    return None


async def run_search(search: Generator[Position, F, R], read: Callable[[Position], Awaitable[F]]) -> R:
    """Read the entries that the search yields, and return what it finds."""
    try:
        position = next(search)
        while True:
            position = search.send(await read(position))
    except StopIteration as done:
        result: R = done.value
        return result
    finally:
        search.close()


async def find_first_at_time(log: _ReadsEntries, ledger_list: LedgerList, time_ms: int) -> Position:
    """Return the position of the first entry with this broker time or a later one, or the position after the last
    entry. Raises `BrokerError`."""
    ledgers = [one for one in ledger_list.ledgers if one.entries]
    at = bisect_left(ledgers, time_ms, key=lambda one: one.last_time_ms)
    if at == len(ledgers):
        return ledger_list.first_after(ledger_list.last)
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
