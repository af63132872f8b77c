"""What one `consume` stream has to send: gathered until the stream takes the next message, and put into one.

Entries of many consumers leave together, up to a frame's bounds; an entry joins the last run where nothing new is to be
said of it. Within a message the parts count in the order of their fields, so whatever tells of epochs leaves before the
entries that came after it, and what tells of an end behind those that came before.

The memory of entries is bounded (`magnetar_wire.entry_memory`): `room_bytes` is how much the stream's consumers may
add. The rest is answers to the client's requests, and few: the session reads no further while they wait
(`waiting_answers`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.core.log_entry import LogEntry
from magnetar_broker.core.position import Position
from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_broker.topic.consumer import DeliveryRun
from magnetar_protos.broker_pb2 import (
    ActiveChanged,
    ConsumeAnswer,
    ConsumerEnded,
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
)
from magnetar_wire.entry import split_broker_metadata
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.protobuf_fields import encode_field_head

__all__ = ["ConsumeOutbox", "DeliveryChannel"]

# In one message, beside the frame: a transport has a megabyte for it.
_MAX_TOLD_BYTES: Final = 262_144
# Of batches' bits in one message.
_MAX_BITS_BYTES: Final = 262_144


class DeliveryChannel(Protocol):
    consumer_id: int
    # The number of the next entry.
    next_number: int
    # Nothing more is delivered to it.
    closed: bool
    broker_metadata: bool


class ConsumeOutbox:
    def __init__(
        self, max_queued_bytes: int, budget: OutboxBudget | None = None, counters: BrokerCounters | None = None
    ) -> None:
        self._max_queued_bytes = max_queued_bytes
        # Until the stream has ended.
        self._budget = budget
        self._counters = counters
        # Runs to deliver, and how many entries of the first one have left.
        self._runs: deque[tuple[DeliveryChannel, DeliveryRun]] = deque()
        self._left = 0
        # Of these, and of what is being read for them.
        self._queued_bytes = 0
        # What is told before entries, and behind them; each in order.
        self._before: deque[ConsumerOpened | EpochBegan | ActiveChanged] = deque()
        self._behind: deque[Done | ConsumerEnded] = deque()
        self._builder = FrameBuilder()

    def __bool__(self) -> bool:
        return bool(self._runs or self._before or self._behind)

    @property
    def room_bytes(self) -> int:
        if self._budget is None:
            return self._max_queued_bytes - self._queued_bytes
        return self._budget.room_bytes(self._max_queued_bytes, self._queued_bytes)

    def _queue(self, size_bytes: int) -> None:
        self._queued_bytes += size_bytes
        if self._budget is not None:
            self._budget.queued_bytes += size_bytes

    def close(self) -> None:
        """Nothing leaves any more."""
        self._queue(-self._queued_bytes)
        self._budget = None
        self._runs.clear()

    @property
    def waiting_answers(self) -> int:
        return len(self._before) + len(self._behind)

    def reserve(self, size_bytes: int) -> None:
        """For what is being read; below 0: it has been."""
        self._queue(size_bytes)

    def deliver(self, channel: DeliveryChannel, run: DeliveryRun) -> None:
        self._runs.append((channel, run))
        self._queue(run.memory_bytes)

    def tell_before(self, told: ConsumerOpened | EpochBegan | ActiveChanged) -> None:
        self._before.append(told)

    def tell_behind(self, told: Done | ConsumerEnded) -> None:
        self._behind.append(told)

    def compose(self) -> bytes | None:
        """The next message; None: there is nothing to send."""
        while True:
            if not self:
                return None
            parts = [_take(self._before).SerializeToString()]
            if self._before:  # the rest of these goes before any entry
                return parts[0]
            deliveries = self._fill_frame()
            if deliveries:
                frame = self._builder.build_parts()
                parts.append(encode_field_head(ConsumeAnswer.FRAME_FIELD_NUMBER, sum(map(len, frame))))
                parts += frame
            told = _take(self._behind) if not self._runs else ConsumeAnswer()
            told.deliveries.extend(deliveries)
            parts.append(told.SerializeToString())
            message = b"".join(parts)
            if message:  # else what there was had been for consumers that are closed
                return message

    def _fill_frame(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        builder = self._builder
        messages = entries = size = bits = 0
        # What the next entry has to be to join the last run: whose, where, of which epoch, delivered how often.
        joins: tuple[int, Position, int, int] | None = None
        while self._runs and not builder.is_full and bits < _MAX_BITS_BYTES:
            channel, run = self._runs[0]
            if not channel.closed:
                for entry in run.entries[self._left :]:
                    what = (channel.consumer_id, entry.position, run.epoch, run.redelivery_count)
                    new_run = what != joins or bool(run.acknowledged)
                    if not builder.try_add_entry(
                        channel.consumer_id, channel.next_number, _bytes_for(channel, entry), new_run=new_run
                    ):
                        self._count(messages, entries, size)
                        return deliveries
                    if new_run:
                        deliveries.append(_delivery(run, entry.position))
                    joins = None
                    if not run.acknowledged:
                        joins = (channel.consumer_id, entry.position.next, run.epoch, run.redelivery_count)
                    channel.next_number += 1
                    self._left += 1
                    memory_bytes = len(entry.stored) + ENTRY_OVERHEAD_BYTES
                    self._queue(-memory_bytes)
                    run.memory_bytes -= memory_bytes
                    messages += entry.messages
                    entries += 1
                    size += len(entry.stored)
                bits += len(run.acknowledged)
            self._queue(-run.memory_bytes)
            self._runs.popleft()
            self._left = 0
        self._count(messages, entries, size)
        return deliveries

    def _count(self, messages: int, entries: int, size: int) -> None:
        if self._counters is not None and entries:
            self._counters.delivered.count(messages, entries, size)


def _take(told: deque[Any]) -> ConsumeAnswer:
    """Of the first ones as many as go into one message."""
    answer = ConsumeAnswer()
    into: dict[type[Any], Any] = {
        ConsumerOpened: answer.opened,
        EpochBegan: answer.epochs,
        ActiveChanged: answer.active,
        Done: answer.done,
        ConsumerEnded: answer.ended,
    }
    size = 0
    while told and size < _MAX_TOLD_BYTES:
        one = told.popleft()
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


def _bytes_for(channel: DeliveryChannel, entry: LogEntry) -> bytes:
    return entry.stored if channel.broker_metadata else split_broker_metadata(entry.stored)[1]
