"""Reads ranges of entries from the bookies of a ledger.

Theory of operation
-------------------
If the write set is the whole ensemble, each bookie stores every entry, and one of them serves a range. If entries are
striped, those with the same remainder modulo E have one write set: the range is read in E parts at the same time, each
with step E (`_WriteSetReader`).

A request is sent to one replica. It is sent to the next one if the replica fails, sends a bad answer, lacks the first
requested entry, or has not answered within the speculative timeout (`_SpeculativeRead`). The first answer with that
entry counts, and the other requests are cancelled. If such an answer lacks a later entry, it counts up to there, and
the next replica continues. A replica that failed or was slow lately is tried last, so that a hung bookie costs the
timeout once and not once per range.

`EntriesNotRead` reports whether the entry is lost: all replicas have answered, and not all of them "unknown", since a
replica in limbo without a record can get one only from the others. Answers describe the present. A replica that answers
"absent" or "unknown" may have the record a moment later if a copy is in flight (`may_still_arrive`). Only the caller
knows whether that is possible: adds and recovery write to the last fragment of a ledger that is not closed. In such a
fragment only damage on all replicas proves a loss.

Each entry that a replica should have but lacks or has damaged is reported as a `Fault`, so that the caller can have it
repaired. The entries of a result are consecutive, from the first requested one on. There is at least one, or
`EntriesNotRead` is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_bookie.read.read_answer import (
    BadAnswer,
    LedgerDeletedAnswer,
    MissingReason,
    ReadEntries,
    parse_read_answer,
)
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.read.striping import Fragment, Striping, find_fragment
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import TransportError

__all__ = ["EntriesNotRead", "EntryReader", "Fault", "RangeRead", "SendRead"]

# Sends a request to a bookie, with a timeout in seconds. Raises `TransportError`.
SendRead = Callable[[str, ReadRequest, float], Awaitable[ReadAnswer]]

# Requested maximum size of an answer, which has at least one entry. Small, to detect a slow bookie early.
_ANSWER_BYTES: Final = 1_048_576
# Maximum number of entries of one read.
_RANGE_ENTRIES: Final = 10_000
# Time for which a bookie that failed is tried after the others.
_DEPRIORITIZED_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An entry that a bookie should have but lacks, or has damaged."""

    bookie_id: str
    entry_id: int
    reason: MissingReason


@dataclass(slots=True)
class RangeRead:
    """The result of a read: the records of consecutive entries, from the first requested one on."""

    records: list[bytes] = field(default_factory=list)
    faults: dict[Fault, None] = field(default_factory=dict)
    # The highest LAC in the answers.
    last_add_confirmed: int = NO_ENTRY


class EntriesNotRead(Exception):
    """No replica returned the entry; `reasons` has the reason of each bookie.

    `all_answered`: all replicas answered that they have no valid record, and not all of them that they may have lost
    it. Otherwise a replica that did not answer may have the record.
    `may_still_arrive`: at least one replica never stored the entry or may have lost it. In the last fragment of a
    ledger that is not closed, a copy may be in flight to that replica, so that `all_answered` does not prove a loss.
    """

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        reasons: dict[str, str],
        faults: dict[Fault, None],
        *,
        all_answered: bool,
        may_still_arrive: bool,
    ) -> None:
        by_bookie = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in reasons.items())
        super().__init__(f"entry {entry_id} of ledger {ledger_id} can't be read: {by_bookie}")
        self.entry_id = entry_id
        self.reasons = reasons
        self.faults = faults
        self.all_answered = all_answered
        self.may_still_arrive = may_still_arrive


