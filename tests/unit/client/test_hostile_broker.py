"""Brokers that send what they should not: no error is raised unseen, and no result is reported twice or wrongly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar import aio, exceptions
from magnetar_protos.broker_pb2 import (
    EntryRefused,
    ErrorCode,
    LookupAnswer,
    PartitionsAnswer,
    Problem,
    ProduceAnswer,
    ProducerEnded,
    ProduceRequest,
    ProducerOpened,
    Receipt,
)
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Peer, Stream
from tests.running import within
from tests.unit.client.lookup_broker import ADDRESS
from tests.unit.client.scene import URL


class Liar:
    """Answers each request with the test's answer, as `{id}`'s, and then correctly."""

    def __init__(self, *lies: ProduceAnswer) -> None:
        self.lies = lies
        self.lookup = LookupAnswer(address=ADDRESS)
        self.partitions = 0

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        partitions = PartitionsAnswer(partitions=self.partitions)
        return (self.lookup if method == "lookup" else partitions).SerializeToString()

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            request = ProduceRequest.FromString(message)
            truth = ProduceAnswer()
            for opening in request.open:
                opened = ProducerOpened(producer_id=opening.producer_id, producer_name="p", last_sequence_id=-1)
                truth.opened.append(opened)
            if request.frame.runs:
                for lie in self.lies:
                    await stream.send(lie.SerializeToString())
            for run_ in request.frame.runs:
                truth.receipts.append(
                    Receipt(producer_id=run_.channel, first=run_.first, count=run_.count, ledger_id=9, first_entry_id=5)
                )
            await stream.send(truth.SerializeToString())


LIES = {
    "receipt of nothing": ProduceAnswer(receipts=[Receipt(producer_id=1, first=0, count=0)]),
    "receipt of what was not sent": ProduceAnswer(receipts=[Receipt(producer_id=1, first=7, count=2**32 - 1)]),
    "receipt at the end of numbers": ProduceAnswer(
        receipts=[Receipt(producer_id=1, first=2**64 - 1, count=2**32 - 1, ledger_id=2**63 - 1)]
    ),
    "another's receipt": ProduceAnswer(receipts=[Receipt(producer_id=77, first=0, count=1, ledger_id=1)]),
    "refusal of what was not sent": ProduceAnswer(refused=[EntryRefused(producer_id=1, number=2**64 - 1)]),
    "opened again": ProduceAnswer(opened=[ProducerOpened(producer_id=1, producer_name="other", last_sequence_id=99)]),
    "another one ended": ProduceAnswer(
        ended=[ProducerEnded(producer_id=77, problem=Problem(code=ErrorCode.PRODUCER_FENCED))]
    ),
    "nothing at all": ProduceAnswer(),
}


@pytest.mark.parametrize("lie", list(LIES))
async def test_answers_not_matching_a_sent_message_are_ignored(lie: str, caplog: pytest.LogCaptureFixture) -> None:
    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, Liar(LIES[lie]))
    async with aio.Client(URL, _transport=transport) as client:
        producer = await client.create_producer("t")
        message_id = await within(producer.send(b"x"), "the receipt")
        assert (message_id.ledger_id(), message_id.entry_id()) == (9, 5)
        assert producer.producer_name() == "p"
        assert (await within(producer.send(b"y"), "the receipt")).ledger_id() == 9
        client.shutdown()
        await client.close()
    await listener.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_duplicate_receipt_is_ignored() -> None:
    transport = InProcessTransport()
    first = ProduceAnswer(receipts=[Receipt(producer_id=1, first=0, count=1, ledger_id=1, first_entry_id=1)])
    listener = await transport.listen(ADDRESS, Liar(first, first))
    async with aio.Client(URL, _transport=transport) as client:
        producer = await client.create_producer("t")
        assert (await producer.send(b"x")).ledger_id() == 1
        assert (await producer.send(b"y")).ledger_id() == 9
        client.shutdown()
        await client.close()
    await listener.close()


async def test_send_of_a_duplicate_returns_no_position() -> None:
    """DUP-1's (-1,-1), as the client meets it."""
    transport = InProcessTransport()
    known = Receipt(producer_id=1, first=0, count=1, ledger_id=-1, first_entry_id=-1)
    listener = await transport.listen(ADDRESS, Liar(ProduceAnswer(receipts=[known])))
    async with aio.Client(URL, _transport=transport) as client:
        producer = await client.create_producer("t")
        message_id = await producer.send(b"x")
        assert (message_id.ledger_id(), message_id.entry_id()) == (-1, -1)
        client.shutdown()
        await client.close()
    await listener.close()


async def test_a_broker_that_names_nobody() -> None:
    transport = InProcessTransport()
    liar = Liar()
    liar.lookup = LookupAnswer()
    listener = await transport.listen(ADDRESS, liar)
    async with aio.Client(URL, _transport=transport, operation_timeout_seconds=0.2) as client:
        with pytest.raises(exceptions.UnknownError, match="returned no broker"):
            await client.create_producer("t")
    await listener.close()


async def test_more_partitions_than_a_topic_can_have_are_refused() -> None:
    """Each takes memory of the client."""
    transport = InProcessTransport()
    liar = Liar()
    liar.partitions = 2**32 - 1
    listener = await transport.listen(ADDRESS, liar)
    async with aio.Client(URL, _transport=transport) as client:
        for opening in (client.create_producer("t"), client.subscribe("t", "s")):
            with pytest.raises(exceptions.UnknownError, match=r"reports 4,294,967,295 partitions .*, above 100,000"):
                await opening
    await listener.close()


async def create_producer(client: aio.Client) -> object:
    return await client.create_producer("t")


async def subscribe(client: aio.Client) -> object:
    return await client.subscribe("t", "s")


async def test_answers_that_are_no_protobuf() -> None:
    class Babbler(Liar):
        async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
            return b"\xff" * 20

    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, Babbler())
    async with aio.Client(URL, _transport=transport, operation_timeout_seconds=0.2) as client:
        with pytest.raises(exceptions.UnknownError, match="can't be decoded"):
            await client.create_producer("t")
    await listener.close()


@pytest.mark.parametrize("open_one", [create_producer, subscribe])
async def test_a_stream_that_stalls_is_replaced(open_one: Callable[[aio.Client], Awaitable[object]]) -> None:
    """The next attempt has a stream of its own, and does not wait in vain on the same one."""

    class Stalled(Liar):
        streams = 0

        async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
            self.streams += 1
            await asyncio.Event().wait()

    broker, transport = Stalled(), InProcessTransport()
    listener = await transport.listen(ADDRESS, broker)
    async with aio.Client(URL, _transport=transport, operation_timeout_seconds=0.2) as client:
        for attempt in range(1, 3):
            with pytest.raises(exceptions.Timeout, match="has not opened a"):
                await open_one(client)
            assert broker.streams == attempt
    await listener.close()


async def test_a_broker_that_never_agrees() -> None:
    class Silent(Liar):
        async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
            await asyncio.Event().wait()

    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, Silent())
    options: dict[str, Any] = {"operation_timeout_seconds": 0.2}
    async with aio.Client(URL, _transport=transport, **options) as client:
        with pytest.raises(exceptions.Timeout, match="has not opened a producer"):
            await client.create_producer("t")
    await listener.close()
