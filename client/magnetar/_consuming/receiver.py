"""`receive` and `batch_receive`: threads and tasks that wait for messages of the receiver queue.

A message is never assigned to a waiter: a waiter that is woken takes one from the queue. So a wait that is interrupted
by Ctrl-C, a timeout or a cancellation can't lose a message, only the wake-up, and it passes that on. Ctrl-C may also
interrupt a thread that has taken messages and not returned them yet. It puts them back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from magnetar._consuming.consumer_options import ConsumerBatchReceivePolicy
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._message import Message
from magnetar.exceptions import Timeout
from magnetar_wire.interruptible_wait import acquire_lock

__all__ = ["TaskReceiver", "ThreadReceiver"]

_UNLIMITED: Final = 2**62


class _BatchLimits:
    """When a batch is complete, and how much it may have."""

    def __init__(self, policy: ConsumerBatchReceivePolicy, receiver_queue_size: int) -> None:
        self.max_messages = policy.max_num_message if policy.max_num_message > 0 else _UNLIMITED
        self.max_bytes = policy.max_num_bytes if policy.max_num_bytes > 0 else _UNLIMITED
        # The queue never holds more, so a batch doesn't wait for more.
        self.complete_at = min(self.max_messages, max(receiver_queue_size, 1))
        self.timeout_s = policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None
        self.of_one_topic = not policy.messages_from_multi_topics_enabled


class _Receiver:
    def __init__(self, consumer: MultiTopicConsumer) -> None:
        self._consumer = consumer
        self._queue = consumer.queue
        self._limits = _BatchLimits(consumer.options.batch_receive_policy, consumer.options.receiver_queue_size)
        # The application's interceptors, of which nothing else of the receivers knows.
        self._intercept = None if consumer.interceptors is None else consumer.interceptors.before_consume
        # Without a queue, a message is requested when the application waits for it.
        self._has_no_queue = consumer.options.receiver_queue_size == 0

    def _check_open(self) -> None:
        error = self._queue.error
        if error is not None:
            raise type(error)(*error.args)  # a new one each time, since the traceback grows with each raise

    def _timeout(self, timeout_s: float) -> Timeout:
        topics = self._consumer.describe_topics()
        return Timeout(f"no message of {topics} came within {round(timeout_s * 1000)} ms")

    def _has_batch(self) -> bool:
        limits, queue = self._limits, self._queue
        return queue.is_full or queue.has_batch(limits.complete_at, limits.max_bytes)

    def _take_complete_batch(self, batch: list[Message[Any]], *, is_late: bool) -> bool:
        """With the lock: take a batch if it is complete, or if it is late. Return whether it was taken."""
        self._check_open()
        if is_late or self._has_batch():
            limits = self._limits
            self._queue.take_batch_locked(
                batch, limits.max_messages, limits.max_bytes, of_one_topic=limits.of_one_topic
            )
            return True
        return False


class ThreadReceiver(_Receiver):
    """Receives in the application's threads."""

    def __init__(self, consumer: MultiTopicConsumer) -> None:
        super().__init__(consumer)
        self._waiters: deque[_WaitingThread] = deque()
        self._queue.wake = self._wake

    def receive(self, timeout_millis: float | None) -> Message[Any]:
        timeout_s = _to_seconds(timeout_millis)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        message: Message[Any] | None = None
        try:
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                with self._queue.lock:
                    self._check_open()
                    message = self._queue.take_message_locked()
                if message is not None:
                    return message if self._intercept is None else self._intercept(message)
                if timeout_s is not None and left is not None and left <= 0:
                    raise self._timeout(timeout_s)
                self._wait(left, lambda: bool(self._queue), request_more=self._has_no_queue)
        except BaseException:
            if message is not None:
                self._queue.put_back((message,))
            raise

    def receive_batch(self) -> list[Message[Any]]:
        batch: list[Message[Any]] = []
        try:
            self._take_batch(batch)
            return batch if self._intercept is None else list(map(self._intercept, batch))
        except BaseException:
            if batch:
                self._queue.put_back(batch)
            raise

    def _take_batch(self, batch: list[Message[Any]]) -> None:
        timeout_s = self._limits.timeout_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_counted = False
        try:
            with self._queue.lock:
                self._queue.batches_waiting += 1
                is_counted = True
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                with self._queue.lock:
                    if self._take_complete_batch(batch, is_late=left is not None and left <= 0):
                        return
                self._wait(left, self._has_batch, request_more=True)
        finally:
            if is_counted:
                with self._queue.lock:
                    self._queue.batches_waiting -= 1

    def _wait(self, seconds: float | None, is_ready: Callable[[], bool], *, request_more: bool) -> None:
        """Wait until messages were added; not at all if `is_ready` now."""
        waiter = _WaitingThread()
        is_counted = False
        try:
            with self._queue.lock:
                if self._queue.error is not None or is_ready():
                    return
                self._queue.waiting += 1
                is_counted = True
                self._waiters.append(waiter)
            if request_more:
                self._consumer.call_soon(self._queue.request_more)
            waiter.wait(seconds)
        except BaseException:
            with self._queue.lock:
                if waiter.is_woken:  # pass the wake-up on
                    self._wake(1)
            raise
        finally:
            with self._queue.lock:
                if is_counted:
                    self._queue.waiting -= 1
                with contextlib.suppress(ValueError):  # it was woken
                    self._waiters.remove(waiter)

    def _wake(self, count: int) -> None:
        # A waiter that needs more for its batch goes back to sleep, so it must not be the only one to be woken.
        if self._queue.batches_waiting:
            count = len(self._waiters)
        while count > 0 and self._waiters:
            self._waiters.popleft().wake()
            count -= 1