class EntryReader:
    """Reads one ledger. The caller knows which entries may be read. `fragments` may be replaced at any time."""

    def __init__(
        self,
        ledger_id: int,
        striping: Striping,
        fragments: Sequence[Fragment],
        send_read: SendRead,
        clock: Clock,
        *,
        timeout_s: float,
        speculative_timeout_s: float,
        answer_bytes: int = _ANSWER_BYTES,
    ) -> None:
        """`answer_bytes`: the requested maximum size of an answer."""
        self.ledger_id = ledger_id
        self.fragments = fragments
        self.send_read = send_read
        self.clock = clock
        self.timeout_s = timeout_s
        self.speculative_timeout_s = speculative_timeout_s
        self.answer_bytes = answer_bytes
        self._striping = striping
        # By bookie: the monotonic time until which it is tried after the others.
        self._deprioritized_until: dict[str, float] = {}

    async def read(self, first: int, last: int, max_bytes: int = _ANSWER_BYTES) -> RangeRead:
        """Read entries from `first` on: at least that one, and at most up to `last`, to the end of its fragment, or to
        `max_bytes`.

        Raises `EntriesNotRead` if no replica returns the first entry.
        """
        fragment, end = self._find_range(first, last)
        size, parts = self._striping.ensemble_size, 1
        if self._striping.write_quorum < size:
            parts = min(size, end - first)
        step = size if parts > 1 else 1
        readers = [
            _WriteSetReader(self, range(first + part, end, step), self._write_set(fragment, first + part))
            for part in range(parts)
        ]
        if parts == 1:
            await readers[0].read(max_bytes)
        else:
            async with OrderedTaskGroup() as tasks:
                for reader in readers:
                    tasks.create_task(reader.read(max(1, max_bytes // parts)))
        return _merge(self.ledger_id, first, readers, max_bytes)

    def sort_by_health(self, bookies: Sequence[str]) -> list[str]:
        """Return the bookies in this order, with those that failed or were slow lately at the end."""
        now = self.clock.monotonic()
        return sorted(bookies, key=lambda bookie_id: self._deprioritized_until.get(bookie_id, now) > now)

    def deprioritize(self, bookie_id: str) -> None:
        """Try the bookie after the others for some time."""
        self._deprioritized_until[bookie_id] = self.clock.monotonic() + _DEPRIORITIZED_S

    def _find_range(self, first: int, last: int) -> tuple[Fragment, int]:
        """Return the fragment that contains `first`, and the entry before which a read from there ends."""
        fragment = find_fragment(self.fragments, first)
        later = [other.first_entry_id for other in self.fragments if other.first_entry_id > first]
        return fragment, min([last + 1, first + _RANGE_ENTRIES, *later[:1]])

    def _write_set(self, fragment: Fragment, entry_id: int) -> list[str]:
        return [fragment.bookies[slot] for slot in self._striping.write_set(entry_id)]


def _merge(ledger_id: int, first: int, readers: Sequence[_WriteSetReader], max_bytes: int) -> RangeRead:
    """Interleave the readers' records, up to the first that is missing or would exceed `max_bytes`."""
    left = max_bytes
    result = RangeRead(last_add_confirmed=max(reader.last_add_confirmed for reader in readers))
    for reader in readers:
        result.faults |= reader.faults
    if len(readers) == 1 and readers[0].records:  # already limited to `max_bytes`
        result.records = readers[0].records
        return result
    for row in range(max(len(reader.records) for reader in readers) + 1):
        for reader in readers:
            if row >= len(reader.records):
                if not result.records:
                    raise EntriesNotRead(
                        ledger_id,
                        first,
                        reader.reasons,
                        result.faults,
                        all_answered=not reader.undecided,
                        may_still_arrive=reader.may_still_arrive,
                    )
                return result
            left -= len(reader.records[row])
            if result.records and left < 0:
                return result
            result.records.append(reader.records[row])
    return result


class _WriteSetReader:
    """Reads entries that have one write set."""

    def __init__(self, reader: EntryReader, entry_ids: range, bookies: list[str]) -> None:
        self._reader = reader
        self._entry_ids = entry_ids
        self._bookies = bookies
        # The records of the first `len(records)` entry ids.
        self.records: list[bytes] = []
        self.faults: dict[Fault, None] = {}
        # For the entry after those: why each bookie returned no record, and which bookies may have it nevertheless.
        self.reasons: dict[str, str] = {}
        self.undecided: dict[str, None] = {}
        self.may_still_arrive = False
        self.last_add_confirmed = NO_ENTRY

    async def read(self, max_bytes: int) -> None:
        """Read up to `max_bytes`, but at least one record unless no replica returns it."""
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
            attempt = _SpeculativeRead(self._reader, request, self._reader.sort_by_health(self._bookies), self.faults)
            winner, read = await attempt.run()
            if read is None:
                self.reasons = attempt.reasons
                # A replica in limbo can get the record only from the others. If all are in limbo, no loss is proven.
                self.undecided = (
                    attempt.undecided if attempt.unknown < len(attempt.reasons) else dict.fromkeys(attempt.reasons)
                )
                self.may_still_arrive = attempt.absent + attempt.unknown > 0
                return
            self.last_add_confirmed = max(self.last_add_confirmed, read.last_add_confirmed)
            if read.records is not None:
                size = sum(map(len, read.records))
                if held + size <= max_bytes:
                    self.records += read.records
                    held += size
                    if len(self.records) < len(self._entry_ids):
                        largest = max(largest, max(map(len, read.records)))
                    continue
            for found in read.entries.values():
                if isinstance(found, MissingReason):
                    # Another replica continues from here. This one is tried again after all others.
                    self._bookies = [*(other for other in self._bookies if other != winner), winner]
                    break
                if self.records and held + len(found) > max_bytes:
                    return
                self.records.append(found)
                held += len(found)
                largest = max(largest, len(found))


class _SpeculativeRead:
    """Sends one request to replica after replica until one of them has returned the first entry."""

    def __init__(
        self, reader: EntryReader, request: ReadRequest, bookies: Sequence[str], faults: dict[Fault, None]
    ) -> None:
        self._reader = reader
        self._request = request
        # Bookies that the request was not sent to yet. The next one is at the end.
        self._untried = list(reversed(bookies))
        self._faults = faults
        self._in_flight = 0
        self._winner: tuple[str, ReadEntries] | None = None
        self._is_over = asyncio.Event()
        self._timer: Timer | None = None
        # Why each bookie returned no record, and which of these bookies may have it nevertheless.
        self.reasons: dict[str, str] = {}
        self.undecided: dict[str, None] = {}
        # How many bookies answered that they never stored the first entry, and how many that they may have lost it.
        self.absent = 0
        self.unknown = 0

    async def run(self) -> tuple[str, ReadEntries] | tuple[str, None]:
        """Return the bookie whose answer counts, and the answer; None: no replica returned the entry."""
        try:
            async with OrderedTaskGroup() as tasks:
                self._try_next(tasks)
                await self._is_over.wait()
                tasks.cancel()
        finally:
            self._stop_timer()
        return self._winner or ("", None)

    def _try_next(self, tasks: OrderedTaskGroup) -> None:
        self._stop_timer()
        if self._is_over.is_set():
            return
        if not self._untried:
            if not self._in_flight:
                self._is_over.set()
            return
        bookie_id = self._untried.pop()
        self._in_flight += 1
        tasks.create_task(self._send(tasks, bookie_id))
        if self._untried:
            self._timer = self._reader.clock.call_later(
                self._reader.speculative_timeout_s, lambda: self._on_speculative_timeout(tasks, bookie_id)
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_speculative_timeout(self, tasks: OrderedTaskGroup, bookie_id: str) -> None:
        self._reader.deprioritize(bookie_id)
        self._try_next(tasks)

    async def _send(self, tasks: OrderedTaskGroup, bookie_id: str) -> None:
        try:
            answer = await self._reader.send_read(bookie_id, self._request, self._reader.timeout_s)
            read = parse_read_answer(self._request, answer)
        except (TransportError, BadAnswer) as error:
            self._reader.deprioritize(bookie_id)
            self.reasons[bookie_id] = str(error) or type(error).__name__
            if not isinstance(error, LedgerDeletedAnswer):
                self.undecided[bookie_id] = None
        else:
            for entry_id, found in read.entries.items() if read.records is None else ():
                # UNKNOWN is no fault: the bookie itself restores what it may have lost.
                if found is MissingReason.ABSENT or found is MissingReason.DAMAGED:
                    self._faults[Fault(bookie_id, entry_id, found)] = None
            first = read.entries[self._request.first_entry_id]
            if not isinstance(first, MissingReason):
                self._winner = self._winner or (bookie_id, read)
                self._is_over.set()
            else:
                self.reasons[bookie_id] = first.value
                self.absent += first is MissingReason.ABSENT
                self.unknown += first is MissingReason.UNKNOWN
        self._in_flight -= 1
        self._try_next(tasks)
