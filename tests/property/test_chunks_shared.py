"""Messages in chunks on a Shared subscription, whose consumers join, leave, receive, nack and assemble them as stock
clients do: the consumer of a first chunk gets the others, in order, until all are acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer, DeliveryRun
from magnetar_protos.broker_pb2 import OpenConsumer, SubscriptionType
from tests.examples import examples
from tests.unit.broker.recording_sink import RecordingSink
from tests.unit.broker.subscription_scene import EARLIEST, Scene, ack, redeliver, settle

_MANY = 1_000_000


class _Client(RecordingSink):
    """Puts messages together; what does not follow the chunk before it is dropped, and never acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[int, list[Position]] = {}
        self.whole: list[list[Position]] = []

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        for run in runs:
            for entry in run.entries:
                self.outbox_capacity.free -= len(entry.stored)
                self._take(entry.position, entry.chunk)

    def _take(self, position: Position, chunk: Chunk | None) -> None:
        if chunk is None:
            self.whole.append([position])
            return
        if not chunk.number:
            self.begun[chunk.message] = []
        before = self.begun.get(chunk.message)
        assert before is not None, f"{position} came, and not the first chunk of its message"
        assert len(before) == chunk.number, f"{position} is chunk {chunk.number}, and {len(before)} were there"
        before.append(position)
        if chunk.last:
            self.whole.append(self.begun.pop(chunk.message))


class _World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        # More than the chunks of all messages that are being sent: a consumer with this many gets no others, and one
        # that waits for those would wait for ever.
        self.scene = Scene(per_ledger=5, max_unacked_messages_per_consumer=20, max_unacked_messages_per_subscription=50)
        self.clients: dict[Consumer, _Client] = {}
        # Of messages that are being sent: how many chunks each has, and how many of them are sent.
        self.sending: dict[int, tuple[int, int]] = {}
        self.sent = 0
        self.open: set[Position] = set()

    async def step(self, what: str) -> None:
        chance = self.chance
        consumer = chance.choice(list(self.clients)) if self.clients else None
        if what == "send":
            self._send()
        elif what == "join" and len(self.clients) < 4:
            await self._join()
        elif what == "read":
            self._change_reading()
        elif consumer is None:
            return
        elif what == "flow":
            consumer.flow(consumer.epoch, chance.randint(1, 6))
        elif what == "ack":
            self._acknowledge(consumer)
        elif what == "refuse":
            whole = self.clients[consumer].whole
            if whole:
                redeliver(consumer, *whole.pop(chance.randrange(len(whole))))
        elif what == "refuse all":
            self.clients[consumer].whole.clear()
            redeliver(consumer)
        elif what == "leave":
            del self.clients[consumer]
            consumer.leave()
        elif what == "room":
            self.clients[consumer].outbox_capacity.free = chance.choice((0, 30, _MANY))
            consumer.on_outbox_capacity()

    def _change_reading(self) -> None:
        """What is read from now on comes at once; or later, and then what was being read comes now."""
        log = self.scene.log
        if log.gate is not None:
            log.gate.set()
            log.gate = None
        log.is_cached = self.chance.random() < 0.3
        if not log.is_cached:
            log.gate = asyncio.Event()

    def _send(self) -> None:
        chance = self.chance
        if chance.random() < 0.3:
            self.open.add(self.scene.log.add(payload=b"whole"))
            return
        if len(self.sending) < 3:
            self.sent += 1
            self.sending[self.sent] = chance.randint(2, 5), 0
        self.send_chunk(chance.choice(list(self.sending)))

    def send_chunk(self, message: int) -> None:
        chunks, number = self.sending.pop(message)
        chunk = Chunk(message, number, number == chunks - 1)
        if not chunk.last:
            self.sending[message] = chunks, number + 1
        self.open.add(self.scene.log.add(payload=b"chunk", chunk=chunk))

    async def _join(self) -> None:
        client = _Client()
        opened = OpenConsumer(
            topic="topic", subscription="s", type=SubscriptionType.SHARED, durable=True, start=EARLIEST
        )
        self.clients[await self.scene.subscriptions.subscribe(opened, client)] = client

    def _acknowledge(self, consumer: Consumer) -> None:
        whole = self.clients[consumer].whole
        if whole:
            positions = whole.pop(self.chance.randrange(len(whole)))
            ack(consumer, *positions)
            self.open -= set(positions)

    async def drain(self) -> None:
        """Everything is acknowledged in the end, though nobody ever takes a chunk that does not follow."""
        while not self.scene.log.is_cached:
            self._change_reading()
        while self.sending:
            self.send_chunk(next(iter(self.sending)))
        await self._join()
        for consumer, client in self.clients.items():
            client.outbox_capacity.free = _MANY
            consumer.on_outbox_capacity()
            consumer.flow(consumer.epoch, _MANY)
        for _ in range(len(self.open) + 20):
            await settle()
            for consumer in self.clients:
                while self.clients[consumer].whole:
                    self._acknowledge(consumer)
        assert not self.open
        stats = self.scene.stats()
        assert (stats.backlog_entries, stats.unacked_messages, stats.redelivery_entries) == (0, 0, 0)


_STEPS = [
    *["send"] * 8,
    *["flow"] * 6,
    *["read"] * 4,
    *["ack"] * 3,
    *["join"] * 2,
    *["leave", "refuse", "refuse all", "room"],
]


async def _run(seed: int) -> None:
    world = _World(seed)
    for _ in range(world.chance.randrange(10, 120)):
        await world.step(world.chance.choice(_STEPS))
        if world.chance.random() < 0.6:
            await settle()
    await settle()
    await world.drain()


@examples(80)
@given(st.integers(0, 2**32))
async def test_one_consumer_gets_all_chunks_of_a_message_in_order(seed: int) -> None:
    """WIRE-1, SUB-4: and none is lost when it leaves, refuses, or takes nothing"""
    await _run(seed)
