"""What clients may have a broker hold: producers, bytes that are not stored yet, answers that nobody takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_protos.broker_pb2 import (
    CloseProducer,
    ErrorCode,
    OpenProducer,
)
from magnetar_wire.transport import Rejected
from tests.produce_client import ProduceClient, entry
from tests.running import until, within
from tests.unit.broker.produce_server import ProduceServer, running_produce_server


async def test_producers_of_a_stream_and_of_a_topic_are_bounded() -> None:
    async with running_produce_server(max_producers_per_stream=3, max_producers_per_topic=4) as (_, connect):
        client, other = connect(), connect()
        for producer_id in range(3):
            await client.open(producer_id, "")
        await client.send(OpenProducer(producer_id=9, topic="t"))
        assert await client.code(9) == ErrorCode.TOO_MANY_REQUESTS
        await other.open(1, "")
        await other.send(OpenProducer(producer_id=2, topic="t"))
        assert await other.code(2) == ErrorCode.PRODUCER_BUSY
        for name in ("", "//", "a/b", "non-persistent://public/default/t", "public/nowhere/t", "__change_events"):
            await other.send(OpenProducer(producer_id=100, topic=name))
            await until(lambda: 100 in other.ended, "it is refused")
            del other.ended[100]


async def test_a_stream_is_not_read_on_while_it_has_too_much_undecided() -> None:
    """PRD-1's other end: neither one topic, one stream nor all together take more than they may."""

    async def play(server: ProduceServer, connect: Callable[[], ProduceClient]) -> None:
        client, other = connect(), connect()
        await client.open(1)
        server.log().prompt = False
        large = [entry(n, bytes(1 << 20)) for n in range(40)]

        async def send_all() -> None:
            for number, one in enumerate(large):
                await client.send((1, number, [one]))

        sending = asyncio.create_task(send_all())
        await until(lambda: server.budget.used_bytes >= 4 << 20, "it is taken up to the bound")
        await other.open(1, "q")  # another stream is read, and has capacity for small entries
        assert server.log().pending_bytes < 6 << 20
        server.log().prompt = True
        server.log().decide()
        await within(sending, "everything is sent")
        await until(lambda: len(client.receipts) == 40, "everything is stored")
        assert server.log().stored == large

    async with running_produce_server(max_pending_publish_bytes_per_connection=4 << 20) as (server, connect):
        await play(server, connect)
    async with running_produce_server(max_pending_publish_bytes_per_topic=4 << 20) as (server, connect):
        await play(server, connect)


async def test_the_brokers_whole_buffer_is_bounded() -> None:
    async with running_produce_server(max_message_publish_buffer_size_in_mb=1) as (server, connect):
        clients = [connect() for _ in range(4)]
        for number, client in enumerate(clients):
            await client.open(1, f"p{number}")
        server.log().prompt = False
        sending = [
            asyncio.create_task(client.send((1, number, [entry(number, bytes(1 << 20), producer=f"p{at}")])))
            for at, client in enumerate(clients)
            for number in range(1)
        ]
        await until(lambda: all(task.done() for task in sending), "they are sent")
        await until(lambda: server.budget.used_bytes >= 4 << 20, "they are taken")
        for at, client in enumerate(clients):
            await client.send((1, 1, [entry(1, bytes(1 << 20), producer=f"p{at}")]))
        probe = connect()
        await probe.open(1, "probe")
        # One message of each stream may be there beyond the bound.
        assert server.budget.used_bytes <= 8 << 20
        server.log().prompt = True
        server.log().decide()
        await until(lambda: all(len(client.receipts) == 2 for client in clients), "everything is stored")
        assert server.budget.used_bytes == 0


async def test_stream_is_not_read_while_client_reads_no_answers() -> None:
    async with running_produce_server(max_waiting_publish_answers=20) as (server, connect):
        client = connect()
        client.reading.cancel()

        async def send_all() -> None:
            await client.send(OpenProducer(producer_id=1, topic="t", producer_name="p"))
            for number in range(0, 4000, 2):  # every other one is refused: no two receipts become one
                await client.send((1, number, [entry(number), b"bad"]))

        sending = asyncio.create_task(send_all())
        answers = server.sessions
        await until(lambda: bool(answers) and len(answers[0].session.answers) > 20, "answers wait")
        stored = -1
        while stored != len(server.log().stored):  # until nothing moves any more
            stored = len(server.log().stored)
            await asyncio.sleep(0.05)
        assert not sending.done()
        assert len(answers[0].session.answers) < 200
        client.reading = asyncio.create_task(client.read())
        await within(sending, "everything is sent")
        await until(lambda: len(client.refused) == 2000 == len(client.receipts), "everything is answered")


async def test_entries_after_one_the_log_refused_are_not_stored() -> None:
    """PRD-10, CHK-33: the producer ends at the first refusal, though that is reported only when all before it is
    decided, and there is capacity again by then."""

    async with running_produce_server() as (server, connect):
        client = connect()
        await client.open(1)
        log = server.log()
        log.prompt, log.capacity = False, 3
        await client.send((1, 0, [entry(n) for n in range(5)]))
        await until(lambda: len(log.waiting) == 4, "one more is appended than there is capacity for")
        log.decide(2)
        await client.send((1, 5, [entry(n) for n in range(5, 7)]))
        await client.open(2, "q")  # by then the broker has taken what was sent before
        log.prompt = True
        log.decide()
        assert await client.code(1) == ErrorCode.TOO_MANY_REQUESTS
        assert log.stored == [entry(n) for n in range(3)]


async def test_one_message_opens_and_closes_so_much_and_no_more() -> None:
    """CHK-49: what a message asks for is bounded before anything of it is done."""

    async with running_produce_server(max_parts_per_produce_request=300) as (server, connect):
        client, other = connect(), connect()
        opens = [OpenProducer(producer_id=number, topic="t") for number in range(1, 301)]
        await client.send(*opens[:150], *(CloseProducer(producer_id=one.producer_id) for one in opens[:150]))
        await until(lambda: len(client.ended) == 150, "as many are opened and closed")
        assert len(client.opened) == 150
        entries = [entry(0)] * 100
        await other.send(*opens[:201], *((number, 0, [one]) for number, one in enumerate(entries)))
        await until(lambda: other.over, "the stream is ended")
        assert isinstance(other.error, Rejected)
        assert "301 parts, more than max_parts_per_produce_request = 300" in str(other.error)
        assert not other.opened
        await until(lambda: not server.storage.opened[0].producers.connected(), "nobody is left")
