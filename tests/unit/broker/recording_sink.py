"""A consumer's end that writes down what it is told."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.consumer import Consumer, DeliveryRun
from magnetar_protos.broker_pb2 import Problem

__all__ = ["RecordingSink"]


class RecordingSink:
    def __init__(self, capacity_bytes: int = 2**40) -> None:
        self.address = "test"
        self.broken = False
        self.has_room = capacity_bytes
        # (position, epoch, redelivery count, acknowledged bits), in order.
        self.delivered: list[tuple[Position, int, int, int]] = []
        # (epoch, acknowledged from).
        self.epochs: list[tuple[int, int]] = []
        self.active: list[bool] = []
        self.consumer: Consumer | None = None
        self.problems: list[Problem | None] = []

    async def check_alive(self) -> bool:
        return not self.broken

    @property
    def positions(self) -> list[Position]:
        return [position for position, _, _, _ in self.delivered]

    def take(self) -> list[Position]:
        """What came since the last call."""
        positions = self.positions
        self.delivered.clear()
        return positions

    def capacity_bytes(self) -> int:
        return self.has_room

    def reserve(self, size_bytes: int) -> None:
        self.has_room -= size_bytes

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

    def ended(self, problem: Problem | None) -> None:
        self.problems.append(problem)
