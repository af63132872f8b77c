"""The rows of a Spark task, read from a real standalone's bookie, compared with those of the SDK's reader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magnetar
from magnetar._threads.event_loop import background
from magnetar.admin import Admin, AsyncAdmin, MessagePosition
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.ledger_pb2 import ReadRequest
from magnetar_spark.errors import DataLost, UnreadableEntry
from magnetar_spark.leases.batch_lease import BatchLease
from magnetar_spark.leases.lease import create_lease
from magnetar_spark.options.source_options import parse_stream_options
from magnetar_spark.planning.log_plan import PlanLimits
from magnetar_spark.stream.topic_stream import TopicStream
from magnetar_spark.task.bookie_connections import BookieConnections, get_worker_connections
from magnetar_spark.task.slice_reader import read_slice
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.batch import Messages, encode_message
from magnetar_wire.chunks import encode_chunks
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.grpc_transport.connection import GrpcConnection
from tests.produce_client import ProduceClient
from tests.running import until
from tests.spark_slices import ids_of, rows_of, slices_of

pytestmark = pytest.mark.slow

TOPIC: Final = "persistent://public/default/mixed"
_GENEROUS_S: Final = 60.0
PER_LEDGER: Final = 9


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    rolled: dict[str, Any] = {
        "managed_ledger_max_entries_per_ledger": PER_LEDGER,
        "managed_ledger_min_ledger_rollover_time_minutes": 0,
    }
    with StandaloneProcess(tmp_path_factory.mktemp("s") / "data", garbage_interval_seconds=0.1, **rolled) as server:
        yield server


@pytest.fixture(scope="module")
def log(server: StandaloneProcess) -> list[dict[str, Any]]:
    """A log of batches and single messages of all kinds, in several ledgers, as the reader returns it."""
    chance = random.Random(1)
    with magnetar.Client(server.service_url) as client:
        for kind in magnetar.CompressionType:
            # A topic without subscription may lose its closed ledgers.
            client.subscribe(TOPIC, "keeps", initial_position=magnetar.InitialPosition.Earliest).close()
            with client.create_producer(TOPIC, compression_type=kind) as batched:
                for _ in range(8):
                    _send(batched, chance, chance.randint(1, 40))
            with client.create_producer(TOPIC, compression_type=kind, batching_enabled=False) as single:
                _send(single, chance, 3)
        with client.create_reader(TOPIC, magnetar.MessageId.earliest) as reader:
            return [_row(message) for message in _all(reader)]


def _send(producer: Any, chance: random.Random, count: int) -> None:
    for number in range(count):
        extra: dict[str, Any] = {}
        if chance.random() < 0.5:
            extra["partition_key"] = f"k{number}"
        if chance.random() < 0.3:
            extra["properties"] = {"colour": "red", "n": str(number)}
        if chance.random() < 0.3:
            extra["event_timestamp"] = 1_700_000_000_000 + number
        producer.send_async(chance.randbytes(chance.randint(0, 200)), None, **extra)
    producer.flush()


def _all(reader: Any) -> Iterator[Any]:
    while reader.has_message_available():
        yield reader.read_next(timeout_millis=60_000)


def _row(message: Any) -> dict[str, Any]:
    at = message.message_id()
    return {
        "message_id": {"ledger_id": at.ledger_id(), "entry_id": at.entry_id(), "batch_index": at.batch_index()},
        "key": message.partition_key().encode() or None,
        "value": message.data(),
        "topic": TOPIC,
        "partition": None,
        "properties": sorted(message.properties().items()),
        "publish_time": _time(message.publish_timestamp()),
        "event_time": _time(message.event_timestamp()),
        "producer_name": message.producer_name(),
    }


def _time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _sdk_fields(rows: list[dict[str, Any]], log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows' fields that the SDK has, too."""
    return [{name: sorted(row[name]) if name == "properties" else row[name] for name in log[0]} for row in rows]


def _position(row: dict[str, Any]) -> MessagePosition:
    at = row["message_id"]
    return MessagePosition(at["ledger_id"], at["entry_id"], max(0, at["batch_index"]))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_slice_of_a_log_has_the_rows_that_the_sdk_reads(
    data: st.DataObject, server: StandaloneProcess, log: list[dict[str, Any]]
) -> None:
    """SPK-3: closed and open ledgers, straight from the bookie, in as many tasks as one likes; SPK-5: exactly from one
    message to another, within batches, too."""
    begin = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(begin, len(log)))
    start = _position(log[begin]) if begin < len(log) else None
    stop = _position(log[end]) if end < len(log) else None
    if start is None:
        return
    slices = slices_of(server.service_url, TOPIC, start, stop, data.draw(st.integers(1, 5)))
    rows = rows_of(slices)
    assert _sdk_fields(rows, log) == log[begin:end]
    indexes = [row["index"] for row in rows]
    assert indexes == [*range(begin, end)]


