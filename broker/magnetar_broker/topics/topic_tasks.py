"""The short tasks of a topic's subscriptions, with one owner. An idle subscription has none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar_broker.errors import TopicUnloaded

__all__ = ["TopicTasks"]

T = TypeVar("T")


class TopicTasks:
    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        # Unfinished tasks, oldest first: a dict is an ordered set.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, T], /) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._remove)
        return task

    def _remove(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # the caller of `wait_whole` gets it, unless it was cancelled

    async def wait_whole(self, task: asyncio.Task[T], /) -> T:
        """Return the task's result. If the caller is cancelled, the task goes on. Raises `TopicUnloaded` if the task
        was cancelled because the topic is closed."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise TopicUnloaded(
                    "unknown whether the request was executed: the topic was closed in the meantime"
                ) from None
            raise

    async def cancel(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])
