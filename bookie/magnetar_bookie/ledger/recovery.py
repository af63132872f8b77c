"""Closes a ledger whose writer is gone, or is to be shut out: protocol.md, "Recovery".

`recover` takes the ledger into recovery and makes attempts until one of them, or somebody else, has closed it. An
attempt is based on the metadata with which it began: it fences the last fragment's bookies, reads upwards from the LAC
(ledger/recovery_rules.py decides what that shows; the first entries come with the answers to the fences), writes what
is kept to an ack quorum, and closes. Everything that it relies on is checked by the compare-and-set of the close; an
attempt that comes to nothing has at most written records to more bookies, and the next one starts over. So a recoverer
may be stopped, or wake up late, anywhere. Those bookies are among the former ones in the metadata before they are sent
anything: the deletion of the ledger waits for them.

What is read ahead is bounded for each recovery, and in bytes for all of the process (recovery_budget.py). The first
answer that a bookie is asked for is small, and each is twice as large as the one before where that was cut short: as a
rule the unconfirmed end of a ledger is small, and hundreds of recoveries have it read at once.

An entry that is damaged on all bookies that could have it is kept without a record: nothing is written of it, readers
find it lost, and the entries behind it are recovered as usual. Where the last entry is lost, the ledger's length is
that up to a readable entry below it, a lower bound.

Like a writer, a recovery adds nothing while a bookie that it needs lags.

All slots are asked at the same time, and a hung bookie is waited for only while the others don't suffice. Whoever gave
no answer is asked again after a pause, until `recovery_timeout_seconds` have passed in all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from magnetar_bookie.errors import (
    AddFailed,
    EnsembleOutdated,
    LedgerDeleted,
    LedgerError,
    LedgerFenced,
    NoSuchLedger,
    OutcomeNotKnown,
    RecoveryUndecided,
)
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_rules import Change
from magnetar_bookie.ledger.ledger_metadata import (
    FragmentChanged,
    LedgerAlreadyClosed,
    LedgerMetadata,
    LedgerState,
    add_recovery_holders,
    close_by_recovery,
    start_recovery,
)
from magnetar_bookie.ledger.ledger_metadata_store import LedgerNodeCache
from magnetar_bookie.ledger.recovery_rules import FenceAnswers, RecoveryReads, first_to_recover
from magnetar_bookie.ledger.replicated_adds import ReplicatedAdds
from magnetar_bookie.read.entry_reader import EntriesNotRead, EntryReader
from magnetar_bookie.read.read_answer import BadAnswer, ReadEntries, format_status, parse_read_answer
from magnetar_bookie.read.record import NO_ENTRY, check_record
from magnetar_bookie.read.striping import Fragment
from magnetar_metadata.errors import Unavailable
from magnetar_protos import ledger_pb2
from magnetar_protos.ledger_pb2 import FenceAnswer, FenceRequest, ReadAnswer, ReadRequest
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import TransportError

__all__ = ["recover"]

_log = logging.getLogger(__name__)

# How much of the ledger's end is held in memory at a time, and comes in one answer.
_WINDOW_BYTES: Final = 16_777_216
_ANSWER_BYTES: Final = 1_048_576
_FIRST_ANSWER_BYTES: Final = 16_384
# What comes with the answer to a fence, of that size at most: all that most writers leave behind.
_FIRST_READ_ENTRIES: Final = 16
# Between asking a bookie and asking it again; doubles up to the second.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


async def recover(client: LedgerContext, ledger_id: int) -> LedgerMetadata:
    """The ledger's metadata once it is closed, by this recovery or whoever was faster.

    Raises `RecoveryUndecided` if the bookies that answer do not suffice, `NoSuchLedger` and `LedgerDeleted`.
    """
    deadline = client.clock.monotonic() + client.settings.recovery_timeout_seconds
    pause_s = _FIRST_PAUSE_S
    node = LedgerNodeCache()
    # Closed is for ever, however stale the read is. Anything else is decided by the change below.
    with suppress(NoSuchLedger, Unavailable):
        metadata = await client.ledgers.read_metadata(ledger_id, known=node)
        if metadata.state is LedgerState.CLOSED:
            return metadata
    while True:
        try:
            metadata = await client.ledgers.change_metadata(ledger_id, start_recovery, known=node)
            if metadata.closed:
                return metadata
            return await _Attempt(client, ledger_id, metadata, node, deadline).run()
        except LedgerAlreadyClosed as closed:
            return closed.metadata
        except (EnsembleOutdated, FragmentChanged, OutcomeNotKnown, _Failed) as error:
            if isinstance(error, EnsembleOutdated):
                await client.bookies.reread_cookies(error.bookie_ids)
            if client.clock.monotonic() + pause_s >= deadline:
                raise RecoveryUndecided(
                    f"ledger {ledger_id} was not recovered within {client.settings.recovery_timeout_seconds} s: "
                    f"{error}; try again when more bookies are registered"
                ) from error
        await client.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class _Failed(LedgerError):
    """The attempt came to nothing; another may do better."""


class _Attempt:
    """One attempt, based on the metadata as it was when it began."""

    def __init__(
        self, client: LedgerContext, ledger_id: int, metadata: LedgerMetadata, node: LedgerNodeCache, deadline: float
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._node = node
        self._fragment = metadata.last_fragment
        self._deadline = deadline
        # What became of the ensemble where recovery had to replace bookies; nobody reads by it before the close.
        self._own_fragments: list[Fragment] = []
        # By slot, what was read from its LAC on, right after its fence.
        self._first_reads: dict[int, ReadEntries] = {}
        self._share = client.recovery_budget.open_share()
        # The adds that write what is kept; new ones begin behind each lost entry.
        self._adds: ReplicatedAdds | None = None
        # How large the next answer of a slot may be.
        self._answer_bytes = [_FIRST_ANSWER_BYTES] * len(self._fragment.bookies)
        # Whoever waits looks again when this has pulsed.
        self._pulse = asyncio.Event()
        # Why the attempt can't go on; and what says that no attempt has to.
        self._broken = ""
        self._decided: LedgerAlreadyClosed | LedgerDeleted | NoSuchLedger | None = None

    async def run(self) -> LedgerMetadata:
        try:
            return await self._run()
        finally:
            self._share.close()

    async def _run(self) -> LedgerMetadata:
        last_add_confirmed = await self._fence()
        first = first_to_recover(self._fragment, last_add_confirmed)
        last, length = await self._read_and_write(first)
        if length is None:
            length = await self._length_up_to(last)
        now_ms = self._clock.time_ms()
        own = dict.fromkeys(bookie_id for fragment in self._own_fragments for bookie_id in fragment.bookies)
        return await self._client.ledgers.change_metadata(
            self._ledger_id,
            lambda current: close_by_recovery(current, self._fragment, self._own_fragments, last, length, now_ms),
            self._client.bookies.cookie_checks([one for one in own if one not in self._fragment.bookies]),
            self._node,
        )

    async def _fence(self) -> int:
        """Returns the LAC when no ack quorum can form any more."""
        answers = FenceAnswers(self._metadata.striping)
        said = dict.fromkeys(self._fragment.bookies, "it has not answered")

        async def fence(slot: int, bookie_id: str) -> None:
            pause_s = _FIRST_PAUSE_S
            while True:
                try:
                    answer = await self._fence_at(slot, bookie_id)
                except TransportError as error:
                    said[bookie_id] = str(error)
                else:
                    if answer.status == ledger_pb2.OK:
                        said[bookie_id] = "it is fenced"
                        answers.fenced(slot, answer.last_add_confirmed)
                        self._tell()
                        return
                    self._refused(bookie_id, answer.status)
                    said[bookie_id] = f"it answered {format_status(answer.status)}"
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

        await self._at_all_slots(fence, lambda: answers.covered)
        if not answers.covered:
            raise _Failed(
                f"{self._metadata.striping.fence_coverage} of the last fragment's bookies must be fenced: {_told(said)}"
            )
        return answers.last_add_confirmed

    async def _fence_at(self, slot: int, bookie_id: str) -> FenceAnswer:
        """With the first read, unless other recoveries hold too much. `_read_slot` repeats one that makes no sense."""
        request = FenceRequest(ledger_id=self._ledger_id, master_key=self._metadata.master_key)
        size_bytes = _FIRST_ANSWER_BYTES + _FIRST_READ_ENTRIES * ENTRY_OVERHEAD_BYTES
        reads = self._share.try_reserve(size_bytes)
        if reads:
            request.read_entries = min(_FIRST_READ_ENTRIES, self._client.settings.recovery_window_entries)
            request.max_bytes = _FIRST_ANSWER_BYTES
        try:
            answer = await self._client.bookies.call(
                bookie_id, "fence", request, FenceAnswer, timeout_s=self._client.settings.read_entry_timeout_seconds
            )
            if reads and answer.HasField("read"):
                first = answer.last_add_confirmed + 1
                asked = ReadRequest(
                    ledger_id=self._ledger_id,
                    first_entry_id=first,
                    last_entry_id=first + request.read_entries - 1,
                    step=1,
                )
                with suppress(BadAnswer):
                    self._first_reads[slot] = parse_read_answer(asked, answer.read)
                held = [one for read in self._first_reads.values() for one in read.entries.values()]
                records = [one for one in held if isinstance(one, bytes)]
                self._share.set_held(count_entry_memory(records), writing=False)
            return answer
        finally:
            if reads:
                self._share.release(size_bytes)

    async def _read_and_write(self, first: int) -> tuple[int, int | None]:
        """Finds the end, and has every kept entry on an ack quorum. Returns the last entry, and the length if known."""
        settings = self._client.settings
        reads = RecoveryReads(
            self._metadata.striping, first, window_entries=settings.recovery_window_entries, window_bytes=_WINDOW_BYTES
        )
        for slot, read in self._first_reads.items():
            if read.next_entry_id > first:  # it begins at its own LAC, which is not above the one that counts
                reads.answered(slot, read)
        self._first_reads.clear()
        self._adds = self._begin_adds(first)
        unwritten = 0
        length: int | None = None

        def written(_: int, records: Sequence[bytes], error: AddFailed | None) -> None:
            nonlocal unwritten
            unwritten -= len(records)
            self._note_held(reads)
            if error is not None:
                self._broken = self._broken or f"a recovered entry can't be written: {error}"
            self._tell()

        def write_kept() -> bool:
            """Hands on what is kept, as far as there is room; whether all is done."""
            nonlocal unwritten, length
            adds = self._adds
            assert adds is not None
            taken = False
            while (
                not adds.held_up
                and adds.pending_entries < settings.max_pending_entries
                and adds.pending_bytes < settings.max_pending_bytes
            ):
                if reads.next_is_lost and unwritten:
                    break  # adds have no gaps: those before it are finished first
                kept = reads.take()
                if kept is None:
                    break
                entry_id, record = kept
                if record is None:
                    _log.error(
                        "Entry %d of ledger %d is lost: at every bookie that could have it, it is damaged or was never "
                        "stored; recovery continues after it", entry_id, self._ledger_id,
                    )  # fmt: skip
                    taken = True
                    adds.stop()
                    self._adds = adds = self._begin_adds(entry_id + 1)
                    continue
                length = check_record(record, self._ledger_id, entry_id).ledger_bytes
                unwritten += 1
                taken = True
                adds.add(entry_id, [record], written)
            self._note_held(reads)
            if taken:  # the window has moved on
                self._tell()
            return reads.done and not unwritten

        try:
            await self._at_all_slots(lambda slot, bookie_id: self._read_slot(reads, slot, bookie_id), write_kept)
        finally:
            self._adds.stop()
        if self._decided is not None:
            raise self._decided
        if not (reads.done and not unwritten) or self._broken:
            raise _Failed(self._broken or self._why_undecided(reads, unwritten))
        assert reads.last_entry_id is not None
        return reads.last_entry_id, length

    def _begin_adds(self, first: int) -> ReplicatedAdds:
        async def publish(change: Change) -> None:
            try:
                await self._client.ledgers.change_metadata(
                    self._ledger_id,
                    lambda current: add_recovery_holders(current, change.fragment.bookies),
                    known=self._node,
                )
            except (LedgerAlreadyClosed, LedgerDeleted, NoSuchLedger) as error:
                self._decided = error
                self._broken = str(error)
                self._tell()
                raise LedgerFenced(f"ledger {self._ledger_id} needs no recovery any more: {error}") from error
            self._own_fragments.append(change.fragment)

        return ReplicatedAdds(
            self._ledger_id,
            self._metadata.master_key,
            self._metadata.striping,
            self._own_fragments[-1] if self._own_fragments else self._fragment,
            first,
            self._client.bookies,
            self._client.placement,
            publish,
            self._clock,
            self._client.randomness,
            self._client.settings,
            recovery=True,
            released=self._tell,
        )

    def _note_held(self, reads: RecoveryReads) -> None:
        assert self._adds is not None
        writing = reads.has_kept or self._adds.pending_entries > 0
        self._share.set_held(reads.held_bytes + self._adds.pending_bytes, writing=writing)

    async def _read_slot(self, reads: RecoveryReads, slot: int, bookie_id: str) -> None:
        """Reads from one bookie what it is asked for, until the end is found."""
        pause_s = _FIRST_PAUSE_S
        while reads.last_entry_id is None:
            if reads.is_answer_missing(slot):
                # Before it is read ahead: that may wait for bytes which are free only after this answer.
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                reads.ask_again(slot)
            elif reads.ask(slot) is not None:
                max_bytes = self._answer_bytes[slot]
                size_bytes = max_bytes + _entries_in(max_bytes) * ENTRY_OVERHEAD_BYTES
                reserved = await self._share.reserve(size_bytes, lambda: reads.needs(slot))
                try:
                    # Others may have answered meanwhile.
                    reads.ask_again(slot)
                    asked = reads.ask(slot)
                    if asked is not None:
                        first, last = asked
                        last = min(last, first + _entries_in(max_bytes) - 1)
                        granted = max_bytes if reserved == size_bytes else 1
                        await self._read(reads, slot, bookie_id, first, last, granted)
                        self._note_held(reads)
                        self._tell()
                finally:
                    self._share.release(reserved)
            else:
                await self._pulse.wait()

    async def _read(
        self, reads: RecoveryReads, slot: int, bookie_id: str, first: int, last: int, max_bytes: int
    ) -> None:
        request = ReadRequest(
            ledger_id=self._ledger_id,
            first_entry_id=first,
            last_entry_id=last,
            step=1,
            max_bytes=max_bytes,
            fence=True,
            master_key=self._metadata.master_key,
        )
        try:
            answer = await self._client.bookies.call(
                bookie_id, "read", request, ReadAnswer, timeout_s=self._client.settings.read_entry_timeout_seconds
            )
            self._refused(bookie_id, answer.status)
            reads.answered(slot, parse_read_answer(request, answer))
            if answer.next_entry_id <= last:
                self._answer_bytes[slot] = min(2 * self._answer_bytes[slot], _ANSWER_BYTES)
        except (TransportError, BadAnswer) as error:
            reads.not_answered(slot, first, last, str(error))

    def _why_undecided(self, reads: RecoveryReads, unwritten: int) -> str:
        if reads.last_entry_id is not None:
            return f"{unwritten} recovered entries up to {reads.last_entry_id} are not stored on an ack quorum yet"
        said = {self._fragment.bookies[slot]: reason for slot, reason in reads.answers().items()}
        return f"unknown whether entry {reads.undecided} was completed: {_told(said)}"

    async def _length_up_to(self, last: int) -> int:
        """The bytes of the ledger's entries up to this one, which is confirmed: its record tells. Where that is lost
        the record of an entry below it does, and the length is a lower bound."""
        settings = self._client.settings
        reader = EntryReader(
            self._ledger_id,
            self._metadata.striping,
            self._metadata.fragments,
            lambda bookie_id, request, timeout_s: self._client.bookies.call(
                bookie_id, "read", request, ReadAnswer, timeout_s=timeout_s
            ),
            self._clock,
            timeout_s=settings.read_entry_timeout_seconds,
            speculative_timeout_s=settings.speculative_read_timeout_ms / 1000,
        )
        step = 1
        while last > NO_ENTRY:
            try:
                read = await reader.read(last, last)
            except EntriesNotRead as error:
                if not error.all_answered:
                    raise _Failed(f"the ledger's length is unknown: {error}") from error
                last, step = last - step, 2 * step
            else:
                return check_record(read.records[0], self._ledger_id, last).ledger_bytes
        return 0

    async def _at_all_slots(
        self, work: Callable[[int, str], Coroutine[Any, Any, None]], enough: Callable[[], bool]
    ) -> None:
        """Has this done with all bookies at once until it is enough, nothing helps, or the time is over."""
        timer = self._clock.call_later(max(0.0, self._deadline - self._clock.monotonic()), self._tell)
        try:
            async with OrderedTaskGroup() as tasks:
                for slot, bookie_id in enumerate(self._fragment.bookies):
                    tasks.create_task(work(slot, bookie_id))
                while not enough() and not self._broken and self._clock.monotonic() < self._deadline:
                    await self._pulse.wait()
                tasks.cancel()
        finally:
            timer.cancel()

    def _refused(self, bookie_id: str, status: int) -> None:
        """A bookie that has dropped the ledger knows of its tombstone: look at the metadata anew."""
        if status == ledger_pb2.DELETED:
            self._broken = self._broken or f"{bookie_id} answered that the ledger was deleted"
            self._tell()

    def _tell(self) -> None:
        """Wakes all who wait at this moment, and nobody else."""
        self._pulse.set()
        self._pulse.clear()


def _entries_in(answer_bytes: int) -> int:
    """Return how many entries are asked for in an answer of this size: their overhead takes no more than it."""
    return max(1, answer_bytes // ENTRY_OVERHEAD_BYTES)


def _told(said: dict[str, str]) -> str:
    return "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in said.items())
