"""Syncs that concurrent callers share, because each sync costs a write.

A sync serves a caller if it is sent after the call: then it covers all changes that were made before the call. So a
caller never joins a sync in flight, which may have been agreed before those changes. At most one sync is in flight, and
one waits for it to end. All calls in the meantime join the waiting one:

    call 1   ──► sync in flight ─────────► done
    call 2            ──► waits ─────────► sync in flight ─► done
    call 3                 ──► joins the waiting one ──────► done

So any number of callers costs one sync at a time. If a sync fails, it raises for the callers that share it. The waiting
one is sent in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["SharedSync"]


class SharedSync:
    """The syncs of one session, on one event loop. `send_sync` sends one sync and returns after its answer."""

    def __init__(self, send_sync: Callable[[], Awaitable[None]]) -> None:
        self._send_sync = send_sync
        self._in_flight: asyncio.Task[None] | None = None
        # Not sent yet.
        self._waiting: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Wait until a sync that was sent after this call is answered. Raises the errors of `send_sync`. If a caller is
        cancelled, the sync goes on for the others."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._sync_after(self._in_flight))
            self._waiting.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._waiting)

    async def wait_ended(self) -> None:
        """Wait until all syncs have ended. `send_sync` must fail by now, or be answered soon."""
        tasks = [task for task in (self._waiting, self._in_flight) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def _sync_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._in_flight, self._waiting = self._waiting, None
        await self._send_sync()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # in case all callers were cancelled
