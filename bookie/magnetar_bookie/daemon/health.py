"""The health of a bookie: whether its parts work, not only whether the process answers.

A bookie is healthy if its event loop is not late, its disk has not failed, its groups are synced in time, and its
storage returns records. A bookie that is read-only, in limbo or without a metadata session is healthy, too: it serves
all requests that it can. It is ready if it is also registered, so that clients find it.

One request at a time checks the storage, for all callers: if the disk hangs, all wait for it, up to a timeout.
"""

from __future__ import annotations

from typing import Any

from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.server.ledger_rules import MAX_ENTRY_ID
from magnetar_bookie.settings.process import BookieSettings
from magnetar_metadata.store import SessionState
from magnetar_wire.clock import Clock
from magnetar_wire.process.loop_delay import LoopDelayMonitor
from magnetar_wire.process.single_flight_check import SingleFlightCheck

__all__ = ["Health"]


class Health:
    def __init__(
        self, process: BookieProcess, settings: BookieSettings, clock: Clock, loop_monitor: LoopDelayMonitor
    ) -> None:
        self._process = process
        self._settings = settings
        self._clock = clock
        self._loop_monitor = loop_monitor
        self._storage_check = SingleFlightCheck(
            lambda: _check_storage(process.bookie), settings.health_max_answer_seconds, clock
        )

    async def check(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the bookie is healthy, and the state of each part."""
        bookie, settings = self._process.bookie, self._settings
        storage_problem = await self._find_storage_problem(bookie)
        late_s = self._loop_monitor.delay_s
        since = bookie.counters.syncing_since
        syncing_s = 0.0 if since is None else self._clock.monotonic() - since
        reasons = []
        if bookie.failure is not None:
            reasons.append(f"the disk failed: {bookie.failure}")
        elif storage_problem:
            reasons.append(storage_problem)
        if syncing_s > settings.health_max_sync_seconds:
            reasons.append(f"a group of entries is being written to the disk for {syncing_s:.1f} s already")
        if late_s > settings.health_max_lateness_seconds:
            reasons.append(f"the event loop was {late_s:.1f} s late")
        return not reasons, {
            "healthy": not reasons,
            "reasons": reasons,
            "loop_late_s": round(late_s, 3),
            "disk_failed": bookie.failure is not None,
            "syncing_for_s": round(syncing_s, 3),
            "storage_answers": not storage_problem,
            "ready": self._process.is_registered,
            "session": self._process.session_state.value,
            "read_only": bookie.read_only,
            "read_only_because": bookie.read_only_reasons,
        }

    def check_ready(self) -> tuple[bool, dict[str, Any]]:
        """Return whether clients find the bookie, and if not, why."""
        process = self._process
        reasons = []
        if process.bookie.failure is not None:
            reasons.append(f"the disk failed: {process.bookie.failure}")
        elif process.session_state is not SessionState.CONNECTED:
            reasons.append(f"it has no session with the metadata store {self._settings.metadata}")
        elif not process.started.is_set():
            reasons.append("it is not registered yet")
        elif not process.is_registered:
            reasons.append("its registration is missing")
        return not reasons, {"ready": not reasons, "reasons": reasons}

    async def close(self) -> None:
        await self._storage_check.close()

    async def _find_storage_problem(self, bookie: Bookie) -> str:
        """Return why the storage does not work; empty: it works."""
        if bookie.failure is not None:
            return "the disk failed"
        problem = await self._storage_check.find_problem()
        return problem and f"the storage {problem}"


async def _check_storage(bookie: Bookie) -> None:
    """Look up a ledger, and read its first record if there is one. A damaged record is reported by the scrubber."""
    storage = bookie.storage
    storage.get_bookie_record()
    for ledger_id in storage.list_ledger_ids(0, 1):
        storage.get_ledger(ledger_id)
        entry_ids = storage.list_entry_ids(ledger_id, 0, MAX_ENTRY_ID, 1)
        if entry_ids:
            await bookie.reader.read_unchecked(ledger_id, entry_ids, 1)
