"""Reads the ids of the entries behind a snapshot from the log. deduplication.py has the theory.

An entry that is lost, or damaged, is skipped: its ids are unknown, but no consumer gets it either, so nothing is
delivered twice. If entries can't be read at present, the replay goes on after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from magnetar_broker.errors import BrokerError, TopicUnloaded, UnreadableEntry
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.deduplication.rules import get_entry_ids
from magnetar_broker.topics.entry_check import find_last_sequence_id
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_wire.entry import decode_entry_metadata
from magnetar_wire.errors import WireError

__all__ = ["FIRST_PAUSE_S", "find_last_entries", "replay"]

_log = logging.getLogger(__name__)
FIRST_PAUSE_S: Final = 0.2
_READ_ENTRIES: Final = 100
_READ_BYTES: Final = 1_048_576
# Up to 1,000 consecutive lost entries are each tried, to find the first readable one behind them.
_EXACT: Final = 1_000
# Maximum number of entries that are replayed without a snapshot.
_MAX_REPLAYED: Final = 100_000


def find_last_entries(log: Log) -> Position:
    """Return a position with at most `_MAX_REPLAYED` entries behind it."""
    first, last = log.before_first, log.last
    if log.entries_between(first, last) <= _MAX_REPLAYED:
        return first
    return Position(last.ledger_id, max(-1, last.entry_id - _MAX_REPLAYED))


async def replay(
    log: Log,
    position: Position,
    names: ProducerNames[Any],
    pause: Callable[[BrokerError, float], Awaitable[float]],
) -> tuple[int, int]:
    """Take the ids of the entries after the position. Return the number of entries, and their size in bytes.

    `pause` waits after an error for some seconds, and returns how long to wait next. Raises `TopicUnloaded`.
    """
    count = size_bytes = skipped = run = 0
    pause_s = FIRST_PAUSE_S
    while position < log.last:
        try:
            entries = await log.read(log.first_after(position), _READ_ENTRIES, _READ_BYTES)
        except UnreadableEntry as error:
            skipped, run = skipped + 1, run + 1
            position = Position(error.position.ledger_id, error.position.entry_id + run // _EXACT)
            continue
        except TopicUnloaded:
            raise
        except BrokerError as error:
            pause_s = await pause(error, pause_s)
            continue
        if not entries:
            break
        for entry in entries:
            _take_ids(entry, names)
            size_bytes += len(entry.stored)
        count, position, run = count + len(entries), entries[-1].position, 0
        await asyncio.sleep(0)
    if skipped:
        _log.warning("%s: the ids of lost entries are unknown: %d were skipped", log.name, skipped)
    return count, size_bytes


def _take_ids(entry: LogEntry, names: ProducerNames[Any]) -> None:
    try:
        _, metadata = decode_entry_metadata(entry.stored)
    except WireError:
        return  # no consumer gets it
    name = metadata.producer_name
    names.replay(name, find_last_sequence_id(metadata), get_entry_ids(metadata), entry.broker_time_ms)
