"""The send queue of key-based batching: each key has an open batch of its own.

Messages without a key share the batch of `SendQueue`, with its fast path. The key is the ordering key, if the message
has one, and else the partition key: the one by which a Key_Shared subscription chooses a consumer (`ordering_bytes`).

**When batches close.** Each batch has the limits of the default batch: messages, bytes, delay. All are closed at once
if a caller waits for a result or for capacity, if half of what may be pending is in open batches, and if there are more
than `MAX_OPEN_BATCHES`. So with many keys neither the queue nor the memory is full of batches that wait for their
delay.

**Sequence ids** are assigned when a batch closes, and batches are sent in the order in which they close. So each entry
has consecutive ids, above those of all earlier entries, which deduplication relies on, and messages of one key are in
order. Sequence ids of the application would not be in order, and are refused. (Pulsar's clients number messages when
they are sent. So a batch has gaps, and its entry names only the lowest id, as in C++, or only the highest, as in Java.)

Batches don't close in the order in which they were opened, so a send timeout may be noticed later by the delay, which
is half of the timeout at most.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final

from magnetar._producing.batch import Callback, Columns, Waiter, close_batch
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar._producing.send_queue import SendQueue
from magnetar.exceptions import InvalidMessage

__all__ = ["MAX_OPEN_BATCHES", "KeyedSendQueue"]

MAX_OPEN_BATCHES: Final = 5_000


class _OpenBatch:
    __slots__ = ("bytes", "columns", "messages", "opened_at", "waiters")

    def __init__(self, opened_at: float) -> None:
        # Of each message, its payload and then its callback.
        self.messages: list[Any] = []
        self.columns = Columns()
        self.waiters: list[tuple[int, Waiter]] = []
        self.bytes = 0
        self.opened_at = opened_at


class KeyedSendQueue(SendQueue):
    __slots__ = ("_by_key", "_open_bytes", "_open_messages")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The open batches of keys, oldest first. `_pending` counts their messages, too.
        self._by_key: dict[bytes, _OpenBatch] = {}
        self._open_messages = self._open_bytes = 0

    def add_message(
        self,
        message: OutgoingMessage,
        callback: Callback | None = None,
        waiter: Waiter | None = None,
        *,
        block: bool = False,
        in_callback: bool = False,
    ) -> None:
        if message.sequence_id is not None:
            raise InvalidMessage(
                f"sequence_id = {message.sequence_id}: with BatchingType.KeyBased the producer numbers messages when "
                "their batches are closed: leave it out, or use BatchingType.Default"
            )
        super().add_message(message, callback, waiter, block=block, in_callback=in_callback)

    # With the lock held:

    def _append(self, message: OutgoingMessage, callback: Callback | None, waiter: Waiter | None) -> None:
        """Append a message to its key's batch. For Ctrl-C the same holds as in `SendQueue`: between the changes of
        `messages` and `_urgent` no function is called."""
        key = _batch_key(message)
        if key is None:
            super()._append(message, callback, waiter)
            return
        limits, size = self.limits, message.size
        batch = self._by_key.get(key)
        if batch is not None and batch.bytes + size > limits.batch_bytes:
            self._close_key(key)
            batch = None
        if batch is None:
            batch = self._by_key[key] = _OpenBatch(self._monotonic())
        index = len(batch.messages) // 2
        batch.columns.append(index, message)
        batch.messages += (message.content, callback)
        batch.bytes += size
        self._open_messages += 1
        self._open_bytes += size
        self._pending += 1
        self._pending_bytes += size
        if waiter is not None:
            batch.waiters += ((index, waiter),)
            self._urgent = True
        if index + 1 >= limits.batch_messages or batch.bytes >= limits.batch_bytes:
            self._close_key(key)
        elif self._are_too_many_open():
            self._close_keys(list(self._by_key))

    def _are_too_many_open(self) -> bool:
        limits = self.limits
        return (
            2 * self._open_messages > limits.pending_messages
            or 2 * self._open_bytes > limits.pending_bytes
            or len(self._by_key) > MAX_OPEN_BATCHES
        )

    def _close_due(self, now: float) -> None:
        super()._close_due(now)
        delay_s = self.limits.batch_delay_s
        self._close_keys(list(takewhile(lambda key: now >= self._by_key[key].opened_at + delay_s, self._by_key)))

    def _next_due(self) -> float | None:
        due = super()._next_due()
        for batch in self._by_key.values():
            oldest_due = batch.opened_at + self.limits.batch_delay_s
            return oldest_due if due is None else min(due, oldest_due)
        return due

    def _close_keys(self, keys: list[bytes]) -> None:
        for key in keys:
            self._close_key(key)

    def _close_key(self, key: bytes) -> None:
        open_batch = self._by_key[key]
        has_partition_key = open_batch.columns.keys is not None
        batch = close_batch(
            open_batch.messages,
            open_batch.columns,
            open_batch.waiters,
            open_batch.bytes,
            open_batch.opened_at,
            self._next_sequence_id,
        )
        # No function is called from here on: see `_append`.
        self._closed += (batch,)
        del self._by_key[key]
        self.closed_batches += not has_partition_key
        self._next_sequence_id = batch.last_sequence_id + 1
        self._open_messages -= batch.count
        self._open_bytes -= batch.bytes

    def _repair(self) -> None:
        for key, batch in list(self._by_key.items()):
            batch.columns.fit(len(batch.messages) // 2)
            if not batch.messages:
                del self._by_key[key]
        super()._repair()


def _batch_key(message: OutgoingMessage) -> bytes | None:
    if message.ordering_key is not None:
        return message.ordering_key
    key = message.key
    return key.encode() if isinstance(key, str) else key
