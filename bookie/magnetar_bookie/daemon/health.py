"""Whether a bookie truly works: what it was asked is looked at, and not only that it answers.

Healthy is a bookie whose event loop turns, whose disk has not failed, whose groups get to the disk in time, and whose
storage gives the records that it holds. To be read-only, in limbo or without a metadata session is healthy: it serves
what it can. Ready is one that is registered besides, so that others find it.

The storage is asked by one question at a time, however many ask for the health: where the disk hangs they all wait for
that one, and no longer than the bound.
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
        self, process: BookieProcess, settings: BookieSettings, clock: Clock, loop_watch: LoopDelayMonitor
    ) -> None:
        self._process = process
        self._settings = settings
        self._clock = clock
        self._loop_watch = loop_watch
        self._question = SingleFlightCheck(lambda: _ask(process.bookie), settings.health_max_answer_seconds, clock)

    async def look(self) -> tuple[bool, dict[str, Any]]:
        """Whether it is healthy, and how each part is."""
        bookie, settings = self._process.bookie, self._settings
        storage = await self._storage_problem(bookie)
        late_s = self._loop_watch.delay_s
        since = bookie.counters.syncing_since
        syncing_s = 0.0 if since is None else self._clock.monotonic() - since
        reasons = []
        if bookie.failed is not None:
            reasons.append(f"the disk failed: {bookie.failed}")
        elif storage:
            reasons.append(storage)
        if syncing_s > settings.health_max_sync_seconds:
            reasons.append(f"a group of entries is being written to the disk for {syncing_s:.1f} s already")
        if late_s > settings.health_max_lateness_seconds:
            reasons.append(f"the event loop was {late_s:.1f} s late")
        return not reasons, {
            "healthy": not reasons,
            "reasons": reasons,
            "loop_late_s": round(late_s, 3),
            "disk_failed": bookie.failed is not None,
            "syncing_for_s": round(syncing_s, 3),
            "storage_answers": not storage,
            "ready": self._process.registered,
            "session": self._process.session_state.value,
            "read_only": bookie.read_only,
            "read_only_because": bookie.read_only_because,
        }

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether others find it, and if not, why."""
        process = self._process
        reasons = []
        if process.bookie.failed is not None:
            reasons.append(f"the disk failed: {process.bookie.failed}")
        elif process.session_state is not SessionState.CONNECTED:
            reasons.append(f"it has no session with the metadata store {self._settings.metadata}")
        elif not process.started.is_set():
            reasons.append("it is not registered yet")
        elif not process.registered:
            reasons.append("its registration is missing")
        return not reasons, {"ready": not reasons, "reasons": reasons}

    async def close(self) -> None:
        await self._question.close()

    async def _storage_problem(self, bookie: Bookie) -> str:
        """Why the storage is no good; empty: it is."""
        if bookie.failed is not None:
            return "the disk failed"
        problem = await self._question.find_problem()
        return problem and f"the storage {problem}"


async def _ask(bookie: Bookie) -> None:
    """Looks a ledger up, and reads its first record if there is one. Whether that is damaged is the scrubber's."""
    storage = bookie.storage
    storage.bookie()
    for ledger_id in storage.ledger_ids(0, 1):
        storage.ledger(ledger_id)
        entry_ids = storage.entry_ids(ledger_id, 0, MAX_ENTRY_ID, 1)
        if entry_ids:
            await bookie.reader.held(ledger_id, entry_ids, 1)
