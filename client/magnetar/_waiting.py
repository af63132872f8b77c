"""Waiting for messages: threads on a condition, tasks on futures. The rest of receiving is `ReceiverQueue`'s.

Nobody is given a message; whoever is woken takes one. So a wait that is broken off, by Ctrl-C, a time-out or a
cancellation, has nothing to lose but the word that something is there, and passes that on. Ctrl-C may also strike when
messages were taken and not returned yet: then they are put back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_options import ConsumerBatchReceivePolicy
from magnetar._message import Message
from magnetar.exceptions import Timeout
from magnetar_wire.interruptible_wait import acquire_lock

__all__ = ["TaskWaiting", "ThreadWaiting"]

_NO_BOUND: Final = 2**62


class _Bounds:
    """Of a batch: what completes one, and what it may have."""

    def __init__(self, policy: ConsumerBatchReceivePolicy, receiver_queue_size: int) -> None:
        self.max_messages = policy.max_num_message if policy.max_num_message > 0 else _NO_BOUND
        self.max_bytes = policy.max_num_bytes if policy.max_num_bytes > 0 else _NO_BOUND
        # More than the queue holds is never waited for.
        self.enough_messages = min(self.max_messages, max(receiver_queue_size, 1))
        self.timeout_s = policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None


def _seconds(timeout_millis: float | None) -> float | None:
    if timeout_millis is None:
        return None
    if not isinstance(timeout_millis, (int, float)) or isinstance(timeout_millis, bool):
        raise TypeError(f"timeout_millis is a number of ms, or None for no end, not {timeout_millis!r}")
    return timeout_millis / 1000


class _Waiting:
    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._queue = core.queue
        self._bounds = _Bounds(core.options.batch_receive_policy, core.options.receiver_queue_size)
        # Without a queue a message is asked for when somebody waits for it.
        self._asks = core.options.receiver_queue_size == 0

    def _check(self) -> None:
        error = self._queue.error
        if error is not None:
            raise type(error)(*error.args)  # another one each time: one that is raised again and again grows

    def _late(self, timeout_s: float) -> Timeout:
        return Timeout(f"no message of {self._core.describe_topics()} came within {round(timeout_s * 1000)} ms")

    def _batch_now(self, batch: list[Message], *, late: bool) -> bool:
        """With the lock: takes a batch, if it is complete, or it is late."""
        self._check()
        bounds, queue = self._bounds, self._queue
        if late or queue.full or queue.has_batch(bounds.enough_messages, bounds.max_bytes):
            queue.take_batch_locked(batch, bounds.max_messages, bounds.max_bytes)
            return True
        return False


class _Waiter:
    """A thread that waits. It holds nothing that others need, so nothing is in disorder when it is struck."""

    __slots__ = ("_lock", "woken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.woken = False

    def wake(self) -> None:
        self.woken = True
        self._lock.release()

    def wait(self, seconds: float | None) -> None:
        acquire_lock(self._lock, seconds)


class ThreadWaiting(_Waiting):
    def __init__(self, core: ConsumerCore) -> None:
        super().__init__(core)
        self._waiters: deque[_Waiter] = deque()
        self._queue.wake = self._wake

    def _wake(self, count: int) -> None:
        if self._queue.batches_waiting:  # one of those may need more, and must not be the only one woken
            count = len(self._waiters)
        while count > 0 and self._waiters:
            self._waiters.popleft().wake()
            count -= 1

    def receive(self, timeout_millis: float | None) -> Message:
        timeout_s = _seconds(timeout_millis)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        message: Message | None = None
        try:
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                with self._queue.lock:
                    self._check()
                    message = self._queue.take_locked()
                if message is not None:
                    return message
                if timeout_s is not None and left is not None and left <= 0:
                    raise self._late(timeout_s)
                self._wait(left, lambda: bool(self._queue), ask=self._asks)
        except BaseException:
            if message is not None:
                self._queue.put_back((message,))
            raise

    def receive_batch(self) -> list[Message]:
        batch: list[Message] = []
        try:
            self._take_batch(batch)
            return batch
        except BaseException:
            if batch:
                self._queue.put_back(batch)
            raise

    def _take_batch(self, batch: list[Message]) -> None:
        timeout_s = self._bounds.timeout_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        counted = False
        try:
            with self._queue.lock:
                self._queue.batches_waiting += 1
                counted = True
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                with self._queue.lock:
                    if self._batch_now(batch, late=left is not None and left <= 0):
                        return
                self._wait(left, self._has_batch, ask=True)
        finally:
            if counted:
                with self._queue.lock:
                    self._queue.batches_waiting -= 1

    def _wait(self, seconds: float | None, has: Callable[[], bool], *, ask: bool) -> None:
        """Returns when there may be something; at once, if there has been since."""
        waiter = _Waiter()
        counted = False
        try:
            with self._queue.lock:
                if self._queue.error is not None or has():
                    return
                self._queue.waiting += 1
                counted = True
                self._waiters.append(waiter)
            if ask:
                self._core.post(self._core.hungry)
            waiter.wait(seconds)
        except BaseException:
            with self._queue.lock:
                if waiter.woken:  # the word is for somebody else
                    self._wake(1)
            raise
        finally:
            with self._queue.lock:
                if counted:
                    self._queue.waiting -= 1
                with contextlib.suppress(ValueError):  # it was woken
                    self._waiters.remove(waiter)

    def _has_batch(self) -> bool:
        bounds, queue = self._bounds, self._queue
        return queue.full or queue.has_batch(bounds.enough_messages, bounds.max_bytes)


class TaskWaiting(_Waiting):
    """For tasks of the loop that the consumer lives on."""

    def __init__(self, core: ConsumerCore) -> None:
        super().__init__(core)
        self._clock = core.clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._queue.wake = self._wake

    def _wake(self, count: int) -> None:
        if self._queue.batches_waiting:
            count = len(self._waiters)
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def receive(self, timeout_millis: float | None) -> Message:
        timeout_s = _seconds(timeout_millis)
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            with self._queue.lock:
                self._check()
                message = self._queue.take_locked()
            if message is not None:
                return message
            left = None if deadline is None else deadline - self._clock.monotonic()
            if timeout_s is not None and left is not None and left <= 0:
                raise self._late(timeout_s)
            await self._wait(left, ask=self._asks)

    async def receive_batch(self) -> list[Message]:
        timeout_s = self._bounds.timeout_s
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        batch: list[Message] = []
        self._queue.batches_waiting += 1
        try:
            while True:
                left = None if deadline is None else deadline - self._clock.monotonic()
                with self._queue.lock:
                    done = self._batch_now(batch, late=left is not None and left <= 0)
                if done:
                    return batch
                await self._wait(left, ask=True)
        finally:
            self._queue.batches_waiting -= 1

    async def _wait(self, seconds: float | None, *, ask: bool) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = None if seconds is None else self._clock.call_later(seconds, wake)
        self._waiters.append(waiter)
        self._queue.waiting += 1
        if ask:
            self._core.hungry()
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():  # it was woken all the same
                with self._queue.lock:
                    self._wake(1)
            raise
        finally:
            self._queue.waiting -= 1
            if timer is not None:
                timer.cancel()
            with contextlib.suppress(ValueError):  # woken by the clock, or not at all
                self._waiters.remove(waiter)
