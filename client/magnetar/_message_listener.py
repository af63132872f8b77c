"""The application's listeners: `message_listener`, `reader_listener` and `consumer_event_listener`.

A message listener is called with one message at a time: by a synchronous consumer on a thread of its own, by an asyncio
consumer in a task. It is never called on the thread that does the I/O of synchronous clients. If it raises, the error
is logged, and the message is not acknowledged.

A synchronous consumer refuses a coroutine function as its listener. A plain function that returns a coroutine (a lambda
that calls one) is only noticed by its result: the coroutine is closed, and an error is logged once for each listener.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from magnetar._enums import ConsumerType
from magnetar._multi_topic_consumer import MultiTopicConsumer
from magnetar._receiver import TaskReceiver, ThreadReceiver
from magnetar._reconnecting_consumer import ReconnectingConsumer
from magnetar.exceptions import InvalidConfiguration, MagnetarException

__all__ = [
    "ConsumerEventListener",
    "TaskListener",
    "ThreadListener",
    "check_event_listener",
    "check_listener",
    "notify_event_listener",
]

log = logging.getLogger("magnetar")


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


class ThreadListener:
    """Calls a message listener on a thread."""

    def __init__(
        self, consumer: Any, listener: Callable[[Any, Any], object], receiver: ThreadReceiver, topic: str
    ) -> None:
        self._consumer = consumer
        self._listener = listener
        self._receiver = receiver
        self._topic = topic
        self._not_paused = threading.Event()
        self._not_paused.set()
        self._closed = threading.Event()
        self._has_refused_awaitable = False
        threading.Thread(target=self._run, name=f"magnetar listener of {topic}", daemon=True).start()

    def pause(self) -> None:
        self._not_paused.clear()

    def resume(self) -> None:
        self._not_paused.set()

    def close(self) -> None:
        """Begin no more calls. A call that is running ends by itself."""
        self._closed.set()
        self._not_paused.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._not_paused.wait()
            try:
                message = self._receiver.receive(None)
            except MagnetarException:  # the consumer has ended, which was logged or requested
                return
            self._not_paused.wait()
            if self._closed.is_set():
                return
            try:
                result = self._listener(self._consumer, message)
                if inspect.isawaitable(result):
                    self._refuse_awaitable(result)
            except BaseException:
                log.exception("the listener of %s failed: its message is not acknowledged", self._topic)

    def _refuse_awaitable(self, result: object) -> None:
        """Close a coroutine that the listener returned, without running it."""
        if inspect.iscoroutine(result):
            result.close()
        if not self._has_refused_awaitable:
            self._has_refused_awaitable = True
            log.error(
                "the listener of %s returned %r, which a synchronous client never awaits, so its messages are not "
                "acknowledged: use a plain function, or magnetar.aio.Client",
                self._topic,
                result,
            )


class TaskListener:
    """Calls a message listener, a function or a coroutine function, in a task."""

    def __init__(
        self, consumer: Any, listener: Callable[[Any, Any], object], receiver: TaskReceiver, topic: str
    ) -> None:
        self._consumer = consumer
        self._listener = listener
        self._receiver = receiver
        self._topic = topic
        self._not_paused = asyncio.Event()
        self._not_paused.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"magnetar listener of {topic}")

    def pause(self) -> None:
        self._not_paused.clear()

    def resume(self) -> None:
        self._not_paused.set()

    def close(self) -> None:
        """Cancel a call that is running, unless the listener itself closes the consumer."""
        if self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._not_paused.wait()
            try:
                message = await self._receiver.receive(None)
            except MagnetarException:  # as in ThreadListener
                return
            await self._not_paused.wait()
            try:
                result = self._listener(self._consumer, message)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("the listener of %s failed: its message is not acknowledged", self._topic)


class ConsumerEventListener(Protocol):
    """An application's `consumer_event_listener`.

    It is notified which partitions of a Failover subscription are delivered to its consumer: of each partition when the
    consumer is created, and then of each change, in order. The partition is -1 if the topic has none.
    """

    def became_active(self, consumer: Any, partition: int, /) -> object: ...

    def became_inactive(self, consumer: Any, partition: int, /) -> object: ...


def check_event_listener(listener: Any) -> None:
    """Raises InvalidConfiguration."""
    for name in ("became_active", "became_inactive"):
        if listener is not None and not callable(getattr(listener, name, None)):
            raise InvalidConfiguration(f"consumer_event_listener = {listener!r} has no method {name}")


def notify_event_listener(
    core: MultiTopicConsumer,
    consumer: Any,
    listener: Any,
    call_later: Callable[[Callable[[], object]], object] | None = None,
) -> None:
    """Notify the listener from now on. `call_later` calls it on the callback thread; None: it is called here."""
    if listener is None or core.options.consumer_type is not ConsumerType.Failover:
        return

    def notify(partition: ReconnectingConsumer) -> None:
        call = partial(_call_event_listener, listener, consumer, partition.partition, partition.is_active)
        call() if call_later is None else call_later(call)

    def start() -> None:
        core.context.on_active_changed = notify
        for partition in core.partitions:
            notify(partition)

    core.call_soon(start)


def _call_event_listener(listener: Any, consumer: Any, partition: int, is_active: bool) -> None:
    try:
        (listener.became_active if is_active else listener.became_inactive)(consumer, partition)
    except Exception:
        log.exception("the consumer_event_listener of %s failed", consumer.topic())
