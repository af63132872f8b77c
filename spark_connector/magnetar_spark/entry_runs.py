"""The entries of a slice, in order and without gaps, read ahead of whoever turns them into rows.

A piece is read in ranges of a few MiB, several at a time: while rows are made of one, bookies read the next ones and
the network brings them. How many entries such a range has is reckoned from the piece's size. Where they are larger than
those on average, what is read ends before the range does, and the rest is read before the ranges behind it are waited
for; so no more than `_AHEAD` answers and as many entries are held at a time, whatever was written.

    ranges     [0 … 39] [40 … 79] [80 … 119] [120 … 159]        four on their way
    the first one ends after entry 25:
               [26 … 39] [40 … 79] [80 … 119] [120 … 159]       its entries are taken, and the rest is asked for

An entry that no replica gives is asked for once more by a new plan of its ledger (`SliceBroker`): its replicas may have
moved. What those bookies all say they don't have is gone; then it is `Gone`, in its place in the order. A bookie that
can't be reached, or has too many to serve, has not said so: unknown is not no. Nor has one that lacks an entry in the
last fragment of an open ledger, since a copy may be in flight to it; there only damage on all replicas proves a loss,
as for every reader of ledgers (magnetar_bookie/read/entry_reader.py). The plan that was made before the read says
whether the ledger is open. Such entries are retried for `reconnect_s`, and then the task fails (`NotReadNow`), which
Spark tries again.

Where there is no new plan the old bookies are asked on in the same way. A topic that was deleted says nothing of its
ledgers, which its leases keep for all of their time. A log that goes on without the ledger does: if nobody gives an
entry of it in all that time, it is gone, whoever could not be asked.
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
from magnetar_spark.log_slice import RECONNECT_S, SlicePiece
from magnetar_wire.clock import Clock

__all__ = ["AskAt", "Deleted", "EntryRun", "EntryRuns", "Gone", "NewPlan", "Whereabouts", "range_entries"]

# Half a second of work for a task at most, and a few hundred entries of the usual size: larger answers cost less CPU
# for the same bytes (1 MiB: 0.65 s of a bookie's and 0.65 s of the reader's for 330 MB; 4 MiB: 0.42 and 0.55).
_ANSWER_BYTES: Final = 4 << 20
# So many ranges are read ahead.
_AHEAD: Final = 3
_RANGE_ENTRIES: Final = 10_000
_TIMEOUT_S: Final = 30.0
# The next replica is asked when one has not answered for so long.
_SPECULATIVE_TIMEOUT_S: Final = 2.0
# How long bookies that can't be reached are retried for a ledger that the topic's log no longer has.
_DELETED_LEDGER_PATIENCE_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class AskAt(Protocol):
    async def __call__(self, address: str, request: ReadRequest, timeout_s: float) -> ReadAnswer: ...


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Of a ledger's entries: who has them."""

    striping: Striping
    fragments: Sequence[Fragment]
    # Addresses by the bookies' ids.
    bookies: dict[str, str]
    # Entries before this are deleted.
    first_entry_id: int = 0
    # The last of the fragments is the last one of a ledger that is not closed.
    open: bool = False

    def is_final(self, entry_id: int) -> bool:
        """Return whether no bookie can get the entry any more from the ledger's writer or a recovery."""
        return not self.open or entry_id < self.fragments[-1].first_entry_id


class Deleted(enum.Enum):
    """Why there is no new plan of a ledger."""

    # The topic's log goes on without it.
    LEDGER = "the ledger"
    # Its ledgers are left for as long as its leases last.
    TOPIC = "the topic"


