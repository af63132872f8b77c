"""Tasks of an owner that comes and goes: it is told of what ends badly, and cancels what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from magnetar_broker.errors import BrokerError

__all__ = ["OwnedTasks"]

T = TypeVar("T")


class OwnedTasks:
    """Takes next to no memory while there are none."""

    __slots__ = ("_failed", "_reason", "_tasks")

    def __init__(self, failed: Callable[[BaseException], object]) -> None:
        self._failed = failed
        # Why all was cancelled.
        self._reason: BrokerError | None = None
        # Oldest first.
        self._tasks: dict[asyncio.Task[Any], None] | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Whatever it raises goes to the owner."""
        return self._start(work, self._ended)

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Does it even if the caller is cancelled. What it raises is the caller's; and if it was cancelled, why."""
        task = self._start(work, self._let_go)
        await asyncio.wait([task])
        if task.cancelled():
            assert self._reason is not None, "only the owner cancels its tasks"
            raise self._reason.again()
        return task.result()

    def _start(self, work: Coroutine[Any, Any, T], ended: Callable[[asyncio.Task[T]], object]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        if self._tasks is None:
            self._tasks = {}
        self._tasks[task] = None
        task.add_done_callback(ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = self._let_go(task)
        if error is not None:
            self._failed(error)

    def _let_go(self, task: asyncio.Task[Any]) -> BaseException | None:
        assert self._tasks is not None
        del self._tasks[task]
        if not self._tasks:
            self._tasks = None
        return None if task.cancelled() else task.exception()

    def cancel(self, reason: BrokerError) -> None:
        self._reason = reason
        for task in list(self._tasks or ()):
            task.cancel()
