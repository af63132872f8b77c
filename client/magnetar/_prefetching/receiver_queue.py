"""Messages that were delivered and are not handed out yet. The I/O loop adds entries; the application takes messages.

Any number of threads may receive at a time, and a message must not cost each of them a lock. So there are two stages.
Entries wait behind the lock, in one `PartitionQueue` for each topic or partition. A thread that finds `ready` empty
takes the lock and makes messages of the next *segment*: at most half a receiver queue of one partition. It takes the
first for itself and leaves the others in `ready`. From there a message is one `popleft`, which Python makes atomic.
Segments come from the partitions in turn.

**Ctrl-C** may interrupt the main thread behind every call, and the application may go on using the consumer. So a
receiving thread changes the queue in lines that call nothing, each of which leaves the queue consistent. A message is
popped by a `for` statement, because an interrupt is raised behind a call, and can't come between the pop of a `for` and
its assignment. A thread that is interrupted while it has messages puts them back (`put_back`).

**Debt** is the number of messages that were handed out, and that the loop does not know of yet: it grants the broker
new permits (FLOW) for them. Pulsar's Java client counts the same in `availablePermits`. Messages are counted by
segment: the first when it is taken, the others when a thread finds `ready` empty. As soon as a partition's debt is half
a window, its `report` is called, once until the loop has fetched the debt.

**Dropping.** `clear` drops all messages of a partition, since they are redelivered or belong to an old epoch. It takes
messages out of `ready` from the far end while other threads may take from the near end. So each message is either
handed out or dropped, and the last that was dropped is the first that was not handed out. `close_partition` drops them
for an application that requests a redelivery of everything, in its own thread: no message of the partition is handed
out until the loop calls `reopen_partition`, because it will be redelivered.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from magnetar._message import DeliveredEntry, Message
from magnetar._prefetching.partition_queue import (
    PartitionQueue,
    count_that_fits,
    have_same_topic,
    make_messages,
    make_segment,
    payload_bytes,
)
from magnetar._prefetching.received_messages import ReceivedMessages

__all__ = ["ReceiverQueue"]


class ReceiverQueue:
    """The messages of all topics and partitions of one consumer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ready: Final[deque[Message[Any]]] = deque()
        # Pops the next message of `ready`: `for message in queue.popping: …`. Raises IndexError.
        self.popping: Final[Iterator[Message[Any]]] = iter(self.ready.popleft, None)
        # What the application has received. None: messages do not time out.
        self.received: ReceivedMessages | None = None
        # Why there will be no more messages.
        self.error: Exception | None = None
        # How many threads or tasks wait for messages, and how many of them for a batch.
        self.waiting = 0
        self.batches_waiting = 0
        # No more messages will be delivered until some are taken.
        self.is_full = False
        # Called with the lock held when this many messages, or an error, were added. Wakes those who wait.
        self.wake: Callable[[int], object] = lambda _: None
        # Called on the loop with entries before they are added.
        self.on_added: Callable[[Sequence[DeliveredEntry]], object] | None = None
        # Called on the loop when a receiver waits for more messages than there are.
        self.request_more: Callable[[], object] = lambda: None
        # The partitions that have entries, in the order of their turns.
        self._ring: deque[PartitionQueue] = deque()
        # The partition of the messages in `ready`, and how many of its segment are not counted as handed out.
        self._current: PartitionQueue | None = None
        self._uncounted = 0
        # Messages were put back into `ready`, possibly of other partitions.
        self._is_mixed = False
        # The partition whose debt has grown and was not compared with `report_at` since.
        self._indebted: PartitionQueue | None = None
        # Messages in the partitions' entries, and their size.
        self._messages = 0
        self._bytes = 0

    # For the loop.

    def add_entries(self, partition: PartitionQueue, entries: Sequence[DeliveredEntry]) -> None:
        """Add entries, each of which has at least one message to hand out."""
        if self.on_added is not None:
            self.on_added(entries)
        with self.lock:
            if self.error is not None or partition.is_closed or not entries:
                return
            if not partition.entries:
                self._ring.append(partition)
            partition.entries.extend(entries)
            count = 0
            for entry in entries:
                count += len(entry.remaining)
                self._bytes += entry.size_bytes
                partition.size_bytes += entry.size_bytes
            self._messages += count
            if self.waiting:
                self.wake(count)

    def clear(self, partition: PartitionQueue) -> Message[Any] | None:
        """Drop the partition's messages and its debt. Return the first message that was not handed out."""
        with self.lock:
            return self._clear(partition)

    def _clear(self, partition: PartitionQueue) -> Message[Any] | None:
        first: Message[Any] | None = None
        if partition.entries:
            first = Message(partition.entries[0], partition.entries[0].remaining[0])
            self._uncount_entries(partition, partition.entries)
            partition.entries.clear()
            self._ring.remove(partition)
        if self._current is partition or self._is_mixed:
            first = self._clear_ready(partition) or first
        if self._current is partition:
            self._current, self._uncounted = None, 0
        partition.debt = 0
        partition.last = partition.last_handed_out = None
        self.is_full = False
        return first

    def _clear_ready(self, partition: PartitionQueue) -> Message[Any] | None:
        """Return the first message that was dropped."""
        popped = self._pop_ready()
        dropped: list[Message[Any]] = []
        others: list[Message[Any]] = []
        for one in popped:
            is_other = self._is_mixed and one._entry.epoch.origin.partition_queue is not partition
            (others if is_other else dropped).append(one)
        self._refill_ready(popped, others)
        return dropped[0] if dropped else None

    def _pop_ready(self) -> list[Message[Any]]:
        """Pop all messages of `ready` from its far end. Return them in their order."""
        popped: list[Message[Any]] = []
        while self.ready:
            try:
                popped.append(self.ready.pop())
            except IndexError:  # other threads have taken the rest
                break
        popped.reverse()
        return popped

    def _refill_ready(self, popped: Sequence[Message[Any]], retained: Sequence[Message[Any]]) -> None:
        """Put some of the messages back that `_pop_ready` has popped, in their order."""
        if self.received is not None:
            self.received.drop(popped, retained)
        self.ready.extend(retained)

    def drop_entries(self, partition: PartitionQueue, positions: Container[tuple[int, int]]) -> int:
        """Drop the entries with these ledger and entry ids. Return how many messages are to be counted as handed out:
        all that were dropped, except those that were counted before they were put back."""
        with self.lock:
            retained = deque(entry for entry in partition.entries if (entry.ledger_id, entry.entry_id) not in positions)
            count = 0
            if len(retained) < len(partition.entries):
                dropped = [entry for entry in partition.entries if (entry.ledger_id, entry.entry_id) in positions]
                count += sum(len(entry.remaining) for entry in dropped)
                self._uncount_entries(partition, dropped)
                partition.entries = retained
                if not retained:
                    self._ring.remove(partition)
            if self._current is partition or self._is_mixed:
                count += self._drop_ready(partition, positions)
            return count

    def _drop_ready(self, partition: PartitionQueue, positions: Container[tuple[int, int]]) -> int:
        popped = self._pop_ready()
        retained = [
            one
            for one in popped
            if (one._entry.ledger_id, one._entry.entry_id) not in positions
            or (self._is_mixed and one._entry.epoch.origin.partition_queue is not partition)
        ]
        self._refill_ready(popped, retained)
        if self._current is not partition:
            return 0
        uncounted = min(len(popped) - len(retained), self._uncounted)
        self._uncounted -= uncounted
        return uncounted

    def _uncount_entries(
        self, partition: PartitionQueue, entries: deque[DeliveredEntry] | list[DeliveredEntry]
    ) -> None:
        for entry in entries:
            self._messages -= len(entry.remaining)
            self._bytes -= entry.size_bytes
            partition.size_bytes -= entry.size_bytes

    def reopen_partition(self, partition: PartitionQueue) -> None:
        """Accept the partition's entries again."""
        with self.lock:
            partition.is_closed = False

    def fetch_debt(self, partition: PartitionQueue) -> int:
        """Return how many messages were handed out since the last call."""
        with self.lock:
            debt, partition.debt = partition.debt, 0
            partition.is_reported = False
            return debt

    def defer_locked(self, message: Message[Any]) -> None:
        """A message that was taken waits for its listener. Its acknowledgement timeout has not begun."""
        if self.received is not None:
            self.received.update(is_mixed=self._is_mixed)
            self.received.defer(message)

    def end_deferral_locked(self, message: Message[Any]) -> None:
        """The listener is called with the message now, or never."""
        if self.received is not None:
            self.received.end_deferral(message)

    @property
    def has_deferred(self) -> bool:
        return self.received is not None and self.received.deferred > 0

    def fetch_received(self) -> tuple[list[Message[Any]], list[Message[Any]]]:
        """Return which messages were put back, and which ones were received, since the last call."""
        if self.received is None:
            return [], []
        with self.lock:
            self.received.update(is_mixed=self._is_mixed)
            return self.received.fetch()

    def count_handed_out(self) -> None:
        """Count the messages of the current segment, if all of them are handed out."""
        with self.lock:
            if not self.ready:
                self._finish_segment()

    def has_messages_of(self, partition: PartitionQueue) -> bool:
        with self.lock:
            if self._is_mixed:
                ready = any(one._entry.epoch.origin.partition_queue is partition for one in list(self.ready))
            else:
                ready = self._current is partition and bool(self.ready)
            return ready or bool(partition.entries)

    def has_uncounted_of(self, partition: PartitionQueue) -> bool:
        """Whether the partition's debt will be compared with `report_at` again, because entries or the current segment
        are still to be counted. Messages that were put back may be counted already."""
        with self.lock:
            return bool(partition.entries or (self._current is partition and self.ready))

    def set_full(self) -> None:
        """Complete a batch that waits: no more messages will be delivered until some are taken."""
        with self.lock:
            if len(self):
                self.is_full = True
                self.wake(self.waiting)

    def replace_lock(self) -> None:
        """In a child after a fork: the thread that held the lock may not exist there, nor those that waited."""
        self.lock = threading.Lock()
        self.wake = lambda _: None

    def fail(self, error: Exception) -> None:
        """Drop all messages, and raise the error in those who receive. The first error counts."""
        with self.lock:
            if self.error is not None:
                return
            self.error = error
            for partition in list(self._ring):
                self._clear(partition)
            if self._current is not None:
                self._clear(self._current)
            self.wake(self.waiting)

    # For any thread.

    def close_partition(self, partition: PartitionQueue) -> None:
        """Drop the partition's messages, and those that are still delivered, until it is reopened."""
        with self.lock:
            partition.is_closed = True
            self._clear(partition)

    def __len__(self) -> int:
        return self._messages + len(self.ready)

    def take_message_locked(self) -> Message[Any] | None:
        """Take the next message, if there is one."""
        while True:
            try:
                for message in self.popping:
                    return message
            except IndexError:
                pass
            self._finish_segment()
            if not self._start_segment():
                return None

    def put_back(self, messages: Sequence[Message[Any]]) -> None:
        """Return messages that could not be handed out. They are the next to be taken."""
        with self.lock:
            if self.received is not None:
                self.received.update(is_mixed=self._is_mixed)
                self.received.put_back(messages)
            self._is_mixed = True
            self.ready.extendleft(reversed(messages))
            if self.waiting:
                self.wake(len(messages))

    def has_batch(self, max_messages: int, max_bytes: int) -> bool:
        """Whether there are enough messages to complete a batch."""
        if len(self) >= max_messages:
            return True
        return (self._bytes >= max_bytes or bool(self.ready)) and self._count_payload_bytes() >= max_bytes

    def _count_payload_bytes(self) -> int:
        """Count exactly. The size of an entry includes its metadata."""
        size = sum(map(payload_bytes, list(self.ready)))
        for partition in self._ring:
            for entry in partition.entries:
                payloads = entry.columns.payloads
                size += sum(len(payloads[row] or b"") for row in entry.remaining)
        return size

    def take_batch_locked(
        self, batch: list[Message[Any]], max_messages: int, max_bytes: int, *, of_one_topic: bool = False
    ) -> None:
        """Append as many messages as there are and as a batch may have: at least one message, if there is one.

        `of_one_topic`: all of them are of the same topic or partition.

        If this is interrupted, every message that was taken is in the batch.
        """
        self.is_full = False
        bytes_left = max_bytes
        while len(batch) < max_messages:
            try:
                for message in self.popping:
                    batch += (message,)
                    break
            except IndexError:
                self._finish_segment()
                break
            size = payload_bytes(message)
            if len(batch) > 1 and (size > bytes_left or (of_one_topic and not have_same_topic(batch[0], message))):
                del batch[-1]
                self.ready.appendleft(message)
                return
            bytes_left -= size
        while len(batch) < max_messages and self._find_next_partition():
            if of_one_topic and batch and not self._give_turn(batch[0]._entry.epoch.origin.partition_queue):
                return
            partition = self._ring[0]
            entry = partition.entries[0]
            count = min(len(entry.remaining), max_messages - len(batch))
            if entry.size_bytes > bytes_left:  # this includes the metadata, so count the payloads exactly now
                bytes_left = max_bytes - sum(map(payload_bytes, batch))
                count = count_that_fits(entry, count, bytes_left, bool(batch))
                if not count:
                    break
            messages, rest = make_messages(entry, count)
            # The next lines call nothing, because of Ctrl-C.
            batch += messages
            self._messages -= count
            if rest:
                entry.remaining = rest
            else:
                self._bytes -= entry.size_bytes
                partition.size_bytes -= entry.size_bytes
                del partition.entries[0]
            partition.last = partition.last_handed_out = messages[-1]
            partition.debt += count
            self._indebted = partition
            # Calls are allowed again.
            if self.received is not None:
                self.received.add(messages)
            bytes_left -= entry.size_bytes
            self._report_debt()
            self._end_turn()

    def _start_segment(self) -> bool:
        """Make the messages of the next segment, and count the first as handed out. False: there are no entries."""
        if not self._find_next_partition():
            return False
        partition, ready = self._ring[0], self.ready
        messages, consumed, split, rest = make_segment(partition.entries, partition.segment_size)
        consumed_bytes = sum(entry.size_bytes for entry in consumed)
        left = deque(islice(partition.entries, len(consumed), None))
        count, received = len(messages), self.received
        # The next lines call nothing, because of Ctrl-C.
        if received is not None:
            received.waiting = messages
        if split is not None:
            split.remaining = rest
        partition.entries = left
        partition.size_bytes -= consumed_bytes
        self._bytes -= consumed_bytes
        self._messages -= count
        partition.last = messages[-1]
        self._current = partition
        self._uncounted = count
        ready += messages
        # Calls are allowed again.
        self._uncounted -= 1
        partition.debt += 1
        self._indebted = partition
        self._report_debt()
        self._end_turn()
        return True

    def _finish_segment(self) -> None:
        """Count the segment as handed out, since `ready` is empty."""
        if self.received is not None:
            self.received.update(is_mixed=self._is_mixed)
        if self._current is not None:
            self._current.debt += self._uncounted
            self._current.last_handed_out = self._current.last
            self._indebted = self._current
            self._current, self._uncounted = None, 0
        self._is_mixed = False
        self._report_debt()

    def _report_debt(self) -> None:
        partition = self._indebted
        if partition is not None:
            if partition.debt >= partition.report_at and not partition.is_reported:
                partition.report()  # the loop, which resets `is_reported`, waits for the lock
                partition.is_reported = True
            self._indebted = None

    def _find_next_partition(self) -> bool:
        """Move a partition that has entries to the front of the ring. False: none has entries."""
        while self._ring and not self._ring[0].entries:  # its last entry was taken by a thread that was interrupted
            del self._ring[0]
        return bool(self._ring)

    def _give_turn(self, partition: PartitionQueue) -> bool:
        """Move a partition to the front of the ring. False: it has no entries."""
        if not partition.entries:
            return False
        others = [other for other in self._ring if other is not partition]
        self._ring = deque([partition, *others])  # one assignment, because of Ctrl-C
        return True

    def _end_turn(self) -> None:
        """Move the first partition of the ring to its end."""
        if self._ring[0].entries:
            self._ring.rotate(-1)
        else:
            self._ring.popleft()
