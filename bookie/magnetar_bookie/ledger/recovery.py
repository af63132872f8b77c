"""Recovers a ledger: fences its bookies, finds its end and closes it (protocol.md, "Recovery").

`recover_ledger` changes the ledger's state to IN_RECOVERY, and then makes attempts until one of them, or another
client, has closed the ledger. An attempt is based on the metadata with which it begins. It fences the last fragment's
bookies and reads upwards from the LAC, by the rules of `recovery_rules.py`; the first entries come with the answers to
the fences. It writes the recovered entries to an ack quorum, and closes the ledger. The compare-and-set of the close
checks all that the attempt relies on. A failed attempt has at most written records to more bookies, and the next one
starts from the beginning. So a recovery may stop, or continue late, anywhere. Before it writes to bookies of its own
choice, it adds them to the former bookies in the metadata, so that the deletion of the ledger waits for them.

Memory is limited for each recovery, and for all recoveries of the process together (recovery_budget.py). The first
answer of a bookie is small, and each one is twice as large as the one before if that was truncated. Usually there are
few unconfirmed entries, and hundreds of recoveries read them at a time.

An entry that is damaged on all bookies that could have it is recovered without a record: nothing is written, readers
find it lost, and recovery continues after it. If the last entry is lost, the ledger's length is that up to a readable
entry below it, a lower bound.

Like a writer, a recovery adds nothing while a bookie that it needs lags.

All slots are called at the same time. A hung bookie is waited for only while the others don't suffice. A bookie that
did not answer is called again after a pause, until `recovery_timeout_seconds` have passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
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
from magnetar_bookie.ledger.ensemble_rules import EnsembleChange
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
from magnetar_bookie.read.entry_reader import EntriesNotRead
from magnetar_bookie.read.read_answer import BadAnswer, ReadEntries, format_status, parse_read_answer
from magnetar_bookie.read.record import NO_ENTRY, check_record
from magnetar_bookie.read.striping import Fragment
from magnetar_metadata.errors import Unavailable
from magnetar_protos import ledger_pb2
from magnetar_protos.ledger_pb2 import FenceAnswer, FenceRequest, ReadAnswer, ReadRequest
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import TransportError

__all__ = ["recover_ledger"]

_log = logging.getLogger(__name__)

# Maximum memory of held records, and the maximum and initial sizes of an answer.
_WINDOW_BYTES: Final = 16_777_216
_ANSWER_BYTES: Final = 1_048_576
_FIRST_ANSWER_BYTES: Final = 16_384
# Maximum number of entries in the answer to a fence: most writers leave fewer.
_FIRST_READ_ENTRIES: Final = 16
# Pause before a bookie is called again. It doubles up to the second value.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


async def recover_ledger(client: LedgerContext, ledger_id: int) -> LedgerMetadata:
    """Recover the ledger, and return its metadata once it is closed, by this or another client.

    Raises `RecoveryUndecided` if too few bookies answer, `NoSuchLedger` and `LedgerDeleted`.
    """
    deadline = client.clock.monotonic() + client.settings.recovery_timeout_seconds
    pause_s = _FIRST_PAUSE_S
    node = LedgerNodeCache()
    # A closed ledger stays closed, however stale the read is. In any other case the change below decides.
    with suppress(NoSuchLedger, Unavailable):
        metadata = await client.ledgers.read_metadata(ledger_id, known=node)
        if metadata.state is LedgerState.CLOSED:
            return metadata
    while True:
        try:
            metadata = await client.ledgers.change_metadata(ledger_id, start_recovery, known=node)
            if metadata.is_closed:
                return metadata
            return await _Attempt(client, ledger_id, metadata, node, deadline).run()
        except LedgerAlreadyClosed as closed:
            return closed.metadata
        except (EnsembleOutdated, FragmentChanged, OutcomeNotKnown, _AttemptFailed) as error:
            if isinstance(error, EnsembleOutdated):
                await client.bookies.reread_cookies(error.bookie_ids)
            if client.clock.monotonic() + pause_s >= deadline:
                raise RecoveryUndecided(
                    f"ledger {ledger_id} was not recovered within {client.settings.recovery_timeout_seconds} s: "
                    f"{error}; try again when more bookies are registered"
                ) from error
        await client.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class _AttemptFailed(LedgerError):
    """The attempt failed. Another one may succeed."""


class _Attempt:
    """One attempt, based on the metadata with which it begins."""

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
        # The fragments with which recovery replaced bookies. Not in the metadata before the close.
        self._own_fragments: list[Fragment] = []
        # By slot: the entries in the answer to its fence.
        self._first_reads: dict[int, ReadEntries] = {}
        self._share = client.recovery_budget.open_share()
        # Writes the recovered entries. There is a new one after each lost entry.
        self._adds: ReplicatedAdds | None = None
        # By slot: the size of the next answer to request.
        self._answer_bytes = [_FIRST_ANSWER_BYTES] * len(self._fragment.bookies)
        # Pulses when something changes.
        self._pulse = asyncio.Event()
        # Why the attempt fails, and the error that makes all further attempts needless.
        self._failure = ""
        self._decided: LedgerAlreadyClosed | LedgerDeleted | NoSuchLedger | None = None

    async def run(self) -> LedgerMetadata:
        """Recover the ledger. Raises `_AttemptFailed`."""
        try:
            first = first_to_recover(self._fragment, await self._fence())
            last, length = await self._read_and_write(first)
            if length is None:
                length = await self._find_length(last)
            return await self._close(last, length)
        finally:
            self._share.close()

    async def _close(self, last: int, length: int) -> LedgerMetadata:
        now_ms = self._clock.time_ms()
        own = dict.fromkeys(bookie_id for fragment in self._own_fragments for bookie_id in fragment.bookies)
        return await self._client.ledgers.change_metadata(
            self._ledger_id,
            lambda current: close_by_recovery(current, self._fragment, self._own_fragments, last, length, now_ms),
            self._client.bookies.cookie_checks([one for one in own if one not in self._fragment.bookies]),
            self._node,
        )

    # ── fencing ──

    async def _fence(self) -> int:
        """Fence bookies until the others can't form an ack quorum, and return the LAC."""
        answers = FenceAnswers(self._metadata.striping)
        states = dict.fromkeys(self._fragment.bookies, "it has not answered")

        async def fence(slot: int, bookie_id: str) -> None:
            pause_s = _FIRST_PAUSE_S
            while True:
                try:
                    answer = await self._call_fence(slot, bookie_id)
                except TransportError as error:
                    states[bookie_id] = str(error)
                else:
                    if answer.status == ledger_pb2.OK:
                        states[bookie_id] = "it is fenced"
                        answers.add_answer(slot, answer.last_add_confirmed)
                        self._notify()
                        return
                    self._check_deleted(bookie_id, answer.status)
                    states[bookie_id] = f"it answered {format_status(answer.status)}"
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

        await self._run_for_all_slots(fence, lambda: answers.are_enough)
        if not answers.are_enough:
            raise _AttemptFailed(
                f"{self._metadata.striping.fence_coverage} of the last fragment's bookies must be fenced: "
                + _join_by_bookie(states)
            )
        return answers.last_add_confirmed

    async def _call_fence(self, slot: int, bookie_id: str) -> FenceAnswer:
        """Fence a bookie, with a first read if there is capacity. `_read_slot` repeats a read that is malformed."""
        request = FenceRequest(ledger_id=self._ledger_id, master_key=self._metadata.master_key)
        size_bytes = _FIRST_ANSWER_BYTES + _FIRST_READ_ENTRIES * ENTRY_OVERHEAD_BYTES
        has_read = self._share.try_reserve(size_bytes)
        if has_read:
            request.read_entries = min(_FIRST_READ_ENTRIES, self._client.settings.recovery_window_entries)
            request.max_bytes = _FIRST_ANSWER_BYTES
        try:
            answer = await self._client.bookies.call(
                bookie_id, "fence", request, FenceAnswer, timeout_s=self._client.settings.read_entry_timeout_seconds
            )
            if has_read and answer.HasField("read"):
                first = answer.last_add_confirmed + 1
                read_request = ReadRequest(
                    ledger_id=self._ledger_id,
                    first_entry_id=first,
                    last_entry_id=first + request.read_entries - 1,
                    step=1,
                )
                with suppress(BadAnswer):
                    self._first_reads[slot] = parse_read_answer(read_request, answer.read)
                found = [one for read in self._first_reads.values() for one in read.entries.values()]
                records = [one for one in found if isinstance(one, bytes)]
                self._share.set_held(count_entry_memory(records), is_writing=False)
            return answer
        finally:
            if has_read:
                self._share.release(size_bytes)

    # ── reading and writing ──

    async def _read_and_write(self, first: int) -> tuple[int, int | None]:
        """Find the last entry, and write all recovered entries to an ack quorum.

        Return the last entry and the ledger's length; None: no record with the length was recovered.
        """
        settings = self._client.settings
        reads = RecoveryReads(
            self._metadata.striping, first, window_entries=settings.recovery_window_entries, window_bytes=_WINDOW_BYTES
        )
        for slot, read in self._first_reads.items():
            if read.next_entry_id > first:  # it begins at this bookie's LAC, which may be too low
                reads.add_answer(slot, read)
        self._first_reads.clear()
        self._adds = self._begin_adds(first)
        unwritten = 0
        length: int | None = None

        def on_written(result: int | AddFailed, count: int) -> None:
            nonlocal unwritten
            unwritten -= count
            self._note_held(reads)
            if isinstance(result, AddFailed):
                self._failure = self._failure or f"a recovered entry can't be written: {result}"
            self._notify()

        def write_recovered() -> bool:
            """Write recovered entries while there is capacity. Return whether all is done."""
            nonlocal unwritten, length
            adds = self._adds
            assert adds is not None
            has_popped = False
            while adds.has_capacity():
                if reads.next_is_lost and unwritten:
                    break  # adds have no gaps: those before the lost entry must be written first
                recovered = reads.pop_recovered()
                if recovered is None:
                    break
                entry_id, record = recovered
                if record is None:
                    _log.error(
                        "Entry %d of ledger %d is lost: at every bookie that could have it, it is damaged or was never "
                        "stored; recovery continues after it", entry_id, self._ledger_id,
                    )  # fmt: skip
                    has_popped = True
                    adds.stop()
                    self._adds = adds = self._begin_adds(entry_id + 1)
                    continue
                length = check_record(record, self._ledger_id, entry_id).ledger_bytes
                unwritten += 1
                has_popped = True
                added = adds.append_entries([record], on_written, are_records=True)
                assert added == entry_id, f"entry {entry_id} would be written as {added}"
            self._note_held(reads)
            if has_popped:  # slots may be read further
                self._notify()
            return reads.is_done and not unwritten

        try:
            await self._run_for_all_slots(
                lambda slot, bookie_id: self._read_slot(reads, slot, bookie_id), write_recovered
            )
        finally:
            self._adds.stop()
        if self._decided is not None:
            raise self._decided
        if not (reads.is_done and not unwritten) or self._failure:
            raise _AttemptFailed(self._failure or self._explain_undecided(reads, unwritten))
        assert reads.last_entry_id is not None
        return reads.last_entry_id, length

    def _begin_adds(self, first: int) -> ReplicatedAdds:
        async def publish(change: EnsembleChange) -> None:
            try:
                await self._client.ledgers.change_metadata(
                    self._ledger_id,
                    lambda current: add_recovery_holders(current, change.fragment.bookies),
                    known=self._node,
                )
            except (LedgerAlreadyClosed, LedgerDeleted, NoSuchLedger) as error:
                self._decided = error
                self._failure = str(error)
                self._notify()
                raise LedgerFenced(f"ledger {self._ledger_id} needs no recovery any more: {error}") from error
            self._own_fragments.append(change.fragment)

        return ReplicatedAdds(
            self._client,
            self._ledger_id,
            self._metadata,
            self._own_fragments[-1] if self._own_fragments else self._fragment,
            first,
            publish,
            recovery=True,
            on_unblocked=self._notify,
        )

    def _note_held(self, reads: RecoveryReads) -> None:
        assert self._adds is not None
        is_writing = reads.has_recovered or self._adds.pending_entries > 0
        self._share.set_held(reads.held_bytes + self._adds.pending_bytes, is_writing=is_writing)

    async def _read_slot(self, reads: RecoveryReads, slot: int, bookie_id: str) -> None:
        """Read from one bookie what the rules request, until the end is found."""
        pause_s = _FIRST_PAUSE_S
        while reads.last_entry_id is None:
            if reads.is_answer_missing(slot):
                # Before reading ahead, which may wait for bytes that are released only after this answer.
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                reads.retry(slot)
            elif reads.next_range(slot) is not None:
                max_bytes = self._answer_bytes[slot]
                size_bytes = max_bytes + _count_entries(max_bytes) * ENTRY_OVERHEAD_BYTES
                reserved = await self._share.reserve(size_bytes, lambda: reads.needs(slot))
                try:
                    # Other slots may have answered in the meantime.
                    reads.retry(slot)
                    entries = reads.next_range(slot)
                    if entries is not None:
                        first, last = entries
                        last = min(last, first + _count_entries(max_bytes) - 1)
                        granted = max_bytes if reserved == size_bytes else 1
                        await self._read(reads, slot, bookie_id, first, last, granted)
                        self._note_held(reads)
                        self._notify()
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
            self._check_deleted(bookie_id, answer.status)
            reads.add_answer(slot, parse_read_answer(request, answer))
            if answer.next_entry_id <= last:
                self._answer_bytes[slot] = min(2 * self._answer_bytes[slot], _ANSWER_BYTES)
        except (TransportError, BadAnswer) as error:
            reads.add_failure(slot, first, last, str(error))

    def _explain_undecided(self, reads: RecoveryReads, unwritten: int) -> str:
        if reads.last_entry_id is not None:
            return f"{unwritten} recovered entries up to {reads.last_entry_id} are not stored on an ack quorum yet"
        reasons = {self._fragment.bookies[slot]: reason for slot, reason in reads.describe_answers().items()}
        return f"unknown whether entry {reads.undecided} was completed: {_join_by_bookie(reasons)}"

    async def _find_length(self, last: int) -> int:
        """Return the size of all entries up to this confirmed one, from its record. If it is lost, a lower bound: the
        size up to a readable entry below it."""
        reader = self._client.create_entry_reader(self._ledger_id, self._metadata)
        step = 1
        while last > NO_ENTRY:
            try:
                read = await reader.read(last, last)
            except EntriesNotRead as error:
                if not error.all_answered:
                    raise _AttemptFailed(f"the ledger's length is unknown: {error}") from error
                last, step = last - step, 2 * step
            else:
                return check_record(read.records[0], self._ledger_id, last).ledger_bytes
        return 0

    # ── waiting ──

    async def _run_for_all_slots(
        self, work: Callable[[int, str], Coroutine[Any, Any, None]], is_enough: Callable[[], bool]
    ) -> None:
        """Run `work` for all slots at the same time until it is enough, the attempt fails, or its time is over."""
        timer = self._clock.call_later(max(0.0, self._deadline - self._clock.monotonic()), self._notify)
        try:
            async with OrderedTaskGroup() as tasks:
                for slot, bookie_id in enumerate(self._fragment.bookies):
                    tasks.create_task(work(slot, bookie_id))
                while not is_enough() and not self._failure and self._clock.monotonic() < self._deadline:
                    await self._pulse.wait()
                tasks.cancel()
        finally:
            timer.cancel()

    def _check_deleted(self, bookie_id: str, status: int) -> None:
        """Fail the attempt if the bookie knows of a tombstone. The next one reads the metadata again."""
        if status == ledger_pb2.DELETED:
            self._failure = self._failure or f"{bookie_id} answered that the ledger was deleted"
            self._notify()

    def _notify(self) -> None:
        """Wake all tasks that wait at this moment."""
        self._pulse.set()
        self._pulse.clear()


def _count_entries(answer_bytes: int) -> int:
    """Return how many entries to request in an answer of this size: their overhead doesn't exceed it."""
    return max(1, answer_bytes // ENTRY_OVERHEAD_BYTES)


def _join_by_bookie(texts: dict[str, str]) -> str:
    return "; ".join(f"{bookie_id}: {text}" for bookie_id, text in texts.items())
