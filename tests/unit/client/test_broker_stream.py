"""The stream to a broker: how requests are gathered, how answers are dispatched, and how it breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import InitialPosition
from magnetar._client_core import ClientCore
from magnetar._producing.produce_stream import ProduceStream
from magnetar.exceptions import AlreadyClosed, ConnectError, InvalidArgument, MagnetarException, ProducerBusy
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
from tests.unit.client.consume_scene import client_of, receive
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.lookup_broker import ADDRESS
from tests.unit.client.scene import core_of


class Recorder:
    """A channel that sends the given entries, and records its calls."""

    def __init__(self, stream: ProduceStream, topic: str) -> None:
        self.stream = stream
        self.events: list[Any] = []
        self.line: list[bytes] = []
        self.sent = 0
        self.name = f"of {topic}"
        self.id = stream.open(self, OpenProducer(topic=topic, producer_name=self.name))

    def send(self, *payloads: bytes) -> None:
        shared = MessageMetadata(producer_name=self.name, sequence_id=0, publish_time=1)
        self.line += [encode_batch(Messages([payload]), shared) for payload in payloads]
        self.stream.mark_ready(self.id)

    def fill(self, builder: FrameBuilder) -> bool:
        while self.line:
            if not builder.try_add_entry(self.id, self.sent, self.line[0]):
                return False
            self.line.pop(0)
            self.sent += 1
        return True

    def opened(self, answer: ProducerOpened) -> None:
        self.events.append(answer)

    def received(self, receipt: Receipt) -> None:
        self.events.append((receipt.first, receipt.count, receipt.first_entry_id))

    def refused(self, refusal: EntryRefused) -> None:
        self.events.append(refusal)

    def queued(self) -> None: ...

    def ended(self, problem: Problem | None, topic_epoch: int | None) -> None:
        self.events.append(problem)

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        self.events.append(paused)

    def topic_grew(self, partitions: int) -> None:
        self.events.append(partitions)

    def disconnected(self, error: TransportError) -> None:
        self.events.append(error)


def stream_of(made: ClientCore) -> ProduceStream:
    return made.pool.stream(ADDRESS, ProduceStream)


async def test_requests_share_a_frame_and_answers_reach_their_channels() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    stream = stream_of(made)
    assert stream_of(made) is stream
    one, other = Recorder(stream, "one"), Recorder(stream, "other")
    await until(lambda: bool(one.events and other.events), "both are open")
    one.send(b"a", b"b")
    other.send(b"c")
    one.send(b"d")
    await until(lambda: len(one.events) + len(other.events) == 4, "receipts are there")
    assert one.events[1:] == [(0, 3, 0)]
    assert other.events[1:] == [(0, 1, 0)]
    assert broker.topic("one").payloads() == [b"a", b"b", b"d"]
    assert broker.produce_sessions[0].frames == [0, 4], "one message for all entries"
    stream.close(one.id)
    await until(lambda: len(one.events) == 3, "it is closed")
    assert one.events[2] is None
    assert list(stream.channels) == [other.id]
    await made.shutdown()


async def test_full_frame_does_not_block_other_producers_or_reorder() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    much, little = Recorder(stream_of(made), "much"), Recorder(stream_of(made), "little")
    await until(lambda: bool(much.events and little.events), "both are open")
    payloads = [bytes([i]) * 400_000 for i in range(20)]
    much.send(*payloads)
    little.send(b"me too")
    await until(lambda: len(little.events) > 1, "the little one has its receipt")
    await until(lambda: len(broker.topic("much").entries) == 20, "all is stored")
    assert broker.topic("much").payloads() == payloads
    frames = broker.produce_sessions[0].frames
    assert max(frames) < 16, "a frame is limited"
    await made.shutdown()


async def test_batches_of_the_default_size_are_sent_in_messages_of_one_piece_of_the_transport() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    one = Recorder(stream_of(made), "one")
    await until(lambda: bool(one.events), "it is open")
    one.send(*(bytes(size) for size in (131_072, 129_800, 131_072, 60_000, 60_000, 131_072, *[100] * 3000, 131_072)))
    await until(lambda: sum(broker.produce_sessions[0].frames) == 3007, "all has come")
    assert max(broker.produce_sessions[0].sizes) < PIECE_BYTES
    assert len(broker.produce_sessions[0].sizes) < 12, "entries that fit are sent together"
    await made.shutdown()


async def test_a_stream_breaks_once_for_all_its_channels_and_is_replaced() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    stream = stream_of(made)
    one, other = Recorder(stream, "one"), Recorder(stream, "other")
    await until(lambda: bool(one.events and other.events), "both are open")
    broker.break_streams()
    await until(lambda: len(one.events) + len(other.events) == 4, "both are notified")
    assert isinstance(one.events[1], Disconnected)
    assert isinstance(other.events[1], Disconnected)
    with pytest.raises(TransportError):
        Recorder(stream, "late")
    one.send(b"into the void")
    stream.close(one.id)
    assert stream_of(made) is not stream
    await stream.wait_ended()
    await made.shutdown()


async def test_closing_notifies_the_channels_and_leaves_no_task() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    one = Recorder(stream_of(made), "one")
    await until(lambda: bool(one.events), "it is open")
    await made.shutdown()
    assert isinstance(one.events[1], Disconnected)
    with pytest.raises(AlreadyClosed):
        stream_of(made)
    await broker.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_that_cannot_be_decoded_breaks_the_stream() -> None:
    class Babbler(FakeBroker):
        async def stream(self, peer: Any, method: str, stream: Any) -> None:
            await stream.receive()
            await stream.send(b"\xff\xff\xff")
            await stream.receive()

    transport = InProcessTransport()
    await Babbler().start(transport)
    made = core_of(transport)
    one = Recorder(stream_of(made), "one")
    await until(lambda: bool(one.events), "it is notified")
    assert isinstance(one.events[0], Disconnected)
    assert "can't be decoded" in str(one.events[0])
    await made.shutdown()


async def test_lookups_go_to_any_address_that_answers() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    broker.partitioned["persistent://public/default/p"] = 3
    made = core_of(transport, "nobody:1", ADDRESS, "nobody:2")
    assert await made.lookup.find_owner("persistent://public/default/t") == ADDRESS
    assert await made.lookup.count_partitions("persistent://public/default/p") == 3
    broker.problems["t"] = ErrorCode.PRODUCER_BUSY
    with pytest.raises(ProducerBusy):
        await made.lookup.find_owner("t")
    assert broker.calls == ["lookup", "partitions", "lookup"], "an error that is not retryable ends the lookup"
    await broker.stop()
    made.operations.timeout_s = 0.3
    with pytest.raises(ConnectError):
        await made.lookup.find_owner("t")
    await made.shutdown()


async def test_a_lookup_is_repeated_after_a_retryable_error() -> None:
    transport = InProcessTransport()
    broker = await FakeBroker().start(transport)
    made = core_of(transport)
    broker.problems["t"] = ErrorCode.SERVICE_NOT_READY
    lookup = asyncio.get_running_loop().create_task(made.lookup.find_owner("t"))
    await until(lambda: len(broker.calls) > 2, "it was repeated")
    assert not lookup.done()
    broker.problems.clear()
    assert await lookup == ADDRESS
    await made.shutdown()


async def test_many_producers_are_opened_and_closed_in_several_messages_in_order() -> None:
    """Brokers limit how many one message has (`max_parts_per_produce_request`)."""
    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, FakeBroker())
    made = core_of(transport, ADDRESS)
    stream = stream_of(made)
    channels = [Recorder(stream, "t") for _ in range(5000)]
    for channel in channels[::2]:
        stream.close(channel.id)
    opened: dict[int, None] = {}
    closed: dict[int, None] = {}
    while (message := stream.gather()) is not None:
        request = ProduceRequest.FromString(message)
        assert len(request.open) + len(request.close) <= 4000
        opened |= dict.fromkeys(one.producer_id for one in request.open)
        closed |= dict.fromkeys(one.producer_id for one in request.close)
        assert all(one in opened for one in closed)
    assert list(opened) == [channel.id for channel in channels]
    assert list(closed) == [channel.id for channel in channels[::2]]
    await made.shutdown()
    await listener.close()


async def test_large_openings_share_no_message() -> None:
    """A message above the transport's limit would break the stream, again at each attempt."""
    transport = InProcessTransport()
    listener = await transport.listen(ADDRESS, FakeBroker())
    made = core_of(transport, ADDRESS)
    stream = stream_of(made)
    sizes = [1_000_000] * 5 + [2_000_000] * 2 + [10] * 3
    for size in sizes:
        Recorder(stream, "t" * (size // 2))  # its producer's name has the topic, too
    counts = []
    while (message := stream.gather()) is not None:
        assert len(message) <= 2 * 1024 * 1024
        counts.append(len(ProduceRequest.FromString(message).open))
    assert counts == [2, 2, 1, 1, 4]
    await made.shutdown()
    await listener.close()


async def test_arguments_that_no_request_can_hold_are_refused() -> None:
    """The client goes on: its other producers share the stream."""
    large = {"a": "x" * 10_000_000}
    async with client_of() as (broker, client):
        with pytest.raises(InvalidArgument, match="at most 2,097,152"):
            await client.create_producer("t", properties=large)
        with pytest.raises(InvalidArgument, match="at most 2,097,152"):
            await client.subscribe("t", "s", properties=large)
        with pytest.raises(MagnetarException):
            await client.create_producer("t" * 10_000_000)
        broker.topic("t").publish(b"1")
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        assert (await receive(consumer, 1))[0].data() == b"1"
