"""Messages in chunks among stock clients, the SDK and Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pulsar
import pytest

import magnetar
from magnetar import MessageId
from magnetar.admin import Admin
from magnetar.exceptions import Timeout
from magnetar_protos.entry_pb2 import CompressionType, MessageIdData, MessageMetadata
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.chunks import encode_chunks
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.messages import Messages
from tests.command_line import CommandLine
from tests.produce_client import ProduceClient
from tests.running import run, until
from tests.running_spark import read, spark_session
from tests.spark_slices import EARLIEST as FROM_EARLIEST
from tests.spark_slices import rows_of, slices_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

LONG_MS: Final = 60_000
# So that a message of many chunks is no large one.
MAX_MESSAGE_BYTES: Final = 20_000
EARLIEST: Final[dict[str, Any]] = {"initial_position": magnetar.InitialPosition.Earliest}
STOCK_EARLIEST: Final[dict[str, Any]] = {"initial_position": pulsar.InitialPosition.Earliest}
COMPRESSIONS: Final = (
    CompressionType.NONE,
    CompressionType.LZ4,
    CompressionType.ZLIB,
    CompressionType.ZSTD,
    CompressionType.SNAPPY,
)
TYPES: Final = ("Exclusive", "Failover", "Shared")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("chunks") / "data", max_message_size=MAX_MESSAGE_BYTES) as server:
        yield server


@pytest.fixture(scope="module")
def stock(server: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pulsar.Client]:
    log = tmp_path_factory.mktemp("stock") / "log"
    client = pulsar.Client(server.pulsar_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log)))
    yield client
    client.close()


@pytest.fixture(scope="module")
def native(server: StandaloneProcess) -> Iterator[magnetar.Client]:
    with magnetar.Client(server.service_url) as client:
        yield client


@pytest.fixture(scope="module")
def admin(server: StandaloneProcess) -> Iterator[Admin]:
    with Admin(server.service_url) as admin:
        yield admin


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.replace("[", "-").replace("]", "")


def large(number: int, chunks: int) -> bytes:
    """A message of this many chunks, compressed or not."""
    return b"%d " % number + random.Random(number).randbytes(MAX_MESSAGE_BYTES * (chunks - 1) + 9_000)


def number_of(message: Any) -> int:
    return int(message.data().split(b" ", 1)[0])


def receive(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(LONG_MS) for _ in range(count)]


def entries_of(message: Any) -> tuple[int, int]:
    """The ids of its first and its last entry."""
    data = MessageIdData.FromString(message.message_id().serialize())
    first = data.first_chunk_message_id if data.HasField("first_chunk_message_id") else data
    return first.entryId, data.entryId


def send_interleaved(server: StandaloneProcess, topic: str, messages: int) -> dict[int, bytes]:
    """As by several producers at a time: large ones of which the chunks mix, small ones between; by their numbers."""
    chance = random.Random(messages)
    sent = {number: large(number, 1 + number % 5) for number in range(messages)}
    entries: list[bytes] = []
    begun: list[list[bytes]] = []
    waiting = list(sent)
    while begun or waiting:
        while waiting and len(begun) < 3:
            begun.append(chunks_of(waiting[0], sent[waiting.pop(0)]))
        one = chance.choice(begun)
        entries.append(one.pop(0))
        begun = [one for one in begun if one]

    async def send() -> None:
        connection = GrpcTransport().connect(server.service_url.removeprefix("magnetar://"))
        try:
            client = ProduceClient(connection.open_stream("produce"))
            await client.open(1, topic=topic)
            for at in range(0, len(entries), 20):
                await client.send((1, at, entries[at : at + 20]))
            await until(lambda: len(client.receipts) + len(client.refused) == len(entries), "all are decided")
            assert not client.refused
            client.stream.cancel()
            await client.reading
        finally:
            await connection.close()

    run(send())
    return sent


def chunks_of(number: int, payload: bytes) -> list[bytes]:
    """As a stock client encodes it; a message that fits is one entry, and no chunk."""
    shared = MessageMetadata(producer_name="p", publish_time=1, sequence_id=number)
    message = Messages([payload], keys=[str(number)], properties=[{"n": str(number)}])
    return encode_chunks(message, shared, f"p-{number}", MAX_MESSAGE_BYTES, COMPRESSIONS[number % 5])


@pytest.mark.parametrize("kind", TYPES)
def test_interleaved_messages_in_chunks(
    kind: str, server: StandaloneProcess, stock: pulsar.Client, admin: Admin, topic: str
) -> None:
    """WIRE-1: to one consumer or, of a Shared subscription, two; each is there once, and acknowledging it acknowledges
    every chunk"""
    consumer_type = getattr(pulsar.ConsumerType, kind)
    options: dict[str, Any] = {"receiver_queue_size": 3} if kind == "Shared" else {}
    consumers = [
        stock.subscribe(topic, "s", consumer_type, consumer_name=name, **options)
        for name in ("ab" if kind != "Exclusive" else "a")
    ]
    sent = send_interleaved(server, topic, 40)
    found: dict[int, bytes] = {}
    entry_pairs: list[tuple[int, int]] = []
    by = [0] * len(consumers)
    while len(found) < len(sent):
        for at, consumer in enumerate(consumers):
            try:
                message = consumer.receive(5)
            except pulsar.Timeout:
                continue
            assert number_of(message) not in found
            assert message.properties() == {"n": message.partition_key()} == {"n": str(number_of(message))}
            found[number_of(message)] = message.data()
            entry_pairs.append(entries_of(message))
            by[at] += 1
            consumer.acknowledge(message)
    assert found == sent
    assert any(a < c < b < d for a, b in entry_pairs for c, d in entry_pairs), "no two messages were mixed"
    assert (kind != "Shared") or all(by), "one consumer got everything"
    for consumer in consumers:
        consumer.close()
    [stats] = admin.topics.stats(topic).subscriptions
    assert stats.backlog_entries == 0


@pytest.mark.parametrize("kind", TYPES)
def test_unacked_chunked_messages_are_redelivered_to_next_consumer(
    kind: str, server: StandaloneProcess, stock: pulsar.Client, topic: str
) -> None:
    """WIRE-1: whole, the ones that it had and those of which it had a part"""
    consumer_type = getattr(pulsar.ConsumerType, kind)
    stock.subscribe(topic, "s", consumer_type).close()
    sent = send_interleaved(server, topic, 30)
    first = stock.subscribe(topic, "s", consumer_type, receiver_queue_size=2)
    had = receive(first, 7)
    for message in had[:3]:
        first.acknowledge(message)
    if kind == "Exclusive":
        first.close()
    second = stock.subscribe(topic, "s", consumer_type, receiver_queue_size=5)
    if kind != "Exclusive":
        first.close()
    left = set(sent) - {number_of(message) for message in had[:3]}
    while left:
        message = second.receive(LONG_MS)
        assert message.data() == sent[number_of(message)]
        left.discard(number_of(message))
        second.acknowledge(message)
    second.close()


def test_the_id_of_a_message_in_chunks(stock: pulsar.Client, native: magnetar.Client, topic: str) -> None:
    """WIRE-1, MSG-3: readers and seeks begin with its first chunk or behind its last one, on the client's or broker's
    side
    """
    producer = stock.create_producer(topic, chunking_enabled=True)
    stock.subscribe(topic, "s").close()
    contents = [large(number, 4) for number in range(3)]
    ids = [producer.send(content) for content in contents]
    assert entries_of_id(ids[1]) == (4, 7)
    ours = MessageId.deserialize(ids[1].serialize())
    assert ours.first_chunk_message_id is not None
    assert (ours.first_chunk_message_id.entry_id(), ours.entry_id()) == (4, 7)
    for where in (ids[1], pulsar.MessageId.deserialize(ours.serialize())):
        for inclusive in (True, False):
            reader = stock.create_reader(topic, where, start_message_id_inclusive=inclusive)
            expected = contents[1 if inclusive else 2 :]
            assert [reader.read_next(LONG_MS).data() for _ in expected] == expected
            assert not reader.has_message_available()
            reader.close()
    consumer = stock.subscribe(topic, "s", start_message_id_inclusive=True)
    assert [message.data() for message in receive(consumer, 3)] == contents
    consumer.seek(ids[1])
    assert [message.data() for message in receive(consumer, 2)] == contents[1:]
    consumer.close()
    mover = native.subscribe(topic, "s", start_message_id_inclusive=True)
    mover.seek(ours)
    mover.close()
    consumer = stock.subscribe(topic, "s")
    assert [message.data() for message in receive(consumer, 2)] == contents[1:]
    consumer.close()


def entries_of_id(message_id: Any) -> tuple[int, int]:
    data = MessageIdData.FromString(message_id.serialize())
    return data.first_chunk_message_id.entryId, data.entryId


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_sdk_joins_mixed_chunks_and_acknowledges_each(
    kind: str, server: StandaloneProcess, native: magnetar.Client, admin: Admin, topic: str
) -> None:
    """CON-7, MSG-4: of several producers, compressed or not, by single and by cumulative acknowledgements; what is not
    acknowledged is redelivered whole"""
    consumer_type = getattr(magnetar.ConsumerType, kind)
    native.subscribe(topic, "s", consumer_type).close()
    sent = send_interleaved(server, topic, 30)
    consumer = native.subscribe(topic, "s", consumer_type, receiver_queue_size=3)
    messages = receive(consumer, 12)
    for message in messages:
        number = number_of(message)
        assert message.data() == sent[number]
        assert message.properties() == {"n": message.partition_key()} == {"n": str(number)}
    for message in messages[:3]:
        consumer.acknowledge(message)
    consumer.acknowledge_cumulative(messages[7], receipt=True)
    consumer.close()
    consumer = native.subscribe(topic, "s", consumer_type)
    left = set(sent) - set(map(number_of, messages[:8]))
    redelivered = receive(consumer, len(left))
    assert {number_of(message): message.data() for message in redelivered} == {number: sent[number] for number in left}
    consumer.acknowledge_cumulative(redelivered[-1], receipt=True)
    consumer.close()
    [stats] = admin.topics.stats(topic).subscriptions
    assert stats.backlog_entries == 0


@pytest.mark.parametrize("number", range(len(COMPRESSIONS)))
def test_sdk_and_stock_client_read_each_other_s_chunks(
    number: int, native: magnetar.Client, stock: pulsar.Client, admin: Admin, topic: str
) -> None:
    """PRD-8, CON-7, MSG-3, MSG-4: in all compressions: content, key, properties, times, ids; and what each acknowledges
    is acknowledged"""
    content = large(number, 4) + bytes(50_000)
    ours = native.create_producer(
        topic,
        chunking_enabled=True,
        batching_enabled=False,
        compression_type=list(magnetar.CompressionType)[number],
    )
    theirs = stock.create_producer(
        topic, chunking_enabled=True, compression_type=list(pulsar.CompressionType.__members__.values())[number]
    )
    consumers: list[Any] = [native.subscribe(topic, "ours"), stock.subscribe(topic, "theirs")]
    sent_with: Any = {"properties": {"a": "b"}, "partition_key": "key", "ordering_key": "o", "event_timestamp": 7}
    producers: list[Any] = [ours, theirs]
    ids = [producer.send(content, **sent_with) for producer in producers]
    for consumer in consumers:
        for message, message_id in zip(receive(consumer, 2), ids, strict=True):
            assert message.data() == content
            assert (message.partition_key(), message.properties(), message.event_timestamp()) == ("key", {"a": "b"}, 7)
            assert message.message_id().serialize() == message_id.serialize()
            consumer.acknowledge(message)
        consumer.close()
    statistics = admin.topics.stats(topic)
    assert [one.backlog_entries for one in statistics.subscriptions] == [0, 0]
    assert statistics.chunks >= 8
    for producer in producers:
        producer.close()


@pytest.mark.parametrize("client", ["native", "stock"])
def test_readers_of_both_clients_seek_in_chunks_of_the_sdk(
    client: str, native: magnetar.Client, stock: pulsar.Client, topic: str
) -> None:
    """CON-7, CON-11, MSG-3: to the first chunk, or behind the last one"""
    contents = [large(number, 3) for number in range(3)]
    with native.create_producer(topic, chunking_enabled=True, batching_enabled=False) as producer:
        ids = [producer.send(content) for content in contents]
    reading: Any = native if client == "native" else stock
    where = (MessageId if client == "native" else pulsar.MessageId).deserialize(ids[1].serialize())
    for inclusive in (True, False):
        reader = reading.create_reader(topic, where, start_message_id_inclusive=inclusive)
        expected = contents[1 if inclusive else 2 :]
        assert [reader.read_next(LONG_MS).data() for _ in expected] == expected
        assert not reader.has_message_available()
        reader.close()
    consumer = reading.subscribe(topic, "s", start_message_id_inclusive=True)
    consumer.seek(where)
    assert [message.data() for message in receive(consumer, 2)] == contents[1:]
    consumer.close()


def test_sdk_leaves_chunks_of_a_shared_subscription(
    native: magnetar.Client, stock: pulsar.Client, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """MSG-4, CON-7: it hands out no piece of a message, and what it can't join stays for who can, with an error"""
    producer = stock.create_producer(topic, chunking_enabled=True)
    stock.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    content = large(0, 4)
    for each in (content, b"whole", content):
        producer.send(each)
    ours = native.subscribe(topic, "s", magnetar.ConsumerType.Shared)
    message = ours.receive(LONG_MS)
    assert message.data() == b"whole"
    with pytest.raises(Timeout):
        ours.receive(100)
    ours.acknowledge(message)
    ours.close()
    assert sum("use Exclusive or Failover" in record.getMessage() for record in caplog.records) == 2
    [stats] = admin.topics.stats(topic).subscriptions
    assert stats.backlog_entries == 8
    theirs = stock.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert [one.data() for one in receive(theirs, 2)] == [content] * 2
    theirs.close()


