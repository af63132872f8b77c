"""A group of tasks that end together, always in the same order.

`asyncio.TaskGroup` has its tasks in a set, so the order in which it cancels them differs from run to run. Code that a
simulation replays must not use it. This group behaves like it, and cancels its tasks in the order of their creation.

    async with OrderedTaskGroup() as tasks:
        tasks.create_task(read())
        tasks.create_task(write())

The block ends when all tasks have ended. The first task that fails cancels the others and the block itself; then all
errors are raised as one `ExceptionGroup`. If the block is cancelled from outside, it cancels its tasks, waits for them,
and raises the cancellation. `cancel` ends a group whose tasks would run for ever, which is not an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["OrderedTaskGroup", "is_being_cancelled"]

T = TypeVar("T")


def is_being_cancelled() -> bool:
    """Return whether the current task has been cancelled. If not, a CancelledError that it gets is that of something
    else, on which it waits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class OrderedTaskGroup:
    """A group of tasks that is entered once, with `async with`."""

    def __init__(self) -> None:
        self._owner: asyncio.Task[Any] | None = None
        # Unfinished tasks, oldest first. A dict is an ordered set.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._errors: list[BaseException] = []
        # The tasks are being cancelled, and no new ones are accepted.
        self._ending = False
        # The block has ended, and `__aexit__` waits for the tasks.
        self._leaving = False
        # A failed task has cancelled the block. That cancellation is ours, and is undone at the end.
        self._interrupted = False
        self._all_done: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        if self._owner is not None:
            raise RuntimeError("a task group can be entered only once")
        self._owner = asyncio.current_task()
        return self

    def create_task(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task of the group."""
        if self._owner is None or self._ending or (self._leaving and not self._tasks):
            work.close()
            raise RuntimeError("the task group is " + ("not entered yet" if self._owner is None else "closing"))
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, oldest first, and accept no new ones. The block continues, and ends when they have ended.

        Only the first call counts: a second cancellation would interrupt the cleanup after the first.
        """
        if self._ending:
            return
        self._ending = True
        for task in list(self._tasks):
            task.cancel()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not self._tasks and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._errors.append(error)
        self.cancel()
        if not self._leaving and not self._interrupted and self._owner is not None:
            self._interrupted = True
            self._owner.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._owner is not None
        self._leaving = True
        cancelled = error if isinstance(error, asyncio.CancelledError) else None
        if self._interrupted and self._owner.uncancel() == 0:
            cancelled = None
        if error is not None:
            self.cancel()
        while self._tasks:
            self._all_done = asyncio.get_running_loop().create_future()
            try:
                await self._all_done
            except asyncio.CancelledError as outside:
                cancelled = outside
                self.cancel()
        self._raise(error, cancelled)

    def _raise(self, error: BaseException | None, cancelled: asyncio.CancelledError | None) -> None:
        """Raise the result of the block: the end of the program first, then a cancellation, then the errors."""
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._errors.append(error)
        for one in self._errors:
            if isinstance(one, KeyboardInterrupt | SystemExit):
                raise one
        if cancelled is not None and not self._errors:
            raise cancelled
        if self._errors:
            if cancelled is not None:  # the errors are raised first, and the cancellation at the next await
                assert self._owner is not None
                self._owner.uncancel()
                self._owner.cancel()
            raise BaseExceptionGroup("tasks failed", self._errors)
