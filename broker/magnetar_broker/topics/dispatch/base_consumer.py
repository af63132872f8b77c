"""A consumer as the dispatch rules see it.

An epoch of a consumer ends when its earlier deliveries become void. Its permits are 0 again, and only those granted in
the new epoch count. Acknowledgements older than `acknowledged_from` are refused: a seek and a take-over raise it, a
redelivery does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable, DeliveryCapacity, OutboxCapacity
from magnetar_broker.topics.dispatch.key_shared_policy import KeySharedPolicy
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["BaseConsumer"]


class BaseConsumer(ABC):
    __slots__ = (
        "acknowledged_from",
        "capacity",
        "epoch",
        "is_in_line",
        "key_shared",
        "name",
        "number",
        "priority_level",
    )

    def __init__(self, name: str, priority_level: int, outbox_capacity: OutboxCapacity) -> None:
        self.name = name
        # 0 is served first.
        self.priority_level = priority_level
        self.capacity = DeliveryCapacity(outbox_capacity, self.on_outbox_capacity)
        # The number of consumers that had joined before.
        self.number = 0
        self.epoch = 0
        # The first epoch that acknowledgements may have: 0 < acknowledged_from <= epoch, once it has joined.
        self.acknowledged_from = 0
        # Shared: it waits in a line for its turn (shared.py).
        self.is_in_line = False
        # How its client requests to share a Key_Shared subscription.
        self.key_shared = KeySharedPolicy()

    @abstractmethod
    def deliver(self, entries: Sequence[Deliverable]) -> None:
        """Send entries to the client."""

    @abstractmethod
    def on_outbox_capacity(self) -> None:
        """Have the subscription deliver more entries: the outbox has capacity again."""

    def find_shortage(self) -> DeliveryReason | None:
        """Return why this consumer gets nothing, apart from what holds back the whole subscription. None: it may get
        entries."""
        return self.capacity.find_shortage(f"consumer {self.name}")

    def begin_epoch(self, epoch: int, *, acknowledgements_end: bool) -> None:
        """`acknowledgements_end`: acknowledgements of earlier epochs do not count any more."""
        self.epoch = epoch
        self.capacity.permits = 0
        if acknowledgements_end:
            self.acknowledged_from = epoch