def test_commands_publish_and_show_large_messages(
    server: StandaloneProcess, native: magnetar.Client, topic: str
) -> None:
    """PRD-8, CON-7: `tail --last` counts messages, not chunks; `peek` shows what is whole"""
    native.subscribe(topic, "s").close()
    command = CommandLine(server.service_url)
    texts = [str(number) * MAX_MESSAGE_BYTES * 3 for number in range(3)]
    assert command.run("produce", topic, "--chunking", *texts, "small").exit_code == 0
    for arguments, expected in (
        (("tail", topic, "--last", "2", "--no-follow"), [texts[2], "small"]),
        (("tail", topic, "--last", "4", "--no-follow"), [*texts, "small"]),
        (("subscriptions", "peek", topic, "s", "-n", "20"), ["small"]),
        (("consume", topic, "-s", "s", "-n", "4"), [*texts, "small"]),
    ):
        ended = command.run(*arguments)
        assert ended.exit_code == 0, ended
        lines = ended.stdout.splitlines()
        assert len(lines) == len(expected)
        assert all(text in line for text, line in zip(expected, lines, strict=True)), arguments


def test_spark_reads_a_stock_client_s_chunks(server: StandaloneProcess, stock: pulsar.Client, topic: str) -> None:
    """MSG-4, SPK-1: each message whole, once, whichever ranges the log is cut into"""
    stock.subscribe(topic, "keeps").close()
    sent = send_interleaved(server, topic, 30)
    log = f"persistent://public/default/{topic}"
    for tasks in (1, 4, 9):
        rows = rows_of(slices_of(server.service_url, log, tasks=tasks), ("value", "key", "message_id"))
        assert sorted(rows_numbers(rows)) == sorted(sent)
        assert {number: bytes(row["value"]) for number, row in zip(rows_numbers(rows), rows, strict=True)} == sent
    middle = FROM_EARLIEST._replace(ledger_id=rows[0]["message_id"]["ledger_id"], entry_id=40)
    front = rows_of(slices_of(server.service_url, log, stop=middle), ("value",))
    back = rows_of(slices_of(server.service_url, log, start=middle), ("value",))
    assert sorted(rows_numbers(front) + rows_numbers(back)) == sorted(sent)
    frame = read(spark_session(), server.service_url, topic=topic)
    assert {int(bytes(row.value).split(b" ", 1)[0]): bytes(row.value) for row in frame.collect()} == sent


def rows_numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [int(bytes(row["value"]).split(b" ", 1)[0]) for row in rows]
