"""Reads the entries of a slice in order and without gaps, before they are requested.

A piece is read in ranges of a few MiB, several at a time: while rows are made of one, bookies read the next ones and
the network transfers them. The number of entries of a range is estimated from the piece's size. If entries are larger
than the average, an answer ends before its range does, and the rest of the range is requested before the ranges after
it are awaited. So at most `_AHEAD` + 1 answers are in memory, whatever the size of the entries.

    ranges     [0 … 39] [40 … 79] [80 … 119] [120 … 159]        four are in flight
    the first answer ends after entry 25:
               [26 … 39] [40 … 79] [80 … 119] [120 … 159]       its entries are returned, and the rest is requested

**An entry that no replica returned** is located once again by a new plan of its ledger (`LocateEntries`), since its
replicas may have moved. If all of these bookies answer that they lack it, it is lost: `LostEntries`, in its position in
the order. An answer that is missing proves nothing: a bookie can't be reached, or is overloaded. Nor does a bookie that
lacks an entry of the last fragment of an open ledger, since a copy may be in flight to it. There, only damage on all
replicas proves a loss, as for all readers of ledgers (magnetar_bookie/read/entry_reader.py). The plan that was made
before the read has whether the ledger is open. Such entries are retried for `reconnect_s`. Then the task fails with
`NotReadNow`, and Spark retries it.

**Without a new plan** the request goes to the old bookies. If the topic was deleted, its ledgers may still exist,
since leases retain them for as long as they last. If the topic's log continues without the ledger, the ledger is
deleted: an entry that no bookie returned for a while is lost, even if a bookie could not be reached.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from magnetar_bookie.read.entry_reader import EntriesNotRead, EntryReader
from magnetar_bookie.read.record import RECORD_HEADER_BYTES
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_spark.errors import NotReadNow
from magnetar_spark.log_slice import DEFAULT_RECONNECT_S, SlicePiece
from magnetar_wire.clock import Clock

__all__ = [
    "Deletion",
    "EntryLocations",
    "EntryPrefetcher",
    "EntryRun",
    "LocateEntries",
    "LostEntries",
    "ReadFromBookie",
    "estimate_range_entries",
]

# At most half a second of work for a task, and a few hundred entries of the usual size. Larger answers need less CPU
# for the same bytes: for 330 MB in answers of 1 MiB 0.65 s of a bookie and 0.65 s of the reader, of 4 MiB 0.42 and 0.55
# s.
_ANSWER_BYTES: Final = 4 << 20
# The number of ranges that are read ahead.
_AHEAD: Final = 3
_MAX_RANGE_ENTRIES: Final = 10_000
_TIMEOUT_S: Final = 30.0
# The next replica gets the request if one has not answered for this long.
_SPECULATIVE_TIMEOUT_S: Final = 2.0
# How long bookies that can't be reached are retried for a ledger that is not in the topic's log any more.
_DELETED_LEDGER_RETRY_S: Final = 30.0
_MIN_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 2.0


class ReadFromBookie(Protocol):
    async def __call__(self, address: str, request: ReadRequest, timeout_s: float) -> ReadAnswer: ...


@dataclass(frozen=True, slots=True)
class EntryLocations:
    """The bookies that store a ledger's entries."""

    striping: Striping
    fragments: Sequence[Fragment]
    # Addresses by the bookies' ids.
    bookies: dict[str, str]
    # Entries before this one are deleted.
    first_entry_id: int = 0
    # The last of the fragments is the last one of a ledger that is not closed.
    open: bool = False

    def is_final(self, entry_id: int) -> bool:
        """Whether no bookie can get the entry any more from the ledger's writer or a recovery."""
        return not self.open or entry_id < self.fragments[-1].first_entry_id


class Deletion(enum.Enum):
    """Why there is no new plan of a ledger."""

    # The topic's log continues without it.
    LEDGER = "the ledger"
    # Its ledgers exist for as long as its leases last.
    TOPIC = "the topic"


