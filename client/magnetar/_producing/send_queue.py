"""The send queue of one partition: where a message waits before it is sent.

    any thread   add ──► open batch ──full──► closed batches
    loop                      └── due, or urgent ──┴── take_batches ──► in flight (`in_flight.py`)
    loop, and the callback thread          release_answered, release_called ──► capacity for more

**The fast path.** Most messages find an open batch that stays open, find capacity in the queue, and have nothing but a
payload. `capacity` and `byte_capacity` tell for how many such messages, and for how many bytes, that is so without
another check. A caller that holds `lock` may decrease both and append a message to `open_batch`. All other messages go
through `add_message`, which calculates them again. These attributes are public because the producer's `send_async`
does this in its own body: a call would cost as much as all the rest. A message and its callback are appended to one
list, in one step, so that Ctrl-C can't come between them.

**Waking the loop.** `wake` is called once, when there is something to take or a delay to watch, and not again until the
next `take_batches`. The loop has one timer for the open batch. The batches of a busy producer are full before that
timer fires, and it is not set again for each of them.

**When the queue is full.** A message counts until it is answered, and one with a callback until that was called:
otherwise an application whose callbacks are slower than its broker would fill the memory. The callback thread itself
may send without counting uncalled messages, because it would wait for itself. Threads and coroutines that wait for
capacity are woken when half of it is free, all at once. While a thread waits, open batches are closed at once.

**Urgent.** If a caller waits for the result of a message in the open batch, or for capacity that the batch holds, the
batch is closed at the loop's next step, and not after the delay. Messages that are added in one step of the loop still
share a batch, so an asyncio producer adds sends that have waited in one step (`aio/_producer.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magnetar._producing.batch import Batch, Callback, Columns, Waiter, close_batch
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar.exceptions import MagnetarException, ProducerQueueIsFull
from magnetar_wire.interruptible_wait import SIGNAL_CHECK_S
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["SendLimits", "SendQueue"]


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The limits of one partition's queue and its batches."""

    pending_messages: int
    pending_bytes: int
    batch_messages: int
    # Includes what a batch stores in front of each payload, so that a batch never outgrows an entry. A message that is
    # larger by itself gets a batch of its own.
    batch_bytes: int
    batch_delay_s: float
    max_message_bytes: int
    # Each key has a batch of its own: see `KeyedSendQueue`.
    batch_by_key: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_messages", min(self.batch_messages, MAX_BATCH_MESSAGES))
        object.__setattr__(self, "batch_bytes", min(self.batch_bytes, self.max_message_bytes))


