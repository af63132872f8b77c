"""Count what a subscription has not acknowledged, by reading it: `analyze_backlog`.

Statistics count entries, and messages up to the end of the topic. The messages of batches, and those of batches that
are acknowledged in part, are known only to those who read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.errors import UnreadableEntry
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_protos.admin_pb2 import AnalyzeBacklogAnswer
from magnetar_protos.ledger_pb2 import EntryPosition

__all__ = ["analyze_backlog"]

_READ_ENTRIES: Final = 100
_READ_BYTES: Final = 4_194_304


async def analyze_backlog(
    log: Log, cursor: Cursor, after: Position, max_entries: int, is_late: Callable[[], bool]
) -> AnalyzeBacklogAnswer:
    """Count entries and messages after a position that the cursor has not acknowledged. It stops, and the answer is
    marked as aborted, when it has read `max_entries`, or `is_late`. Raises `BrokerError`."""
    answer = AnalyzeBacklogAnswer()
    left = max_entries
    start = _find_open(log, cursor, after)
    while start <= log.last:
        if left <= 0 or is_late():
            answer.aborted = True
            break
        try:
            read = await log.read(start, min(left, _READ_ENTRIES), _READ_BYTES)
        except UnreadableEntry as error:
            answer.lost_entries += 1
            left -= 1
            start = _find_open(log, cursor, error.position)
            continue
        if not read:
            break
        left -= len(read)
        for entry in read:
            if cursor.is_acknowledged(entry.position):
                continue
            position = EntryPosition(ledger_id=entry.position.ledger_id, entry_id=entry.position.entry_id)
            if not answer.entries:
                answer.first.CopyFrom(position)
            answer.last.CopyFrom(position)
            answer.entries += 1
            answer.messages += entry.messages - cursor.get_acknowledged_messages(entry.position).bit_count()
        start = _find_open(log, cursor, read[-1].position)
        await asyncio.sleep(0)  # reads from the cache do not wait
    return answer


def _find_open(log: Log, cursor: Cursor, after: Position) -> Position:
    """Return the first entry after the position that is not acknowledged, or the position of the next entry."""
    position = log.first_after(after)
    while position <= log.last and cursor.is_acknowledged(position):
        position = log.first_after(cursor.find_unacknowledged_after(position).previous)
    return position
