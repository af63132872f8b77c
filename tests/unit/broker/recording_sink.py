"""A `ConsumerSink` that records what it gets, with an outbox of the capacity that the test sets."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer, DeliveryRun
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget, OutboxCapacity
from magnetar_protos.broker_pb2 import Problem

__all__ = ["FakeOutboxCapacity", "RecordingSink"]


class FakeOutboxCapacity(OutboxCapacity):
    """An outbox with `free` bytes, which deliveries do not use. Consumers that wait are called by `offer`."""

    def __init__(self, free: int = 2**40) -> None:
        super().__init__(0, OutboxBudget(0), lambda: None)
        self.free = free
        # How often its capacity was measured.
        self.measured = 0

    def free_bytes(self) -> int:
        self.measured += 1
        return self.free

    def add(self, size_bytes: int) -> None:
        self.free -= size_bytes


class RecordingSink:
    def __init__(self, capacity_bytes: int = 2**40) -> None:
        self.address = "test"
        self.is_broken = False
        self.outbox_capacity = FakeOutboxCapacity(capacity_bytes)
        # (position, epoch, redelivery count, acknowledged bits), in order.
        self.delivered: list[tuple[Position, int, int, int]] = []
        # (epoch, acknowledged from).
        self.epochs: list[tuple[int, int]] = []
        self.active: list[bool] = []
        # The epochs in which the end of the topic was reported.
        self.ends: list[int] = []
        self.consumer: Consumer | None = None
        self.problems: list[Problem | None] = []

    async def check_alive(self) -> bool:
        return not self.is_broken

    @property
    def positions(self) -> list[Position]:
        return [position for position, _, _, _ in self.delivered]

    def take(self) -> list[Position]:
        """Return the entries that were delivered since the last call."""
        positions = self.positions
        self.delivered.clear()
        return positions

    def opened(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.active.append(consumer.active)

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        for run in runs:
            bits = int.from_bytes(run.acknowledged, "little")
            self.delivered += [(one.position, run.epoch, run.redelivery_count, bits) for one in run.entries]

    def epoch_began(self, consumer: Consumer) -> None:
        self.epochs.append((consumer.epoch, consumer.acknowledged_from))

    def active_changed(self, active: bool) -> None:
        self.active.append(active)

    def reached_end(self, consumer: Consumer) -> None:
        self.ends.append(consumer.epoch)

    def topic_grew(self, partitions: int) -> None: ...

    def ended(self, problem: Problem | None) -> None:
        self.problems.append(problem)
