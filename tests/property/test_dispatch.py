"""Subscriptions whose consumers come, go, take, acknowledge, give back and seek, against a model of who has what."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer, SubscriptionType
from tests.examples import examples
from tests.property.delivery_model import CheckingSink, DeliveryModel
from tests.unit.broker.fake_cursors import FakeCursorTable
from tests.unit.broker.subscription_scene import EARLIEST, Scene, ack, ack_messages, at_position, redeliver, settle

_MANY = 1_000_000


class _Model(DeliveryModel):
    def __init__(self, kind: SubscriptionType) -> None:
        super().__init__()
        self.kind = kind
        self.scene = Scene(
            per_ledger=4,
            cursors=FakeCursorTable,
            max_unacked_messages_per_consumer=6,
            max_unacked_messages_per_subscription=15,
        )
        self.permits: dict[Consumer, int] = {}
        # Of Shared: who holds what.
        self.held: dict[Position, Consumer] = {}
        # Of the others: the last that was delivered since reading was restarted.
        self.last: Position | None = None
        self.sizes: dict[Position, int] = {}
        self.done: set[Position] = set()
        self.part: dict[Position, int] = {}
        # How often it was delivered before; of a Shared one, how often consumers have requested its redelivery.
        self.counts: dict[Position, int] = {}
        # Of batches too: any entry that was delivered to somebody, and when last.
        self.had: dict[Consumer, list[Position]] = {}

    @property
    def shared(self) -> bool:
        return self.kind == SubscriptionType.SHARED

    def open_messages(self, position: Position) -> int:
        return self.sizes[position] - self.part.get(position, 0).bit_count()

    def delivered(self, sink: CheckingSink, consumer: Consumer, position: Position, count: int, bits: int) -> None:
        assert sink.outbox_capacity.free > 0, "its stream has no capacity"
        assert self.permits[consumer] > 0, "it has granted no permits"
        self.permits[consumer] -= self.sizes[position]
        assert position not in self.done, "it is acknowledged"
        assert bits == self.part.get(position, 0)
        assert count == self.counts.get(position, 0)
        if not self.shared:
            self.counts[position] = count + 1
        self.had.setdefault(consumer, []).append(position)
        if self.shared:
            assert position not in self.held, "somebody has it"
            unacked = sum(self.open_messages(one) for one, holder in self.held.items() if holder is consumer)
            assert unacked < 6
            self.held[position] = consumer
            return
        assert consumer.active
        between = [one for one in self.sizes if one < position and (self.last is None or one > self.last)]
        assert self.done.issuperset(between), "it was passed over"
        assert self.last is None or position > self.last, "out of order"
        self.last = position

    def add(self, size: int) -> None:
        number = len(self.scene.log.order)
        position = Position(7 + 3 * (number // 4), number % 4)
        self.sizes[position] = max(size, 1)
        assert self.scene.log.add(max(size, 1), batch=size > 1) == position

    async def join(self, priority: int) -> None:
        if len(self.consumers) >= (1 if self.kind == SubscriptionType.EXCLUSIVE else 4):
            return
        sink = CheckingSink(self)
        opened = OpenConsumer(
            topic="topic", subscription="s", type=self.kind, durable=True, start=EARLIEST, priority_level=priority
        )
        active = self._active
        consumer = await self.scene.subscriptions.subscribe(opened, sink)
        self.consumers[consumer] = sink
        self.permits[consumer] = 0
        self._active_changed(active)

    @property
    def _active(self) -> Consumer | None:
        return next((consumer for consumer in self.consumers if consumer.active), None)

    def _active_changed(self, before: Consumer | None) -> None:
        if not self.shared and self._active is not before:
            self.last = None
            if before is not None and before in self.consumers:
                self.permits[before] = 0

    def leave(self, consumer: Consumer) -> None:
        active = self._active
        for position in [one for one, holder in self.held.items() if holder is consumer]:
            del self.held[position]
        del self.consumers[consumer], self.permits[consumer]
        if consumer is active:
            self.last = None
        if not self.consumers:
            self.counts.clear()
        consumer.leave()
        if consumer is active and not self.shared and (now := self._active) is not None:
            assert self.last is None, "it had no permits in its new epoch"
            self.permits[now] = 0

    def flow(self, consumer: Consumer, permits: int) -> None:
        self.permits[consumer] += permits
        consumer.flow(consumer.epoch, permits)

    def acknowledge(self, consumer: Consumer, position: Position, bits: int) -> None:
        size = self.sizes[position]
        bits &= (1 << size) - 1
        if bits and size > 1 and bits != (1 << size) - 1:
            if position not in self.done:
                self.part[position] = self.part.get(position, 0) | bits
                if self.part[position] == (1 << size) - 1:
                    self._finish(position)
            ack_messages(consumer, position, size, *[index for index in range(size) if bits >> index & 1])
        else:
            self._finish(position)
            ack(consumer, position)

    def _finish(self, position: Position) -> None:
        self.done.add(position)
        self.held.pop(position, None)
        self.part.pop(position, None)

    def acknowledge_up_to(self, consumer: Consumer, position: Position) -> None:
        if self.shared:
            with pytest.raises(BrokerError) as refusal:
                ack(consumer, position, cumulative=True)
            assert refusal.value.code == ErrorCode.NOT_ALLOWED
            return
        for one in self.sizes:
            if one <= position:
                self._finish(one)
        ack(consumer, position, cumulative=True)

    def redeliver(self, consumer: Consumer, some: list[Position]) -> None:
        if self.shared:
            for position in some or list(self.held):
                if self.held.get(position) is consumer:
                    del self.held[position]
                    self.counts[position] = self.counts.get(position, 0) + 1
            if not some:
                self.permits[consumer] = 0
            redeliver(consumer, *some)
            return
        active = consumer.active
        if active:
            self.last = None
            self.permits[consumer] = 0
        redeliver(consumer, *some)

    async def seek(self, consumer: Consumer, position: Position) -> None:
        await consumer.seek(at_position(position))
        self.held.clear()
        self.counts.clear()
        self.part.clear()
        self.done = {one for one in self.sizes if one < position}
        self.last = None
        for one in self.permits:
            self.permits[one] = 0

    def check(self) -> None:
        self.check_deliveries()
        stats = self.scene.stats() if self.scene.cursors.cursors else None
        if stats is None:
            return
        assert stats.backlog_entries == len(self.sizes) - len(self.done)
        assert stats.unacked_messages == sum(map(self.open_messages, self.held))
        assert stats.redelivery_entries <= stats.backlog_entries - len(self.held)
        for one in stats.consumers:
            [permits] = [self.permits[consumer] for consumer in self.consumers if consumer.name == one.name]
            assert one.permits == permits

    async def drain(self) -> None:
        """Everything that is not acknowledged comes to somebody."""
        self.scene.log.is_cached = True
        await self.join(0)
        for consumer, sink in self.consumers.items():
            sink.outbox_capacity.free = _MANY
            consumer.on_outbox_capacity()
            self.flow(consumer, _MANY)
        await settle()
        for _ in range(len(self.sizes) + 5):
            for consumer in list(self.consumers):
                if self.shared:
                    for position in [one for one, holder in self.held.items() if holder is consumer]:
                        self.acknowledge(consumer, position, 0)
                elif consumer.active and self.last is not None:
                    self.acknowledge_up_to(consumer, self.last)
            await settle()
        self.check_deliveries()
        assert len(self.done) == len(self.sizes)
        stats = self.scene.stats()
        assert (stats.backlog_entries, stats.unacked_messages, stats.redelivery_entries) == (0, 0, 0)


_OPERATIONS = [
    *["add"] * 3,
    *["join"] * 2,
    "leave",
    *["flow"] * 4,
    *["ack"] * 4,
    "up to",
    *["redeliver"] * 2,
    "seek",
    "read",
    "room",
]


def _program(seed: int) -> list[tuple[str, int, int, bool]]:
    chance = random.Random(seed)
    return [
        (chance.choice(_OPERATIONS), chance.randrange(8), chance.randrange(16), chance.random() < 0.6)
        for _ in range(chance.randrange(20, 120))
    ]


async def _run(kind: SubscriptionType, operations: list[tuple[str, int, int, bool]]) -> None:
    model = _Model(kind)
    for what, a, b, wait in operations:
        consumers = list(model.consumers)
        consumer = consumers[a % len(consumers)] if consumers else None
        had = model.had.get(consumer, []) if consumer is not None else []
        if what == "add":
            for _ in range(1 + b % 3):
                model.add(a - 2)
        elif what == "join":
            await model.join(a % 2)
        elif what == "read":
            model.scene.log.is_cached = bool(a % 2)
        elif consumer is None:
            continue
        elif what == "leave":
            model.leave(consumer)
        elif what == "flow":
            model.flow(consumer, 1 + b)
        elif what == "ack" and had:
            if not consumer.active:  # it was displaced, and what it acknowledges now is stale, or another's
                continue
            model.acknowledge(consumer, had[-1 - b % len(had)], b)
        elif what == "up to" and had and consumer.active:
            model.acknowledge_up_to(consumer, had[-1 - b % len(had)])
        elif what == "redeliver":
            model.redeliver(consumer, had[-(b % 4) :] if b % 4 else [])
        elif what == "seek" and b < 4 and model.sizes:
            await settle()
            await model.seek(consumer, sorted(model.sizes)[b % len(model.sizes)])
        elif what == "room":
            model.consumers[consumer].outbox_capacity.free = a % 3 and _MANY
            if a % 3:
                consumer.on_outbox_capacity()
        if wait:
            await settle()
            model.check()
    await settle()
    await model.drain()


@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER, SubscriptionType.SHARED])
def test_dispatch_loses_no_message_and_gives_none_to_two_consumers(kind: SubscriptionType) -> None:
    """SUB-3, SUB-4, SUB-14, ACK-3, CON-8"""

    @examples(100)
    @given(st.integers(0, 2**32))
    def run(seed: int) -> None:
        asyncio.run(_run(kind, _program(seed)))

    run()