class NewPlan(Protocol):
    async def __call__(self, ledger_id: int, first: int, last: int) -> Whereabouts | Deleted:
        """Where these entries are now. Raises `NotReadNow` where nobody can tell."""


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Consecutive entries as they are stored, of `piece`, from `first_entry_id` on."""

    piece: SlicePiece
    first_entry_id: int
    entries: list[bytes]


@dataclass(frozen=True, slots=True)
class Gone:
    """Entries that there are no more, and why."""

    piece: SlicePiece
    first_entry_id: int
    last_entry_id: int
    why: str


@dataclass(slots=True)
class _Range:
    ledger: _Ledger
    first: int
    last: int
    reading: asyncio.Task[EntryRun | Gone]


class EntryRuns:
    """Of consecutive pieces. Belongs to one loop; `close` ends what is on its way."""

    def __init__(
        self,
        pieces: Sequence[SlicePiece],
        bookies: dict[str, str],
        ask: AskAt,
        new_plan: NewPlan,
        clock: Clock,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        self._ledgers = [_Ledger(piece, bookies, ask, new_plan, clock, reconnect_s) for piece in pieces]
        self._ranges = _ranges(self._ledgers)
        # In order: the first is the next to be given.
        self._asked: deque[_Range] = deque()

    async def next(self) -> EntryRun | Gone | None:
        """What comes next; None: that was all. Cancelling it loses nothing. Raises `NotReadNow`."""
        self._ask_ahead()
        if not self._asked:
            return None
        head = self._asked[0]
        await asyncio.wait([head.reading])
        found = head.reading.result()
        self._asked.popleft()
        read_to = found.last_entry_id if isinstance(found, Gone) else head.first + len(found.entries) - 1
        if read_to < head.last:
            self._asked.appendleft(_begun(head.ledger, read_to + 1, head.last))
        self._ask_ahead()
        return found

    async def close(self) -> None:
        asked, self._asked, self._ranges = list(self._asked), deque(), iter(())
        tasks = [*(one.reading for one in asked), *(ledger.planning for ledger in self._ledgers if ledger.planning)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask_ahead(self) -> None:
        while len(self._asked) <= _AHEAD and (one := next(self._ranges, None)) is not None:
            self._asked.append(_begun(*one))


def range_entries(piece: SlicePiece) -> int:
    """How many entries should fit an answer, if they are like the piece's others."""
    size = piece.bytes // (piece.last_entry_id - piece.first_entry_id + 1) + RECORD_HEADER_BYTES
    return max(1, min(_RANGE_ENTRIES, _ANSWER_BYTES // size))


def _ranges(ledgers: Sequence[_Ledger]) -> Iterator[tuple[_Ledger, int, int]]:
    for ledger in ledgers:
        piece = ledger.piece
        share = range_entries(piece)
        for first in range(piece.first_entry_id, piece.last_entry_id + 1, share):
            yield ledger, first, min(first + share - 1, piece.last_entry_id)


def _begun(ledger: _Ledger, first: int, last: int) -> _Range:
    return _Range(ledger, first, last, asyncio.get_running_loop().create_task(ledger.read(first, last)))


def _is_lost(error: EntriesNotRead, known: Whereabouts) -> bool:
    """`known`: where the entry was looked for."""
    return error.all_answered and (not error.may_still_arrive or known.is_final(error.entry_id))


def _gone_to(error: EntriesNotRead, known: Whereabouts, last: int) -> int:
    """The last of the entries from the error's on of which all replicas have said that they lack it."""
    lacking = Counter(fault.entry_id for fault in error.faults)
    entry_id = error.entry_id
    if not lacking[entry_id]:
        # All of them know that the ledger was deleted.
        return last
    if known.is_final(entry_id):
        while entry_id < last and lacking[entry_id + 1] == known.striping.write_quorum:
            entry_id += 1
    return entry_id


def _why(error: EntriesNotRead, where: Whereabouts | Deleted) -> str:
    return f"{where.value} was deleted, and {error}" if isinstance(where, Deleted) else str(error)


class _Ledger:
    """A piece, and the ledger that it is of."""

    def __init__(
        self,
        piece: SlicePiece,
        bookies: dict[str, str],
        ask: AskAt,
        new_plan: NewPlan,
        clock: Clock,
        reconnect_s: float,
    ) -> None:
        self.piece = piece
        self._ask = ask
        self._new_plan = new_plan
        self._clock = clock
        self._reconnect_s = reconnect_s
        self._known = Whereabouts(piece.striping, piece.fragments, bookies, open=piece.open)
        self._reader = self._reader_of(self._known)
        # The new plan, asked for by whichever range needed it first.
        self.planning: asyncio.Task[Whereabouts | Deleted] | None = None

    async def read(self, first: int, last: int) -> EntryRun | Gone:
        if self.planning is None:
            try:
                return await self._read(first, last)
            except EntriesNotRead:
                if self.planning is None:
                    self.planning = asyncio.get_running_loop().create_task(self._plan_anew())
        await asyncio.wait([self.planning])
        where, piece = self.planning.result(), self.piece
        if isinstance(where, Whereabouts) and where.first_entry_id > first:
            to = where.first_entry_id - 1
            return Gone(piece, first, min(last, to), f"ledger {piece.ledger_id} was deleted up to entry {to}")
        patience_s = _DELETED_LEDGER_PATIENCE_S if where is Deleted.LEDGER else self._reconnect_s
        deadline, pause_s = self._clock.monotonic() + patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return await self._read(first, last)
            except EntriesNotRead as error:
                if _is_lost(error, self._known):
                    return Gone(piece, first, _gone_to(error, self._known, last), _why(error, where))
                if self._clock.monotonic() + pause_s > deadline:
                    if where is Deleted.LEDGER:
                        return Gone(piece, first, last, _why(error, where))
                    raise NotReadNow(
                        f"{_why(error, where)}; it is unknown whether it is lost: try again later. Bookies "
                        f"were retried for {patience_s:g} s (option reconnectSeconds)"
                    ) from None
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _read(self, first: int, last: int) -> EntryRun:
        records = (await self._reader.read(first, last, _ANSWER_BYTES)).records
        return EntryRun(self.piece, first, [record[RECORD_HEADER_BYTES:] for record in records])

    async def _plan_anew(self) -> Whereabouts | Deleted:
        where = await self._new_plan(self.piece.ledger_id, self.piece.first_entry_id, self.piece.last_entry_id)
        if isinstance(where, Whereabouts):
            self._known = where
            self._reader = self._reader_of(where)
        elif where is Deleted.LEDGER:
            # Only closed ledgers leave a log.
            self._known = replace(self._known, open=False)
        return where

    def _reader_of(self, where: Whereabouts) -> EntryReader:
        ask = self._ask

        async def ask_bookie(bookie_id: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
            return await ask(where.bookies.get(bookie_id, ""), request, timeout_s)

        return EntryReader(
            self.piece.ledger_id,
            where.striping,
            where.fragments,
            ask_bookie,
            self._clock,
            timeout_s=_TIMEOUT_S,
            speculative_timeout_s=_SPECULATIVE_TIMEOUT_S,
            answer_bytes=_ANSWER_BYTES,
        )
