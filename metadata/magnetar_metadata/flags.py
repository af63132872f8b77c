"""Watches as flags: set when a watched node may have changed.

The user of a watch has a `Flag`. A store's `FlagBoard` finds the flags that a change concerns. A flag is set at the
start, so that a watcher's loop reads once before it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from magnetar_metadata.core.paths import is_at_or_below
from magnetar_metadata.errors import Closed, SessionLost


class Flag:
    """A `Watch`: a flag that is set when a watched node may have changed."""

    def __init__(self, on_close: Callable[[Flag], object]) -> None:
        self._up = asyncio.Event()
        self._up.set()
        self._on_close: Callable[[Flag], object] | None = on_close
        # Returns the error that `wait` raises, after the end of the session or the watch.
        self._over: Callable[[], SessionLost] | None = None

    async def wait(self) -> None:
        if self._over is None:
            await self._up.wait()
        if self._over is not None:
            raise self._over()
        self._up.clear()

    def close(self) -> None:
        self.end(lambda: Closed("this watch is closed"))

    def put_up(self) -> None:
        self._up.set()

    def end(self, over: Callable[[], SessionLost]) -> None:
        if self._over is None:
            self._over = over
            self._up.set()
            if self._on_close is not None:
                self._on_close(self)
                self._on_close = None


class FlagBoard:
    """The flags of one store, by the node or subtree that they watch."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Flag]] = {}
        self._subtrees: dict[str, list[Flag]] = {}

    def watch(self, path: str) -> Flag:
        return self._add(self._nodes, path)

    def watch_subtree(self, root: str) -> Flag:
        return self._add(self._subtrees, root)

    def put_up(self, changed: Iterable[str], children_changed: Iterable[str]) -> None:
        for path in changed:
            self._put_up_each(self._nodes.get(path, ()))
            for root, flags in self._subtrees.items():
                if is_at_or_below(path, root):
                    self._put_up_each(flags)
        for path in children_changed:
            self._put_up_each(self._nodes.get(path, ()))

    def end(self, over: Callable[[], SessionLost]) -> None:
        for flags in self._all():
            for flag in list(flags):
                flag.end(over)

    def _all(self) -> list[list[Flag]]:
        return [*self._nodes.values(), *self._subtrees.values()]

    @staticmethod
    def _add(board: dict[str, list[Flag]], key: str) -> Flag:
        def forget(flag: Flag) -> None:
            flags = board[key]
            flags.remove(flag)
            if not flags:
                del board[key]

        flag = Flag(forget)
        board.setdefault(key, []).append(flag)
        return flag

    @staticmethod
    def _put_up_each(flags: Iterable[Flag]) -> None:
        for flag in flags:
            flag.put_up()
