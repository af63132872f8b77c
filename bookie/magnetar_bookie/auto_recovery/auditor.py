"""The auditor scans the metadata of all ledgers, and reports the underreplicated ones.

A scan refreshes the view of the bookies, then reads the node of every ledger:

- A ledger that names a lost bookie gets a repair task (auditor_rules.py).
- Holders of a tombstone that have no cookie are removed from it, since they can't drop the ledger any more. The node is
  deleted with the last holder. A holder that is registered, and is still named at the next scan, may not know of the
  ledger, as nothing was ever written to it. The auditor fences the ledger there; then the bookie drops it and removes
  itself.
- Ledgers are counted for each bookie that is being decommissioned (decommission.py). The count is used only if every
  node could be read.

At the end of a scan, unclaimed ledgers are deleted (unclaimed_ledgers.py). A scan starts when a bookie has become lost,
when a decommission starts or is cancelled, when an unclaimed ledger is due, and at intervals. It does not start when a
bookie registers or leaves, as nothing needs to be done yet. At the same time, closed ledgers are compared with
inventories, a few at a time (ledger_checker.py).

Why two auditors at once do no harm
-----------------------------------
An auditor whose process was paused continues until it checks its session. A superfluous repair task costs one read of
the ledger's metadata. Removing a bookie from a tombstone requires that it has no cookie at that moment. That is read
again each time, and a bookie has its cookie before any ledger names it. Deleting a cookie and setting `sweeping` are
compare-and-sets, and the steps after them (unclaimed_ledgers.py) are allowed to any process at any time.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auditor_rules import bookies_to_replace
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.decommission import read_decommission_progress, record_ledgers_left
from magnetar_bookie.auto_recovery.ledger_checker import LedgerChecker
from magnetar_bookie.auto_recovery.ledger_nodes import decode_ledger_node, read_ledger_nodes
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView
from magnetar_bookie.auto_recovery.unclaimed_ledgers import UnclaimedLedgerDeleter
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar_bookie.auto_recovery.wakeup_event import WakeupEvent
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
    """The auditor for one term: from an election until the session may be lost."""

    def __init__(
        self,
        client: LedgerClient,
        bookie_watcher: BookieWatcher,
        settings: AutoRecoverySettings,
        is_term_valid: Callable[[], bool],
    ) -> None:
        self._client = client
        self._bookie_watcher = bookie_watcher
        self._settings = settings
        # Checked before each change.
        self._is_term_valid = is_term_valid
        self._underreplicated = UnderreplicatedLedgers(client)
        self._unclaimed = UnclaimedLedgerDeleter(client, settings.intent_grace_period_seconds)
        self._checker = LedgerChecker(client, settings, is_term_valid)
        # Tombstones that the previous scan found, too.
        self._earlier_tombstones: dict[int, None] = {}
        # Bookies without a cookie that ledgers name, as found by this scan.
        self._without_cookie: dict[str, None] = {}
        self._wakeup = WakeupEvent(client.clock)
        # Whether a decommission has started or was cancelled since the last scan began.
        self._decommissions_changed = False

    async def run(self) -> None:
        """Scan and check until cancelled. Raises `SessionLost`."""
        stop_watching = self._bookie_watcher.watch_bookies(self._wakeup.wake)
        watch = self._client.ledgers.store.watch(paths.LEAVING)
        try:
            # A new watch reports a change at once: the first scan covers it.
            await watch.wait()
            async with OrderedTaskGroup() as group:
                group.create_task(self._scan_repeatedly())
                group.create_task(self._checker.run())
                while True:
                    await watch.wait()
                    self._decommissions_changed = True
                    self._wakeup.wake()
        finally:
            watch.close()
            stop_watching()

    async def _scan_repeatedly(self) -> None:
        clock = self._client.clock
        while True:
            self._decommissions_changed = False
            began_at = clock.monotonic()
            try:
                await self.scan()
            except (Unavailable, StoreFull) as error:
                _log.info("The audit waits until the metadata store answers: %s", error)
                await clock.sleep(self._settings.metadata_retry_seconds)
                continue
            self._checker.wake()
            ended_at = clock.monotonic()
            while not self._decommissions_changed:
                wait_s = self._next_scan_at(began_at, ended_at) - clock.monotonic()
                if wait_s <= 0:
                    break
                await self._wakeup.wait(wait_s)

    def _next_scan_at(self, began_at: float, ended_at: float) -> float:
        """Return when the next scan starts. A bookie that unregisters before then moves it to when it becomes lost."""
        lost_at = self._bookie_watcher.lost.next_due(
            began_at, self._settings.open_ledger_rereplication_grace_period_seconds
        )
        moments = [ended_at + self._settings.auditor_scan_interval_seconds, lost_at, self._unclaimed.next_due()]
        # The last scan did all that was due before it: the next one waits for a moment at least.
        return max(min(at for at in moments if at is not None), ended_at + self._settings.metadata_retry_seconds)

    async def scan(self) -> None:
        """Read the metadata of all ledgers once, and act on it."""
        self._without_cookie = {}
        view = await self._bookie_watcher.refresh_view()
        marks = await self._read_decommission_marks(view)
        ledgers_left = dict.fromkeys(marks, 0)
        closed: list[int] = []
        tombstones: list[int] = []
        all_decoded = True
        async for ledger_id, node in read_ledger_nodes(self._client.ledgers):
            if not self._is_term_valid():
                return
            if node is None:
                continue  # deleted during the scan
            try:
                metadata, version = decode_ledger_node(node)
            except (LedgerError, ForeignValue) as error:
                self._client.ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
                all_decoded = False
                continue
            for bookie_id in _bookies_in_use(metadata, view):
                if bookie_id in ledgers_left:
                    ledgers_left[bookie_id] += 1
            try:
                if metadata.state is LedgerState.TOMBSTONE:
                    tombstones.append(ledger_id)
                    await self._finish_deletion(ledger_id, metadata)
                else:
                    await self._report_if_underreplicated(ledger_id, metadata)
            except OutcomeUnknown as error:
                _log.info("Ledger %s is postponed to the next audit: %s", ledger_id, error)
            except (LedgerError, ForeignValue) as error:  # overwritten since it was read
                self._client.ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
            if metadata.is_closed and metadata.fragments:
                closed.append(ledger_id)
                self._checker.schedule.add_ledger(ledger_id, version)
        self._checker.schedule.retain_only(closed)
        self._earlier_tombstones = dict.fromkeys(tombstones)
        if all_decoded:
            for bookie_id, count in ledgers_left.items():
                if self._is_term_valid():
                    await self._record_ledgers_left(bookie_id, marks[bookie_id], count)
        await self._unclaimed.delete_overdue(self._is_term_valid)

    async def _read_decommission_marks(self, view: ClusterView) -> dict[str, bytes]:
        """Return the marks of the decommissions that this scan counts ledgers for.

        They are read before any ledger: a mark that is set during the scan must not use its count.
        """
        marks = {}
        for bookie_id in view.leaving:
            try:
                progress = await read_decommission_progress(self._client, bookie_id)
            except ForeignValue as error:
                self._client.ledgers.undecodable_nodes.log_once(paths.leaving(bookie_id), error)
                continue
            if progress is not None and not progress.done:
                marks[bookie_id] = progress.mark
        return marks

    async def _record_ledgers_left(self, bookie_id: str, mark: bytes, ledgers_left: int) -> None:
        try:
            await record_ledgers_left(self._client, bookie_id, mark, ledgers_left)
        except ForeignValue as error:
            self._client.ledgers.undecodable_nodes.log_once(paths.leaving(bookie_id), error)

    async def _report_if_underreplicated(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        lost, grace_s = self._bookie_watcher.lost, self._settings.open_ledger_rereplication_grace_period_seconds
        unknown = [
            one for one in metadata.bookies() if one not in lost.view.cookies and one not in self._without_cookie
        ]
        if unknown:
            await self._bookie_watcher.refresh_view()  # the bookies may have joined since the last one
            self._without_cookie |= dict.fromkeys(one for one in unknown if one not in lost.view.cookies)
        now = self._client.clock.monotonic()
        lost.observe_named(metadata.bookies(), now)
        bookies = bookies_to_replace(metadata, lost, now, grace_s)
        if bookies:
            await self._underreplicated.mark_underreplicated(ledger_id, bookies)

    async def _finish_deletion(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Remove holders without a cookie from a tombstone, and make registered ones learn of the ledger."""
        client, cookies = self._client, self._bookie_watcher.lost.view.cookies
        if not metadata.holders or any(one not in cookies for one in metadata.holders):
            store = client.ledgers.store
            await store.sync()
            removed = [one for one in metadata.holders if await store.exists(paths.cookie(one)) is None]
            if removed or not metadata.holders:
                await client.ledgers.remove_tombstone_holders(ledger_id, removed)
        if ledger_id in self._earlier_tombstones:
            for one in metadata.holders:
                if one in client.bookies.registered():
                    await self._fence(one, ledger_id, metadata.master_key)

    async def _fence(self, bookie_id: str, ledger_id: int, master_key: bytes) -> None:
        """Fence the deleted ledger, so that the bookie knows of it and looks at its metadata."""
        request = FenceRequest(ledger_id=ledger_id, master_key=master_key)
        timeout_s = self._client.settings.read_entry_timeout_seconds
        # The next scan tries again.
        with contextlib.suppress(TransportError):
            await self._client.bookies.call(bookie_id, "fence", request, FenceAnswer, timeout_s=timeout_s)


def _bookies_in_use(metadata: LedgerMetadata, view: ClusterView) -> list[str]:
    """Return the bookies whose decommission must wait for this ledger."""
    if metadata.state is LedgerState.TOMBSTONE:
        return [one for one in metadata.holders if one in view.alive]
    return metadata.bookies()
