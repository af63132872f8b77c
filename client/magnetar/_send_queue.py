"""Where messages enter: from any of the application's threads, into the open batch of one partition.

    any thread    add ──► open batch ──full──► closed batches
    loop                       └──── due, or urgent ────┴──── take ──► sent
    loop, and the thread of callbacks                   released, called ──► room for more

**The fast path.** Most messages find an open batch that stays open, with room in the queue, and have nothing but a
payload. `room` and `byte_room` say for how many of them, and how many bytes, that is true without another look:
whoever holds `lock` may count both down and put a message into `line`. All else goes through `add`, which counts anew.
That is why these are public, and why the producer's `send_async` does it in its own body: a call would cost as much as
everything else. A message and its callback go into one list, at once, so that Ctrl-C can't come between them.

**The loop is woken** once, until it has been: `wake` is called when there is something to take, or a time to watch, and
nobody has called it since the last `take`. The loop keeps one timer for the open batch; a busy producer's batches are
full before it goes off, and it is not set anew for each of them.

**Full.** Messages count until they are answered, and those whose callback is to be called until it was: else an
application whose callbacks are slower than its broker would fill the memory. The thread of callbacks itself may send
without counting the latter, or it would wait for itself. Threads and coroutines that wait for capacity are woken when
half of it is free, all at once; as long as one waits, open batches are closed at once.

**Urgent.** Somebody waits, for the receipt of a message in the open batch or for capacity that the batch holds, so the
batch closes at the loop's next step, and not after the delay. Messages added in one step of the loop still share
batches: the sends of asyncio that waited for capacity have to be added so (_waiting_sends.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from magnetar._batch import Batch, Callback, Columns, Waiter
from magnetar.exceptions import MagnetarException, ProducerQueueIsFull
from magnetar_wire.interruptible_wait import SIGNAL_CHECK_S
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["Bounds", "SendQueue"]

# What a message in a batch has in front of its payload, at most, if it has nothing else: the size of that, payload's
# size, a sequence id, and that it is null.
HEAD_BYTES: Final = 24


class Bounds:
    """Of one partition's queue."""

    __slots__ = (
        "batch_bytes",
        "batch_messages",
        "delay_s",
        "max_message_bytes",
        "pending_bytes",
        "pending_messages",
    )

    def __init__(
        self,
        pending_messages: int,
        pending_bytes: int,
        batch_messages: int,
        batch_bytes: int,
        delay_s: float,
        max_message_bytes: int,
    ) -> None:
        self.pending_messages = pending_messages
        self.pending_bytes = pending_bytes
        self.batch_messages = min(batch_messages, MAX_BATCH_MESSAGES)
        # Messages' heads included: a batch never outgrows an entry. What is larger by itself goes alone.
        self.batch_bytes = min(batch_bytes, max_message_bytes)
        self.delay_s = delay_s
        self.max_message_bytes = max_message_bytes


