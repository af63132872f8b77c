"""The tasks of an object: it is notified of errors, and cancels its tasks when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from magnetar_broker.errors import BrokerError

__all__ = ["OwnedTasks"]

T = TypeVar("T")


class OwnedTasks:
    """Takes almost no memory while there are no tasks."""

    __slots__ = ("_failed", "_reason", "_tasks")

    def __init__(self, failed: Callable[[BaseException], object]) -> None:
        self._failed = failed
        # Why the tasks were cancelled.
        self._reason: BrokerError | None = None
        # Oldest first.
        self._tasks: dict[asyncio.Task[Any], None] | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the work in a task. Its error is passed to the owner."""
        return self._start(work, self._ended)

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work to its end even if the caller is cancelled.

        Raises what the work raises; if the owner cancelled it, the owner's reason.
        """
        task = self._start(work, self._remove)
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
        error = self._remove(task)
        if error is not None:
            self._failed(error)

    def _remove(self, task: asyncio.Task[Any]) -> BaseException | None:
        assert self._tasks is not None
        del self._tasks[task]
        if not self._tasks:
            self._tasks = None
        return None if task.cancelled() else task.exception()

    async def close(self, reason: BrokerError) -> None:
        """Cancel the tasks, and return when they have ended."""
        self.cancel(reason)
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def cancel(self, reason: BrokerError) -> None:
        self._reason = reason
        for task in list(self._tasks or ()):
            task.cancel()