class _WaitingThread:
    """A thread that waits. It holds no lock that others need, so Ctrl-C may interrupt it at any point."""

    __slots__ = ("_lock", "is_woken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.is_woken = False

    def wake(self) -> None:
        self.is_woken = True
        self._lock.release()

    def wait(self, seconds: float | None) -> None:
        acquire_lock(self._lock, seconds)


class TaskReceiver(_Receiver):
    """Receives in tasks of the client's loop."""

    def __init__(self, consumer: MultiTopicConsumer) -> None:
        super().__init__(consumer)
        self._clock = consumer.clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._queue.wake = self._wake

    async def receive(self, timeout_millis: float | None) -> Message[Any]:
        message = await self.take_message(timeout_millis)
        return message if self._intercept is None else self._intercept_all([message])[0]

    async def take_message(self, timeout_millis: float | None) -> Message[Any]:
        """Receive a message that no interceptor has seen."""
        timeout_s = _to_seconds(timeout_millis)
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            with self._queue.lock:
                self._check_open()
                message = self._queue.take_message_locked()
            if message is not None:
                return message
            left = None if deadline is None else deadline - self._clock.monotonic()
            if timeout_s is not None and left is not None and left <= 0:
                raise self._timeout(timeout_s)
            await self._wait(left, request_more=self._has_no_queue)

    async def receive_batch(self) -> list[Message[Any]]:
        timeout_s = self._limits.timeout_s
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        batch: list[Message[Any]] = []
        self._queue.batches_waiting += 1
        try:
            while True:
                left = None if deadline is None else deadline - self._clock.monotonic()
                with self._queue.lock:
                    is_taken = self._take_complete_batch(batch, is_late=left is not None and left <= 0)
                if is_taken:
                    return batch if self._intercept is None else self._intercept_all(batch)
                await self._wait(left, request_more=True)
        finally:
            self._queue.batches_waiting -= 1

    def _intercept_all(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        assert self._intercept is not None
        try:
            return list(map(self._intercept, messages))
        except BaseException:  # Ctrl-C
            self._queue.put_back(messages)
            raise

    async def _wait(self, seconds: float | None, *, request_more: bool) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = None if seconds is None else self._clock.call_later(seconds, wake)
        self._waiters.append(waiter)
        self._queue.waiting += 1
        if request_more:
            self._queue.request_more()
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():  # it was woken too: pass the wake-up on
                with self._queue.lock:
                    self._wake(1)
            raise
        finally:
            self._queue.waiting -= 1
            if timer is not None:
                timer.cancel()
            with contextlib.suppress(ValueError):  # it was woken by `_wake`
                self._waiters.remove(waiter)

    def _wake(self, count: int) -> None:
        if self._queue.batches_waiting:  # as in ThreadReceiver
            count = len(self._waiters)
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


def _to_seconds(timeout_millis: float | None) -> float | None:
    if timeout_millis is None:
        return None
    if not isinstance(timeout_millis, (int, float)) or isinstance(timeout_millis, bool):
        raise TypeError(f"timeout_millis is a number of ms, or None to wait without end, not {timeout_millis!r}")
    return timeout_millis / 1000