@pytest.fixture
def open_connections(monkeypatch: pytest.MonkeyPatch) -> set[GrpcConnection]:
    """The gRPC connections of this process that are opened during the test, and are not closed."""
    background.run(get_worker_connections().close())
    opened: set[GrpcConnection] = set()
    connect, close = GrpcTransport.connect, GrpcConnection.close

    def record_connect(self: GrpcTransport, address: str) -> GrpcConnection:
        connection = connect(self, address)
        opened.add(connection)
        return connection

    async def record_close(self: GrpcConnection) -> None:
        opened.discard(self)
        await close(self)

    monkeypatch.setattr(GrpcTransport, "connect", record_connect)
    monkeypatch.setattr(GrpcConnection, "close", record_close)
    return opened


def test_a_task_that_is_broken_off_leaves_nothing(
    server: StandaloneProcess, log: list[dict[str, Any]], open_connections: set[GrpcConnection]
) -> None:
    """Its requests in flight are cancelled, and its connections are closed a few seconds later."""
    (one,) = slices_of(server.service_url, TOPIC)
    assert not open_connections
    reading = read_slice(one, ("value",))
    next(reading)
    assert len(open_connections) == 1
    reading.close()
    assert len(open_connections) == 1  # for the next task

    async def others() -> int:
        return len([task for task in asyncio.all_tasks() if task is not asyncio.current_task()])

    assert background.run(others()) == 0
    # A task that was never begun does nothing.
    read_slice(one, ("value",)).close()
    background.run(get_worker_connections().close())
    assert not open_connections
    assert len(rows_of([one], ("value",))) == len(log)


def test_idle_bookie_connections_are_closed(server: StandaloneProcess, open_connections: set[GrpcConnection]) -> None:
    connections = BookieConnections(GrpcTransport(), idle_timeout_s=0.01)

    async def body() -> None:
        connections.acquire()
        with contextlib.suppress(Exception):
            await connections.read(server.service_url.removeprefix("magnetar://"), ReadRequest(), 10.0)
        assert len(open_connections) == 1
        connections.release()
        async with asyncio.timeout(_GENEROUS_S):
            while open_connections:
                await asyncio.sleep(0.01)

    background.run(body())


