"""Watches as flags: set when a watched node may have changed.

The user of a watch has a `WatchFlag`. A store's `WatchFlags` finds the flags that a change concerns. A flag is set at
the start, so that a watcher's loop reads once before it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from magnetar_metadata.errors import Closed, SessionLost
from magnetar_metadata.paths import is_at_or_below


class WatchFlag:
    """A `Watch`: a flag that is set when a watched node may have changed."""

    def __init__(self, on_close: Callable[[WatchFlag], object]) -> None:
        self._is_set = asyncio.Event()
        self._is_set.set()
        self._on_close: Callable[[WatchFlag], object] | None = on_close
        # Returns the error that `wait` raises, after the end of the session or the watch.
        self._over: Callable[[], SessionLost] | None = None

    async def wait(self) -> None:
        if self._over is None:
            await self._is_set.wait()
        if self._over is not None:
            raise self._over()
        self._is_set.clear()

    def close(self) -> None:
        self.end(lambda: Closed("this watch is closed"))

    def set(self) -> None:
        self._is_set.set()

    def end(self, over: Callable[[], SessionLost]) -> None:
        if self._over is None:
            self._over = over
            self._is_set.set()
            if self._on_close is not None:
                self._on_close(self)
                self._on_close = None


class WatchFlags:
    """The flags of one store, by the node or subtree that they watch."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[WatchFlag]] = {}
        self._subtrees: dict[str, list[WatchFlag]] = {}

    def watch(self, path: str) -> WatchFlag:
        return self._add(self._nodes, path)

    def watch_subtree(self, root: str) -> WatchFlag:
        return self._add(self._subtrees, root)

    def set_flags(self, changed: Iterable[str], children_changed: Iterable[str]) -> None:
        for path in changed:
            self._set_each(self._nodes.get(path, ()))
            for root, flags in self._subtrees.items():
                if is_at_or_below(path, root):
                    self._set_each(flags)
        for path in children_changed:
            self._set_each(self._nodes.get(path, ()))

    def end(self, over: Callable[[], SessionLost]) -> None:
        for flags in self._all():
            for flag in list(flags):
                flag.end(over)

    def _all(self) -> list[list[WatchFlag]]:
        return [*self._nodes.values(), *self._subtrees.values()]

    @staticmethod
    def _add(board: dict[str, list[WatchFlag]], key: str) -> WatchFlag:
        def forget(flag: WatchFlag) -> None:
            flags = board[key]
            flags.remove(flag)
            if not flags:
                del board[key]

        flag = WatchFlag(forget)
        board.setdefault(key, []).append(flag)
        return flag

    @staticmethod
    def _set_each(flags: Iterable[WatchFlag]) -> None:
        for flag in flags:
            flag.set()
