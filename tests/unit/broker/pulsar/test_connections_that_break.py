"""A connection that breaks in any state leaves nothing behind: no budget, task, timer, name, consumer or reading.

`running_pulsar_broker` checks that at the end of each test. Here are the states, and a check that others get what the
connection had.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandLookupTopic,
    CommandProducer,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
)
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, framed, sent
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

OPEN = BaseCommand(
    type=BaseCommand.PRODUCER, producer=CommandProducer(topic="t", producer_id=1, request_id=1, producer_name="p")
)
SUBSCRIBE = BaseCommand(
    type=BaseCommand.SUBSCRIBE,
    subscribe=CommandSubscribe(topic="t", subscription="s", sub_type=0, consumer_id=1, request_id=2),
)
State = Callable[[PulsarScene, PulsarClient], Awaitable[None]]


async def connecting(scene: PulsarScene, client: PulsarClient) -> None: ...


async def in_a_frame(scene: PulsarScene, client: PulsarClient) -> None:
    client.send_bytes(framed(OPEN, b"p" * 100_000)[:50_000])
    assert scene.context.incomplete_frames.bytes == 50_000


async def opening(scene: PulsarScene, client: PulsarClient) -> None:
    client.send(
        OPEN, SUBSCRIBE, BaseCommand(type=BaseCommand.LOOKUP, lookup_topic=CommandLookupTopic(topic="t", request_id=3))
    )
    assert len(client.tasks) == 3


async def opening_further(scene: PulsarScene, client: PulsarClient) -> None:
    client.send(OPEN, SUBSCRIBE)
    for _ in range(4):
        await asyncio.sleep(0)


async def publishing(scene: PulsarScene, client: PulsarClient) -> None:
    await client.open_producer(1, producer_name="p")
    for bookie in scene.bookies:
        bookie.hold()
    client.publish(1, *range(100), name="p", payload=b"x" * 100)
    assert scene.broker_session.budget.used_bytes > 10_000


async def held(scene: PulsarScene, client: PulsarClient) -> None:
    await publishing(scene, client)
    client.publish(1, *range(100, 10_000), name="p", payload=b"x" * 100)
    assert client.transport.is_reading_paused


async def closing_a_producer(scene: PulsarScene, client: PulsarClient) -> None:
    await publishing(scene, client)
    close = CommandCloseProducer(producer_id=1, request_id=9)
    client.send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))


async def refusing(scene: PulsarScene, client: PulsarClient) -> None:
    """What may not be stored waits for its turn."""
    await publishing(scene, client)
    client.send_bytes(sent(1, 100, entry(100, producer="somebody else")))


async def consuming(scene: PulsarScene, client: PulsarClient) -> None:
    await client.open_producer(1, producer_name="p")
    client.publish(1, *range(200), name="p", payload=b"x" * 1000)
    await client.receipts(1, 200)
    client.stop_reading()
    client.send(SUBSCRIBE)
    await until(lambda: any(one.consumer for one in client.consumers.values()), "it is subscribed")
    client.flow(1, 1000)
    seek = CommandSeek(consumer_id=1, request_id=3, message_id=MessageIdData(ledgerId=0, entryId=0))
    client.send(BaseCommand(type=BaseCommand.SEEK, seek=seek))


async def starved(scene: PulsarScene, client: PulsarClient) -> None:
    await client.open_producer(1, producer_name="p")
    await client.subscribe(permits=0)
    client.publish(1, *range(1000), name="p", payload=b"x" * 1000)
    await client.receipts(1, 1000)
    client.stop_reading()
    client.flow(1, 1000)
    await until(lambda: scene.context.server.outbox_budget.queued_bytes > 60_000, "the client is behind")


async def seeking(scene: PulsarScene, client: PulsarClient) -> None:
    await client.subscribe()
    for at in range(5):
        seek = CommandSeek(consumer_id=1, request_id=3 + at, message_publish_time=at)
        client.send(BaseCommand(type=BaseCommand.SEEK, seek=seek))


async def acknowledging(scene: PulsarScene, client: PulsarClient) -> None:
    await client.open_producer(1, producer_name="p")
    client.publish(1, 0, name="p")
    await client.subscribe()
    [one] = await client.wait_delivered(1)
    ids = [MessageIdData(ledgerId=one.ledger_id, entryId=one.entry_id)]
    ack = CommandAck(consumer_id=1, ack_type=CommandAck.INDIVIDUAL, message_id=ids, request_id=9)
    close = CommandCloseConsumer(consumer_id=1, request_id=10)
    client.send(
        BaseCommand(type=BaseCommand.ACK, ack=ack), BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)
    )


async def acknowledging_in_steps(scene: PulsarScene, client: PulsarClient) -> None:
    await client.subscribe()
    ids = [MessageIdData(ledgerId=0, entryId=at) for at in range(5_000)]
    ack = CommandAck(consumer_id=1, ack_type=CommandAck.INDIVIDUAL, message_id=ids, request_id=9)
    client.send(BaseCommand(type=BaseCommand.ACK, ack=ack), OPEN)
    assert not client.producers  # it comes behind


async def unsubscribing(scene: PulsarScene, client: PulsarClient) -> None:
    await client.subscribe()
    command = CommandUnsubscribe(consumer_id=1, request_id=9)
    client.send(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=command))


async def pinged(scene: PulsarScene, client: PulsarClient) -> None:
    await client.open_producer(1, producer_name="p")
    await client.subscribe()
    other = await scene.pulsar_client()
    other.send(OPEN, SUBSCRIBE)
    await client.wait_for_answers(BaseCommand.PING)


STATES: list[State] = [
    connecting,
    in_a_frame,
    opening,
    opening_further,
    publishing,
    held,
    closing_a_producer,
    refusing,
    consuming,
    starved,
    seeking,
    acknowledging,
    acknowledging_in_steps,
    unsubscribing,
    pinged,
]


@pytest.mark.parametrize("state", STATES)
async def test_broken_connection_releases_its_resources_for_others(state: State) -> None:
    """WIRE-1, PRD-11, SUB-1."""

    async with running_pulsar_broker(
        max_pending_publish_bytes_per_connection=100000,
        max_queued_bytes_per_stream=65536,
        connection_liveness_check_timeout_millis=200,
    ) as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        await state(scene, client)
        client.cut()
        await until(lambda: client.connection not in scene.listener.connections, "it is closed")
        for bookie in scene.bookies:
            bookie.resume()
        await scene.wait_nothing_left(but=[other])
        assert not client.tasks
        await other.open_producer(1, producer_name="p")
        await other.subscribe()
        other.publish(1, 100_000, name="p")
        await other.receipts(1, 1)


async def test_a_broken_connection_is_forgotten_at_once() -> None:
    """No timer keeps it: one that comes and breaks the protocol, over and over, costs nothing."""

    async with running_pulsar_broker() as scene:
        closed = []
        for _ in range(20):
            client = await scene.pulsar_client()
            client.send_bytes(b"\xff" * 8)
            await client.wait_disconnected()
            closed.append(weakref.ref(client.connection))
        scene.clients.clear()
        del client
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
        gc.collect()
        assert not any(one() for one in closed)