def test_deleted_entries_raise_data_lost_or_are_skipped(
    server: StandaloneProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """SPK-5: entries that no replica has any more, nor a new plan, are reported according to failOnDataLoss."""
    topic = "persistent://public/default/short-lived"
    with magnetar.Client(server.service_url) as client:
        client.subscribe(topic, "keeps").close()
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(20):
                producer.send(b"%d" % number)
    lease = create_lease(60_000)
    (fails,) = slices_of(server.service_url, topic, lease=lease)
    goes_on = replace(fails, fail_on_data_loss=False)
    with Admin(server.service_url) as admin:
        for one in (fails, goes_on):
            assert len(ids_of(rows_of([one]))) == 20
        admin.reading.renew_lease(topic, fails.incarnation, lease.lease_id, 0)
        admin.topics.delete(topic, force=True)
    deadline = time.monotonic() + _GENEROUS_S
    with pytest.raises(DataLost, match="failOnDataLoss=false"):
        while time.monotonic() < deadline:  # until the bookie has collected its garbage
            assert len(rows_of([fails])) == 20
    of_batch = replace(fails, lease=BatchLease.create(lease, time.time() - 77, [topic]))
    with pytest.raises(
        DataLost, match=r"planned \d+ s ago.*retained for 60 s \(option batchLeaseSeconds\).*call load\(\) again"
    ):
        rows_of([of_batch])
    with caplog.at_level(logging.WARNING):
        while (rows := rows_of([goes_on])) and time.monotonic() < deadline:
            assert len(rows) < 20
        assert rows == []
    assert "entries 0 … 8 of ledger" in caplog.text


def test_fail_on_data_loss_applies_to_deleted_first_chunks(
    server: StandaloneProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """SPK-1, SPK-5: failOnDataLoss decides, unless it was deleted when the query began"""
    large = Messages([b"A" * 20_000])
    chunks = encode_chunks(large, MessageMetadata(producer_name="p", publish_time=1, sequence_id=1), "p-1", 1_600)
    small = Messages([b"whole"])
    whole = encode_message(small, MessageMetadata(producer_name="p", publish_time=1, sequence_id=2))

    async def publish() -> MessagePosition:
        """Where the second half begins; the first is deleted."""
        async with producing(server.service_url, "t") as client, AsyncAdmin(server.service_url) as admin:
            await client.send((1, 0, chunks[:8]))
            await until(lambda: len(client.receipts) == 8, "the first ones are decided")
            await admin.topics.truncate("t")
            await admin.subscriptions.create("t", "keeps", magnetar.MessageId.latest)
            await client.send((1, 8, [*chunks[8:], whole]))
            await until(lambda: len(client.receipts) == len(chunks) + 1, "all are decided")
        ledger_id, entry_id = client.receipts[1, 7]
        return MessagePosition(ledger_id, entry_id + 1)

    start = asyncio.run(publish())
    log = "persistent://public/default/t"
    with pytest.raises(DataLost, match=r"messages in chunks .* are lost: .*failOnDataLoss=false"):
        rows_of(slices_of(server.service_url, log, start))
    with caplog.at_level(logging.WARNING):
        left = rows_of(slices_of(server.service_url, log, start, fail_on_data_loss=False))
    assert [row["value"] for row in left] == [b"whole"]
    assert "they are skipped" in caplog.text
    entered = asyncio.run(first_of(server.service_url, log))
    assert [row["value"] for row in rows_of(slices_of(server.service_url, log, start, entered=entered))] == [b"whole"]


def test_a_message_in_chunks_that_began_further_in_front_than_is_looked(
    server: StandaloneProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """SPK-1: it is there when all is read at once, so a range that has its last chunk alone does not pass over it"""
    shared = MessageMetadata(producer_name="p", publish_time=1, sequence_id=1)
    first, last = encode_chunks(Messages([b"A" * 3_000]), shared, "p-1", 1_600)
    between = [
        encode_message(Messages([b"x"]), MessageMetadata(producer_name="p", publish_time=1, sequence_id=2 + number))
        for number in range(9 * PER_LEDGER)
    ]

    async def publish() -> MessagePosition:
        async with producing(server.service_url, "far") as client, AsyncAdmin(server.service_url) as admin:
            await admin.subscriptions.create("far", "keeps", magnetar.MessageId.earliest)
            for at, entry in enumerate([first, *between, last]):
                await client.send((1, at, [entry]))
            await until(lambda: len(client.receipts) == len(between) + 2, "all are decided")
        return MessagePosition(*client.receipts[1, len(between) + 1])

    start = asyncio.run(publish())
    log = "persistent://public/default/far"
    assert [row["value"] for row in rows_of(slices_of(server.service_url, log))][-1] == b"A" * 3_000
    assert len(rows_of(slices_of(server.service_url, log, stop=start))) == len(between)
    with pytest.raises(UnreadableEntry, match=f"entry {start.ledger_id}:{start.entry_id} .* 8 ledgers and 1 GiB"):
        rows_of(slices_of(server.service_url, log, start))
    with caplog.at_level(logging.WARNING):
        assert rows_of(slices_of(server.service_url, log, start, fail_on_data_loss=False)) == []
    assert "are skipped, since failOnDataLoss is false" in caplog.text


async def test_a_query_that_is_stopped_in_the_middle_of_a_message_in_chunks(server: StandaloneProcess) -> None:
    """SPK-1: a committed range ends between its chunks, and the first ones are retained for the next run"""
    value = b"A" * 40_000
    shared = MessageMetadata(producer_name="p", publish_time=1, sequence_id=1)
    chunks = encode_chunks(Messages([value]), shared, "p-1", 1_600)
    limit = PER_LEDGER + 1
    assert limit < len(chunks)
    given = {
        "url": server.service_url,
        "topic": "halves",
        "startingOffsets": "earliest",
        "progressSubscription": "spark",
    }

    async def read(stream: TopicStream, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        rows = await asyncio.to_thread(rows_of, await stream.plan_slices(start, end))
        return [row["value"] for row in rows]

    async with producing(server.service_url, "halves") as client, AsyncAdmin(server.service_url) as admin:
        stream = TopicStream(admin, parse_stream_options(given))
        start = await stream.get_initial_offset()
        for at, chunk in enumerate(chunks):
            await client.send((1, at, [chunk]))
        await until(lambda: len(client.receipts) == len(chunks), "all are decided")
        middle = await stream.get_latest_offset(start, PlanLimits(messages=limit))
        assert await read(stream, start, middle) == []
        await stream.get_latest_offset(middle, PlanLimits(messages=1))
        await stream.commit(middle)
        await stream.close()
        (progress,) = (await admin.topics.stats("halves")).subscriptions
        assert (progress.subscription, progress.backlog_messages) == ("spark", len(chunks))
        following = TopicStream(admin, parse_stream_options(given))
        end = await following.get_latest_offset(middle, PlanLimits())
        assert await read(following, middle, end) == [value]
        await following.close()


@contextlib.asynccontextmanager
async def producing(url: str, topic: str) -> AsyncIterator[ProduceClient]:
    async with AsyncAdmin(url) as admin:
        await admin.topics.create(topic)
    connection = GrpcTransport().connect(url.removeprefix("magnetar://"))
    client = ProduceClient(connection.open_stream("produce"))
    await client.open(1, topic=topic)
    yield client
    client.stream.cancel()
    await client.reading
    await connection.close()


async def first_of(url: str, log: str) -> MessagePosition:
    async with AsyncAdmin(url) as admin:
        return (await admin.reading.find_position(log, magnetar.MessageId.earliest)).position