class SendQueue:
    __slots__ = (
        "_batch_bytes",
        "_byte_mark",
        "_capacity_futures",
        "_closed",
        "_columns",
        "_explain_pending",
        "_has_capacity",
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
        "_waiting_threads",
        "_wake",
        "_woken",
        "byte_capacity",
        "capacity",
        "closed_batches",
        "ended_by",
        "limits",
        "lock",
        "open_batch",
    )

    def __init__(
        self,
        limits: SendLimits,
        next_sequence_id: int,
        wake: Callable[[], None],
        monotonic: Callable[[], float],
        explain_pending: Callable[[], str] = lambda: "",
    ) -> None:
        """`explain_pending` returns why pending messages are not stored at present, or an empty text."""
        self.limits = limits
        self.lock = threading.Lock()
        # For the fast path. `byte_capacity` counts down from `_byte_mark`, and `_batch_bytes` does not include the
        # difference yet.
        self.capacity = 0
        self.byte_capacity = self._byte_mark = 0
        # Of each message in the open batch, its payload and then its callback. The batch is open if it has a message.
        self.open_batch: list[Any] = []
        self._columns: Columns | None = None
        self._waiters: list[tuple[int, Waiter]] = []
        self._batch_bytes = 0
        self._opened_at = 0.0
        self._closed: list[Batch] = []
        # The number of batches that were ever closed, without those whose messages have partition keys: the router goes
        # to another partition with each.
        self.closed_batches = 0
        self._next_sequence_id = next_sequence_id
        # The messages of all batches but `open_batch` that are not answered; and of those that are answered, but whose
        # callbacks were not called.
        self._pending = self._pending_bytes = 0
        self._uncalled = self._uncalled_bytes = 0
        self._wake = wake
        self._monotonic = monotonic
        self._explain_pending = explain_pending
        self._woken = False
        self._urgent = False
        self._timer_set = False
        # Threads, and coroutines, that wait for capacity.
        self._has_capacity = threading.Condition(self.lock)
        self._waiting_threads = 0
        self._capacity_futures: list[asyncio.Future[None]] = []
        # The error of later sends.
        self.ended_by: MagnetarException | None = None

    @property
    def has_uncalled(self) -> bool:
        """Whether callbacks are still to be called."""
        return self._uncalled > 0

    # On any thread:

    def check_open(self) -> None:
        """Raise the error that ended the queue."""
        if self.ended_by is not None:
            raise type(self.ended_by)(*self.ended_by.args)

    def add_message(
        self,
        message: OutgoingMessage,
        callback: Callback | None = None,
        waiter: Waiter | None = None,
        *,
        block: bool = False,
        in_callback: bool = False,
    ) -> None:
        """Put a message into the open batch. With a waiter, the batch is closed at the loop's next step.

        Wait for capacity if `block` is set, else raise ProducerQueueIsFull. Raises the queue's error if it has ended.
        """
        size = message.size
        with self.lock:
            self._count_fast_path()
            while not self._fits(size, in_callback):
                if not block:
                    raise self._full()
                self._wait()
            try:
                self._append(message, callback, waiter)
                if self._closed or self._urgent or not self._timer_set:
                    self._wake_loop()
                self._set_capacity()
            except BaseException:
                self._repair()
                raise

    def close_batch_soon(self) -> None:
        """Have the open batch closed at the loop's next step."""
        with self.lock:
            self._urgent = True
            self._wake_loop()

    # On the loop:

    def take_batches(self, now: float) -> tuple[list[Batch], float | None]:
        """Return the closed batches, in order, and when the open batch is due: then this is to be called again."""
        with self.lock:
            self._count_fast_path()
            self._woken = False
            self._close_due(math.inf if self._urgent or self._waiting_threads else now)
            self._urgent = False
            batches, self._closed = self._closed, []
            due = self._next_due()
            self._timer_set = due is not None
            self._set_capacity()
            return batches, due

    def release_answered(self, batch: Batch) -> None:
        """Stop counting a batch that was answered. Its callbacks, if it has any, are still to be called."""
        with self.lock:
            self._pending -= batch.count
            self._pending_bytes -= batch.bytes
            if batch.callbacks is not None:
                self._uncalled += batch.count
                self._uncalled_bytes += batch.bytes
            self._release()

    async def wait_for_capacity(self) -> None:
        """Return when `add_message` may succeed. Not for messages with callbacks: another thread calls those."""
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self.lock:
            self._capacity_futures.append(free)
            self._urgent = True
            self._wake_loop()
        try:
            await free
        finally:
            with self.lock, contextlib.suppress(ValueError):  # it was woken, and is not in the list any more
                self._capacity_futures.remove(free)

    def close(self, error: MagnetarException) -> list[Batch]:
        """Have later sends raise the error, and return what was not taken yet."""
        with self.lock:
            self._count_fast_path()
            self._close_due(math.inf)
            batches, self._closed = self._closed, []
            if self.ended_by is None:
                self.ended_by = error
            self._wake_waiting()
            self._set_capacity()
            return batches

    # On the callback thread:

    def release_called(self, batch: Batch) -> None:
        """Stop counting a batch whose callbacks were called."""
        with self.lock:
            self._uncalled -= batch.count
            self._uncalled_bytes -= batch.bytes
            self._release()

    # With the lock held:

    def _count_fast_path(self) -> None:
        """Count the bytes that the fast path has added since the last time."""
        self._batch_bytes += self._byte_mark - self.byte_capacity
        self._byte_mark = self.byte_capacity

    def _set_capacity(self) -> None:
        """Calculate how much the fast path may add before the next check."""
        limits, open_messages = self.limits, len(self.open_batch) // 2
        if not open_messages or self._columns is not None or self.ended_by is not None:
            self.capacity = 0
        else:
            free = limits.pending_messages - self._pending - self._uncalled - open_messages
            self.capacity = max(0, min(free, limits.batch_messages - open_messages - 1))
        free_bytes = limits.pending_bytes - self._pending_bytes - self._uncalled_bytes
        self.byte_capacity = self._byte_mark = min(free_bytes, limits.batch_bytes) - self._batch_bytes

    def _append(self, message: OutgoingMessage, callback: Callback | None, waiter: Waiter | None) -> None:
        """Append a message to the open batch.

        Ctrl-C may interrupt this wherever a function is called. Between the lines that take the message, from the
        change of `open_batch` to that of `_urgent`, none is.
        """
        if self.open_batch and self._batch_bytes + message.size > self.limits.batch_bytes:
            self._close_batch()
        if not self.open_batch:
            self._opened_at = self._monotonic()
        index = len(self.open_batch) // 2
        if self._columns is not None or not message.is_plain:
            if self._columns is None:
                self._columns = Columns()
            self._columns.append(index, message)
        self.open_batch += (message.content, callback)
        self._batch_bytes += message.size
        if waiter is not None:
            self._waiters += ((index, waiter),)
            self._urgent = True
        if index + 1 >= self.limits.batch_messages or self._batch_bytes >= self.limits.batch_bytes:
            self._close_batch()

    def _repair(self) -> None:
        """Restore order after an interrupted `_append`: the message is in the batch as a whole, or not at all."""
        self.capacity = 0
        if self._columns is not None:
            self._columns.fit(len(self.open_batch) // 2)
        self._wake_loop()

    def _fits(self, size: int, in_callback: bool) -> bool:
        self.check_open()
        messages = self._pending + len(self.open_batch) // 2
        in_bytes = self._pending_bytes + self._batch_bytes
        if not in_callback:
            messages += self._uncalled
            in_bytes += self._uncalled_bytes
        if not messages:  # one message always fits
            return True
        return messages < self.limits.pending_messages and in_bytes + size <= self.limits.pending_bytes

    def _wait(self) -> None:
        self._urgent = True
        self._wake_loop()
        self._waiting_threads += 1
        try:
            self._has_capacity.wait(SIGNAL_CHECK_S)
        finally:
            self._waiting_threads -= 1
        self._count_fast_path()

    def _full(self) -> ProducerQueueIsFull:
        limits = self.limits
        messages = self._pending + self._uncalled + len(self.open_batch) // 2
        in_bytes = self._pending_bytes + self._uncalled_bytes + self._batch_bytes
        return ProducerQueueIsFull(
            f"{messages} messages of {in_bytes} bytes are pending, and at most {limits.pending_messages} of "
            f"{limits.pending_bytes} bytes are allowed: wait for results, raise max_pending_messages or "
            "max_pending_bytes, or set block_if_queue_full"
            + (f"; {reason}" if (reason := self._explain_pending()) else "")
        )

    def _close_due(self, now: float) -> None:
        """Close what is open and due."""
        if self.open_batch and now >= self._opened_at + self.limits.batch_delay_s:
            self._close_batch()

    def _next_due(self) -> float | None:
        """Return when the next batch is due."""
        return self._opened_at + self.limits.batch_delay_s if self.open_batch else None

    def _close_batch(self) -> None:
        batch = close_batch(
            self.open_batch,
            self._columns,
            self._waiters,
            self._batch_bytes,
            self._opened_at,
            self._next_sequence_id,
        )
        next_sequence_id = max(self._next_sequence_id, batch.last_sequence_id + 1)
        # No function is called from here on: see `_append`.
        self._closed += (batch,)
        self.open_batch, self._columns, self._waiters = [], None, []
        self._batch_bytes = 0
        self._next_sequence_id = next_sequence_id
        self.closed_batches += 1
        self._pending += batch.count
        self._pending_bytes += batch.bytes

    def _release(self) -> None:
        self._count_fast_path()
        if (self._waiting_threads or self._capacity_futures) and (self._half_free(False) or self._half_free(True)):
            self._wake_waiting()
        self._set_capacity()

    def _half_free(self, in_callback: bool) -> bool:
        messages, in_bytes = self._pending, self._pending_bytes
        if not in_callback:
            messages += self._uncalled
            in_bytes += self._uncalled_bytes
        return messages <= self.limits.pending_messages // 2 and in_bytes <= self.limits.pending_bytes // 2

    def _wake_waiting(self) -> None:
        self._has_capacity.notify_all()
        futures, self._capacity_futures = self._capacity_futures, []
        for free in futures:
            if not free.done():
                free.set_result(None)

    def _wake_loop(self) -> None:
        if not self._woken:
            self._wake()
            self._woken = True
