"""Entries and answers that wait to be sent on a `consume` stream, composed into one message whenever it can send.

Entries of many consumers are sent together, up to the limits of a frame. An entry joins the run before it if it needs
no other header. The client handles the parts of a message in the order of their fields: parts about epochs come before
later entries, and parts about an end after earlier ones. The outbox may never be empty, because consumers are delivered
more after every message. So a part that comes after entries waits only for those that were queued before it.

The memory of queued entries (`magnetar_wire.entry_memory`) is counted by `outbox_capacity`, which bounds what the
stream's consumers are delivered. The other parts are few, as they answer the client's requests: the stream is not read
while many of them wait (`waiting_answers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import DeliveryRun
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxCapacity
from magnetar_protos.broker_pb2 import (
    ActiveChanged,
    ConsumeAnswer,
    ConsumerEnded,
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
    ReachedEnd,
    TopicGrown,
)
from magnetar_wire.entry import split_broker_metadata
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.protobuf_fields import encode_field_head

__all__ = ["ConsumeOutbox", "DeliveryTarget"]

# Maximum size of the parts besides the frame in one message. The transport allows a megabyte.
_MAX_PARTS_BYTES: Final = 262_144
# Maximum size of the bit sets of batches in one message.
_MAX_BITS_BYTES: Final = 262_144


class DeliveryTarget(Protocol):
    """A consumer of the stream, as far as the outbox knows it: a `StreamConsumer`."""

    consumer_id: int
    # Number of the next entry.
    next_number: int
    # Nothing more is delivered to it.
    is_closed: bool
    # It gets entries with the broker's metadata.
    broker_metadata: bool
    # The entries of a run may skip others.
    accepts_gaps: bool


class ConsumeOutbox:
    def __init__(self, outbox_capacity: OutboxCapacity, counters: BrokerCounters | None = None) -> None:
        self.outbox_capacity = outbox_capacity
        self._counters = counters
        # Runs to deliver, and how many entries of the first one are sent.
        self._runs: deque[tuple[DeliveryTarget, DeliveryRun]] = deque()
        self._sent_entries = 0
        # How many runs were ever queued.
        self._queued_runs = 0
        # Parts that are sent before entries, and after them; each in order, with the number of runs that must be sent
        # before it.
        self._before_entries: deque[tuple[int, ConsumerOpened | EpochBegan | ActiveChanged]] = deque()
        self._after_entries: deque[tuple[int, Done | ConsumerEnded | ReachedEnd | TopicGrown]] = deque()
        self._builder = FrameBuilder()

    def __bool__(self) -> bool:
        return bool(self._runs or self._before_entries or self._after_entries)

    def close(self) -> None:
        """Drop all entries and return their memory."""
        self.outbox_capacity.release()
        self._runs.clear()

    @property
    def waiting_answers(self) -> int:
        return len(self._before_entries) + len(self._after_entries)

    def deliver(self, target: DeliveryTarget, runs: Sequence[DeliveryRun]) -> None:
        for run in runs:
            self._runs.append((target, run))
            self.outbox_capacity.add(run.memory_bytes)
        self._queued_runs += len(runs)

    def add_before_entries(self, part: ConsumerOpened | EpochBegan | ActiveChanged) -> None:
        self._before_entries.append((0, part))

    def add_after_entries(self, part: Done | ConsumerEnded | ReachedEnd | TopicGrown) -> None:
        self._after_entries.append((self._queued_runs, part))

    def compose(self) -> bytes | None:
        """Return and remove the next message; None: there is nothing to send."""
        while True:
            if not self:
                return None
            parts = [_take_parts(self._before_entries, 0).SerializeToString()]
            if self._before_entries:  # the rest of these must be sent before any entry
                return parts[0]
            deliveries = self._fill_frame()
            if deliveries:
                frame = self._builder.build_parts()
                parts.append(encode_field_head(ConsumeAnswer.FRAME_FIELD_NUMBER, sum(map(len, frame))))
                parts += frame
            rest = _take_parts(self._after_entries, self._queued_runs - len(self._runs))
            rest.deliveries.extend(deliveries)
            parts.append(rest.SerializeToString())
            message = b"".join(parts)
            if message:  # empty: all entries were for consumers that are closed
                return message

    def _fill_frame(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        builder = self._builder
        messages = entries = size = bits = released = 0
        # The header with which a later entry joins the last run: consumer, ledger, epoch, redelivery count; how many
        # ids each entry of the run skips; and its last entry.
        joins: tuple[int, int, int, int] | None = None
        gaps: list[int] = []
        last_entry_id = -1
        while self._runs and not builder.is_full and bits < _MAX_BITS_BYTES:
            target, run = self._runs[0]
            if not target.is_closed:
                header = (target.consumer_id, run.entries[0].position.ledger_id, run.epoch, run.redelivery_count)
                for entry in run.entries[self._sent_entries :]:
                    entry_id = entry.position.entry_id
                    follows = entry_id > last_entry_id if target.accepts_gaps else entry_id == last_entry_id + 1
                    new_run = header != joins or not follows or bool(run.acknowledged)
                    if not builder.try_add_entry(
                        target.consumer_id, target.next_number, _bytes_for(target, entry), new_run=new_run
                    ):
                        _add_gaps(deliveries, gaps)
                        self._count_sent(messages, entries, size, released)
                        return deliveries
                    if new_run:
                        _add_gaps(deliveries, gaps)
                        deliveries.append(_delivery(run, entry.position))
                        joins, gaps = None if run.acknowledged else header, []
                    else:
                        gaps.append(entry_id - last_entry_id - 1)
                    last_entry_id = entry_id
                    target.next_number += 1
                    self._sent_entries += 1
                    memory_bytes = len(entry.stored) + ENTRY_OVERHEAD_BYTES
                    released += memory_bytes
                    run.memory_bytes -= memory_bytes
                    messages += entry.messages
                    entries += 1
                    size += len(entry.stored)
                bits += len(run.acknowledged)
            released += run.memory_bytes  # of entries that are dropped, because the consumer is closed
            self._runs.popleft()
            self._sent_entries = 0
        _add_gaps(deliveries, gaps)
        self._count_sent(messages, entries, size, released)
        return deliveries

    def _count_sent(self, messages: int, entries: int, size: int, released_bytes: int) -> None:
        self.outbox_capacity.add(-released_bytes)
        if self._counters is not None and entries:
            self._counters.delivered.count(messages, entries, size)


def _take_parts(parts: deque[tuple[int, Any]], sent_runs: int) -> ConsumeAnswer:
    """Remove the first parts that wait for no more than these runs, as many as fit into one message."""
    answer = ConsumeAnswer()
    into: dict[type[Any], Any] = {
        ConsumerOpened: answer.opened,
        EpochBegan: answer.epochs,
        ActiveChanged: answer.active,
        Done: answer.done,
        ConsumerEnded: answer.ended,
        ReachedEnd: answer.reached_end,
        TopicGrown: answer.grown,
    }
    size = 0
    while parts and parts[0][0] <= sent_runs and size < _MAX_PARTS_BYTES:
        _, one = parts.popleft()
        size += one.ByteSize() + 4
        into[type(one)].append(one)
    return answer


def _delivery(run: DeliveryRun, first: Position) -> Delivery:
    return Delivery(
        ledger_id=first.ledger_id,
        first_entry_id=first.entry_id,
        epoch=run.epoch,
        redelivery_count=run.redelivery_count,
        acknowledged=run.acknowledged,
    )


def _add_gaps(deliveries: Sequence[Delivery], gaps: Sequence[int]) -> None:
    """Add the ids that the entries of the last run skip."""
    if any(gaps):
        deliveries[-1].gaps.extend(gaps)


def _bytes_for(target: DeliveryTarget, entry: LogEntry) -> bytes:
    return entry.stored if target.broker_metadata else split_broker_metadata(entry.stored)[1]
