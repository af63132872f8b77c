"""Adds to the last fragment of one ledger: the shell of the rules in `add_rules.py`.

A ledger's writer adds entries through it, and a recovery the records that it found.

    append_entries   assigns entry ids, encodes the records, and queues them at the bookies of the ensemble
    on_answer        passes a bookie's answer to the rules
    _decide          asks the rules, once per turn of the event loop, what follows from the answers of that turn, and
                     reports the completed adds

When adds are passed to the bookies' channels, they have their entry ids and are pending. When they are reported as
completed, an ack quorum has synced them and all adds before them.

A record is encoded once, with the LAC of that moment and the size of all entries so far; every bookie gets the same
bytes. Consecutive adds with the same callback are reported together, so a busy writer pays per turn and not per add.

Capacity is limited: adds are accepted while fewer than `max_pending_entries` and `max_pending_bytes` are pending, and
no bookie that the ledger needs lags.

`publish`, which the owner provides, stores an ensemble change in the ledger's metadata.

A bookie that failed is put into quarantine, for all ledgers. One that refused only this ledger is not chosen for it
again. A bookie that lags is treated as failed if the ledger can do without it. While the ledger needs such a bookie,
`is_blocked` is True, and no add is accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.errors import (
    AddFailed,
    EnsembleOutdated,
    LedgerFenced,
    MetadataUnknown,
    TooManyPending,
    WriterClosed,
)
from magnetar_bookie.ledger.add_channel import AddChannel
from magnetar_bookie.ledger.add_rules import Complete, Fail, PendingAdds
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_rules import EnsembleChange, choose_replacement
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.read.record import NO_ENTRY, RECORD_HEADER_BYTES, encode_record
from magnetar_bookie.read.striping import Fragment
from magnetar_metadata.errors import MetadataError
from magnetar_protos.ledger_pb2 import Status
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory
from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import MAX_ENTRY_BYTES

__all__ = ["AppendCallback", "ReplicatedAdds"]

_log = logging.getLogger(__name__)

# Called with the first entry id of consecutive adds, or the error, and the number of adds.
AppendCallback = Callable[[int | AddFailed, int], object]
# Refusals that concern the bookie and end by themselves. All others concern this ledger, and would be repeated.
_TEMPORARY_REFUSALS: Final = frozenset({Status.READ_ONLY})
_OK: Final = Status.OK  # protobuf's enums look up each name in Python


@dataclass(slots=True)
class _Run:
    """Undecided adds of consecutive entries with the same callback."""

    first: int
    count: int
    done: AppendCallback


class ReplicatedAdds:
    """The pending adds of one ledger, and the channels to its bookies."""

    __slots__ = (
        "_appended_bytes",
        "_bookies",
        "_channels",
        "_client",
        "_detach",
        "_ended",
        "_first_pending",
        "_is_stopped",
        "_ledger_id",
        "_master_key",
        "_max_bytes",
        "_max_entries",
        "_next_entry_id",
        "_on_decided",
        "_on_unblocked",
        "_pending",
        "_publish",
        "_publishing",
        "_recovery",
        "_refused_runs",
        "_refusing",
        "_runs",
        "_stop_listening",
        "_waiting",
        "_will_decide",
        "has_failed_adds",
        "is_blocked",
        "length_bytes",
        "pending_bytes",
        "pending_entries",
        "recorded_lac",
        "rules",
    )

    def __init__(
        self,
        client: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        fragment: Fragment,
        next_entry_id: int,
        publish: Callable[[EnsembleChange], Awaitable[None]],
        *,
        recovery: bool,
        on_decided: Callable[[], object] = lambda: None,
        on_unblocked: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_decided` is called after the callbacks of all adds that were decided together; `on_unblocked`, when
        `is_blocked` becomes False."""
        self._client = client
        self._bookies = client.bookies
        self._ledger_id = ledger_id
        self._master_key = metadata.master_key
        self._publish = publish
        self._recovery = recovery
        self._on_decided = on_decided
        self._on_unblocked = on_unblocked
        self._max_entries = client.settings.max_pending_entries
        self._max_bytes = client.settings.max_pending_bytes
        self.rules = PendingAdds(ledger_id, metadata.striping, fragment, next_entry_id, self._choose)
        self._next_entry_id = next_entry_id
        # The size of all appended entries, and of the completed ones.
        self._appended_bytes = 0
        self.length_bytes = 0
        # The LAC in the last record.
        self.recorded_lac = NO_ENTRY
        # An add failed for another reason than the end of its writer.
        self.has_failed_adds = False
        # The ledger needs a bookie that lags.
        self.is_blocked = False
        # By entry id, without gaps from `_first_pending` on: the pending records. Fields, since each add reads them.
        self._pending: dict[int, bytes] = {}
        self._first_pending = next_entry_id
        self.pending_entries = 0
        self.pending_bytes = 0
        self._runs: deque[_Run] = deque()
        # Adds after the failure or the end. They fail after all that was pending.
        self._refused_runs: deque[_Run] = deque()
        # Bookies that refused this ledger.
        self._refusing: dict[str, None] = {}
        # By slot: the channels to the last fragment's bookies, and what detaches from each.
        self._channels: list[AddChannel] = []
        self._detach: list[Callable[[], object]] = []
        self._will_decide = False
        self._ended: AddFailed | None = None
        self._is_stopped = False
        self._publishing: asyncio.Task[None] | None = None
        # Callers of `wait_until_idle`.
        self._waiting: list[asyncio.Future[None]] = []
        self._attach_to(fragment)
        self._stop_listening = self._bookies.add_listener(self._on_bookies_changed)

    def has_capacity(self) -> bool:
        """Return whether `append_entries` accepts an entry, or would fail for another reason."""
        if self._ended is not None:
            return True
        return not self.is_blocked and self.pending_entries < self._max_entries and self.pending_bytes < self._max_bytes

    def count_capacity(self) -> tuple[int, int]:
        """Return how many entries, and how many bytes of their records' memory (`count_entry_memory`),
        `append_entries` accepts. One entry may exceed the bytes."""
        if not self.has_capacity():
            return 0, 0
        return self._max_entries - self.pending_entries, self._max_bytes - self.pending_bytes

    def append_entries(self, entries: Sequence[bytes], done: AppendCallback, *, are_records: bool = False) -> int:
        """Add entries without waiting, and return the id of the first. With `are_records` they are records already.

        `done` is called later, in order, once or more. Not more than `count_capacity` may be added. Raises
        `TooManyPending` if there is no capacity, and `TooLarge` if an entry exceeds `MAX_ENTRY_BYTES`; then nothing is
        added.
        """
        if not are_records and (largest := max(map(len, entries))) > MAX_ENTRY_BYTES:
            raise TooLarge(f"the entry has {largest} bytes, above the limit of {MAX_ENTRY_BYTES}")
        if not self.has_capacity():
            raise TooManyPending(
                f"ledger {self._ledger_id} has {self.pending_entries} pending adds of {self.pending_bytes} "
                f"bytes, and may have {self._max_entries} of {self._max_bytes} bytes"
                + (f"; it needs {', '.join(self.rules.blocking_bookies)}, which lag behind" if self.is_blocked else "")
                + ": wait until some are completed"
            )
        rules, ledger_id = self.rules, self._ledger_id
        first, count = self._next_entry_id, len(entries)
        self._next_entry_id = first + count
        if are_records:
            records, memory_bytes = entries, count_entry_memory(entries)
        else:
            length, confirmed, records = self._appended_bytes, rules.last_add_confirmed, []
            for entry_id, entry in enumerate(entries, first):
                length += len(entry)
                records.append(encode_record(ledger_id, entry_id, confirmed, length, entry))
            memory_bytes = length - self._appended_bytes + count * (RECORD_HEADER_BYTES + ENTRY_OVERHEAD_BYTES)
            self._appended_bytes, self.recorded_lac = length, confirmed
        if rules.failure is not None or self._ended is not None:
            self._refused_runs.append(_Run(first, count, done))
            self._decide_soon()
            return first
        sends = rules.add(first, count)
        self._pending.update(enumerate(records, first))
        self.pending_entries += count
        self.pending_bytes += memory_bytes
        runs = self._runs
        if runs and runs[-1].done is done:
            runs[-1].count += count
        else:
            runs.append(_Run(first, count, done))
        for slots, sent_first, number in sends:
            at = sent_first - first
            some = records[at : at + number] if number < count else records
            for slot in slots:
                self._channels[slot].send(ledger_id, self._master_key, sent_first, some)
        return first

    async def wait_until_idle(self) -> None:
        """Wait until all adds are decided and no ensemble change is in flight."""
        while not self._is_idle():
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(idle)
            await idle

    def fail(self, error: AddFailed) -> None:
        """Fail all adds, since the ledger is lost."""
        self.rules.fail(error)
        self._decide_soon()

    def refuse_new_adds(self) -> None:
        """Fail adds from now on, after those that are pending."""
        if self._ended is None:
            self._ended = WriterClosed(f"the writer of ledger {self._ledger_id} was closed by its owner")

    def stop(self) -> None:
        """Send nothing more and ignore all answers. Pending adds fail in the next turn of the event loop."""
        if self._is_stopped:
            return
        self.refuse_new_adds()
        self._is_stopped = True
        self._stop_listening()
        self._detach_all()
        if (self._pending or self.rules.ensemble.change) and self._ended is not None:
            self.fail(self._ended)
        if self._publishing is not None:
            self._publishing.cancel()

    # ── `AddCallbacks` ──

    def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        if status == _OK:
            self.rules.mark_acked(bookie_id, first_entry_id, count)
        elif status == Status.DELETED or (status == Status.FENCED and not self._recovery):
            reason = f"bookie {bookie_id} answered {format_status(status)}"
            self.rules.fail(LedgerFenced(f"this writer has lost ledger {self._ledger_id} to another one: {reason}"))
        else:
            self._mark_failed(
                bookie_id, f"it refused an add: {format_status(status)}", is_temporary=status in _TEMPORARY_REFUSALS
            )
        if not self._will_decide:
            self._decide_soon()

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        self._mark_failed(bookie_id, reason, is_temporary=True)
        self._decide_soon()

    def on_bookie_lags(self, bookie_id: str, reason: str) -> None:
        self.rules.ensemble.set_lagging(bookie_id, True)
        # At once, so that nothing more is added in this turn of the event loop.
        self.is_blocked = bool(self.rules.blocking_bookies)
        self._decide_soon()

    def on_bookie_caught_up(self, bookie_id: str) -> None:
        self.rules.ensemble.set_lagging(bookie_id, False)
        self._decide_soon()

    # ── bookies ──

    def _abandon_unneeded(self) -> None:
        """Send nothing more to the lagging bookies that the ledger can do without. Their other ledgers continue."""
        for bookie_id in self.rules.ensemble.unneeded_lagging_bookies:
            slot = self.rules.fragment.bookies.index(bookie_id)
            self._channels[slot].abandon(self._ledger_id, self)
            self._mark_failed(bookie_id, "it lags behind, and the other bookies suffice", is_temporary=True)

    def _mark_failed(self, bookie_id: str, reason: str, *, is_temporary: bool) -> None:
        if is_temporary:
            self._bookies.quarantine(bookie_id)
        else:
            self._refusing[bookie_id] = None
        if self.rules.mark_bookie_failed(bookie_id):
            _log.warning("Bookie %s failed for ledger %d: %s", bookie_id, self._ledger_id, reason)

    def _on_bookies_changed(self) -> None:
        """Replace lost bookies if others are available, before auto-recovery has to, and retry absent slots.

        A lost bookie without a replacement stays: it may still serve without its registration.
        """
        members = self.rules.fragment.bookies
        lost = [bookie_id for bookie_id in members if self._bookies.is_long_unregistered(bookie_id)]
        if lost:
            spare = sum(candidate not in members for candidate in self._candidates())
            for bookie_id in lost[:spare]:
                self.rules.mark_bookie_failed(bookie_id)
        elif not self.rules.ensemble.absent_slots:
            return
        self.rules.ensemble.retry_absent_slots()
        self._decide_soon()

    def _candidates(self) -> list[str]:
        return [bookie_id for bookie_id in self._bookies.writable() if bookie_id not in self._refusing]

    def _choose(self, others: Sequence[str]) -> str | None:
        return choose_replacement(others, self._candidates(), self._client.randomness)

    # ── decisions ──

    def _decide_soon(self) -> None:
        """Call `_decide` once for all events of this turn of the event loop."""
        if not self._will_decide:
            self._will_decide = True
            asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        self._will_decide = False
        rules = self.rules
        if rules.ensemble.lagging and not self._is_stopped and rules.failure is None:
            self._abandon_unneeded()
        # After `stop` only a failure is left to report.
        for action in rules.decide() if not self._is_stopped or rules.failure else ():
            if isinstance(action, Complete):
                self._complete(action.up_to)
            elif isinstance(action, EnsembleChange):
                self._begin_change(action)
            elif isinstance(action, Fail):
                self._fail_pending(action.error)
        if self._refused_runs and not self._pending:
            while self._refused_runs and not self._pending:
                error = rules.failure or self._ended
                assert error is not None
                self._report_failed(self._refused_runs.popleft(), error)
            self._on_decided()
        if self.is_blocked and not rules.blocking_bookies:
            self.is_blocked = False
            self._on_unblocked()
        if self._waiting and self._is_idle():
            waiting, self._waiting = self._waiting, []
            for idle in waiting:
                if not idle.done():
                    idle.set_result(None)

    def _is_idle(self) -> bool:
        if self.rules.failure is not None:
            return not (self._pending or self._refused_runs)
        return not self._pending and self.rules.ensemble.change is None

    def _complete(self, up_to: int) -> None:
        completed = list(map(self._pending.pop, range(self._first_pending, up_to + 1)))
        count, size = len(completed), sum(map(len, completed))
        self._first_pending = up_to + 1
        self.pending_entries -= count
        self.pending_bytes -= size + count * ENTRY_OVERHEAD_BYTES
        self.length_bytes += size - count * RECORD_HEADER_BYTES
        # All are taken from the queue before the first callback, which may add entries or stop the ledger.
        decided: list[tuple[AppendCallback, int, int]] = []
        runs = self._runs
        while runs and (run := runs[0]).first <= up_to:
            first, number = run.first, up_to + 1 - run.first
            if number < run.count:
                run.first, run.count = up_to + 1, run.count - number
            else:
                number = runs.popleft().count
            decided.append((run.done, first, number))
        for done, first, number in decided:
            try:
                done(first, number)
            except Exception:  # noqa: BLE001 (an error of one caller must not keep the others from being notified)
                _log.exception("The callback of an add failed")
        self._on_decided()

    def _fail_pending(self, error: AddFailed) -> None:
        if not self._is_stopped:
            _log.warning("Adds to ledger %d fail: %s", self._ledger_id, error)
        self._detach_all()
        runs, self._runs = self._runs, deque()
        self._pending, self.pending_entries, self.pending_bytes = {}, 0, 0
        for run in runs:
            self._report_failed(run, error)
        self._on_decided()

    def _report_failed(self, run: _Run, error: AddFailed) -> None:
        if not isinstance(error, WriterClosed):
            self.has_failed_adds = True
        try:
            run.done(error, run.count)
        except Exception:  # noqa: BLE001 (an error of one caller must not keep the others from being notified)
            _log.exception("The callback of an add failed")

    # ── ensemble changes ──

    def _begin_change(self, change: EnsembleChange) -> None:
        if self._bookies.is_closed:
            self.fail(WriterClosed(f"ledger {self._ledger_id} can't be written any more: the ledger client is closed"))
        else:
            self._publishing = self._bookies.spawn(self._publish_change(change))

    async def _publish_change(self, change: EnsembleChange) -> None:
        fragment, is_refused = change.fragment, False
        try:
            await self._publish(change)
        except EnsembleOutdated as error:
            is_refused = True
            _log.info("Ledger %d needs other bookies than %s: %s", self._ledger_id, change.new_bookies, error)
            with suppress(MetadataError):  # they can't be chosen until their cookies are read
                await self._bookies.reread_cookies(error.bookie_ids)
        except AddFailed as error:
            self.rules.fail(error)
        except Exception as error:  # noqa: BLE001 (after any other error it is unknown what the metadata have)
            self.rules.fail(
                MetadataUnknown(
                    f"unknown whether ledger {self._ledger_id} has a new ensemble from entry "
                    f"{fragment.first_entry_id} on: {error}; close the ledger"
                )
            )
        self._publishing = None
        if is_refused:
            self.rules.ensemble.abort_change()
        elif self.rules.failure is None:
            self._commit_change(fragment)
        self._decide_soon()

    def _commit_change(self, fragment: Fragment) -> None:
        sends = self.rules.commit_change()
        self._attach_to(fragment)
        for send in sends:
            channel = self._channels[send.slot]
            for entry_id in send.entry_ids:
                record = self._pending[entry_id]
                channel.send(self._ledger_id, self._master_key, entry_id, [record])

    def _attach_to(self, fragment: Fragment) -> None:
        """Receive answers from these bookies only."""
        self._detach_all()
        self._channels = [
            self._bookies.get_add_channel(bookie_id, recovery=self._recovery) for bookie_id in fragment.bookies
        ]
        self._detach = [channel.attach(self._ledger_id, self) for channel in self._channels]

    def _detach_all(self) -> None:
        for detach in self._detach:
            detach()
        self._detach = []
