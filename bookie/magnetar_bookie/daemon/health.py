"""Whether a bookie truly works: what it was asked is looked at, and not only that it answers.

Healthy is a bookie whose event loop turns, whose disk has not failed, whose groups get to the disk in time, and whose
storage gives the records that it holds. To be read-only, in limbo or without a metadata session is healthy: it serves
what it can. Ready is one that is registered besides, so that others find it.

The storage is asked by one question at a time, however many ask for the health: where the disk hangs they all wait for
that one, and no longer than the bound.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from magnetar_bookie.core.ledger_replicas import MAX_ENTRY_ID
from magnetar_bookie.daemon.settings import BookieSettings
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_metadata.store import SessionState
from magnetar_wire.clock import Clock, Timer

__all__ = ["Health", "LoopWatch"]

_TICK_S: Final = 0.5


class LoopWatch:
    """How late the event loop runs what is due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = clock.monotonic()
        self._late_s = 0.0
        self._timer: Timer | None = None
        self._tick()

    @property
    def late_s(self) -> float:
        """The last time, or, if what is due next is later by now, that."""
        return max(0.0, self._late_s, self._clock.monotonic() - self._due)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._late_s = now - self._due
        self._due = now + _TICK_S
        self._timer = self._clock.call_later(_TICK_S, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Health:
    def __init__(self, process: BookieProcess, settings: BookieSettings, clock: Clock, loop_watch: LoopWatch) -> None:
        self._process = process
        self._settings = settings
        self._clock = clock
        self._loop_watch = loop_watch
        # The question that the storage is asked, and since when.
        self._question: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    async def look(self) -> tuple[bool, dict[str, Any]]:
        """Whether it is healthy, and how each part is."""
        bookie, settings = self._process.bookie, self._settings
        storage = await self._storage_problem(bookie)
        late_s = self._loop_watch.late_s
        since = bookie.counters.syncing_since
        syncing_s = 0.0 if since is None else self._clock.monotonic() - since
        reasons = []
        if bookie.failed is not None:
            reasons.append(f"the disk failed: {bookie.failed}")
        elif storage:
            reasons.append(storage)
        if syncing_s > settings.health_max_sync_s:
            reasons.append(f"a group has been on its way to the disk for {syncing_s:.1f} s")
        if late_s > settings.health_max_lateness_s:
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
            reasons.append(f"it has no session with its metadata store, {self._settings.metadata}")
        elif not process.started.is_set():
            reasons.append("it has not been registered yet")
        elif not process.registered:
            reasons.append("its registration does not stand")
        return not reasons, {"ready": not reasons, "reasons": reasons}

    async def close(self) -> None:
        if self._question is not None:
            self._question.cancel()
            await asyncio.wait([self._question])

    async def _storage_problem(self, bookie: Bookie) -> str:
        """Why the storage is no good; empty: it is."""
        if bookie.failed is not None:
            return "the disk failed"
        if self._question is None or self._question.done():
            self._question = asyncio.get_running_loop().create_task(_ask(bookie), name="health")
            self._asked_at = self._clock.monotonic()
        question, bound_s = self._question, self._settings.health_max_answer_s
        left_s = self._asked_at + bound_s - self._clock.monotonic()
        await asyncio.wait([question], timeout=max(0.0, left_s))
        if not question.done():
            return f"the storage has not answered for {self._clock.monotonic() - self._asked_at:.1f} s"
        error = None if question.cancelled() else question.exception()
        return "" if error is None else f"the storage gives no answer: {type(error).__name__}: {error}"


async def _ask(bookie: Bookie) -> None:
    """Looks a ledger up, and reads its first record if there is one. Whether that is damaged is the scrubber's."""
    storage = bookie.storage
    storage.bookie()
    for ledger_id in storage.ledger_ids(0, 1):
        storage.ledger(ledger_id)
        entry_ids = storage.entry_ids(ledger_id, 0, MAX_ENTRY_ID, 1)
        if entry_ids:
            await bookie.reader.held(ledger_id, entry_ids, 1)
