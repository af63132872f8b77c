"""Watches on ZooKeeper: one-shot watches, which are set again and again.

A server's watch fires once and is removed, as are all watches when the connection breaks. So each watched node has a
task that sets its watches when one has fired or the connection is back, and sets the flags **after** that. A change
before the watch was set is seen by the read after the flag; a later change fires the watch. Events and answers come
through different threads of kazoo and may overtake each other, so an event only starts another round.

The watches of a node cover its existence, its value and, if it exists, its children. All events go to one callback:
kazoo keeps a callback that never fires for ever, but each one only once per path.

A connected server that does not answer is asked again after growing pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from magnetar_metadata.errors import MetadataError, NoNode, SessionLost, Unavailable
from magnetar_metadata.store import SessionState
from magnetar_metadata.watch_flags import WatchFlag
from magnetar_metadata.zookeeper.kazoo_session import KazooSession
from magnetar_wire.clock import Clock

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0


class _Watched:
    """A watched node, with its flags."""

    def __init__(self, path: str, with_children: bool) -> None:
        self.path = path
        self.with_children = with_children
        self.flags: list[WatchFlag] = []
        # Set when the server's watches have to be set.
        self.unset = asyncio.Event()
        self.unset.set()
        self.task: asyncio.Task[None] | None = None


class ZooKeeperWatches:
    """All watches of one store. Paths are ZooKeeper's own, with the chroot."""

    def __init__(self, kazoo: KazooSession, clock: Clock) -> None:
        self._kazoo = kazoo
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, _Watched] = {}
        # All tasks that have not ended, including those of closed watches.
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Always the same object, since kazoo compares callbacks: each access to a bound method returns a new one.
        self._callback: Callable[[Any], None] = self._fired

    def watch(self, path: str, *, with_children: bool) -> WatchFlag:
        watched = self._watched.get(path)
        if watched is None:
            watched = self._watched[path] = _Watched(path, with_children)
            watched.task = asyncio.create_task(self._keep_set(watched), name=f"metadata-watch {path}")
            self._tasks[watched.task] = None
            watched.task.add_done_callback(self._tasks.pop)
        flag = WatchFlag(lambda flag: self._forget(watched, flag))
        watched.flags.append(flag)
        return flag

    def reconnected(self) -> None:
        for watched in self._watched.values():
            watched.unset.set()

    def end(self, over: Callable[[], SessionLost]) -> None:
        for watched in list(self._watched.values()):
            for flag in list(watched.flags):
                flag.end(over)

    async def close(self) -> None:
        """Wait until all tasks have ended. `end` must have been called."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, watched: _Watched, flag: WatchFlag) -> None:
        watched.flags.remove(flag)
        if not watched.flags:
            del self._watched[watched.path]
            if watched.task is not None:
                watched.task.cancel()

    def _fired(self, event: Any) -> None:
        """Handle an event, in kazoo's thread. An event without a path reports a broken connection, as the state
        does."""
        if event.path is not None:
            try:
                self._loop.call_soon_threadsafe(self._unset, event.path)
            except RuntimeError:
                return

    def _unset(self, path: str) -> None:
        watched = self._watched.get(path)
        if watched is not None:
            watched.unset.set()

    async def _keep_set(self, watched: _Watched) -> None:
        pause_s = 0.0
        while True:
            await watched.unset.wait()
            watched.unset.clear()
            failed = False
            try:
                await self._set(watched)
            except SessionLost:
                # The store ends the flags.
                return
            except Unavailable:
                # Without a connection, the reconnect starts a round. With one, a single answer was lost.
                if self._kazoo.session.state is SessionState.CONNECTED:
                    watched.unset.set()
                    failed = True
            except MetadataError:
                # No permission to read: the caller's own read will raise it.
                pass
            for flag in list(watched.flags):
                flag.set()
            pause_s = min(max(_FIRST_PAUSE_S, pause_s * 2), _LONGEST_PAUSE_S) if failed else 0.0
            if failed:
                await self._clock.sleep(pause_s)

    async def _set(self, watched: _Watched) -> None:
        client, path = self._kazoo.client, watched.path
        stat = await self._kazoo.request(path, lambda: client.exists_async(path, watch=self._callback))
        if stat is not None and watched.with_children:
            try:
                await self._kazoo.request(path, lambda: client.get_children_async(path, watch=self._callback))
            except NoNode:
                # It was deleted in the meantime: the first watch has fired.
                return
