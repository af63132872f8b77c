"""A topic without capacity pauses its own producers, and no others of their client's stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import aio
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.produce_answers import ProduceAnswers
from magnetar_protos.broker_pb2 import (
    CloseProducer,
    ErrorCode,
    LookupAnswer,
    OpenProducer,
    PartitionsAnswer,
    ProducerOpened,
)
from magnetar_wire.entry import decode_entry
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Peer
from tests.produce_client import ProduceClient, entry
from tests.running import until, within
from tests.unit.broker.fake_log import FakeLog
from tests.unit.broker.produce_server import ProduceServer, running_produce_server

BOUND = 1 << 20
SIZE = 100_000
SMALL = 10_000
ADDRESS = "broker:1"


def entries(count: int, first: int = 0) -> list[bytes]:
    return [entry(number, bytes(SIZE)) for number in range(first, first + count)]


async def fill(client: ProduceClient, log: FakeLog, count: int) -> list[bytes]:
    """Withhold the log's appends, and send entries one by one, more than its topic has capacity for."""
    log.prompt = False
    sent = entries(count)
    for number, one in enumerate(sent):
        await client.send((1, number, [one]))
    return sent


async def test_full_topic_does_not_block_producers_of_other_topics() -> None:
    """PRD-1, CHK-66: the topic's pending queue is full, and stays so; others on the same stream publish all the while.
    What was sent for the full topic is stored later, once each and in order."""

    async with running_produce_server(max_pending_publish_bytes_per_topic=BOUND) as (server, connect):
        client = connect()
        await client.open(1, "p", "full")
        await client.open(2, "p", "free")
        full, free = server.log(0), server.log(1)
        sent = await within(asyncio.create_task(fill(client, full, 40)), "all of it is taken")
        for number in range(20):
            await client.send((2, number, entries(1, number)))
            await until(lambda: len(client.receipts) > number, "it is stored")  # noqa: B023 (called at once)
        assert free.stored == entries(20)
        assert full.pending_bytes < BOUND + 2 * SIZE
        assert client.paused == {1: True}
        assert server.budget.used_bytes == count_entry_memory(sent)
        full.prompt = True
        full.decide()
        await until(lambda: len(client.receipts) == 60, "all is stored")
        assert full.stored == sent
        await until(lambda: client.paused == {1: False}, "it is resumed")
        assert server.budget.used_bytes == 0


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after another"])
@pytest.mark.parametrize("count", range(1, 7))
async def test_healthy_topic_publishes_while_other_topics_are_stuck(count: int, at_once: bool) -> None:
    """PRD-1, CHK-66: the bookies of `count` topics are away. Their producers send until they are paused, all in turn or
    each until it is paused. A producer of another topic publishes all the while. Later all is stored, in order."""

    async with running_produce_server(
        max_pending_publish_bytes_per_topic=BOUND, max_pending_publish_bytes_per_connection=2 * BOUND
    ) as (server, connect):
        client = connect()
        for number in range(count):
            await client.open(number, topic=f"stuck {number}")
            server.log().prompt = False
        await client.open(count, topic="healthy")
        sent: dict[int, list[bytes]] = {number: [] for number in range(count + 1)}

        async def publish(producer_id: int) -> None:
            one = entry(len(sent[producer_id]), bytes(SMALL))
            await client.send((producer_id, len(sent[producer_id]), [one]))
            sent[producer_id].append(one)

        async def publish_until_stuck() -> None:
            active = list(range(count))
            while active:
                for number in active if at_once else active[:1]:
                    await publish(number)
                await publish(count)
                await until(lambda: len(client.receipts) == len(sent[count]), "the healthy one's entry is stored")
                active = [number for number in active if not client.paused.get(number)]

        await within(asyncio.create_task(publish_until_stuck()), "all stuck producers are paused")
        for _ in range(20):
            await publish(count)
        await until(lambda: len(client.receipts) == len(sent[count]), "the healthy one's entries are stored")
        # One stuck topic alone gets all that a topic may have.
        assert count > 1 or server.budget.used_bytes >= BOUND
        assert server.budget.used_bytes == sum(count_entry_memory(sent[number]) for number in range(count))
        assert server.budget.used_bytes < 2 * BOUND
        for number in range(count):
            server.log(number).prompt = True
            server.log(number).decide()
        await until(lambda: len(client.receipts) == sum(map(len, sent.values())), "all is stored")
        assert [server.log(number).stored for number in range(count + 1)] == list(sent.values())
        await until(lambda: not any(client.paused.values()), "all are resumed")
        assert server.budget.used_bytes == server.sessions[0].session.budget.used_bytes == 0


async def test_a_client_that_does_not_pause_is_held_by_its_streams_bound() -> None:
    async with running_produce_server(
        max_pending_publish_bytes_per_topic=BOUND, max_pending_publish_bytes_per_connection=3 * BOUND
    ) as (server, connect):
        client = connect()
        await client.open(1)
        sending = asyncio.create_task(fill(client, server.log(), 100))
        await until(lambda: server.budget.used_bytes >= 3 * BOUND, "it is taken up to the stream's bound")
        other = connect()
        await other.open(1, "q")  # by then everything that is accepted at once is
        assert server.budget.used_bytes < 3 * BOUND + 2 * SIZE
        assert not sending.done()
        server.log().prompt = True
        server.log().decide()
        assert await within(sending, "everything is sent") == entries(100)
        await until(lambda: len(client.receipts) == 100, "everything is stored")
        assert server.log().stored == entries(100)


