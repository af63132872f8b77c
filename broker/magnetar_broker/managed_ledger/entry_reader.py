"""Reads a log's entries from its ledgers: what is not in the cache any more.

A read of one place is asked of the bookies as it is. One that goes on where the last one ended is of somebody who works
through a backlog: from then on what follows is fetched ahead (read_ahead.py), up to what may be read when that begins.
Several may do so at once, at different places.

Readers of ledgers are kept, a few per topic. How far each may read the list of ledgers knows: bookies learn of the
last entries of a ledger that is written with a delay.
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
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.read_ahead import ReadAhead, SequentialRead, decoded

__all__ = ["EntryReader"]

_READERS: Final = 8
_ENDS: Final = 64
# Entries that nobody asked for are read, too, where that saves a question and they have no more than this.
_GAP_BYTES: Final = 16_384


class EntryReader:
    __slots__ = ("_ahead", "_client", "_ends", "_readers")

    def __init__(self, client: LedgerClient, ahead: ReadAhead) -> None:
        self._client = client
        self._ahead = ahead
        # Used least lately first.
        self._readers: dict[int, LedgerReader] = {}
        # Where reads ended lately, the oldest first: one that begins there goes on.
        self._ends: dict[Position, None] = {}

    async def read(
        self, start: Position, listed: ListedLedger, metadata: LedgerMetadata | None, max_entries: int, max_bytes: int
    ) -> list[LogEntry]:
        """Entries of this one ledger, from `start`, at least one. Raises `LedgerError`, `MetadataError`, `BrokerError`.

        `metadata` are those of the ledger that is written: its writer knows them.
        """
        ahead = self._ahead.take(self, start)
        if ahead is None:
            last = min(listed.entries, start.entry_id + max_entries) - 1
            reader = await self._reader(listed, metadata)
            if start not in self._ends:
                entries = decoded(start, await reader.read(start.entry_id, last, max_bytes))
                self._ended_at(Position(start.ledger_id, start.entry_id + len(entries)))
                return entries
            del self._ends[start]
            batches = reader.batches(start.entry_id, listed.entries - 1)
            ahead = SequentialRead(start, batches, self._spawn)
        try:
            entries = await ahead.read(max_entries, max_bytes)
        except BaseException:
            ahead.let_go()
            raise
        if entries:
            self._ahead.keep(ahead, self)
            return entries
        # It has read all that there was when it began.
        self._ended_at(start)
        return await self.read(start, listed, metadata, max_entries, max_bytes)

    def _ended_at(self, position: Position) -> None:
        self._ends.pop(position, None)
        self._ends[position] = None
        if len(self._ends) > _ENDS:
            del self._ends[next(iter(self._ends))]

    async def read_some(
        self, listed: ListedLedger, metadata: LedgerMetadata | None, entry_ids: Sequence[int]
    ) -> dict[Position, LogEntry]:
        """These entries of the ledger, named in order."""
        reader = await self._reader(listed, metadata)
        gap = max(1, _GAP_BYTES * listed.entries // max(1, listed.length_bytes))
        found: dict[Position, LogEntry] = {}
        for group in _groups(entry_ids, gap):
            try:
                stored = dict(enumerate(await reader.read(group[0], group[-1]), group[0]))
            except Unreadable as error:
                if error.entry_id in group:
                    raise
                # One that nobody asked for: those that somebody did are read alone.
                stored = {one: (await reader.read(one, one))[0] for one in group}
            for entry_id in group:
                position = Position(listed.ledger_id, entry_id)
                found[position] = decoded(position, [stored[entry_id]])[0]
        return found

    async def record(self, listed: ListedLedger, metadata: LedgerMetadata | None, entry_id: int) -> bytes:
        """The entry as the ledger has it, its record's header in front."""
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
        """Ledgers were deleted."""
        self._ahead.let_go(self, position)
        for ledger_id in [one for one in self._readers if one <= position.ledger_id]:
            del self._readers[ledger_id]

    def close(self) -> None:
        self._ahead.let_go(self)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        bookies = self._client.bookies
        if bookies.is_closed:
            work.close()  # what was on its way ended with the client
        else:
            bookies.spawn(work)


def _groups(entry_ids: Sequence[int], gap: int) -> list[list[int]]:
    """Those that are read in one go: the next one is no further than `gap`."""
    groups = [[entry_ids[0]]]
    for entry_id in entry_ids[1:]:
        if entry_id <= groups[-1][-1] + gap:
            groups[-1].append(entry_id)
        else:
            groups.append([entry_id])
    return groups
