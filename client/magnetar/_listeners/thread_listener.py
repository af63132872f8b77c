"""Calls message listeners on threads: those of the client (`listener_threads.py`), or the application's own.

`ThreadListener` is a job of one thread: it takes a message from the receiver queue, calls the listener, and takes the
next one, until there is none. Then it counts as a receiver that waits, and the queue's `wake` submits the job again.
Consumers that share a thread take turns.

`SpreadListener` is for several threads. It takes messages in order, and appends each to the *lane* of its key, which is
a job of one thread at a time; or passes each to the application's `MessageListenerExecutor`, which keeps the order.
Messages that were taken count as handed out, so there are at most `receiver_queue_size` in all lanes.

The queue's lock guards the state of both. While a listener is paused, nothing is taken from the queue or from a lane.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._listeners.listener_threads import ListenerThreads, in_listener
from magnetar._listeners.message_listener import is_key_shared, is_stale, max_in_lanes, ordering_hash, ordering_key
from magnetar._message import Message
from magnetar_wire.interruptible_wait import acquire_lock

__all__ = ["SpreadListener", "ThreadListener", "finish_listeners", "listen_on_threads"]

log = logging.getLogger("magnetar")

Listener = Callable[[Any, Any], object]
Job = Callable[[], object]
Submit = Callable[[Job], object]

# After so many messages, another consumer has its turn on the thread.
_TURN: Final = 16
# After these times, a job that the application's executor has refused is submitted again.
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
# A busy executor may refuse many calls. One in this time is logged as an error.
_REFUSALS_LOGGED_EVERY_S: Final = 60.0


def listen_on_threads(
    consumer: Any, core: MultiTopicConsumer, listener: Listener, threads: ListenerThreads
) -> BaseThreadListener:
    """Call the listener with each message of a consumer or reader, from now on."""
    executor = core.options.message_listener_executor
    if executor is None:
        spreads = is_key_shared(core) and threads.size > 1
    else:
        spreads = is_key_shared(core) or not isinstance(executor, Executor)
    kind = SpreadListener if spreads else ThreadListener
    return kind(consumer, core, listener, threads, executor)


def finish_listeners(listeners: list[BaseThreadListener], clock: Callable[[], float], timeout_s: float) -> None:
    """Begin no more calls, and return when none runs, or after the timeout. A listener that calls this waits for no
    call."""
    for one in listeners:
        one.close()
    if in_listener.get():
        return
    deadline = clock() + timeout_s
    for one in listeners:
        if not one.wait_finished(max(0.0, deadline - clock())):
            log.warning(
                "the listener of %s still runs, and its consumer is closed: messages that it has not acknowledged are "
                "redelivered",
                one.topic,
            )


class BaseThreadListener(ABC):
    """Takes messages, and calls the listener."""

    def __init__(self, consumer: Any, core: MultiTopicConsumer, listener: Listener, threads: ListenerThreads) -> None:
        self.topic: str = consumer.topic()
        self._consumer = consumer
        self._core = core
        self._listener = listener
        self._intercept = None if core.interceptors is None else core.interceptors.before_consume
        self._queue = core.queue
        self._thread = threads.assign()
        self._is_paused = self._is_closed = False
        # A job takes messages, or is submitted; or the queue will wake this when it gets messages; or neither.
        self._is_taking = True
        self._is_waiting = False
        # How many calls run, and the locks that are released when none does.
        self._calls = 0
        self._finished: list[threading.Lock] = []
        self._has_refused_awaitable = False
        # When it was last logged that the application's executor has refused a call.
        self._refusals_logged_s = -math.inf
        self._queue.wake = self._wake

    # With the lock held.

    @abstractmethod
    def _start_taking(self) -> None:
        """Submit the job that takes messages."""

    @property
    def _may_take(self) -> bool:
        return not (self._is_closed or self._is_paused) and self._queue.error is None

    def _wake(self, count: int) -> None:
        if self._is_waiting:
            self._stop_waiting()
            self._is_taking = True
            self._start_taking()

    def _wait(self) -> None:
        self._is_waiting = True
        self._queue.waiting += 1

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._queue.waiting -= 1

    def _take_locked(self) -> Message[Any] | None:
        """Take the next message. None: there is none now, or none may be taken, and the job that takes them ends."""
        message = self._queue.take_message_locked() if self._may_take else None
        if message is None:
            self._is_taking = False
            if self._may_take:
                self._wait()
                if self._core.options.receiver_queue_size == 0:
                    self._core.call_soon(self._queue.request_more)
        return message

    # In any thread.

    def pause(self) -> None:
        with self._queue.lock:
            self._is_paused = True
            self._stop_waiting()

    def resume(self) -> None:
        with self._queue.lock:
            self._is_paused = False
            if self._may_take and not (self._is_taking or self._is_waiting):
                self._is_taking = True
                self._start_taking()

    def close(self) -> None:
        """Begin no more calls."""
        with self._queue.lock:
            self._stop_waiting()
            if not self._is_closed:
                self._is_closed = True
                self._thread.users -= 1

    def wait_finished(self, timeout_s: float) -> bool:
        """Wait until no call runs. Return False if one still does after the timeout."""
        finished = threading.Lock()
        finished.acquire()
        with self._queue.lock:
            if not self._calls:
                return True
            self._finished.append(finished)
        return acquire_lock(finished, timeout_s)

    def _call(self, message: Message[Any]) -> None:
        """Call the listener. The call is counted already."""
        mark = in_listener.set(True)
        try:
            if self._intercept is not None:
                message = self._intercept(message)
            result = self._listener(self._consumer, message)
            if inspect.isawaitable(result):
                self._refuse_awaitable(result)
        except BaseException:
            log.exception("the listener of %s failed: its message is not acknowledged", self.topic)
        finally:
            in_listener.reset(mark)
            with self._queue.lock:
                self._calls -= 1
                if not self._calls:
                    for finished in self._finished:
                        finished.release()
                    self._finished.clear()

    def _refuse_awaitable(self, result: object) -> None:
        """Close a coroutine that the listener returned, without running it."""
        if inspect.iscoroutine(result):
            result.close()
        if not self._has_refused_awaitable:
            self._has_refused_awaitable = True
            log.error(
                "the listener of %s returned %r, which a synchronous client never awaits, so its messages are not "
                "acknowledged: use a plain function, or magnetar.aio.Client",
                self.topic,
                result,
            )

    def _submit_to(self, executor: Executor, job: Job, pause_s: float = _FIRST_PAUSE_S) -> None:
        """Submit a job to the application's executor, on the consumer's own thread. If the executor refuses it, submit
        it again after a pause, until the consumer is closed."""

        def submit_again() -> None:
            self._submit_to(executor, job, min(2 * pause_s, _LONGEST_PAUSE_S))

        def submit() -> None:
            with self._queue.lock:
                if self._is_closed or self._queue.error is not None:
                    return
            try:
                executor.submit(job)
            except Exception:
                now_s, level = self._core.clock.monotonic(), logging.DEBUG
                if now_s >= self._refusals_logged_s + _REFUSALS_LOGGED_EVERY_S:
                    self._refusals_logged_s, level = now_s, logging.ERROR
                text = "the message_listener_executor of %s refused a listener's call, which is submitted again soon"
                log.log(level, text, self.topic, exc_info=True)
                self._core.call_soon(lambda: self._core.clock.call_later(pause_s, submit_again))

        self._thread.submit(submit)


class ThreadListener(BaseThreadListener):
    """Calls the listener with one message at a time."""

    def __init__(
        self,
        consumer: Any,
        core: MultiTopicConsumer,
        listener: Listener,
        threads: ListenerThreads,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(consumer, core, listener, threads)
        self._executor = executor
        with self._queue.lock:
            self._start_taking()

    def _start_taking(self) -> None:
        if self._executor is None:
            self._thread.submit(self._call_with_next)
        else:
            self._submit_to(self._executor, self._call_with_next)

    def _call_with_next(self) -> None:
        for _ in range(_TURN):
            with self._queue.lock:
                message = self._take_locked()
                if message is None:
                    return
                self._calls += 1
            self._call(message)
        with self._queue.lock:
            self._start_taking()


class _Lane:
    """Messages for which the listener is called one after the other."""

    __slots__ = ("is_submitted", "key", "messages", "submit")

    def __init__(self, key: Hashable, submit: Callable[[_Lane], object]) -> None:
        self.key = key
        self.messages: deque[Message[Any]] = deque()
        # Submits the job that calls the listener.
        self.submit = submit
        self.is_submitted = False


class SpreadListener(BaseThreadListener):
    """Calls the listener with several messages at a time."""

    def __init__(
        self, consumer: Any, core: MultiTopicConsumer, listener: Listener, threads: ListenerThreads, executor: Any
    ) -> None:
        super().__init__(consumer, core, listener, threads)
        self._executor = executor
        self._max_taken = max_in_lanes(core)
        # The number of messages that were taken, and for which the listener was not called yet.
        self._taken = 0
        # By the number of the thread, or by key if the application has given an executor. Those without messages are
        # removed.
        self._lanes: dict[Hashable, _Lane] = {}
        self._threads = threads.all() if executor is None else []
        # For an executor's threads that wait while the listener is paused.
        self._may_call = threading.Event()
        self._may_call.set()
        with self._queue.lock:
            self._start_taking()

    @property
    def _may_take(self) -> bool:
        return super()._may_take and self._taken < self._max_taken

    def _start_taking(self) -> None:
        # The consumer's own thread may be busy with a call, except if the application has threads for all calls.
        (self._core.call_soon if self._executor is None else self._thread.submit)(self._distribute)

    def pause(self) -> None:
        self._may_call.clear()
        super().pause()

    def resume(self) -> None:
        super().resume()
        self._may_call.set()
        with self._queue.lock:
            for lane in self._lanes.values():
                self._submit(lane)

    def close(self) -> None:
        super().close()
        self._may_call.set()

    def _distribute(self) -> None:
        while True:
            with self._queue.lock:
                message = self._take_locked()
                if message is None:
                    return
                self._taken += 1
                self._queue.defer_locked(message)
                if self._executor is None or isinstance(self._executor, Executor):
                    self._append(message)
                    continue
            try:
                self._executor.execute(message, _Once(partial(self._call_with, message)))
            except Exception:
                log.exception("the message_listener_executor of %s failed: its message is not acknowledged", self.topic)
                with self._queue.lock:
                    self._queue.end_deferral_locked(message)
                    self._count_called()

    def _append(self, message: Message[Any]) -> None:
        key: Hashable = ordering_hash(message) % len(self._threads) if self._threads else ordering_key(message)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, self._submit)
        lane.messages.append(message)
        self._submit(lane)

    def _submit(self, lane: _Lane) -> None:
        if lane.is_submitted:
            return
        lane.is_submitted = True
        job = partial(self._call_with_lane, lane)
        if self._threads:
            assert isinstance(lane.key, int)
            self._threads[lane.key].submit(job)
        else:
            self._submit_to(self._executor, job)

    def _call_with_lane(self, lane: _Lane) -> None:
        for _ in range(_TURN):
            with self._queue.lock:
                message = self._take_from(lane)
            if message is None:
                return
            self._call(message)
        with self._queue.lock:
            lane.is_submitted = False
            self._submit(lane)

    def _take_from(self, lane: _Lane) -> Message[Any] | None:
        """Take the next message for which the listener is to be called, and count the call. With the lock held."""
        while lane.messages and not (self._is_closed or self._is_paused):
            message = lane.messages.popleft()
            self._queue.end_deferral_locked(message)
            self._count_called()
            if not is_stale(message, self._core):
                self._calls += 1
                return message
        lane.is_submitted = False
        if not lane.messages:
            self._lanes.pop(lane.key, None)
        return None

    def _call_with(self, message: Message[Any]) -> None:
        """Called by the application's executor."""
        while True:
            self._may_call.wait()
            with self._queue.lock:
                if self._is_paused and not self._is_closed:  # again
                    continue
                self._queue.end_deferral_locked(message)
                self._count_called()
                if self._is_closed or is_stale(message, self._core):
                    return
                self._calls += 1
            self._call(message)
            return

    def _count_called(self) -> None:
        """Count a message that was taken as called, and go on taking others. With the lock held."""
        self._taken -= 1
        if not (self._is_taking or self._is_waiting) and self._may_take and self._taken <= self._max_taken // 2:
            self._is_taking = True
            self._start_taking()


class _Once:
    """Calls a function the first time that it is called itself."""

    __slots__ = ("_function",)

    def __init__(self, function: Job) -> None:
        self._function: list[Job] = [function]

    def __call__(self) -> None:
        try:
            function = self._function.pop()
        except IndexError:
            return
        function()