async def test_a_producer_that_is_closed_while_it_is_paused_stores_all_that_it_sent_before() -> None:
    async with running_produce_server(max_pending_publish_bytes_per_topic=BOUND) as (server, connect):
        client = connect()
        await client.open(1)
        sent = await fill(client, server.log(), 30)
        await client.send(CloseProducer(producer_id=1))
        await until(lambda: client.paused == {1: True}, "it is paused")
        assert not client.ended
        server.log().prompt = True
        server.log().decide()
        await until(lambda: 1 in client.ended, "it is closed")
        assert not client.ended[1].HasField("problem")
        assert server.log().stored == sent
        assert len(client.receipts) == 30
        assert server.budget.used_bytes == 0


@pytest.mark.parametrize("first", ["the producer", "the topic"])
async def test_paused_producer_of_closing_topic_ends_with_error(first: str) -> None:
    """PRD-1: an entry without a receipt is not stored, and the client gets no answer that its producer was closed as
    requested."""

    async with running_produce_server(max_pending_publish_bytes_per_topic=BOUND) as (server, connect):
        client, other = connect(), connect()
        await client.open(1)
        await other.open(1, "q", "another topic")
        log = server.log(0)
        sent = await fill(client, log, 30)
        await until(lambda: client.paused == {1: True}, "it is paused")
        taken = len(log.waiting)
        assert taken < len(sent)
        topic = server.storage.opened[0]
        [producer] = topic.producers.connected()
        problem = BrokerError(ErrorCode.SERVICE_NOT_READY, "it moves")

        async def close_producer() -> None:
            await client.send(CloseProducer(producer_id=1))
            await client.send(OpenProducer(producer_id=2, topic="another topic", producer_name="r"))
            await until(lambda: 2 in client.opened, "what was sent before is handled")

        if first == "the producer":
            await close_producer()
        closing = asyncio.create_task(server.topics.unload(topic.name, problem))
        await until(lambda: producer.is_stopped, "the topic is closing")
        if first == "the topic":
            await close_producer()
        assert not client.ended
        log.prompt = True
        log.decide()
        await within(closing, "the topic is closed")
        await until(lambda: 1 in client.ended, "the producer is ended")
        assert client.ended[1].problem.code == ErrorCode.SERVICE_NOT_READY
        assert log.stored == sent[:taken]
        assert len(client.receipts) == taken
        assert server.budget.used_bytes == 0


@pytest.mark.parametrize("how", ["the stream breaks", "the topic ends", "another connection takes the name"])
async def test_a_paused_producer_that_ends_gives_back_all_that_waits(how: str) -> None:
    async with running_produce_server(max_pending_publish_bytes_per_topic=BOUND) as (server, connect):
        client = connect()
        await client.open(1, instance=b"i", connection_epoch=1)
        log = server.log()
        await fill(client, log, 30)
        await until(lambda: client.paused == {1: True}, "it is paused")
        taken = len(log.waiting)
        later = connect()
        opening: asyncio.Task[Any] | None = None
        if how == "the stream breaks":
            client.stream.cancel()
        elif how == "the topic ends":
            log.on_lost(BrokerError(ErrorCode.SERVICE_NOT_READY, "it is lost"))
        else:
            opening = asyncio.create_task(later.open(1, instance=b"i", connection_epoch=2))
            await until(lambda: 1 in client.ended, "the first one is evicted")
        await until(lambda: server.budget.used_bytes <= taken * (SIZE + 1000), "what was not taken is given back")
        log.prompt = True
        log.decide()
        if opening is not None:
            await within(opening, "the second one is open")
            assert log.stored == entries(taken)
        await until(lambda: server.budget.used_bytes == 0, "all is given back")


async def test_a_full_stream_that_is_ended_sends_all_receipts_and_closes() -> None:
    """CHK-66, PRD-1: its receiver waits for capacity, and its entries are stored after the end was requested."""

    async with running_produce_server(
        max_pending_publish_bytes_per_topic=BOUND, max_pending_publish_bytes_per_connection=3 * BOUND
    ) as (server, connect):
        client = connect()
        await client.open(1)
        sending = asyncio.create_task(fill(client, server.log(), 100))
        [session] = server.sessions
        await until(lambda: session.session.budget.full and session.session._changed is not None, "the receiver waits")
        session.end()
        for _ in range(20):
            await asyncio.sleep(0)
        server.log().prompt = True
        server.log().decide()
        await until(lambda: client.over, "serve() returns")
        assert len(client.receipts) == len(server.log().stored)
        sending.cancel()