class SendQueue:
    __slots__ = (
        "_batch_bytes",
        "_byte_mark",
        "_closed",
        "_columns",
        "_free",
        "_free_futures",
        "_monotonic",
        "_next_sequence_id",
        "_opened_at",
        "_pending",
        "_pending_bytes",
        "_timer_set",
        "_uncalled",
        "_uncalled_bytes",
        "_urgent",
        "_waiters",
        "_waiting",
        "_wake",
        "_woken",
        "bounds",
        "byte_room",
        "closed_batches",
        "ended_by",
        "line",
        "lock",
        "room",
    )

    def __init__(
        self, bounds: Bounds, next_sequence_id: int, wake: Callable[[], None], monotonic: Callable[[], float]
    ) -> None:
        self.bounds = bounds
        self.lock = threading.Lock()
        # Of the fast path. `byte_room` counts down from `_byte_mark`, and the difference is not in `_batch_bytes` yet.
        self.room = 0
        self.byte_room = self._byte_mark = 0
        # The open batch: of each message its payload, then its callback. It is open while it has messages.
        self.line: list[Any] = []
        self._columns: Columns | None = None
        self._waiters: list[tuple[int, Waiter]] = []
        self._batch_bytes = 0
        self._opened_at = 0.0
        self._closed: list[Batch] = []
        # How many ever were.
        self.closed_batches = 0
        self._next_sequence_id = next_sequence_id
        # Of closed batches: without an answer; and answered, but their callbacks were not called.
        self._pending = self._pending_bytes = 0
        self._uncalled = self._uncalled_bytes = 0
        self._wake = wake
        self._monotonic = monotonic
        self._woken = False
        self._urgent = False
        self._timer_set = False
        # Threads, and coroutines, that wait for room.
        self._free = threading.Condition(self.lock)
        self._waiting = 0
        self._free_futures: list[asyncio.Future[None]] = []
        # Nothing is taken any more.
        self.ended_by: MagnetarException | None = None

    @property
    def calling(self) -> bool:
        """Callbacks are still to be called."""
        return self._uncalled > 0

    # Any thread:

    def check_open(self) -> None:
        """Raises what ended the queue."""
        if self.ended_by is not None:
            raise type(self.ended_by)(*self.ended_by.args)

    def add(
        self,
        content: bytes | None,
        callback: Callback | None,
        waiter: Waiter | None,
        size: int,
        key: str | bytes | None = None,
        ordering_key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time: int = 0,
        sequence_id: int | None = None,
        *,
        block: bool = False,
        in_callback: bool = False,
    ) -> None:
        """Puts a message into the open batch; with a waiter the batch is closed as soon as the loop comes to it.

        `size` counts payload, key, properties and what else is encoded. Raises `ProducerQueueIsFull`, unless it is to
        wait, and what ended the queue.
        """
        with self.lock:
            self._count()
            while not self._has_room(size, in_callback):
                if not block:
                    raise self._full()
                self._wait()
            try:
                if self.line and self._batch_bytes + size > self.bounds.batch_bytes:
                    self._close_batch()
                if not self.line:
                    self._opened_at = self._monotonic()
                self._put(content, callback, waiter, size, key, ordering_key, properties, event_time, sequence_id)
            except BaseException:
                self._mend()
                raise

    def hurry(self) -> None:
        """The open batch is to be closed as soon as the loop comes to it."""
        with self.lock:
            self._urgent = True
            self._wake_loop()

    # The loop:

    def take(self, now: float) -> tuple[list[Batch], float | None]:
        """The closed batches, in order, and when the open one is due; then `take` is to be called again."""
        with self.lock:
            self._count()
            self._woken = False
            if self.line and (self._urgent or self._waiting or now >= self._opened_at + self.bounds.delay_s):
                self._close_batch()
            self._urgent = False
            batches, self._closed = self._closed, []
            due = self._opened_at + self.bounds.delay_s if self.line else None
            self._timer_set = due is not None
            self._measure()
            return batches, due

    def released(self, messages: int, size: int, *, uncalled: bool) -> None:
        """So many are answered; their callbacks are still to be called."""
        with self.lock:
            self._pending -= messages
            self._pending_bytes -= size
            if uncalled:
                self._uncalled += messages
                self._uncalled_bytes += size
            self._freed()

    async def wait_room(self) -> None:
        """Return when `add` is worth a try. Not where callbacks are used: they free capacity on another thread."""
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self.lock:
            self._free_futures.append(free)
            self._urgent = True
            self._wake_loop()
        try:
            await free
        finally:
            with self.lock, contextlib.suppress(ValueError):  # woken: it is no longer there
                self._free_futures.remove(free)

    def end(self, error: MagnetarException) -> list[Batch]:
        """Nothing is taken any more: `add` raises the error. What was not sent yet."""
        with self.lock:
            self._count()
            if self.line:
                self._close_batch()
            batches, self._closed = self._closed, []
            if self.ended_by is None:
                self.ended_by = error
            self._wake_waiting()
            self._measure()
            return batches

    # The thread of callbacks:

    def called(self, messages: int, size: int) -> None:
        """The callbacks of so many were called."""
        with self.lock:
            self._uncalled -= messages
            self._uncalled_bytes -= size
            self._freed()

    # Whoever has the lock:

    def _count(self) -> None:
        """What the fast path has taken since the last look."""
        self._batch_bytes += self._byte_mark - self.byte_room
        self._byte_mark = self.byte_room

    def _measure(self) -> None:
        """How much the fast path may take before anybody has to look again."""
        bounds, open_messages = self.bounds, len(self.line) // 2
        if not open_messages or self._columns is not None or self.ended_by is not None:
            self.room = 0
        else:
            free = bounds.pending_messages - self._pending - self._uncalled - open_messages
            self.room = max(0, min(free, bounds.batch_messages - open_messages - 1))
        free_bytes = bounds.pending_bytes - self._pending_bytes - self._uncalled_bytes
        self.byte_room = self._byte_mark = min(free_bytes, bounds.batch_bytes) - self._batch_bytes

    def _put(
        self,
        content: bytes | None,
        callback: Callback | None,
        waiter: Waiter | None,
        size: int,
        key: str | bytes | None,
        ordering_key: bytes | None,
        properties: Mapping[str, str] | None,
        event_time: int,
        sequence_id: int | None,
    ) -> None:
        """Ctrl-C may strike wherever something is called. Between the lines that take the message nothing is."""
        place = len(self.line) // 2
        plain = key is None and ordering_key is None and not properties and not event_time and sequence_id is None
        if self._columns is not None or not plain:
            if self._columns is None:
                self._columns = Columns()
            self._columns.append(place, key, ordering_key, properties, event_time, sequence_id)
        self.line += (content, callback)
        self._batch_bytes += size
        if waiter is not None:
            self._waiters += ((place, waiter),)
            self._urgent = True
        if place + 1 >= self.bounds.batch_messages or self._batch_bytes >= self.bounds.batch_bytes:
            self._close_batch()
        if self._closed or self._urgent or not self._timer_set:
            self._wake_loop()
        self._measure()

    def _mend(self) -> None:
        """Something broke off in the middle: the message is in line as a whole, or not at all."""
        self.room = 0
        if self._columns is not None:
            self._columns.fit(len(self.line) // 2)
        self._wake_loop()

    def _has_room(self, size: int, in_callback: bool) -> bool:
        self.check_open()
        messages = self._pending + len(self.line) // 2
        in_bytes = self._pending_bytes + self._batch_bytes
        if not in_callback:
            messages += self._uncalled
            in_bytes += self._uncalled_bytes
        if not messages:  # one message always fits
            return True
        return messages < self.bounds.pending_messages and in_bytes + size <= self.bounds.pending_bytes

    def _wait(self) -> None:
        self._urgent = True
        self._wake_loop()
        self._waiting += 1
        try:
            self._free.wait(SIGNAL_CHECK_S)
        finally:
            self._waiting -= 1
        self._count()

    def _full(self) -> ProducerQueueIsFull:
        bounds = self.bounds
        messages = self._pending + self._uncalled + len(self.line) // 2
        in_bytes = self._pending_bytes + self._uncalled_bytes + self._batch_bytes
        return ProducerQueueIsFull(
            f"{messages} messages of {in_bytes} bytes are pending, and {bounds.pending_messages} of "
            f"{bounds.pending_bytes} may be: wait for receipts, raise max_pending_messages, or set block_if_queue_full"
        )

    def _close_batch(self) -> None:
        callbacks = self.line[1::2]
        batch = Batch(
            self.line[::2],
            callbacks if callbacks.count(None) < len(callbacks) else None,
            self._columns,
            self._waiters,
            self._batch_bytes,
            self._opened_at,
            self._next_sequence_id,
        )
        next_sequence_id = max(self._next_sequence_id, batch.last_sequence_id + 1)
        # Nothing is called from here on: see `_put`.
        self._closed += (batch,)
        self.line, self._columns, self._waiters = [], None, []
        self._batch_bytes = 0
        self._next_sequence_id = next_sequence_id
        self.closed_batches += 1
        self._pending += batch.count
        self._pending_bytes += batch.bytes

    def _freed(self) -> None:
        self._count()
        if (self._waiting or self._free_futures) and (self._half_free(False) or self._half_free(True)):
            self._wake_waiting()
        self._measure()

    def _half_free(self, in_callback: bool) -> bool:
        messages, in_bytes = self._pending, self._pending_bytes
        if not in_callback:
            messages += self._uncalled
            in_bytes += self._uncalled_bytes
        return messages <= self.bounds.pending_messages // 2 and in_bytes <= self.bounds.pending_bytes // 2

    def _wake_waiting(self) -> None:
        self._free.notify_all()
        futures, self._free_futures = self._free_futures, []
        for free in futures:
            if not free.done():
                free.set_result(None)

    def _wake_loop(self) -> None:
        if not self._woken:
            self._wake()
            self._woken = True
