"""Redelivers messages that the application has received and not acknowledged within `unacked_messages_timeout_ms`.

The timeout of a message begins when the application receives it: a message that was prefetched does not time out. It
ends with an acknowledgement or a negative acknowledgement, or when the message will be redelivered for another reason.

Nothing is done when a message is received. At each tick, and before acknowledgements are handled, the loop finds out
which messages were received since (`_prefetching/received_messages.py`), and enters them into the wheel of their
partition (`ack_timeout_wheel.py`). So a message times out up to two ticks late, and never early.

As with negative acknowledgements, a redelivery is of entries (Shared, Key_Shared), or of everything unacknowledged in
the partition (Exclusive, Failover). Acknowledgements that were collected are sent before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from magnetar._acknowledging.ack_targets import AckTarget
from magnetar._acknowledging.redelivery_backoff import RedeliveryBackoff, find_delay_s
from magnetar._message import DeliveredEntry, Message
from magnetar._prefetching.received_messages import ReceivedMessages
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar_wire.clock import Clock, Timer

__all__ = ["AckTimeoutTracker"]


class AckTimeoutTracker:
    """The acknowledgement timeouts of one consumer. On its loop."""

    def __init__(
        self,
        queue: ReceiverQueue,
        clock: Clock,
        before_redelivery: Callable[[], object],
        *,
        timeout_ms: float,
        tick_ms: float,
        backoff: RedeliveryBackoff | None,
    ) -> None:
        """`before_redelivery` adds collected acknowledgements. `backoff`: is added to the timeout."""
        queue.received = ReceivedMessages(queue.ready)
        self._queue = queue
        self._clock = clock
        self._before_redelivery = before_redelivery
        self._timeout_s = timeout_ms / 1000
        self._tick_s = tick_ms / 1000
        self._backoff = backoff
        # Called with a partition, and the positions of entries whose redelivery was requested.
        self.on_sent: Callable[[Any, Iterable[tuple[int, int]]], object] | None = None
        # The `PartitionConsumer`s, which import this module, whose wheels may have entries.
        self._partitions: dict[Any, None] = {}
        self._timer: Timer | None = None
        self._is_closed = False

    def watch(self) -> None:
        """Messages were delivered: begin to tick."""
        if self._timer is None and not self._is_closed:
            self._timer = self._clock.call_later(self._tick_s, self._tick)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def find_received(self) -> None:
        """Enter the messages that were received since the last call."""
        returned, received = self._queue.fetch_received()
        for entry, rows in _by_entry(returned):
            position = (entry.ledger_id, entry.entry_id)
            bits = entry.make_bits(rows) if entry.batch_size else 0
            entry.epoch.origin.received.return_messages(position, bits)
        now = self._clock.monotonic()
        for entry, rows in _by_entry(received):
            partition = entry.epoch.origin
            # Otherwise it is redelivered anyway, or never.
            if entry.epoch is partition.epoch and partition.is_connected and partition.is_persistent:
                self._partitions[partition] = None
                self._enter(entry, rows, now)

    def _enter(self, entry: DeliveredEntry, rows: Sequence[int], now: float) -> None:
        delay_s = self._timeout_s
        if self._backoff is not None:
            delay_s += find_delay_s(self._backoff, entry.redelivery_count)
        due_tick = -int(-(now + delay_s) // self._tick_s)
        wheel, position = entry.epoch.origin.received, (entry.ledger_id, entry.entry_id)
        if entry.batch_size:
            wheel.add_messages(position, entry.make_bits(rows), due_tick)
        else:
            wheel.add_entry(position, due_tick)

    def remove(self, target: AckTarget) -> None:
        """A message is acknowledged, perhaps negatively; with a cumulative target also all before it."""
        if isinstance(target, Message):
            self.remove_rows(target._entry, [target._row])
            return
        partition = target.epoch.origin
        if partition.epochs.find_epoch(target.epoch.opening, target.epoch.number) is None:
            return
        wheel, position = partition.received, (target.ledger_id, target.entry_id)
        is_whole = target.batch_index < 0 or target.batch_size <= 0
        if target.cumulative:
            wheel.remove_before(position)
            is_whole = is_whole or target.batch_index >= target.batch_size - 1
        if is_whole:
            wheel.remove_entry(position)
        else:
            bits = 1 << target.batch_index
            wheel.remove_messages(position, 2 * bits - 1 if target.cumulative else bits)

    def remove_rows(self, entry: DeliveredEntry, rows: Sequence[int]) -> None:
        """These messages of an entry are acknowledged, perhaps negatively."""
        partition = entry.epoch.origin
        if partition.epochs.find_epoch(entry.epoch.opening, entry.epoch.number) is None:
            return  # and have no effect, since the subscription was moved
        position = (entry.ledger_id, entry.entry_id)
        if entry.batch_size:
            partition.received.remove_messages(position, entry.make_bits(rows))
        else:
            partition.received.remove_entry(position)

    def _tick(self) -> None:
        self._timer = None
        self._before_redelivery()
        self.find_received()
        now_tick = int(self._clock.monotonic() // self._tick_s)
        for partition in list(self._partitions):
            if late := partition.received.pop_late(now_tick):
                partition.redeliver(late)
                if self.on_sent is not None:
                    self.on_sent(partition, late)
            if not partition.received:
                del self._partitions[partition]
        if self._partitions or len(self._queue) or self._queue.has_deferred:
            self.watch()


def _by_entry(messages: Sequence[Message[Any]]) -> list[tuple[DeliveredEntry, list[int]]]:
    return [(entry, [one._row for one in same]) for entry, same in groupby(messages, attrgetter("_entry"))]
