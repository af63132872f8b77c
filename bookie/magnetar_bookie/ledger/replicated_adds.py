"""Adds to the last fragment of one ledger: the shell of the rules in `add_rules.py`.

A ledger's writer adds through it, and so does recovery with the records that it found. It holds the pending records,
sends them to the bookies of the ensemble, and passes the bookies' answers to the rules. Once per turn of the event loop
it asks the rules what follows from the answers of that turn. `publish`, which the owner provides, stores an ensemble
change in the ledger's metadata.

A bookie that failed is put into quarantine, for all ledgers. One that refused only this ledger is not chosen for it
again. A bookie that lags is treated as failed if the ledger can do without it. While the ledger needs such a bookie,
`is_blocked` is True, and the owner must not add anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.errors import AddFailed, EnsembleOutdated, LedgerFenced, MetadataUnknown, WriterClosed
from magnetar_bookie.ledger.add_channel import AddChannel
from magnetar_bookie.ledger.add_rules import Complete, Fail, PendingAdds
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_rules import EnsembleChange, choose_replacement
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.read.striping import Fragment
from magnetar_metadata.errors import MetadataError
from magnetar_protos.ledger_pb2 import Status
from magnetar_wire.entry_memory import count_entry_memory

__all__ = ["AddCallback", "ReplicatedAdds"]

_log = logging.getLogger(__name__)

# Called with consecutive adds of one call of `add_records`: the first entry id, the records, and the error; None: the
# adds have completed.
AddCallback = Callable[[int, Sequence[bytes], AddFailed | None], object]
# Refusals that concern the bookie and end by themselves. All others concern this ledger, and would be repeated.
_TEMPORARY_REFUSALS: Final = frozenset({Status.READ_ONLY})
_OK: Final = Status.OK  # protobuf's enums look up each name in Python


@dataclass(slots=True)
class _Run:
    """The undecided adds of one call of `add_records`."""

    first: int
    records: Sequence[bytes]
    done: AddCallback


class ReplicatedAdds:
    """The pending adds of one ledger, and the channels to its bookies."""

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
        self.rules = PendingAdds(ledger_id, metadata.striping, fragment, next_entry_id, self._choose)
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

    def add_records(self, first_entry_id: int, records: Sequence[bytes], done: AddCallback) -> None:
        """Send the records of consecutive entries. `done` is called later, in order, as the adds are decided."""
        run = _Run(first_entry_id, records, done)
        rules = self.rules
        if rules.failure is not None or self._ended is not None:
            self._refused_runs.append(run)
            self._decide_soon()
            return
        count = len(records)
        sends = rules.add(first_entry_id, count)
        self._pending.update(enumerate(records, first_entry_id))
        self.pending_entries += count
        self.pending_bytes += count_entry_memory(records)
        self._runs.append(run)
        for slots, first, number in sends:
            at = first - first_entry_id
            some = records[at : at + number] if number < count else records
            for slot in slots:
                self._channels[slot].send(self._ledger_id, self._master_key, first, some)

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

    def _abandon_dispensable(self) -> None:
        """Send nothing more to the lagging bookies that the ledger can do without. Their other ledgers continue."""
        for bookie_id in self.rules.ensemble.dispensable:
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
        lost = [bookie_id for bookie_id in members if self._bookies.is_lost(bookie_id)]
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
            self._abandon_dispensable()
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
                _notify([self._refused_runs.popleft()], rules.failure or self._ended)
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
        self._first_pending = up_to + 1
        self.pending_entries -= len(completed)
        self.pending_bytes -= count_entry_memory(completed)
        decided, runs = [], self._runs
        while runs and runs[0].first <= up_to:
            run = runs[0]
            count = up_to + 1 - run.first
            if count < len(run.records):
                decided.append(_Run(run.first, run.records[:count], run.done))
                run.first, run.records = up_to + 1, run.records[count:]
                break
            decided.append(runs.popleft())
        _notify(decided, None)
        self._on_decided()

    def _fail_pending(self, error: AddFailed) -> None:
        if not self._is_stopped:
            _log.warning("Adds to ledger %d fail: %s", self._ledger_id, error)
        self._detach_all()
        runs, self._runs = self._runs, deque()
        self._pending, self.pending_entries, self.pending_bytes = {}, 0, 0
        _notify(runs, error)
        self._on_decided()

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


def _notify(runs: Iterable[_Run], error: AddFailed | None) -> None:
    for run in runs:
        try:
            run.done(run.first, run.records, error)
        except Exception:  # noqa: BLE001 (an error of one caller must not keep the others from being notified)
            _log.exception("The callback of an add failed")
