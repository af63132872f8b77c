"""Syncs that concurrent callers share, where each one costs a write.

A sync serves a caller if it is sent after the call: then it covers all changes that were made before the call. So a
caller never joins a sync in flight, which may have been decided before those changes. At most one sync is in flight,
and one waits behind it. All calls that come meanwhile join the waiting one:

    call 1   ──► sync in flight ─────────► done
    call 2            ──► waits ─────────► sync in flight ─► done
    call 3                 ──► joins the waiting one ──────► done

So callers at any rate cost one sync at a time. A sync that fails raises for the callers that share it. The waiting one
is sent in either case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["SharedSync"]


class SharedSync:
    """Belongs to one event loop. `send_sync` sends one sync and returns with its answer."""

    def __init__(self, send_sync: Callable[[], Awaitable[None]]) -> None:
        self._send_sync = send_sync
        self._in_flight: asyncio.Task[None] | None = None
        # Not sent yet.
        self._waiting: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Return when a sync that was sent after this call is answered. Raises what `send_sync` raises. A caller that
        is cancelled leaves the sync to the others."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._sync_after(self._in_flight))
            self._waiting.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._waiting)

    async def wait_ended(self) -> None:
        """Return when all syncs have ended. `send_sync` must raise by now, or have an answer soon."""
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
        task.exception()  # retrieved, should all callers have been cancelled
