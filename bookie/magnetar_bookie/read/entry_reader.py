"""Reads ranges of entries from whichever bookies can give them.

Theory of operation
-------------------
Where a write set is the whole ensemble, every bookie holds every entry, and one of them serves a range at a time.
Where entries are striped, the entries with the same remainder modulo E have one write set: the range is read in E
*lanes*, each with step E, at the same time.

A lane puts its request to one replica, and to the next when that one fails, lies, lacks the first entry asked for, or
has taken longer than the speculative time-out; the first good answer counts, and the rest are cancelled. An answer that
is good at first and lacks an entry further on counts up to there, and the next replica goes on. A replica that failed
or dawdled lately is asked last, so that a hung bookie costs the time-out once and not for each range.

`NotRead` says whether the entry is lost. All replicas must have answered, and not all of them "unknown": a replica in
limbo that has no record can get one from the others only. These answers describe the present. While copies are in
flight, a replica that answers "absent" or "unknown" may have the record a moment later (`may_arrive`). Only the caller
knows whether that can be: adds and recovery write to the last fragment of a ledger that is not closed. There, only
damage on all replicas proves a loss.

Every entry that a replica should have and has not, or has damaged, is a `Fault`, for whoever repairs. What is read is
always a run without gaps from the first entry asked for: at least that one entry, or `NotRead` with the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_bookie.read.read_answer import BadAnswer, LedgerGone, MissingReason, ReadEntries, read_entries
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.read.striping import Fragment, Striping, fragment_of
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import TransportError

__all__ = ["Ask", "EntryReader", "Fault", "NotRead", "RangeRead"]

# Puts a request to a bookie, with a time-out in seconds. Raises `TransportError`.
Ask = Callable[[str, ReadRequest, float], Awaitable[ReadAnswer]]

# What one answer is asked to hold at most: an entry always fits, and a slow bookie shows early.
_ANSWER_BYTES: Final = 1_048_576
# One read covers at most so many entries.
_RANGE_ENTRIES: Final = 10_000
# For so long a bookie that failed is asked after the others.
_TROUBLED_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A bookie that should have an entry gave none."""

    bookie_id: str
    entry_id: int
    lack: MissingReason


@dataclass(slots=True)
class RangeRead:
    """What was read: the records of the first entry asked for and of those that follow it, without gaps."""

    records: list[bytes] = field(default_factory=list)
    faults: dict[Fault, None] = field(default_factory=dict)
    # What the bookies that answered know of the ledger.
    last_add_confirmed: int = NO_ENTRY


class NotRead(Exception):
    """No replica could give the entry; `reasons` says why, by bookie.

    `settled`: all of them have answered that they don't have it, whole, and not all that they may have lost it. Else
    one that could not be asked may have it.
    `may_arrive`: at least one never got it or may have lost it. In the last fragment of a ledger that is not closed, a
    copy may be in flight to that replica, so that `settled` does not prove a loss.
    """

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        reasons: dict[str, str],
        faults: dict[Fault, None],
        *,
        settled: bool,
        may_arrive: bool,
    ) -> None:
        told = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in reasons.items())
        super().__init__(f"entry {entry_id} of ledger {ledger_id} can't be read: {told}")
        self.entry_id = entry_id
        self.reasons = reasons
        self.faults = faults
        self.settled = settled
        self.may_arrive = may_arrive


