"""Streams that break at any time, in the middle of anything: nothing is lost, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random

import pytest

from magnetar_broker.position import Position
from magnetar_broker.server.grpc.consume_stream import ConsumeStream
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget
from magnetar_protos.broker_pb2 import CloseConsumer, Redeliver, Seek, SubscriptionType, Unsubscribe
from magnetar_wire.transport import TransportError
from tests.unit.broker.consume_client import ConsumeClient, ConsumeServer, eventually
from tests.unit.broker.subscription_scene import LATEST, Scene, settle

_KINDS = [SubscriptionType.SHARED, SubscriptionType.FAILOVER]


async def _client_that_breaks(
    server: ConsumeServer, kind: SubscriptionType, chance: random.Random, acknowledged: set[Position]
) -> None:
    client = (await server.client()).start()
    try:
        async with asyncio.timeout(chance.random() * 0.02):  # any time will do
            for consumer_id in range(1, 1 + chance.randrange(1, 4)):
                await client.open(consumer_id, "s", kind, permits=chance.choice([1, 3, 100]))
            while True:
                await _act(client, chance, acknowledged)
    except (TimeoutError, TransportError):
        pass
    finally:
        await client.stop()


async def _act(client: ConsumeClient, chance: random.Random, acknowledged: set[Position]) -> None:
    consumer_id = chance.choice(list(client.epochs))
    had = client.positions(consumer_id)
    match chance.randrange(6):
        case 0 if had:
            position = chance.choice(had)
            acknowledged.add(position)  # whether it comes through or not
            ack = client.ack(consumer_id, position, request_id=chance.randrange(2) * chance.randrange(1, 1000))
            await client.send(acknowledge=[ack])
        case 1:
            await client.send(redeliver=[Redeliver(consumer_id=consumer_id, epoch=client.epochs[consumer_id][-1])])
        case 2 if chance.random() < 0.1:
            await client.send(close=[CloseConsumer(consumer_id=consumer_id)])
        case 3 if chance.random() < 0.1:
            await client.send(unsubscribe=[Unsubscribe(consumer_id=consumer_id, request_id=5)])
        case 4:
            await client.flow(consumer_id, 10)
        case _:
            await asyncio.sleep(chance.random() * 0.001)


@pytest.mark.parametrize("kind", _KINDS)
async def test_nothing_is_lost_when_streams_break_anywhere(kind: SubscriptionType) -> None:
    """ACK-3"""

    async def run(seed: int) -> None:
        chance = random.Random(seed)
        scene = Scene()
        server = ConsumeServer()
        server.topics["topic"] = scene.subscriptions
        await scene.subscriptions.create("s", LATEST)
        acknowledged: set[Position] = set()
        clients = [
            asyncio.create_task(_client_that_breaks(server, kind, random.Random(f"{seed} {number}"), acknowledged))
            for number in range(5)
        ]
        entries = []
        while not all(client.done() for client in clients):
            scene.log.is_cached = chance.random() < 0.5
            entries.append(scene.log.add())
            await asyncio.sleep(chance.random() * 0.001)
        await asyncio.gather(*clients)
        await eventually(lambda: scene.subscriptions.consumers == 0)
        await eventually(lambda: not scene.subscriptions._tasks._tasks)
        assert not scene.subscriptions._loaded
        last = (await server.client()).start()
        await last.open(1, "s", kind, permits=10_000)
        cursor = scene.cursors.cursors["s"]
        expected = [entry for entry in entries if not cursor.is_acknowledged(entry)]
        await eventually(lambda: len(last.positions(1)) >= len(expected))
        assert last.positions(1) == expected
        assert acknowledged.issuperset(set(entries).difference(expected))
        await last.stop()
        await eventually(lambda: not server.serving)

    for seed in range(12):
        await run(seed)


async def test_a_seek_is_made_whole_though_its_stream_breaks() -> None:
    """SUB-9"""

    scene = Scene()
    entries = scene.add(3)
    server = ConsumeServer()
    server.topics["topic"] = scene.subscriptions
    client = (await server.client()).start()
    await client.open()
    await eventually(lambda: client.positions(1) == entries)
    cursor = scene.cursors.cursors["s"]
    cursor.gate = asyncio.Event()
    await client.send(seek=[Seek(consumer_id=1, request_id=1, to=LATEST)])
    await eventually(lambda: cursor.saves)
    await client.stop()
    await eventually(lambda: scene.subscriptions.consumers == 0)
    # Whoever comes next waits for it.
    other = (await server.client()).start()
    opening = asyncio.create_task(other.open())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not opening.done()
    cursor.gate.set()
    await opening
    new = scene.add(1)
    await eventually(lambda: other.positions(1) == new)
    assert cursor.moves == 1
    await other.stop()


async def test_cancelled_twice_it_returns_the_memory_of_its_entries() -> None:
    """The client disconnects, and then its broker closes."""

    class SilentStream:
        async def receive(self) -> bytes | None:
            await asyncio.Event().wait()
            return None

    budget = OutboxBudget(1_000_000)
    stream = ConsumeStream(SilentStream(), ConsumeServer().find, budget=budget)  # type: ignore[arg-type]
    serving = asyncio.create_task(stream.serve())
    await settle()
    stream.outbox.outbox_capacity.add(1_000)
    assert budget.queued_bytes == 1_000
    serving.cancel()
    await asyncio.sleep(0)  # it waits for its tasks now
    serving.cancel()
    await settle()
    assert serving.cancelled()
    assert budget.queued_bytes == 0
