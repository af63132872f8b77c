"""The link: what gathers, what is dispatched, and how it breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar._client_core import ClientCore
from magnetar._produce_stream import ProduceStream
from magnetar.exceptions import AlreadyClosed, ConnectError, ProducerBusy
from magnetar_protos.broker_pb2 import (
    EntryRefused,
    ErrorCode,
    OpenProducer,
    Problem,
    ProduceRequest,
    ProducerOpened,
    Receipt,
)
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.batch import encode_batch
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.grpc_transport.wire import PIECE_BYTES
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.messages import Messages
from magnetar_wire.transport import Disconnected, TransportError
from tests.running import until
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.lookup_broker import ADDRESS
from tests.unit.client.scene import core_of


class Recorder:
    """A channel that sends what it is given, and remembers what it is told."""

    def __init__(self, link: ProduceStream, topic: str) -> None:
        self.link = link
        self.told: list[Any] = []
        self.line: list[bytes] = []
        self.sent = 0
        self.name = f"of {topic}"
        self.id = link.open(self, OpenProducer(topic=topic, producer_name=self.name))

    def send(self, *payloads: bytes) -> None:
        shared = MessageMetadata(producer_name=self.name, sequence_id=0, publish_time=1)
        self.line += [encode_batch(Messages([payload]), shared) for payload in payloads]
        self.link.mark_ready(self.id)

    def fill(self, builder: FrameBuilder) -> bool:
        while self.line:
            if not builder.try_add_entry(self.id, self.sent, self.line[0]):
                return False
            self.line.pop(0)
            self.sent += 1
        return True

    def opened(self, answer: ProducerOpened) -> None:
        self.told.append(answer)

    def received(self, receipt: Receipt) -> None:
        self.told.append((receipt.first, receipt.count, receipt.first_entry_id))

    def refused(self, refusal: EntryRefused) -> None:
        self.told.append(refusal)

    def ended(self, problem: Problem | None) -> None:
        self.told.append(problem)

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        self.told.append(paused)

    def disconnected(self, error: TransportError) -> None:
        self.told.append(error)


def link_of(made: ClientCore) -> ProduceStream:
    return made.pool.stream(ADDRESS, ProduceStream)


async def test_what_gathers_leaves_together_and_each_channel_gets_its_own_answers() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    link = link_of(made)
    assert link_of(made) is link
    one, other = Recorder(link, "one"), Recorder(link, "other")
    await until(lambda: bool(one.told and other.told), "both are open")
    one.send(b"a", b"b")
    other.send(b"c")
    one.send(b"d")
    await until(lambda: len(one.told) + len(other.told) == 4, "receipts are there")
    assert one.told[1:] == [(0, 3, 0)]
    assert other.told[1:] == [(0, 1, 0)]
    assert broker.topic("one").payloads() == [b"a", b"b", b"d"]
    assert broker.produce_sessions[0].frames == [0, 4], "one message for all that had gathered"
    link.close(one.id)
    await until(lambda: len(one.told) == 3, "it is closed")
    assert one.told[2] is None
    assert list(link.channels) == [other.id]
    await made.shutdown()


async def test_a_full_frame_leaves_room_for_others_and_keeps_each_ones_order() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    much, little = Recorder(link_of(made), "much"), Recorder(link_of(made), "little")
    await until(lambda: bool(much.told and little.told), "both are open")
    payloads = [bytes([i]) * 400_000 for i in range(20)]
    much.send(*payloads)
    little.send(b"me too")
    await until(lambda: len(little.told) > 1, "the little one has its receipt")
    await until(lambda: len(broker.topic("much").entries) == 20, "all is stored")
    assert broker.topic("much").payloads() == payloads
    frames = broker.produce_sessions[0].frames
    assert max(frames) < 16, "a frame has its bounds"
    await made.shutdown()


async def test_batches_of_the_default_size_leave_in_messages_that_are_one_piece_of_the_transport() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    one = Recorder(link_of(made), "one")
    await until(lambda: bool(one.told), "it is open")
    one.send(*(bytes(size) for size in (131_072, 129_800, 131_072, 60_000, 60_000, 131_072, *[100] * 3000, 131_072)))
    await until(lambda: sum(broker.produce_sessions[0].frames) == 3007, "all has come")
    assert max(broker.produce_sessions[0].sizes) < PIECE_BYTES
    assert len(broker.produce_sessions[0].sizes) < 12, "what there is room for leaves together"
    await made.shutdown()


async def test_a_link_breaks_once_for_all_its_channels_and_the_next_one_is_another() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    link = link_of(made)
    one, other = Recorder(link, "one"), Recorder(link, "other")
    await until(lambda: bool(one.told and other.told), "both are open")
    broker.break_streams()
    await until(lambda: len(one.told) + len(other.told) == 4, "both are told")
    assert isinstance(one.told[1], Disconnected)
    assert isinstance(other.told[1], Disconnected)
    with pytest.raises(TransportError):
        Recorder(link, "late")
    one.send(b"into the void")
    link.close(one.id)
    assert link_of(made) is not link
    await link.wait_ended()
    await made.shutdown()


async def test_closing_tells_the_channels_and_leaves_no_task() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    one = Recorder(link_of(made), "one")
    await until(lambda: bool(one.told), "it is open")
    await made.shutdown()
    assert isinstance(one.told[1], Disconnected)
    with pytest.raises(AlreadyClosed):
        link_of(made)
    await broker.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_that_cannot_be_read_breaks_the_link() -> None:
    class Babbler(FakeBroker):
        async def stream(self, peer: Any, method: str, stream: Any) -> None:
            await stream.receive()
            await stream.send(b"\xff\xff\xff")
            await stream.receive()

    transport = InProcessTransport()
    await Babbler().start(transport)
    made = core_of(transport)
    one = Recorder(link_of(made), "one")
    await until(lambda: bool(one.told), "it is told")
    assert isinstance(one.told[0], Disconnected)
    assert "can't be decoded" in str(one.told[0])
    await made.shutdown()


async def test_questions_go_to_any_address_that_answers() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    broker.partitioned["persistent://public/default/p"] = 3
    made = core_of(transport, "nobody:1", ADDRESS, "nobody:2")
    assert await made.lookup.find_owner("persistent://public/default/t") == ADDRESS
    assert await made.lookup.count_partitions("persistent://public/default/p") == 3
    broker.problems["t"] = ErrorCode.PRODUCER_BUSY
    with pytest.raises(ProducerBusy):
        await made.lookup.find_owner("t")
    assert broker.calls == ["lookup", "partitions", "lookup"], "what is no passing trouble is not asked again"
    await broker.stop()
    made.operations.timeout_s = 0.3
    with pytest.raises(ConnectError):
        await made.lookup.find_owner("t")
    await made.shutdown()


async def test_a_passing_trouble_is_asked_about_again() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    broker.problems["t"] = ErrorCode.SERVICE_NOT_READY
    asking = asyncio.get_running_loop().create_task(made.lookup.find_owner("t"))
    await until(lambda: len(broker.calls) > 2, "it was asked again")
    assert not asking.done()
    broker.problems.clear()
    assert await asking == ADDRESS
    await made.shutdown()


async def test_many_producers_are_opened_and_closed_in_several_messages_and_none_closed_before() -> None:
    """Brokers bound what one message has of them (`max_parts_per_produce_request`)."""
    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, FakeBroker())
    made = core_of(transport, ADDRESS)
    link = link_of(made)
    channels = [Recorder(link, "t") for _ in range(5000)]
    for channel in channels[::2]:
        link.close(channel.id)
    opened: dict[int, None] = {}
    closed: dict[int, None] = {}
    while (message := link.gather()) is not None:
        request = ProduceRequest.FromString(message)
        assert len(request.open) + len(request.close) <= 4000
        opened |= dict.fromkeys(one.producer_id for one in request.open)
        closed |= dict.fromkeys(one.producer_id for one in request.close)
        assert all(one in opened for one in closed)
    assert list(opened) == [channel.id for channel in channels]
    assert list(closed) == [channel.id for channel in channels[::2]]
    await made.shutdown()
    await listener.close()
