"""Key_Shared against a simple model: which consumer has which entries of a key, and in which order it got them.

Consumers join and leave, also in the middle of a drain, take what they have permits for, acknowledge entries and parts
of batches, request redelivery, and seek. Reads may take a while, so all of it also happens during a read. Some entries
are chunks of large messages, and the broker's cache may be too small for what waits.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.dispatch.key_shared import KeySharedRule
from magnetar_broker.topics.dispatch.key_shared_stats import describe_keys
from magnetar_protos.broker_pb2 import ErrorCode, KeySharedMode, KeySharedOptions, OpenConsumer, SlotRange
from magnetar_protos.broker_pb2 import SubscriptionType as Type
from magnetar_wire.hashing import KEY_SHARED_SLOTS, key_shared_slot
from tests.examples import examples
from tests.property.delivery_model import CheckingSink, DeliveryModel
from tests.unit.broker.subscription_scene import EARLIEST, Scene, ack, ack_messages, at_position, redeliver, settle

_MANY = 1_000_000
_KEYS = [f"key-{number}" for number in range(7)]
_MAX_CONSUMERS = 4
_MAX_UNACKED = 6


class _Model(DeliveryModel):
    def __init__(self, mode: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self.mode = mode
        self.scene = Scene(
            per_ledger=5,
            max_unacked_messages_per_consumer=_MAX_UNACKED,
            max_unacked_messages_per_subscription=15,
            subscription_key_shared_use_consistent_hashing=mode == "ring",
            **settings,
        )
        self.permits: dict[Consumer, int] = {}
        self.keys: dict[Position, str] = {}
        self.sizes: dict[Position, int] = {}
        # By key: the chunk that comes next.
        self.chunks: dict[str, Chunk] = {}
        # Delivered and not acknowledged; and those of them that the consumer has, as it did not request redelivery.
        self.holders: dict[Position, Consumer] = {}
        self.at: dict[Position, Consumer] = {}
        self.done: set[Position] = set()
        self.part: dict[Position, int] = {}
        # How often consumers have requested its redelivery.
        self.counts: dict[Position, int] = {}
        self.had: dict[Consumer, list[Position]] = {}

    @property
    def in_order(self) -> bool:
        return self.mode != "out of order"

    def open_messages(self, position: Position) -> int:
        return self.sizes[position] - self.part.get(position, 0).bit_count()

    def delivered(self, sink: CheckingSink, consumer: Consumer, position: Position, count: int, bits: int) -> None:
        assert sink.outbox_capacity.free > 0, "its stream has no capacity"
        assert self.permits[consumer] > 0, "it has granted no permits"
        self.permits[consumer] -= self.sizes[position]
        assert position not in self.done, "it is acknowledged"
        assert position not in self.at, "a consumer has it"
        assert bits == self.part.get(position, 0)
        assert count == self.counts.get(position, 0)
        assert sum(self.open_messages(one) for one, owner in self.at.items() if owner is consumer) < _MAX_UNACKED
        self.had.setdefault(consumer, []).append(position)
        if self.in_order:
            same_key = [one for one, key in self.keys.items() if key == self.keys[position]]
            for one in same_key:
                assert self.holders.get(one, consumer) is consumer, "another consumer has the key"
                if one < position and one not in self.done:
                    assert self.at.get(one) is consumer, "an earlier entry of the key waits"
        self.holders[position] = self.at[position] = consumer

    def add(self, key: str, size: int, *, is_chunk: bool = False) -> None:
        number = len(self.sizes)
        position = Position(7 + 3 * (number // 5), number % 5)
        self.keys[position], self.sizes[position] = key, size
        chunk = self.chunks.pop(key, Chunk(number, 0, False)) if is_chunk else None
        if chunk is not None and not chunk.last:
            self.chunks[key] = Chunk(chunk.message, chunk.number + 1, chunk.number > 0)
        assert self.scene.log.add(size, batch=size > 1, chunk=chunk, key=key) == position

    async def join(self, chance: random.Random) -> None:
        if len(self.consumers) >= _MAX_CONSUMERS:
            return
        options = KeySharedOptions(allow_out_of_order_delivery=not self.in_order)
        if self.mode == "sticky":
            options.mode = KeySharedMode.STICKY
            options.ranges.extend(_choose_ranges(chance))
        await self.open(options)

    async def open(self, options: KeySharedOptions) -> None:
        sink = CheckingSink(self)
        opened = OpenConsumer(
            topic="topic", subscription="s", type=Type.KEY_SHARED, durable=True, start=EARLIEST, key_shared=options
        )
        taken = {slot for one in self.consumers for first, last in one.key_shared.ranges for slot in (first, last)}
        overlaps = any(slot in taken for one in options.ranges for slot in (one.first, one.last))
        if overlaps:
            with pytest.raises(BrokerError) as refused:
                await self.scene.subscriptions.subscribe(opened, sink)
            assert refused.value.code == ErrorCode.CONSUMER_ASSIGN_ERROR
            return
        consumer = await self.scene.subscriptions.subscribe(opened, sink)
        self.consumers[consumer] = sink
        self.permits[consumer] = 0

    def leave(self, *consumers: Consumer) -> None:
        """They leave together, as those of a connection."""
        for position in [one for one, holder in self.holders.items() if holder in consumers]:
            del self.holders[position]
            self.at.pop(position, None)
        for consumer in consumers:
            del self.consumers[consumer], self.permits[consumer]
        if not self.consumers:
            self.counts.clear()
        consumers[0].subscription.leave(consumers)

    def flow(self, consumer: Consumer, permits: int) -> None:
        self.permits[consumer] += permits
        consumer.flow(consumer.epoch, permits)

    def acknowledge(self, consumer: Consumer, position: Position, bits: int) -> None:
        size = self.sizes[position]
        everything = (1 << size) - 1
        bits &= everything
        if not bits or bits == everything or position in self.done:
            self._finish(position)
            ack(consumer, position)
            return
        self.part[position] = self.part.get(position, 0) | bits
        if self.part[position] == everything:
            self._finish(position)
        ack_messages(consumer, position, size, *[index for index in range(size) if bits >> index & 1])

    def _finish(self, position: Position) -> None:
        self.done.add(position)
        self.holders.pop(position, None)
        self.at.pop(position, None)
        self.part.pop(position, None)

    def redeliver(self, consumer: Consumer, some: list[Position]) -> None:
        for position in some or list(self.at):
            if self.at.get(position) is consumer:
                del self.at[position]
                self.counts[position] = self.counts.get(position, 0) + 1
        if not some:
            self.permits[consumer] = 0
        redeliver(consumer, *some)

    async def seek(self, consumer: Consumer, position: Position) -> None:
        await consumer.seek(at_position(position))
        for record in (self.holders, self.at, self.part, self.counts):
            record.clear()
        self.done = {one for one in self.sizes if one < position}
        for one in self.permits:
            self.permits[one] = 0

    def read_at_once(self, at_once: bool) -> None:
        self.scene.log.is_cached = at_once

    def check(self) -> None:
        self.check_deliveries()
        if not self.scene.cursors.cursors:
            return
        stats = self.scene.stats()
        assert stats.backlog_entries == len(self.sizes) - len(self.done)
        assert stats.unacked_messages == sum(map(self.open_messages, self.at))
        if not self.consumers:
            return
        rule = next(iter(self.consumers)).subscription.rule
        assert isinstance(rule, KeySharedRule)
        draining = [one for keys in describe_keys(rule).consumers.values() for one in keys.draining]
        select = rule.order.selector.select
        moved = {slot for slot, hold in rule.order.held.holds.items() if select(slot) is not hold.consumer}
        assert {one.slot for one in draining} == moved
        by_slot = {key_shared_slot(key.encode()): key for key in _KEYS}
        for one in draining:
            if self.mode != "ring":
                assert one.unacked_entries == sum(self.keys[held] == by_slot[one.slot] for held in self.holders)
        if self.mode in ("split", "out of order"):
            covered = sorted(one for consumer in self.consumers for one in rule.find_ranges(consumer))
            assert [first for first, _ in covered] == [0, *(last + 1 for _, last in covered[:-1])]
            assert covered[-1][1] == KEY_SHARED_SLOTS - 1

    async def drain(self) -> None:
        """All that is not acknowledged is delivered to a consumer."""
        self.read_at_once(True)
        if self.mode == "sticky" and self.consumers:  # there may be gaps
            self.leave(*self.consumers)
        if not self.consumers:
            mode = KeySharedMode.STICKY if self.mode == "sticky" else KeySharedMode.AUTO_SPLIT
            ranges = [SlotRange(first=0, last=KEY_SHARED_SLOTS - 1)]
            await self.open(KeySharedOptions(mode=mode, ranges=ranges, allow_out_of_order_delivery=not self.in_order))
        for consumer, sink in self.consumers.items():
            sink.outbox_capacity.free = _MANY
            consumer.on_outbox_capacity()
            self.flow(consumer, _MANY)
        await settle()
        for _ in range(len(self.sizes) + 5):
            for position, consumer in list(self.at.items()):
                self.acknowledge(consumer, position, 0)
            await settle()
        self.check_deliveries()
        assert self.done == set(self.sizes), "an entry is stuck"
        stats = self.scene.stats()
        assert (stats.backlog_entries, stats.unacked_messages, stats.redelivery_entries) == (0, 0, 0)
        assert len(self.scene.log.cache) == 0, "an entry that does not wait any more is in memory"
        rule = next(iter(self.consumers)).subscription.rule
        assert isinstance(rule, KeySharedRule)
        assert not list(rule.order.held.draining())


def _choose_ranges(chance: random.Random) -> list[SlotRange]:
    """Some of eight equal ranges, so that overlaps and gaps are usual."""
    size = KEY_SHARED_SLOTS // 8
    chosen = chance.sample(range(8), chance.randrange(1, 5))
    return [SlotRange(first=one * size, last=(one + 1) * size - 1) for one in chosen]


_OPERATIONS = [
    *["add"] * 3,
    *["join"] * 2,
    "leave",
    *["flow"] * 4,
    *["ack"] * 5,
    *["redeliver"] * 2,
    "seek",
    "read",
    "capacity",
]


async def _run(mode: str, seed: int) -> None:
    chance = random.Random(seed)
    bounds = chance.choice([0, 3, 20_000])
    model = _Model(mode, {"key_shared_look_ahead_msg_in_replay_threshold_per_subscription": bounds})
    model.scene.log.cache = EntryCache(chance.choice([0, 2_000, 1 << 24]))
    chunks = chance.choice([0.0, 0.5])
    for _ in range(chance.randrange(20, 120)):
        what = chance.choice(_OPERATIONS)
        consumers = list(model.consumers)
        consumer = chance.choice(consumers) if consumers else None
        had = model.had.get(consumer, []) if consumer is not None else []
        if what == "add":
            for _ in range(chance.randrange(1, 5)):
                size = chance.choice([1, 1, 1, 3])
                model.add(chance.choice(_KEYS), size, is_chunk=size == 1 and chance.random() < chunks)
        elif what == "join":
            await model.join(chance)
        elif what == "read":
            model.read_at_once(chance.random() < 0.5)
        elif consumer is None:
            continue
        elif what == "leave":
            model.leave(*chance.sample(consumers, min(len(consumers), chance.choice([1, 1, 2, 3]))))
        elif what == "flow":
            model.flow(consumer, chance.randrange(1, 16))
        elif what == "ack" and had:
            model.acknowledge(consumer, chance.choice(had[-8:]), chance.randrange(8))
        elif what == "redeliver":
            model.redeliver(consumer, had[-chance.randrange(1, 4) :] if chance.random() < 0.8 else [])
        elif what == "seek" and chance.random() < 0.3 and model.sizes:
            await settle()
            await model.seek(consumer, chance.choice(sorted(model.sizes)))
        elif what == "capacity":
            model.consumers[consumer].outbox_capacity.free = chance.choice([0, _MANY])
            if model.consumers[consumer].outbox_capacity.free:
                consumer.on_outbox_capacity()
        if chance.random() < 0.6:
            await settle()
            model.check()
    await settle()
    await model.drain()


@pytest.mark.parametrize("mode", ["split", "ring", "sticky", "out of order"])
def test_a_key_is_at_one_consumer_at_a_time_and_in_order(mode: str) -> None:
    """(SUB-5, SUB-6, SUB-12, SUB-14, CHK-35, CHK-53)"""

    @examples(100)
    @given(st.integers(0, 2**32))
    def run(seed: int) -> None:
        asyncio.run(_run(mode, seed))

    run()
