"""Reads entries of a topic's log that are not cached from their ledgers.

A single read is passed to the bookies as it is. A read that continues where an earlier one ended belongs to a consumer
that works through a backlog: from then on the following entries are fetched ahead (read_ahead.py), up to the last entry
that is readable when that begins. Several consumers may do so at once, at different positions.

A few ledger readers per topic are cached. The list of ledgers limits how far each may read, since the bookies learn the
LAC of an open ledger with a delay.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from magnetar_bookie.errors import LedgerDeleted, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.ledger.ledger_reader import LedgerReader
from magnetar_broker.managed_ledger.ledger_list import ListedLedger
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.read_ahead import ReadAhead, SequentialRead, decode_entries
from magnetar_broker.position import Position

__all__ = ["UncachedEntryReader"]

_READERS: Final = 8
_ENDS: Final = 64
# Requested entries are read together if at most this many bytes of others are between them.
_GAP_BYTES: Final = 16_384


class UncachedEntryReader:
    __slots__ = ("_ahead", "_client", "_ends", "_readers")

    def __init__(self, client: LedgerClient, ahead: ReadAhead) -> None:
        self._client = client
        self._ahead = ahead
        # By ledger, the least recently used first.
        self._readers: dict[int, LedgerReader] = {}
        # The positions at which recent reads ended, the oldest first.
        self._ends: dict[Position, None] = {}

    async def read(
        self, start: Position, listed: ListedLedger, metadata: LedgerMetadata | None, max_entries: int, max_bytes: int
    ) -> list[LogEntry]:
        """Read at least one entry of this ledger, from `start` on. Raises `LedgerError`, `MetadataError`,
        `BrokerError`.

        `metadata` are those of the current ledger, as its writer has them; None: it is another one.
        """
        ahead = self._ahead.take(self, start)
        if ahead is None:
            last = min(listed.entries, start.entry_id + max_entries) - 1
            reader = await self._reader(listed, metadata)
            if start not in self._ends:
                entries = decode_entries(start, await reader.read(start.entry_id, last, max_bytes))
                self._note_end(Position(start.ledger_id, start.entry_id + len(entries)))
                return entries
            del self._ends[start]
            batches = reader.batches(start.entry_id, listed.entries - 1)
            ahead = SequentialRead(start, batches, self._spawn)
        try:
            entries = await ahead.read(max_entries, max_bytes)
        except BaseException:
            ahead.close()
            raise
        if entries:
            self._ahead.put_back(ahead, self)
            return entries
        # It has read all entries that were readable when it began.
        self._note_end(start)
        return await self.read(start, listed, metadata, max_entries, max_bytes)

    def _note_end(self, position: Position) -> None:
        self._ends.pop(position, None)
        self._ends[position] = None
        if len(self._ends) > _ENDS:
            del self._ends[next(iter(self._ends))]

    async def read_some(
        self,
        listed: ListedLedger,
        metadata: LedgerMetadata | None,
        entry_ids: Sequence[int],
        max_bytes: int | None = None,
    ) -> dict[Position, LogEntry]:
        """Read these entries of the ledger, which are in order. With `max_bytes`: the first of them, at least one."""
        reader = await self._reader(listed, metadata)
        gap = max(1, _GAP_BYTES * listed.entries // max(1, listed.length_bytes))
        found: dict[Position, LogEntry] = {}
        for group in _group(entry_ids, gap):
            try:
                stored = dict(enumerate(await reader.read(group[0], group[-1], max_bytes), group[0]))
            except Unreadable as error:
                if error.entry_id in group:
                    raise
                # That entry was not requested: read the requested ones alone.
                stored = {one: (await reader.read(one, one))[0] for one in group}
            for entry_id in group:
                if entry_id not in stored:
                    return found
                position = Position(listed.ledger_id, entry_id)
                found[position] = decode_entries(position, [stored[entry_id]])[0]
            if max_bytes is not None:
                max_bytes -= sum(map(len, stored.values()))
                if max_bytes <= 0:
                    return found
        return found

    async def read_record(self, listed: ListedLedger, metadata: LedgerMetadata | None, entry_id: int) -> bytes:
        """Read the record of an entry."""
        return await (await self._reader(listed, metadata)).read_record(entry_id)

    async def _reader(self, listed: ListedLedger, metadata: LedgerMetadata | None) -> LedgerReader:
        ledger_id = listed.ledger_id
        reader = self._readers.pop(ledger_id, None)
        if reader is None:
            if metadata is None:
                metadata = await self._client.ledgers.read_metadata(ledger_id)
                if metadata.state is LedgerState.TOMBSTONE:
                    raise LedgerDeleted(f"ledger {ledger_id} was deleted")
            reader = LedgerReader(self._client, ledger_id, metadata)
        self._readers[ledger_id] = reader
        if len(self._readers) > _READERS:
            del self._readers[next(iter(self._readers))]
        reader.raise_last_add_confirmed(listed.entries - 1)
        return reader

    def forget_up_to(self, position: Position) -> None:
        """Close the readers of ledgers up to this position, which were deleted."""
        self._ahead.close_reads(self, position)
        for ledger_id in [one for one in self._readers if one <= position.ledger_id]:
            del self._readers[ledger_id]

    def close(self) -> None:
        self._ahead.close_reads(self)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        bookies = self._client.bookies
        if bookies.is_closed:
            work.close()  # everything in flight ended with the client
        else:
            bookies.spawn(work)


def _group(entry_ids: Sequence[int], gap: int) -> list[list[int]]:
    """Group entries that are read together: the next one is at most `gap` further."""
    groups = [[entry_ids[0]]]
    for entry_id in entry_ids[1:]:
        if entry_id <= groups[-1][-1] + gap:
            groups[-1].append(entry_id)
        else:
            groups.append([entry_id])
    return groups
