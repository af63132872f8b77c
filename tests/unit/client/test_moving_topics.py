"""Topics that go from broker to broker all the time, under producers and consumers that know nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition, aio
from magnetar.exceptions import StaleEpoch
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from tests.unit.client.consume_scene import MemoryBroker
from tests.unit.client.fake_broker import FakeBroker, Topic

NAME = "persistent://public/default/p"
PARTITIONS = 4
MESSAGES = 240
MOVES = 40


class QuickClock(SystemClock):
    """Pauses are a hundredth as long."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


@asynccontextmanager
async def brokers(kind: Any, seed: int) -> AsyncIterator[tuple[list[Any], aio.Client]]:
    """Two, which share their topics, and a client of both."""
    transport = InProcessTransport()
    both = [await kind(address).start(transport) for address in ("one:1", "other:1")]
    both[1].topics = both[0].topics
    both[0].partitioned[NAME] = both[1].partitioned[NAME] = PARTITIONS
    async with aio.Client(
        "magnetar://one:1,other:1", _transport=transport, _clock=QuickClock(), _randomness=SeededRandomness(seed)
    ) as client:
        yield both, client
        for broker in both:
            broker.answering.set()
            if isinstance(broker, FakeBroker):
                broker.receipting.set()
    for broker in both:
        await broker.stop()


def _move(both: list[FakeBroker], topic: Topic, chance: SeededRandomness) -> None:
    """Move the topic to the other broker. The former owner closes its producers; or breaks all streams, also new ones;
    or finds out only when it would store something; and answers late, or not at all.
    """
    owners = both[0].owners
    old = next(broker for broker in both if broker.address == owners[topic.name])
    new = next(broker for broker in both if broker is not old)
    how = chance.below(4)
    if how == 3:
        old.receipting.clear()  # receipts for what it stored come later, on open streams
    owners[topic.name] = new.address
    if how == 0:
        old.end_producers(topic, ErrorCode.SERVICE_NOT_READY)
    elif how == 1:
        old.break_streams()
    topic.producers.clear()


async def test_producers_keep_their_order_while_topics_swap_brokers() -> None:
    """PRD-9, PRD-10, CHK-33: several producers on several partitions, with batches in flight all the time. Each receipt
    names the message's position, everything is stored, and each producer's messages are in order, judged by first
    copies.
    """

    async def go(seed: int) -> None:
        chance = SeededRandomness(seed)
        async with brokers(FakeBroker, seed) as (both, client):
            names = [f"{NAME}-partition-{index}" for index in range(PARTITIONS)]
            owners = {name: both[chance.below(2)].address for name in names}
            both[0].owners = both[1].owners = owners
            producers = [
                await client.create_producer("p", batching_max_messages=3, max_pending_messages=40) for _ in range(3)
            ]
            sends: list[tuple[bytes, asyncio.Task[Any]]] = []
            for number in range(MESSAGES):
                content = b"%d %d" % (number % 3, number)
                sends.append((content, asyncio.create_task(producers[number % 3].send(content))))
                if chance.random() < 0.25:
                    _move(both, both[0].topic(names[chance.below(PARTITIONS)]), chance)
                if chance.random() < 0.1:
                    both[chance.below(2)].receipting.set()
                for _ in range(chance.below(4)):
                    await asyncio.sleep(0)
            for broker in both:
                broker.receipting.set()
            stored = {}
            first: dict[bytes, None] = {}
            for message in await asyncio.gather(*(task for _, task in sends)):
                assert message.partition() >= 0
            for index, name in enumerate(names):
                topic = both[0].topic(name)
                for entry, messages in enumerate(topic.messages()):
                    for at, payload in enumerate(messages.payloads):
                        stored[index, entry, at if len(messages) > 1 else -1] = payload
                for sender in range(3):
                    own = [one for one in topic.payloads() if one is not None and one.startswith(b"%d " % sender)]
                    numbers = [int(one.split()[1]) for one in dict.fromkeys(own)]
                    assert numbers == sorted(numbers)
                    first.update(dict.fromkeys(own))
            assert sorted(first) == sorted(content for content, _ in sends)
            for content, task in sends:
                receipt = task.result()
                assert stored[receipt.partition(), receipt.entry_id(), receipt.batch_index()] == content

    for seed in range(6):
        await go(seed)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
async def test_consumers_get_everything_while_topics_swap_brokers(kind: ConsumerType) -> None:
    """CON-3, CON-4, SUB-9, CHK-52: acknowledgements that were gathered and not sent at the break leave with the next
    opening; what has a receipt does not come again; each partition's messages come in order, as judged by first
    readings; and in the end all is acknowledged."""

    async def go(seed: int) -> None:
        chance = SeededRandomness(seed)
        async with brokers(MemoryBroker, seed) as (both, client):
            names = [f"{NAME}-partition-{index}" for index in range(PARTITIONS)]
            for number in range(0, MESSAGES, 3):
                payloads = [b"%d" % each for each in range(number, number + 3)]
                both[0].topic(names[number // 3 % PARTITIONS]).publish(*payloads)
            consumer = await client.subscribe(
                "p",
                "s",
                kind,
                initial_position=InitialPosition.Earliest,
                receiver_queue_size=20,
                batch_receive_policy=ConsumerBatchReceivePolicy(10, -1, 5),
            )
            seen: dict[tuple[int, bytes], None] = {}
            receipted: dict[tuple[int, bytes], None] = {}
            subscriptions = [both[0].topic(name).cursors for name in names]

            def done() -> bool:
                logs = [both[0].topic(name).log for name in names]
                return all(
                    cursors.cursors["s"].mark_delete == log.last
                    for cursors, log in zip(subscriptions, logs, strict=True)
                )

            moves = 0
            while not done():
                if chance.random() < 0.1 and moves < MOVES:
                    moves += 1
                    owner = both[chance.below(2)]
                    both[0].owner = both[1].owner = owner.address
                    if chance.random() < 0.5:
                        await owner.unload(names[chance.below(PARTITIONS)])
                    for broker in both if moves == MOVES else [both[chance.below(2)]]:
                        broker.break_streams()
                batch = await consumer.batch_receive()
                for message in batch:
                    key = message.message_id().partition(), message.data()
                    assert key not in receipted, "what has a receipt does not come again"
                    seen[key] = None
                if not batch or (moves < MOVES and chance.random() < 0.1):  # it comes again
                    continue
                if chance.random() < 0.3:
                    try:
                        await consumer.acknowledge(batch, receipt=True)
                    except StaleEpoch:
                        continue
                    receipted.update({(one.message_id().partition(), one.data()): None for one in batch})
                elif kind is ConsumerType.Exclusive and chance.random() < 0.3:
                    await consumer.acknowledge_cumulative(batch[-1])
                else:
                    await consumer.acknowledge(batch)
            for index in range(PARTITIONS):
                numbers = [int(payload) for partition, payload in seen if partition == index]
                expected = [n for n in range(MESSAGES) if n // 3 % PARTITIONS == index]
                assert sorted(numbers) == expected
                if kind is ConsumerType.Exclusive:
                    assert numbers == expected

    for seed in range(3):
        await go(seed)
