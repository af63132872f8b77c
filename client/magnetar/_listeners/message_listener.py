"""The application's `message_listener` and `reader_listener`. An asyncio consumer calls them in tasks, a synchronous
one on threads (`thread_listener.py`), never on the thread that does the I/O.

A listener is called with one message at a time, in order. Only with Key_Shared, and `message_listener_threads` above 1,
several calls run at a time: messages of one key are in order, and others wait in the *lanes* of the threads or tasks.
If a listener raises, the error is logged, and the message is not acknowledged.

**Closing** waits for the calls that run, so that they can still acknowledge, and begins no others; but not if a
listener closes: two that close each other's consumer would wait for ever.

A synchronous consumer refuses a coroutine function as its listener. A plain function that returns a coroutine (a lambda
that calls one) is only noticed by its result: the coroutine is closed, and an error is logged once for each listener.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.receiver import TaskReceiver
from magnetar._enums import ConsumerType
from magnetar._listeners.listener_threads import in_listener
from magnetar._message import Message
from magnetar.exceptions import InvalidConfiguration, MagnetarException

__all__ = [
    "TaskListener",
    "check_listener",
    "is_key_shared",
    "is_stale",
    "max_in_lanes",
    "ordering_hash",
    "ordering_key",
]

log = logging.getLogger("magnetar")

_FAILED: Final = "the listener of %s failed: its message is not acknowledged"


def check_listener(option: str, listener: object, *, awaited: bool = False) -> None:
    """Raise InvalidConfiguration if the listener can't be called, or is a coroutine function that is not awaited."""
    if listener is None:
        return
    if not callable(listener):
        raise InvalidConfiguration(f"{option} = {listener!r} can't be called: use a function with two parameters")
    if not awaited and (inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__)):
        raise InvalidConfiguration(
            f"{option} = {listener!r} is a coroutine function, which a synchronous client never awaits: use a plain "
            "function, or magnetar.aio.Client"
        )


def is_key_shared(core: MultiTopicConsumer) -> bool:
    return core.options.consumer_type is ConsumerType.KeyShared


def max_in_lanes(core: MultiTopicConsumer) -> int:
    """Return how many messages may wait in lanes: as many as in the receiver queue."""
    return max(1, core.options.receiver_queue_size)


def ordering_hash(message: Message[Any]) -> int:
    """Return a hash that is the same for all messages of a key. Those without a key count as one key."""
    return zlib.crc32(ordering_key(message))


def ordering_key(message: Message[Any]) -> bytes:
    """Return the key by which Key_Shared orders messages: the ordering key, or else the partition key."""
    entry, row = message._entry, message._row
    column = entry.columns.ordering_keys
    key = None if column is None else column[row]
    return message.key_bytes() if key is None else key


def is_stale(message: Message[Any], core: MultiTopicConsumer) -> bool:
    """Whether the message will be redelivered, or its subscription was moved, since it was taken from the queue. A
    listener is not called with it, since it can get the redelivered one at the same time."""
    epoch = message._entry.epoch
    partition = epoch.origin
    # It is closed from when a redelivery of everything, or a seek, is requested until its epoch begins.
    is_over = epoch is not partition.epoch or partition.partition_queue.is_closed
    return is_over and core.context.durable and partition.is_persistent


class TaskListener:
    """Calls a message listener, a function or a coroutine function, in tasks."""

    def __init__(
        self,
        consumer: Any,
        core: MultiTopicConsumer,
        listener: Callable[[Any, Any], object],
        receiver: TaskReceiver,
        size: int = 1,
    ) -> None:
        self._consumer = consumer
        self._core = core
        self._listener = listener
        self._receiver = receiver
        self._intercept = None if core.interceptors is None else core.interceptors.before_consume
        self._not_paused = asyncio.Event()
        self._not_paused.set()
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        # The tasks in which the listener is called now.
        self._calling: set[asyncio.Task[Any]] = set()
        core.listener = self
        lanes: list[asyncio.Queue[Message[Any]]] = [asyncio.Queue() for _ in range(size if is_key_shared(core) else 1)]
        if len(lanes) == 1:
            self._start(self._call_with_all())
        else:
            capacity = asyncio.Semaphore(max_in_lanes(core))
            self._start(self._distribute(lanes, capacity))
            for lane in lanes:
                self._start(self._call_with_lane(lane, capacity))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        name = f"magnetar listener of {self._consumer.topic()}"
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    def pause(self) -> None:
        self._not_paused.clear()

    def resume(self) -> None:
        self._not_paused.set()

    async def finish(self, timeout_s: float) -> None:
        """Begin no more calls, and return when none runs. Calls that run for longer than the timeout are cancelled, and
        all are if this is cancelled. A listener that calls this waits for no call."""
        self._is_closed = True
        for task in self._tasks:
            if task not in self._calling:
                task.cancel()
        if in_listener.get() or not self._calling:
            return
        calling = set(self._calling)
        try:
            await asyncio.wait(calling, timeout=timeout_s)
        finally:
            for task in calling:
                if not task.done():
                    log.warning(
                        "the listener of %s is cancelled, since its consumer is closed: messages that it has not "
                        "acknowledged are redelivered",
                        self._consumer.topic(),
                    )
                    task.cancel()

    async def _call_with_all(self) -> None:
        while not self._is_closed and (message := await self._receive()) is not None:
            await self._call(message)

    async def _distribute(self, lanes: list[asyncio.Queue[Message[Any]]], capacity: asyncio.Semaphore) -> None:
        while True:
            await capacity.acquire()
            message = await self._receive()
            if message is None:
                return
            with self._core.queue.lock:
                self._core.queue.defer_locked(message)
            lanes[ordering_hash(message) % len(lanes)].put_nowait(message)

    async def _call_with_lane(self, lane: asyncio.Queue[Message[Any]], capacity: asyncio.Semaphore) -> None:
        while not self._is_closed:
            message = await lane.get()
            capacity.release()
            with self._core.queue.lock:
                self._core.queue.end_deferral_locked(message)
            await self._call(message)

    async def _receive(self) -> Message[Any] | None:
        """Return the next message; None: the consumer has ended, which was logged or requested."""
        await self._not_paused.wait()
        try:
            return await self._receiver.take_message(None)
        except MagnetarException:
            return None

    async def _call(self, message: Message[Any]) -> None:
        await self._not_paused.wait()
        if self._is_closed or is_stale(message, self._core):
            return
        task = asyncio.current_task()
        assert task is not None
        self._calling.add(task)
        in_listener.set(True)
        try:
            if self._intercept is not None:
                message = self._intercept(message)
            result = self._listener(self._consumer, message)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            if task.cancelling():
                raise
            log.exception(_FAILED, self._consumer.topic())  # something was cancelled for which the listener waited
        except Exception:
            log.exception(_FAILED, self._consumer.topic())
        finally:
            self._calling.discard(task)
            in_listener.set(False)
