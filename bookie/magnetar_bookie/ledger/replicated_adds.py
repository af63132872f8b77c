"""Adds to one ledger's last fragment: what ledger/add_rules.py decides, done.

The writer adds through it, and recovery does with the records that it keeps. It keeps the pending records, sends them
to the ensemble's bookies, and hands what bookies answer to the rules. After the answers of one turn of the event loop
it asks the rules once what follows. A new ensemble is made known by `publish`, its owner's; a bookie that failed is put
into quarantine, or, where it refused this very ledger, is not chosen for it again.

A bookie that lags is left, like one that failed, where the ledger can do without it. While the ledger needs it,
`held_up` is True, and the owner adds nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.errors import AddFailed, EnsembleOutdated, LedgerFenced, MetadataUnknown, WriterClosed
from magnetar_bookie.ledger.add_channel import AddChannel
from magnetar_bookie.ledger.add_rules import Complete, Fail, PendingAdds
from magnetar_bookie.ledger.bookies import Bookies
from magnetar_bookie.ledger.ensemble_rules import Change
from magnetar_bookie.ledger.placement import Placement
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.errors import MetadataError
from magnetar_protos.ledger_pb2 import Status
from magnetar_wire.clock import Clock
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.randomness import Randomness

__all__ = ["AddCallback", "ReplicatedAdds"]

log = logging.getLogger(__name__)

# Called with some adds of a run, from the first that was not told on: its entry id, their records, and what they came
# to; None: they have completed.
AddCallback = Callable[[int, Sequence[bytes], AddFailed | None], object]
# What a bookie says for a reason of its own, which passes. Other refusals are of this ledger, and would come again.
_PASSING: Final = frozenset({Status.READ_ONLY})
_OK: Final = Status.OK  # an enum of protobuf looks each name up in Python


@dataclass(slots=True)
class _Run:
    """Adds that were asked for at one time, less those that were told."""

    first: int
    records: Sequence[bytes]
    done: AddCallback


class ReplicatedAdds:
    def __init__(
        self,
        ledger_id: int,
        master_key: bytes,
        striping: Striping,
        fragment: Fragment,
        next_entry_id: int,
        bookies: Bookies,
        placement: Placement,
        publish: Callable[[Change], Awaitable[None]],
        clock: Clock,
        randomness: Randomness,
        settings: LedgerClientSettings,
        *,
        recovery: bool,
        told: Callable[[], object] = lambda: None,
        released: Callable[[], object] = lambda: None,
    ) -> None:
        # Called after adds were told their fate, once for all that were at a time.
        self._told = told
        # Called when `held_up` becomes False.
        self._released = released
        # A bookie lags that the ledger needs.
        self.held_up = False
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._bookies = bookies
        self._placement = placement
        self._publish = publish
        self._randomness = randomness
        self._recovery = recovery
        self._pipeline = PendingAdds(ledger_id, striping, fragment, next_entry_id, self._choose)
        # By entry id, without gaps from `_first_pending` on: the records that are pending; and whom to tell.
        self._pending: dict[int, bytes] = {}
        self._first_pending = next_entry_id
        self._runs: deque[_Run] = deque()
        self._pending_bytes = 0
        # Added after the failure or the end: told of it behind all that was pending.
        self._late: deque[_Run] = deque()
        # Bookies that refused this ledger.
        self._refusing: dict[str, None] = {}
        # By slot, for the last fragment's bookies, each attached.
        self._channels: list[AddChannel] = []
        self._detach: list[Callable[[], None]] = []
        self._settling = False
        self._ended: AddFailed | None = None
        self._stopped = False
        self._publishing: asyncio.Task[None] | None = None
        # Those that wait until nothing is pending.
        self._waiting: list[asyncio.Future[None]] = []
        self._attach(fragment)
        self._end_listening = bookies.listen(self._bookies_changed)

    @property
    def last_add_confirmed(self) -> int:
        return self._pipeline.last_add_confirmed

    @property
    def fragment(self) -> Fragment:
        """The last one that is published."""
        return self._pipeline.fragment

    @property
    def failed(self) -> AddFailed | None:
        return self._pipeline.failed

    @property
    def pending_entries(self) -> int:
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """The memory of the records that are pending."""
        return self._pending_bytes

    @property
    def absent(self) -> list[int]:
        """Slots whose bookie failed, and which nobody could be found for."""
        return self._pipeline.absent

    @property
    def held_up_by(self) -> list[str]:
        """The bookies that `held_up` is due to."""
        return self._pipeline.held_up_by

    def add(self, first_entry_id: int, records: Sequence[bytes], done: AddCallback) -> None:
        """Sends the records. `done` is called when their fate is known here, in order, never from within this call."""
        run = _Run(first_entry_id, records, done)
        if self._pipeline.failed is not None or self._ended is not None:
            self._late.append(run)
            self._settle_soon()
            return
        sends = self._pipeline.add_run(first_entry_id, len(records))
        self._pending.update(enumerate(records, first_entry_id))
        self._pending_bytes += count_entry_memory(records)
        self._runs.append(run)
        for slots, first, count in sends:
            at = first - first_entry_id
            some = records[at : at + count] if count < len(records) else records
            for slot in slots:
                self._channels[slot].send(self._ledger_id, self._master_key, first, some, recovery=self._recovery)

    async def wait_until_idle(self) -> None:
        """Returns when nothing is pending and no ensemble change is under way: all done, or failed."""
        while not self._resting():
            resting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(resting)
            await resting

    def lose(self, error: AddFailed) -> None:
        """Somebody else found out that the ledger is lost."""
        self._pipeline.lose(error)
        self._settle_soon()

    def end(self) -> None:
        """Takes no more: what is added from now on fails, behind what is pending."""
        if self._ended is None:
            self._ended = WriterClosed(f"the writer of ledger {self._ledger_id} was closed by its owner")

    def stop(self) -> None:
        """Nothing more is sent, and nothing more is heard of. What is pending fails, in the next turn of the loop."""
        if self._stopped:
            return
        self.end()
        self._stopped = True
        self._end_listening()
        self._release()
        if (self._pending or self._pipeline.changing) and self._ended is not None:
            self.lose(self._ended)
        if self._publishing is not None:
            self._publishing.cancel()

    # ── what the bookies say ──

    def answered(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        if status == _OK:
            self._pipeline.acked(bookie_id, first_entry_id, count)
        elif status == Status.DELETED or (status == Status.FENCED and not self._recovery):
            said = f"bookie {bookie_id} answered {format_status(status)}"
            self._pipeline.lose(LedgerFenced(f"this writer has lost ledger {self._ledger_id} to another one: {said}"))
        else:
            self._bookie_failed(bookie_id, f"it refused an add: {format_status(status)}", passes=status in _PASSING)
        self._settle_soon()

    def bookie_failed(self, bookie_id: str, reason: str) -> None:
        self._bookie_failed(bookie_id, reason, passes=True)
        self._settle_soon()

    def bookie_lags(self, bookie_id: str, reason: str) -> None:
        self._pipeline.set_lagging(bookie_id, True)
        # At once, so that nothing more is added in this turn of the loop.
        self.held_up = bool(self._pipeline.held_up_by)
        self._settle_soon()

    def bookie_caught_up(self, bookie_id: str) -> None:
        self._pipeline.set_lagging(bookie_id, False)
        self._settle_soon()

    def _abandon_dispensable(self) -> None:
        """Sends the bookies that lag, and that the ledger can do without, nothing more. Others' adds there go on."""
        for bookie_id in self._pipeline.dispensable():
            slot = self._pipeline.fragment.bookies.index(bookie_id)
            self._channels[slot].abandon(self._ledger_id, self)
            self._bookie_failed(bookie_id, "it lags behind, and the other bookies suffice", passes=True)

    def _bookie_failed(self, bookie_id: str, reason: str, *, passes: bool) -> None:
        if passes:
            self._bookies.quarantine(bookie_id)
        else:
            self._refusing[bookie_id] = None
        if self._pipeline.bookie_failed(bookie_id):
            log.warning("Bookie %s failed for ledger %d: %s", bookie_id, self._ledger_id, reason)

    def _bookies_changed(self) -> None:
        """Fills absent slots; and replaces bookies that are lost, as far as others are there, before repair has to.

        A lost bookie without a substitute stays: it may serve on though its registration is gone.
        """
        members = self._pipeline.fragment.bookies
        lost = [bookie_id for bookie_id in members if self._bookies.lost(bookie_id)]
        if lost:
            spare = sum(candidate not in members for candidate in self._candidates())
            for bookie_id in lost[:spare]:
                self._pipeline.bookie_failed(bookie_id)
        elif not self._pipeline.absent:
            return
        self._pipeline.refill_absent_slots()
        self._settle_soon()

    def _candidates(self) -> list[str]:
        return [bookie_id for bookie_id in self._bookies.writable() if bookie_id not in self._refusing]

    def _choose(self, others: Sequence[str]) -> str | None:
        return self._placement.replacement(others, self._candidates(), self._randomness)

    # ── what follows ──

    def _settle_soon(self) -> None:
        """Once for all that happens in this turn of the loop."""
        if not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = False
        if not self._stopped:
            self._abandon_dispensable()
        # After the end nothing but a failure is left to be told.
        for action in self._pipeline.settle() if not self._stopped or self._pipeline.failed else ():
            if isinstance(action, Complete):
                self._complete(action.up_to)
            elif isinstance(action, Change):
                self._begin_change(action)
            elif isinstance(action, Fail):
                self._fail(action.error)
        if self._late and not self._pending:
            while self._late and not self._pending:
                run = self._late.popleft()
                _tell(run, self._pipeline.failed or self._ended)
            self._told()
        if self.held_up and not self._pipeline.held_up_by:
            self.held_up = False
            self._released()
        if self._waiting and self._resting():
            waiting, self._waiting = self._waiting, []
            for resting in waiting:
                if not resting.done():
                    resting.set_result(None)

    def _resting(self) -> bool:
        if self._pipeline.failed is not None:
            return not (self._pending or self._late)
        return not self._pending and not self._pipeline.changing

    def _complete(self, up_to: int) -> None:
        completed = list(map(self._pending.pop, range(self._first_pending, up_to + 1)))
        self._first_pending = up_to + 1
        self._pending_bytes -= count_entry_memory(completed)
        while self._runs and self._runs[0].first <= up_to:
            run = self._runs[0]
            count = up_to + 1 - run.first
            if count < len(run.records):
                told = _Run(run.first, run.records[:count], run.done)
                run.first, run.records = up_to + 1, run.records[count:]
                _tell(told, None)
                break
            self._runs.popleft()
            _tell(run, None)
        self._told()

    def _fail(self, error: AddFailed) -> None:
        if not self._stopped:
            log.warning("Adds to ledger %d fail: %s", self._ledger_id, error)
        self._release()
        runs, self._runs = self._runs, deque()
        self._pending, self._pending_bytes = {}, 0
        for run in runs:
            _tell(run, error)
        self._told()

    def _begin_change(self, change: Change) -> None:
        if self._bookies.closed:
            self.lose(WriterClosed(f"ledger {self._ledger_id} can't be written any more: the ledger client is closed"))
        else:
            self._publishing = self._bookies.spawn(self._publish_change(change))

    async def _publish_change(self, change: Change) -> None:
        fragment, refused = change.fragment, False
        try:
            await self._publish(change)
        except EnsembleOutdated as error:
            refused = True
            log.info("Ledger %d needs other bookies than %s: %s", self._ledger_id, change.named, error)
            with suppress(MetadataError):  # until they are read again they are not chosen
                await self._bookies.reread_cookies(error.bookie_ids)
        except AddFailed as error:
            self._pipeline.lose(error)
        except Exception as error:  # noqa: BLE001 (whatever it is: nobody knows what the metadata says now)
            self._pipeline.lose(
                MetadataUnknown(
                    f"unknown whether ledger {self._ledger_id} has a new ensemble from entry "
                    f"{fragment.first_entry_id} on: {error}; close the ledger"
                )
            )
        self._publishing = None
        if refused:
            self._pipeline.abort_change()
        elif self._pipeline.failed is None:
            self._adopt_fragment(fragment)
        self._settle_soon()

    def _adopt_fragment(self, fragment: Fragment) -> None:
        sends = self._pipeline.commit_change()
        self._attach(fragment)
        for send in sends:
            channel = self._channels[send.slot]
            for entry_id in send.entry_ids:
                record = self._pending[entry_id]
                channel.send(self._ledger_id, self._master_key, entry_id, [record], recovery=self._recovery)

    def _attach(self, fragment: Fragment) -> None:
        """Hears of these bookies from now on, and of no others."""
        self._release()
        self._channels = [self._bookies.adds(bookie_id, recovery=self._recovery) for bookie_id in fragment.bookies]
        self._detach = [channel.attach(self._ledger_id, self) for channel in self._channels]

    def _release(self) -> None:
        for detach in self._detach:
            detach()
        self._detach = []


def _tell(run: _Run, error: AddFailed | None) -> None:
    try:
        run.done(run.first, run.records, error)
    except Exception:  # its owner's mistake must not keep the others from hearing
        log.exception("The callback of an add failed")
