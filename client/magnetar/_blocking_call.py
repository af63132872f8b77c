"""A coroutine that a thread has run on the clients' loop, and waits for.

**Ctrl-C** breaks the wait off at any moment, and then nobody ever sees the result. What waits is cancelled. What was
made all the same, since the word came too late, is given to `undo`: a producer that nobody has would keep its name, and
a consumer its place in the subscription, until the client is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from magnetar.exceptions import AlreadyClosed
from magnetar_wire.interruptible_wait import acquire_lock

__all__ = ["BlockingCall"]

T = TypeVar("T")


class BlockingCall(Generic[T]):
    def __init__(self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> None:
        self._work = work
        self._undo = undo
        self._task: asyncio.Task[T] | None = None
        self._given_up = False
        # Released when it has ended. A bare lock: whoever is struck while he waits holds nothing that others need.
        self._ended = threading.Lock()
        self._ended.acquire()

    # The thread that waits:

    def wait(self, timeout_s: float | None) -> T:
        """What it returns or raises. Raises TimeoutError."""
        if not acquire_lock(self._ended, timeout_s):
            raise TimeoutError
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise AlreadyClosed("the client was closed meanwhile") from None

    def give_up(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Nobody takes the result."""
        self._given_up = True
        call_soon(self._cancel)

    # The loop:

    def begin(self) -> None:
        if not self._given_up:
            self._task = asyncio.get_running_loop().create_task(self._work)
            self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if self._given_up:
            self._take_back(task)
        self._ended.release()

    def _cancel(self) -> None:
        if self._task is None:
            self._work.close()
        elif self._task.done():
            self._take_back(self._task)
        else:
            self._task.cancel()

    def _take_back(self, task: asyncio.Task[T]) -> None:
        undo, self._undo = self._undo, None
        if not task.cancelled() and task.exception() is None and undo is not None:
            undo(task.result())
