"""The auditor: goes through the ledgers' metadata and says what is to be done about it.

One pass: look at the bookies, then read every ledger's node.

- A ledger that names a lost bookie gets a task (core/audit.py).
- From a tombstone the bookies without a cookie are taken off: nobody is left who could drop the ledger there. The node
  goes with the last of them. A holder that is alive and still named at the next pass may never have heard of the
  ledger, as it was never written to: it is told, by a fence, and takes itself off.
- The ledgers that name a bookie which is leaving are counted. Only a pass that has read every node counts
  (decommission.py).

Then the intents are swept (sweeper.py). A pass is made when a bookie has been away for long enough, when one is marked
as leaving or no more, when an intent is due, and from time to time; not when a bookie comes or goes, as nothing is to
be done then. Beside it closed ledgers are checked against inventories, a few at a time.

Why two auditors at once do no harm
-----------------------------------
One that was paused and wakes up goes on until it looks at its session. A task too many costs a look. Taking a bookie
off a tombstone relies on its having no cookie at that moment, which is read afresh each time, and which a bookie has
before any ledger names it. Deleting a cookie and setting `sweeping` are compare-and-sets, and what follows them
(sweeper.py) may be done by anybody at any time.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.alarm import Alarm
from magnetar_bookie.auto_recovery.checker import Checker
from magnetar_bookie.auto_recovery.cluster import Cluster
from magnetar_bookie.auto_recovery.decommission import decommission_progress, note_ledgers_left
from magnetar_bookie.auto_recovery.ledger_nodes import decoded, ledger_nodes
from magnetar_bookie.auto_recovery.sweeper import Sweeper
from magnetar_bookie.auto_recovery.tasks import Tasks
from magnetar_bookie.core.audit import bookies_to_replace
from magnetar_bookie.core.lost_bookies import ClusterView
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue, OutcomeUnknown, StoreFull, Unavailable
from magnetar_protos.ledger_pb2 import FenceAnswer, FenceRequest
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import TransportError

__all__ = ["Auditor"]

_log = logging.getLogger(__name__)


class Auditor:
    """One term of office."""

    def __init__(
        self, client: LedgerClient, cluster: Cluster, settings: AutoRecoverySettings, allowed: Callable[[], bool]
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        # Asked before each act: the term may be over.
        self._allowed = allowed
        self._tasks = Tasks(client)
        self._sweeper = Sweeper(client, settings.intent_grace_period_seconds)
        self._checker = Checker(client, settings, allowed)
        # Tombstones that were there at the last pass already.
        self._lingering: dict[int, None] = {}
        # Bookies without a cookie that ledgers name, as this pass found out.
        self._strangers: dict[str, None] = {}
        self._alarm = Alarm(client.clock)
        # Since the last pass began.
        self._leaving_changed = False

    async def run(self) -> None:
        """Until cancelled, or the session is lost (`SessionLost`)."""
        stop = self._cluster.follow(self._alarm.ring)
        watch = self._client.ledgers.store.watch(paths.LEAVING)
        try:
            # A new watch is up: the first pass is the one that it asks for.
            await watch.wait()
            async with OrderedTaskGroup() as group:
                group.create_task(self._scanning())
                group.create_task(self._checker.run())
                while True:
                    await watch.wait()
                    self._leaving_changed = True
                    self._alarm.ring()
        finally:
            watch.close()
            stop()

    async def _scanning(self) -> None:
        clock = self._client.clock
        while True:
            self._leaving_changed = False
            began_at = clock.monotonic()
            try:
                await self.scan()
            except (Unavailable, StoreFull) as error:
                _log.info("The audit waits until the metadata store answers: %s", error)
                await clock.sleep(self._settings.metadata_retry_seconds)
                continue
            self._checker.ring()
            ended_at = clock.monotonic()
            while not self._leaving_changed and (wait_s := self._due_at(began_at, ended_at) - clock.monotonic()) > 0:
                await self._alarm.wait(wait_s)

    def _due_at(self, began_at: float, ended_at: float) -> float:
        """When the next pass is, after one. A bookie that goes meanwhile moves it forward, to when it is lost."""
        lost_at = self._cluster.lost.next_due(began_at, self._settings.open_ledger_rereplication_grace_period_seconds)
        moments = [ended_at + self._settings.auditor_scan_interval_seconds, lost_at, self._sweeper.next_due()]
        # What was due already was tried just now: not again without a pause.
        return max(min(at for at in moments if at is not None), ended_at + self._settings.metadata_retry_seconds)

    async def scan(self) -> None:
        """One pass."""
        self._strangers = {}
        view = await self._cluster.look()
        marks = await self._marks(view)
        left = dict.fromkeys(marks, 0)
        closed: list[int] = []
        tombstones: list[int] = []
        whole = True
        async for ledger_id, read in ledger_nodes(self._client.ledgers):
            if not self._allowed():
                return
            if read is None:
                continue  # deleted during the walk
            try:
                metadata, version = decoded(read)
            except (LedgerError, ForeignValue) as error:
                self._client.ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
                whole = False
                continue
            for bookie_id in _names(metadata, view):
                if bookie_id in left:
                    left[bookie_id] += 1
            try:
                if metadata.state is LedgerState.TOMBSTONE:
                    tombstones.append(ledger_id)
                    await self._bury(ledger_id, metadata)
                else:
                    await self._report(ledger_id, metadata)
            except OutcomeUnknown as error:
                _log.info("Ledger %s is postponed to the next audit: %s", ledger_id, error)
            except (LedgerError, ForeignValue) as error:  # since it was read
                self._client.ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
            if metadata.closed and metadata.fragments:
                closed.append(ledger_id)
                self._checker.schedule.scanned(ledger_id, version)
        self._checker.schedule.forget_all_but(closed)
        self._lingering = dict.fromkeys(tombstones)
        if whole:
            for bookie_id, ledgers_left in left.items():
                if self._allowed():
                    await self._note_left(bookie_id, marks[bookie_id], ledgers_left)
        await self._sweeper.sweep(self._allowed)

    async def _marks(self, view: ClusterView) -> dict[str, bytes]:
        """The decommissions that this pass counts for. Read before any ledger, or one could be newer than the count."""
        marks = {}
        for bookie_id in view.leaving:
            try:
                progress = await decommission_progress(self._client, bookie_id)
            except ForeignValue as error:
                self._client.ledgers.undecodable_nodes.log_once(paths.leaving(bookie_id), error)
                continue
            if progress is not None and not progress.done:
                marks[bookie_id] = progress.mark
        return marks

    async def _note_left(self, bookie_id: str, mark: bytes, ledgers_left: int) -> None:
        try:
            await note_ledgers_left(self._client, bookie_id, mark, ledgers_left)
        except ForeignValue as error:
            self._client.ledgers.undecodable_nodes.log_once(paths.leaving(bookie_id), error)

    async def _report(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        lost, grace_s = self._cluster.lost, self._settings.open_ledger_rereplication_grace_period_seconds
        strangers = [one for one in metadata.bookies() if one not in lost.view.cookies and one not in self._strangers]
        if strangers:
            await self._cluster.look()  # they may be newer than the last look
            self._strangers |= dict.fromkeys(one for one in strangers if one not in lost.view.cookies)
        now = self._client.clock.monotonic()
        lost.name(metadata.bookies(), now)
        names = bookies_to_replace(metadata, lost, now, grace_s)
        if names:
            await self._tasks.report(ledger_id, names)

    async def _bury(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Has the tombstone come to its end, where its holders would not by themselves."""
        client, cookies = self._client, self._cluster.lost.view.cookies
        if not metadata.holders or any(one not in cookies for one in metadata.holders):
            await client.ledgers.store.sync()
            gone = [one for one in metadata.holders if await client.ledgers.store.exists(paths.cookie(one)) is None]
            if gone or not metadata.holders:
                await client.ledgers.remove_tombstone_holders(ledger_id, gone)
        if ledger_id in self._lingering:
            for one in metadata.holders:
                if one in client.bookies.registered():
                    await self._tell(one, ledger_id, metadata.master_key)

    async def _tell(self, bookie_id: str, ledger_id: int, master_key: bytes) -> None:
        """A bookie looks after the ledgers that it has heard of, and by a fence it hears of this one."""
        request = FenceRequest(ledger_id=ledger_id, master_key=master_key)
        timeout_s = self._client.settings.read_entry_timeout_seconds
        # It will be told again.
        with contextlib.suppress(TransportError):
            await self._client.bookies.call(bookie_id, "fence", request, FenceAnswer, timeout_s=timeout_s)


def _names(metadata: LedgerMetadata, view: ClusterView) -> list[str]:
    """The bookies that can't be struck off on account of this ledger."""
    if metadata.state is LedgerState.TOMBSTONE:
        return [one for one in metadata.holders if one in view.alive]
    return metadata.bookies()