class EntryReader:
    """Reads one ledger. What may be read, its caller knows; `fragments` may be replaced at any time."""

    def __init__(
        self,
        ledger_id: int,
        striping: Striping,
        fragments: Sequence[Fragment],
        ask: Ask,
        clock: Clock,
        *,
        timeout_s: float,
        speculative_timeout_s: float,
        answer_bytes: int = _ANSWER_BYTES,
    ) -> None:
        """`answer_bytes`: what one answer is asked to hold at most."""
        self.ledger_id = ledger_id
        self.fragments = fragments
        self.ask = ask
        self.clock = clock
        self.timeout_s = timeout_s
        self.speculative_timeout_s = speculative_timeout_s
        self.answer_bytes = answer_bytes
        self._striping = striping
        # Until when, on the monotonic clock, a bookie is asked after the others.
        self._troubled: dict[str, float] = {}

    async def read(self, first: int, last: int, max_bytes: int = _ANSWER_BYTES) -> RangeRead:
        """Reads from `first` on: at least that entry, at most to `last`, to the end of the fragment, or so many bytes.

        Raises `NotRead` if no replica has the first.
        """
        fragment, end = self._reach(first, last)
        size, step = self._striping.ensemble_size, 1
        if self._striping.write_quorum < size:
            step = min(size, end - first)
        lanes = [
            _Lane(self, range(first + lane, end, size if step > 1 else 1), self._write_set(fragment, first + lane))
            for lane in range(step)
        ]
        share = max(1, max_bytes // step)
        if len(lanes) == 1:
            await lanes[0].read(max_bytes)
        else:
            async with OrderedTaskGroup() as tasks:
                for lane in lanes:
                    tasks.create_task(lane.read(share))
        return _merged(self.ledger_id, first, lanes, max_bytes)

    def in_order(self, bookies: Sequence[str]) -> list[str]:
        """Those in trouble last."""
        now = self.clock.monotonic()
        return sorted(bookies, key=lambda bookie_id: self._troubled.get(bookie_id, now) > now)

    def has_trouble(self, bookie_id: str) -> None:
        self._troubled[bookie_id] = self.clock.monotonic() + _TROUBLED_S

    def _reach(self, first: int, last: int) -> tuple[Fragment, int]:
        """The fragment that holds `first`, and the entry before which a read from there ends."""
        fragment = fragment_of(self.fragments, first)
        nexts = [other.first_entry_id for other in self.fragments if other.first_entry_id > first]
        return fragment, min([last + 1, first + _RANGE_ENTRIES, *nexts[:1]])

    def _write_set(self, fragment: Fragment, entry_id: int) -> list[str]:
        return [fragment.bookies[slot] for slot in self._striping.write_set(entry_id)]


def _merged(ledger_id: int, first: int, lanes: Sequence[_Lane], max_bytes: int) -> RangeRead:
    """The lanes' records in turn, up to the first that is missing or would be too much."""
    left = max_bytes
    result = RangeRead(last_add_confirmed=max(lane.last_add_confirmed for lane in lanes))
    for lane in lanes:
        result.faults |= lane.faults
    if len(lanes) == 1 and lanes[0].records:  # it kept to the bound itself
        result.records = lanes[0].records
        return result
    for place in range(max(len(lane.records) for lane in lanes) + 1):
        for lane in lanes:
            if place >= len(lane.records):
                if not result.records:
                    raise NotRead(
                        ledger_id,
                        first,
                        lane.reasons,
                        result.faults,
                        settled=not lane.unsure,
                        may_arrive=lane.may_arrive,
                    )
                return result
            left -= len(lane.records[place])
            if result.records and left < 0:
                return result
            result.records.append(lane.records[place])
    return result


class _Lane:
    """Entries with one write set, and what was read of them."""

    def __init__(self, reader: EntryReader, entry_ids: range, bookies: list[str]) -> None:
        self._reader = reader
        self._entry_ids = entry_ids
        self._bookies = bookies
        # Of the first `len(records)` of the entry ids.
        self.records: list[bytes] = []
        self.faults: dict[Fault, None] = {}
        self.reasons: dict[str, str] = {}
        self.unsure: dict[str, None] = {}
        self.may_arrive = False
        self.last_add_confirmed = NO_ENTRY

    async def read(self, max_bytes: int) -> None:
        """Reads up to so many bytes, at least one record unless no replica gives it."""
        held = largest = 0
        while len(self.records) < len(self._entry_ids) and (not self.records or held + largest <= max_bytes):
            wanted = self._entry_ids[len(self.records) :]
            request = ReadRequest(
                ledger_id=self._reader.ledger_id,
                first_entry_id=wanted[0],
                last_entry_id=wanted[-1],
                step=wanted.step,
                max_bytes=max(1, min(max_bytes - held, self._reader.answer_bytes)),
            )
            race = _Race(self._reader, request, self._reader.in_order(self._bookies), self.faults)
            winner, read = await race.run()
            if read is None:
                # One in limbo has no record, and gets one from the others alone: if they answer that they have none.
                self.reasons = race.reasons
                self.unsure = race.unsure if race.unknown < len(race.reasons) else dict.fromkeys(race.reasons)
                self.may_arrive = race.absent + race.unknown > 0
                return
            self.last_add_confirmed = max(self.last_add_confirmed, read.last_add_confirmed)
            if read.records is not None:
                size = sum(map(len, read.records))
                if held + size <= max_bytes:
                    self.records += read.records
                    held += size
                    largest = max(largest, *map(len, read.records))
                    continue
            for found in read.entries.values():
                if isinstance(found, MissingReason):
                    # Another goes on from here; this one is asked again when nobody else is left.
                    self._bookies = [*(other for other in self._bookies if other != winner), winner]
                    break
                if self.records and held + len(found) > max_bytes:
                    return
                self.records.append(found)
                held += len(found)
                largest = max(largest, len(found))


class _Race:
    """One request, put to replicas one after the other until one of them has given the first entry."""

    def __init__(
        self, reader: EntryReader, request: ReadRequest, bookies: Sequence[str], faults: dict[Fault, None]
    ) -> None:
        self._reader = reader
        self._request = request
        self._waiting = list(reversed(bookies))
        self._faults = faults
        self._under_way = 0
        self._won: tuple[str, ReadEntries] | None = None
        self._over = asyncio.Event()
        self._timer: Timer | None = None
        self.reasons: dict[str, str] = {}
        # Those of them that may have the entry for all that is known.
        self.unsure: dict[str, None] = {}
        # How many answered that they never got it, and how many that they may have lost it.
        self.absent = 0
        self.unknown = 0

    async def run(self) -> tuple[str, ReadEntries] | tuple[str, None]:
        try:
            async with OrderedTaskGroup() as tasks:
                self._ask_next(tasks)
                await self._over.wait()
                tasks.cancel()
        finally:
            self._stop_timer()
        return self._won or ("", None)

    def _ask_next(self, tasks: OrderedTaskGroup) -> None:
        self._stop_timer()
        if self._over.is_set():
            return
        if not self._waiting:
            if not self._under_way:
                self._over.set()
            return
        bookie_id = self._waiting.pop()
        self._under_way += 1
        tasks.create_task(self._ask(tasks, bookie_id))
        if self._waiting:
            self._timer = self._reader.clock.call_later(
                self._reader.speculative_timeout_s, lambda: self._dawdles(tasks, bookie_id)
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _dawdles(self, tasks: OrderedTaskGroup, bookie_id: str) -> None:
        self._reader.has_trouble(bookie_id)
        self._ask_next(tasks)

    async def _ask(self, tasks: OrderedTaskGroup, bookie_id: str) -> None:
        try:
            answer = await self._reader.ask(bookie_id, self._request, self._reader.timeout_s)
            read = read_entries(self._request, answer)
        except (TransportError, BadAnswer) as error:
            self._reader.has_trouble(bookie_id)
            self.reasons[bookie_id] = str(error) or type(error).__name__
            if not isinstance(error, LedgerGone):
                self.unsure[bookie_id] = None
        else:
            for entry_id, found in read.entries.items() if read.records is None else ():
                # What may be lost in limbo the bookie repairs by itself.
                if found is MissingReason.ABSENT or found is MissingReason.DAMAGED:
                    self._faults[Fault(bookie_id, entry_id, found)] = None
            first = read.entries[self._request.first_entry_id]
            if not isinstance(first, MissingReason):
                self._won = self._won or (bookie_id, read)
                self._over.set()
            else:
                self.reasons[bookie_id] = first.value
                self.absent += first is MissingReason.ABSENT
                self.unknown += first is MissingReason.UNKNOWN
        self._under_way -= 1
        self._ask_next(tasks)
