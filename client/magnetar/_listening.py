"""Listeners: the application's function, called with each message as it comes.

A synchronous consumer has a thread for its listener, an asyncio one a task: never the thread that does the I/O. One
message is handed to it at a time. A listener that raises is named in the log, and its message stays unacknowledged.

A synchronous consumer refuses a coroutine function as its listener. A plain function that returns a coroutine (a lambda
that calls one) is only noticed by its result: the coroutine is closed, and an error is logged once for each listener.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

from magnetar._waiting import TaskWaiting, ThreadWaiting
from magnetar.exceptions import InvalidConfiguration, MagnetarException

__all__ = ["TaskListening", "ThreadListening", "check_listener"]

log = logging.getLogger("magnetar")


def check_listener(option: str, listener: object, *, awaited: bool = False) -> None:
    """Raise InvalidConfiguration for what is not callable, and for a coroutine function where nobody awaits it."""
    if listener is None:
        return
    if not callable(listener):
        raise InvalidConfiguration(f"{option} = {listener!r} can't be called: use a function with two parameters")
    if not awaited and (inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__)):
        raise InvalidConfiguration(
            f"{option} = {listener!r} is a coroutine function, which a synchronous client never awaits: use a plain "
            "function, or magnetar.aio.Client"
        )


class ThreadListening:
    def __init__(self, front: Any, listener: Callable[[Any, Any], object], waiting: ThreadWaiting, topic: str) -> None:
        self._front = front
        self._listener = listener
        self._waiting = waiting
        self._topic = topic
        # Not paused.
        self._going = threading.Event()
        self._going.set()
        self._closed = threading.Event()
        self._refused_awaitable = False
        threading.Thread(target=self._run, name=f"magnetar listener of {topic}", daemon=True).start()

    def pause(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def close(self) -> None:
        """No call begins any more; one that is under way ends as it will."""
        self._closed.set()
        self._going.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._going.wait()
            try:
                message = self._waiting.receive(None)
            except MagnetarException:  # the consumer is over, and said why
                return
            self._going.wait()
            if self._closed.is_set():
                return
            try:
                result = self._listener(self._front, message)
                if inspect.isawaitable(result):
                    self._refuse_awaitable(result)
            except BaseException:
                log.exception("the listener of %s failed: its message is not acknowledged", self._topic)

    def _refuse_awaitable(self, result: object) -> None:
        """Close a coroutine that the listener returned: nothing of it is run."""
        if inspect.iscoroutine(result):
            result.close()
        if not self._refused_awaitable:
            self._refused_awaitable = True
            log.error(
                "the listener of %s returned %r, which a synchronous client never awaits, so its messages are not "
                "acknowledged: use a plain function, or magnetar.aio.Client",
                self._topic,
                result,
            )


class TaskListening:
    def __init__(self, front: Any, listener: Callable[[Any, Any], object], waiting: TaskWaiting, topic: str) -> None:
        self._front = front
        self._listener = listener
        self._waiting = waiting
        self._topic = topic
        self._going = asyncio.Event()
        self._going.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"magnetar listener of {topic}")

    def pause(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def close(self) -> None:
        """Breaks off what is under way, unless it is what closes the consumer."""
        if self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._going.wait()
            try:
                message = await self._waiting.receive(None)
            except MagnetarException:
                return
            await self._going.wait()
            try:
                result = self._listener(self._front, message)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("the listener of %s failed: its message is not acknowledged", self._topic)