class LocateEntries(Protocol):
    async def __call__(self, ledger_id: int, first: int, last: int) -> EntryLocations | Deletion:
        """Return where these entries are stored now. Raises `NotReadNow` if no broker answers."""


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Consecutive entries of a piece, as they are stored."""

    piece: SlicePiece
    first_entry_id: int
    entries: list[bytes]


@dataclass(frozen=True, slots=True)
class LostEntries:
    piece: SlicePiece
    first_entry_id: int
    last_entry_id: int
    why: str


@dataclass(slots=True)
class _Range:
    """A range that is being read."""

    ledger: _LedgerPiece
    first: int
    last: int
    reading: asyncio.Task[EntryRun | LostEntries]


class EntryPrefetcher:
    """Reads consecutive pieces. Belongs to one loop; `close` cancels all requests in flight."""

    def __init__(
        self,
        pieces: Sequence[SlicePiece],
        bookies: dict[str, str],
        read: ReadFromBookie,
        locate: LocateEntries,
        clock: Clock,
        reconnect_s: float = DEFAULT_RECONNECT_S,
    ) -> None:
        self._ledgers = [_LedgerPiece(piece, bookies, read, locate, clock, reconnect_s) for piece in pieces]
        self._ranges = _split_into_ranges(self._ledgers)
        # In order: the first one is returned next.
        self._in_flight: deque[_Range] = deque()

    async def read_next(self) -> EntryRun | LostEntries | None:
        """Return the next entries; None: there are no more. Cancelling it loses nothing. Raises `NotReadNow`."""
        self._read_ahead()
        if not self._in_flight:
            return None
        head = self._in_flight[0]
        await asyncio.wait([head.reading])
        found = head.reading.result()
        self._in_flight.popleft()
        last_read = found.last_entry_id if isinstance(found, LostEntries) else head.first + len(found.entries) - 1
        if last_read < head.last:
            self._in_flight.appendleft(_begin_range(head.ledger, last_read + 1, head.last))
        self._read_ahead()
        return found

    async def close(self) -> None:
        in_flight, self._in_flight, self._ranges = list(self._in_flight), deque(), iter(())
        locating = [ledger.locating for ledger in self._ledgers if ledger.locating]
        tasks = [*(one.reading for one in in_flight), *locating]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _read_ahead(self) -> None:
        while len(self._in_flight) <= _AHEAD and (one := next(self._ranges, None)) is not None:
            self._in_flight.append(_begin_range(*one))


def estimate_range_entries(piece: SlicePiece) -> int:
    """Return how many entries fit into an answer, if all entries of the piece have the same size."""
    size = piece.bytes // (piece.last_entry_id - piece.first_entry_id + 1) + RECORD_HEADER_BYTES
    return max(1, min(_MAX_RANGE_ENTRIES, _ANSWER_BYTES // size))


def _split_into_ranges(ledgers: Sequence[_LedgerPiece]) -> Iterator[tuple[_LedgerPiece, int, int]]:
    for ledger in ledgers:
        piece = ledger.piece
        size = estimate_range_entries(piece)
        for first in range(piece.first_entry_id, piece.last_entry_id + 1, size):
            yield ledger, first, min(first + size - 1, piece.last_entry_id)


def _begin_range(ledger: _LedgerPiece, first: int, last: int) -> _Range:
    return _Range(ledger, first, last, asyncio.get_running_loop().create_task(ledger.read(first, last)))


class _LedgerPiece:
    """A piece, and the bookies that store its ledger."""

    def __init__(
        self,
        piece: SlicePiece,
        bookies: dict[str, str],
        read: ReadFromBookie,
        locate: LocateEntries,
        clock: Clock,
        reconnect_s: float,
    ) -> None:
        self.piece = piece
        self._read_from_bookie = read
        self._locate_entries = locate
        self._clock = clock
        self._reconnect_s = reconnect_s
        self._locations = EntryLocations(piece.striping, piece.fragments, bookies, open=piece.open)
        self._reader = self._create_reader(self._locations)
        # The new plan, which the first range that needs it requests.
        self.locating: asyncio.Task[EntryLocations | Deletion] | None = None

    async def read(self, first: int, last: int) -> EntryRun | LostEntries:
        if self.locating is None:
            try:
                return await self._read(first, last)
            except EntriesNotRead:
                if self.locating is None:
                    self.locating = asyncio.get_running_loop().create_task(self._locate())
        await asyncio.wait([self.locating])
        located, piece = self.locating.result(), self.piece
        if isinstance(located, EntryLocations) and located.first_entry_id > first:
            to = located.first_entry_id - 1
            return LostEntries(piece, first, min(last, to), f"ledger {piece.ledger_id} was deleted up to entry {to}")
        retry_s = _DELETED_LEDGER_RETRY_S if located is Deletion.LEDGER else self._reconnect_s
        deadline, pause_s = self._clock.monotonic() + retry_s, _MIN_PAUSE_S
        while True:
            try:
                return await self._read(first, last)
            except EntriesNotRead as error:
                if _is_lost(error, self._locations):
                    lost_to = _find_last_lost(error, self._locations, last)
                    return LostEntries(piece, first, lost_to, _describe(error, located))
                if self._clock.monotonic() + pause_s > deadline:
                    if located is Deletion.LEDGER:
                        return LostEntries(piece, first, last, _describe(error, located))
                    raise NotReadNow(
                        f"{_describe(error, located)}; it is unknown whether it is lost: try again later. Bookies "
                        f"were retried for {retry_s:g} s (option reconnectSeconds)"
                    ) from None
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _read(self, first: int, last: int) -> EntryRun:
        records = (await self._reader.read(first, last, _ANSWER_BYTES)).records
        return EntryRun(self.piece, first, [record[RECORD_HEADER_BYTES:] for record in records])

    async def _locate(self) -> EntryLocations | Deletion:
        piece = self.piece
        located = await self._locate_entries(piece.ledger_id, piece.first_entry_id, piece.last_entry_id)
        if isinstance(located, EntryLocations):
            self._locations = located
            self._reader = self._create_reader(located)
        elif located is Deletion.LEDGER:
            # Only closed ledgers are removed from a log.
            self._locations = replace(self._locations, open=False)
        return located

    def _create_reader(self, locations: EntryLocations) -> EntryReader:
        read = self._read_from_bookie

        async def read_from(bookie_id: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
            return await read(locations.bookies.get(bookie_id, ""), request, timeout_s)

        return EntryReader(
            self.piece.ledger_id,
            locations.striping,
            locations.fragments,
            read_from,
            self._clock,
            timeout_s=_TIMEOUT_S,
            speculative_timeout_s=_SPECULATIVE_TIMEOUT_S,
            answer_bytes=_ANSWER_BYTES,
        )


def _is_lost(error: EntriesNotRead, locations: EntryLocations) -> bool:
    """Whether the answers of these bookies prove that the entry is lost."""
    return error.all_answered and (not error.may_still_arrive or locations.is_final(error.entry_id))


def _find_last_lost(error: EntriesNotRead, locations: EntryLocations, last: int) -> int:
    """Return the last of the consecutive entries, from the error's on, that all replicas have reported to lack."""
    lacking = Counter(fault.entry_id for fault in error.faults)
    entry_id = error.entry_id
    if not lacking[entry_id]:
        # All of them answered that the ledger was deleted.
        return last
    if locations.is_final(entry_id):
        while entry_id < last and lacking[entry_id + 1] == locations.striping.write_quorum:
            entry_id += 1
    return entry_id


def _describe(error: EntriesNotRead, located: EntryLocations | Deletion) -> str:
    return f"{located.value} was deleted, and {error}" if isinstance(located, Deletion) else str(error)