async def test_a_producer_opened_on_a_full_topic_is_paused_at_once() -> None:
    async with running_produce_server(max_pending_publish_bytes_per_topic=BOUND) as (server, connect):
        client, other = connect(), connect()
        await client.open(1)
        await fill(client, server.log(), 30)
        await other.open(7, "q")
        await until(lambda: other.paused == {7: True}, "it is paused")
        server.log().prompt = True
        server.log().decide()
        await until(lambda: other.paused == {7: False}, "it is resumed")


def test_last_flow_state_is_sent_between_opening_and_end() -> None:
    answers = ProduceAnswers()
    count = 5_000
    for producer_id in range(count):
        answers.add_opened(ProducerOpened(producer_id=producer_id))
        answers.set_flow(producer_id, True)
        if producer_id % 2:
            answers.set_flow(producer_id, False)
        if producer_id % 5 == 0:
            answers.add_ended(producer_id, None)
    opened: set[int] = set()
    flow: dict[int, bool] = {}
    while len(answers):
        message = answers.compose()
        opened.update(one.producer_id for one in message.opened)
        for one in message.flow:
            assert one.producer_id in opened
            assert one.producer_id not in flow
            flow[one.producer_id] = one.paused
    assert flow == {number: not number % 2 for number in range(count) if number % 5}


class ServesClients(ProduceServer):
    """It answers what a client asks before it opens a producer, too."""

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "partitions":
            return PartitionsAnswer(partitions=0).SerializeToString()
        assert method == "lookup"
        return LookupAnswer(address=ADDRESS).SerializeToString()


async def test_full_topic_does_not_block_other_client_producers() -> None:
    """CHK-66: the SDK's producers share a stream. The one whose topic is full keeps what it has, far more than its
    topic's bound and the stream's, and sends it, in order, when there is capacity."""

    async with _serving(
        max_pending_publish_bytes_per_topic=BOUND, max_pending_publish_bytes_per_connection=10 * BOUND
    ) as (server, client):
        options: dict[str, Any] = {"batching_enabled": False, "max_pending_messages": 1000, "send_timeout_millis": 0}
        full = await client.create_producer("full", **options)
        free = await client.create_producer("free", **options)
        assert len(server.sessions) == 1
        log = server.log(0)
        log.prompt = False
        sending = [asyncio.create_task(full.send(b"%04d" % number + bytes(SIZE))) for number in range(300)]
        await until(lambda: log.pending_bytes >= BOUND, "the topic is full")
        for number in range(20):
            await within(asyncio.create_task(free.send(b"%d" % number)), "it goes on")
        assert len(log.waiting) < 20
        assert not any(task.done() for task in sending)
        log.prompt = True
        log.decide()
        for task in sending:
            await within(task, "it is stored")
        numbers = [bytes(decode_entry(one).payload[:4]) for one in log.stored]
        assert numbers == [b"%04d" % number for number in range(300)]


@pytest.mark.parametrize(("count", "at_once"), [(2, False), (4, False), (6, True)])
async def test_the_clients_producers_go_on_while_several_topics_are_stuck(count: int, at_once: bool) -> None:
    """CHK-66: with the default bounds. The SDK's producers share a stream. Stuck topics, all at once or one after
    another, have more to send than they may, and frames are in flight when their producers are paused. The healthy one
    publishes all the while."""

    async with _serving() as (server, client):
        options: dict[str, Any] = {"batching_enabled": False, "max_pending_messages": 1000, "send_timeout_millis": 0}
        stuck = [await client.create_producer(f"stuck {number}", **options) for number in range(count)]
        logs = [server.log(number) for number in range(count)]
        healthy = await client.create_producer("healthy", **options)
        [session] = server.sessions
        sending: list[list[asyncio.Task[Any]]] = []
        for producer, log in zip(stuck, logs, strict=True):
            log.prompt = False
            messages = [b"%04d" % number + bytes(SIZE) for number in range(150 if sending else 500)]
            sending.append([asyncio.create_task(producer.send(message)) for message in messages])
            if at_once and len(sending) < count:
                continue
            await until(lambda: bool(log.waiting), "it has sent")  # noqa: B023 (called at once)
            for number in range(20):
                await within(asyncio.create_task(healthy.send(b"%d" % number)), "it goes on", 20.0)
        assert all(len(log.waiting) < len(tasks) for log, tasks in zip(logs, sending, strict=True))
        assert at_once or logs[0].pending_bytes > 31 << 20
        assert session.session.budget.used_bytes < session.session.budget.max_bytes
        for log in logs:
            log.prompt = True
            log.decide()
        for log, tasks in zip(logs, sending, strict=True):
            for task in tasks:
                await within(task, "it is stored")
            numbers = [bytes(decode_entry(one).payload[:4]) for one in log.stored]
            assert numbers == [b"%04d" % number for number in range(len(tasks))]


@asynccontextmanager
async def _serving(**bounds: int) -> AsyncIterator[tuple[ServesClients, aio.Client]]:
    server = ServesClients(**bounds)
    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, server)
    async with aio.Client(f"magnetar://{ADDRESS}", _transport=transport) as client:
        yield server, client
    await listener.close()
