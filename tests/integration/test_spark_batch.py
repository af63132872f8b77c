"""`spark.read.format("magnetar")` over a standalone: which messages, and what of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
import zstandard

import magnetar
from magnetar.admin import Admin
from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.batch import encode_message
from magnetar_wire.chunks import encode_chunks
from magnetar_wire.entry import encode_entry
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.messages import Messages
from tests.produce_client import ProduceClient
from tests.running import until
from tests.running_spark import read, spark_session, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

PER_LEDGER: Final = 7
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(
        tmp_path_factory.mktemp("standalone") / "data",
        managed_ledger_max_entries_per_ledger=PER_LEDGER,
        managed_ledger_min_ledger_rollover_time_minutes=0,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: StandaloneProcess) -> str:
    return server.service_url


def keep(url: str, *topics: str) -> None:
    """Closed ledgers go, unless a subscription has not read them."""
    with Admin(url) as admin:
        for topic in topics:
            admin.topics.create(topic)
            admin.subscriptions.create(topic, "keeps")


@pytest.fixture(scope="module")
def sent(url: str) -> dict[bytes, dict[str, Any]]:
    """Into `all-kinds`, which has two partitions: what was sent, by value."""
    with Admin(url) as admin:
        admin.topics.create_partitioned("all-kinds", 2)
        admin.subscriptions.create("all-kinds", "keeps")
    messages: dict[bytes, dict[str, Any]] = {}
    with magnetar.Client(url) as client:
        for kind in magnetar.CompressionType:
            for batched in (True, False):
                producer = client.create_producer("all-kinds", batching_enabled=batched, compression_type=kind)
                for number in range(10):
                    value = b"%s %d %d %s" % (kind.name.encode(), batched, number, b"." * number * 50)
                    message: dict[str, Any] = {
                        "partition_key": f"key {number % 3}" if number % 2 else None,
                        "properties": {"n": str(number), "é": "ü"} if number % 3 else {},
                        "event_timestamp": 1_700_000_000_000 + number if number % 4 else None,
                    }
                    producer.send_async(value, None, **{name: one for name, one in message.items() if one})
                    messages[value] = message
                producer.flush()
                producer.close()
    return messages


def test_every_column_of_every_kind_of_message(
    spark: SparkSession, url: str, sent: dict[bytes, dict[str, Any]]
) -> None:
    """SPK-1, SPK-3: key, value, topic, partition, message id, publish, event and broker time, index, properties,
    sequence id and producer, of batched, unbatched and compressed messages in many ledgers, each once."""
    started = time.time()
    frame = read(spark, url, topic="all-kinds")
    rows = frame.collect()
    assert frame.columns == [
        *("key", "value", "topic", "partition", "message_id", "publish_time", "event_time", "broker_time", "index"),
        *("properties", "sequence_id", "producer_name"),
    ]
    assert sorted(bytes(row.value) for row in rows) == sorted(sent)
    for row in rows:
        message = sent[bytes(row.value)]
        key = message["partition_key"]
        assert row.key == (key.encode() if key else None)
        assert row.properties == message["properties"]
        assert row.topic == "persistent://public/default/all-kinds"
        assert (row.event_time is None) == (message["event_timestamp"] is None)
        if row.event_time is not None:
            assert row.event_time.timestamp() == pytest.approx(message["event_timestamp"] / 1000)
        for taken in (row.publish_time, row.broker_time):
            assert abs(taken.timestamp() - started) < 600
        assert (row.message_id.batch_index == -1) == (bytes(row.value).split()[1] == b"0")
        assert row.producer_name
    for partition in (0, 1):
        mine = sorted((row for row in rows if row.partition == partition), key=lambda row: row["index"])
        assert [row["index"] for row in mine] == list(range(len(mine)))
        message_ids = [tuple(row.message_id) for row in mine]
        assert sorted(message_ids) == message_ids
        assert len({message_id[0] for message_id in message_ids}) >= 3, "there is one ledger, and there were to be many"
    assert {row.partition for row in rows} == {0, 1}


def test_the_ids_are_those_that_the_client_has(spark: SparkSession, url: str) -> None:
    """SPK-1, MSG-3"""
    keep(url, "ids")
    with magnetar.Client(url) as client:
        producer = client.create_producer("ids")
        for number in range(30):
            producer.send_async(b"%d" % number, None)
            if number % 10 == 9:
                producer.flush()
        alone = client.create_producer("ids", batching_enabled=False)
        alone.send(b"alone")
        reader = client.create_reader("ids", magnetar.MessageId.earliest)
        expected = {}
        while reader.has_message_available():
            message = reader.read_next(10_000)
            expected[message.data()] = message.message_id()
    rows = read(spark, url, topic="ids", columns="value,message_id").collect()
    assert len(rows) == len(expected) == 31
    for row in rows:
        message_id = expected[bytes(row.value)]
        assert tuple(row.message_id) == (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())


def test_topics_by_list_pattern_and_path(spark: SparkSession, url: str) -> None:
    """SPK-1: topics by name, list and pattern"""
    with magnetar.Client(url) as client:
        for name in ("list-a", "list-b", "other-c"):
            producer = client.create_producer(name)
            producer.send(name.encode())
            producer.close()
    with Admin(url) as admin:
        admin.topics.create_partitioned("list-parts", 3)
    with magnetar.Client(url) as client:
        producer = client.create_producer("list-parts")
        for number in range(3):
            producer.send(b"part %d" % number, partition_key=str(number))
    parts = [b"part 0", b"part 1", b"part 2"]

    def found(**options: Any) -> list[bytes]:
        return sorted(values(read(spark, url, **options)))

    assert found(topics="list-a, other-c") == [b"list-a", b"other-c"]
    assert found(topicsPattern="list-.*") == [b"list-a", b"list-b", *parts]
    assert found(topicsPattern="persistent://public/default/(list|other)-[ac]") == [b"list-a", b"other-c"]
    assert found(path="public/default/list-b") == [b"list-b"]
    one = read(spark, url, topic="list-parts-partition-1").collect()
    assert {(row.topic, row.partition) for row in one} <= {("persistent://public/default/list-parts", 1)}
    assert {row.partition for row in read(spark, url, topic="list-a").collect()} == {None}


def test_from_where_to_where(spark: SparkSession, url: str) -> None:
    """SPK-1: start and end by earliest, latest, id and time, down to a message within a batch"""
    keep(url, "positions")
    with magnetar.Client(url) as client:
        producer = client.create_producer("positions")
        for number in range(40):
            producer.send_async(b"%02d" % number, None)
            if number % 10 == 9:
                producer.flush()
                # The broker's time distinguishes the entries.
                time.sleep(0.01)
    everything = [b"%02d" % number for number in range(40)]
    rows = sorted(read(spark, url, topic="positions").collect(), key=lambda row: row["index"])
    assert [bytes(row.value) for row in rows] == everything
    ids = [row.message_id.asDict() for row in rows]
    times = [int(row.broker_time.timestamp() * 1000) for row in rows]
    log = "persistent://public/default/positions"

    def found(**options: Any) -> list[bytes]:
        return values(read(spark, url, topic="positions", **options))

    assert found(startingOffsets="earliest", endingOffsets="latest") == everything
    assert found(startingOffsets="latest") == []
    assert found(endingOffsets="earliest") == []
    assert found(startingOffsets={log: ids[13]}, endingOffsets={"positions": ids[27]}) == everything[13:27]
    assert found(startingOffsets=ids[13], endingOffsets=ids[27]) == everything[13:27]
    with pytest.raises(Exception, match=r"gives .* the position .*, which is after endingOffsets, the position"):
        found(startingOffsets={log: ids[27]}, endingOffsets={"positions": ids[13]})
    assert found(startingOffsets=str(times[20])) == everything[20:]
    moment = rows[10].broker_time.isoformat()  # in the zone of this process, and without saying so
    with pytest.raises(Exception, match=r"has no time zone: .* or set the option timeZone"):
        found(startingOffsets=moment)
    zone = rows[10].broker_time.astimezone().strftime("%z")
    assert found(startingOffsets=moment, timeZone=zone, endingOffsets={log: times[30]}) == everything[10:30]


def test_the_columns_are_chosen(spark: SparkSession, url: str, sent: dict[bytes, dict[str, Any]]) -> None:
    """SPK-1: the option `columns`, and a schema of the user's own"""
    frame = read(spark, url, TOPIC="all-kinds", Columns="index, Value")
    assert frame.columns == ["index", "value"]
    assert sorted(bytes(row.value) for row in frame.collect()) == sorted(sent)
    reader = spark.read.format("magnetar").option("url", url).option("topic", "all-kinds")
    assert reader.schema("partition int, value binary").load().count() == len(sent)
    with pytest.raises(Exception, match="has the column 'value' as string, but it is binary"):
        reader.schema("value string").load().count()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "all-kinds", "startOffsets": "x"}, "no option 'startoffsets': did you mean 'startingOffsets'"),
        ({"topic": "all-kinds", "maxMessagesPerTrigger": "5"}, "'maxMessagesPerTrigger' is for spark.readStream"),
        ({"topic": "all-kinds", "startingOffsets": "1764000000"}, "use 1764000000000, or 2025-11-24T16:00:00Z"),
        ({"topic": "is-not-there"}, "there is no topic persistent://public/default/is-not-there"),
        ({"topicsPattern": "is-not-.*"}, "there is no topic that matches persistent://public/default/is-not-"),
        ({"topic": "all-kinds", "startingOffsets": {"elsewhere": "earliest"}}, "which is not read"),
    ],
)
def test_invalid_options_raise_clear_errors_without_traceback(
    spark: SparkSession, url: str, sent: dict[bytes, dict[str, Any]], options: dict[str, Any], expected: str
) -> None:
    """SPK-1: and without a traceback of this source"""
    with pytest.raises(Exception) as raised:  # noqa: PT011
        read(spark, url, **options).count()
    assert expected in str(raised.value)
    assert "Traceback" not in str(raised.value).partition("JVM stacktrace")[0]


def test_fail_on_data_loss_applies_to_a_deleted_starting_offset(spark: SparkSession, url: str) -> None:
    """SPK-2: failOnDataLoss, both ways"""
    with magnetar.Client(url) as client, Admin(url) as admin:
        producer = client.create_producer("truncated")
        first = producer.send(b"goes")
        admin.topics.truncate("truncated")
        producer.send(b"stays")
        start = {"truncated": {"ledger_id": first.ledger_id(), "entry_id": first.entry_id()}}
        with pytest.raises(Exception, match="messages of persistent://public/default/truncated are lost"):
            read(spark, url, topic="truncated", startingOffsets=start).count()
        assert values(read(spark, url, topic="truncated", startingOffsets=start, failOnDataLoss="false")) == [b"stays"]
        assert values(read(spark, url, topic="truncated")) == [b"stays"]


def test_messages_in_chunks(spark: SparkSession, url: str) -> None:
    """SPK-1, SPK-3: each once, where its last chunk is, by a range that begins between its chunks, too; in ledgers of
    their own, with another message's chunks between them; one whose beginning was never there is none"""
    keep(url, "t")
    shared = MessageMetadata(producer_name="p", publish_time=1_700_000_000_000)

    def chunks(value: bytes, sequence_id: int, uuid: str, most: int) -> list[bytes]:
        shared.sequence_id = sequence_id
        message = Messages([value], keys=["k"])
        return encode_chunks(message, shared, uuid, most)

    large, other = b"A" * 30_000, b"B" * 20_000
    first, second = chunks(large, 1, "p-1", 1_600), chunks(other, 2, "p-2", 10_000)
    lost = chunks(b"C" * 2_000, 3, "p-3", 1_000)[1:]
    entries = [*first[:10], second[0], *lost, *first[10:], second[1]]
    message_ids = asyncio.run(append(url, entries))
    rows = read(spark, url, topic="t").collect()
    assert sorted((bytes(row.value), bytes(row.key)) for row in rows) == [(large, b"k"), (other, b"k")]
    expected = {bytes(row.value): (row.message_id.ledger_id, row.message_id.entry_id) for row in rows}
    assert expected == {large: message_ids[-2], other: message_ids[-1]}
    assert message_ids[0][0] < message_ids[-1][0], "all chunks are in one ledger"
    ledger_id, entry_id = message_ids[-3]
    start = {"t": {"ledger_id": ledger_id, "entry_id": entry_id}}
    assert sorted(values(read(spark, url, topic="t", startingOffsets=start))) == [large, other]
    end = {"t": {"ledger_id": message_ids[-1][0], "entry_id": message_ids[-1][1]}}
    assert values(read(spark, url, topic="t", startingOffsets=start, endingOffsets=end)) == [large]


def test_messages_that_can_not_be_decoded(spark: SparkSession, url: str) -> None:
    """SPK-1: `unreadable` decides, and has no say where no column needs the payload; 300 MB of zeros are a message of
    a few KB"""
    keep(url, "hidden")
    required: dict[str, Any] = {"producer_name": "p", "publish_time": 1_700_000_000_000}
    encrypted = MessageMetadata(sequence_id=1, num_messages_in_batch=3, **required)
    encrypted.encryption_keys.add(key="k1", value=b"x")
    zeros = MessageMetadata(
        sequence_id=4, partition_key="k", compression=entry_pb2.ZSTD, uncompressed_size=300_000_000, **required
    )
    entries = [
        encode_entry(encrypted, b"secret" * 10),
        encode_entry(zeros, zstandard.ZstdCompressor().compress(bytes(300_000_000))),
        encode_message(Messages([b"plain"]), MessageMetadata(sequence_id=5, **required)),
    ]
    (ledger_id, first), *_ = asyncio.run(append(url, entries, "hidden"))
    for expected in ("with the option unreadable=skip", rf"entry {ledger_id}:{first} of .*\['k1'\]"):
        with pytest.raises(Exception, match=expected):
            read(spark, url, topic="hidden").count()
    second = {"hidden": {"ledger_id": ledger_id, "entry_id": first + 1}}
    with pytest.raises(Exception, match="raise the option maxDecompressedBytes"):
        read(spark, url, topic="hidden", startingOffsets=second).count()
    assert values(read(spark, url, topic="hidden", unreadable="skip")) == [b"plain"]
    rows = read(spark, url, topic="hidden", unreadable="null").orderBy("index").collect()
    assert [(row["index"], row.message_id.batch_index) for row in rows] == [(0, 0), (1, 1), (2, 2), (3, -1), (4, -1)]
    assert [row.value for row in rows] == [None] * 4 + [b"plain"]
    assert [row.properties for row in rows] == [None] * 3 + [{}] * 2
    assert [row.key for row in rows] == [None] * 3 + [b"k", None]
    assert read(spark, url, topic="hidden", columns="index,broker_time,message_id").count() == 5


async def append(url: str, entries: list[bytes], topic: str = "t") -> list[tuple[int, int]]:
    """Where they are now."""
    connection = GrpcTransport().connect(url.removeprefix("magnetar://"))
    try:
        client = ProduceClient(connection.open_stream("produce"))
        await client.open(1, topic=topic)
        await client.send((1, 0, entries))
        await until(lambda: len(client.receipts) + len(client.refused) == len(entries), "all are decided")
        client.stream.cancel()
        await client.reading
        return [client.receipts[1, number] for number in range(len(entries))]
    finally:
        await connection.close()


def test_a_partition_is_read_by_many_tasks(spark: SparkSession, url: str) -> None:
    """SPK-3: in parallel below the topic partition; the pieces together hold each message once."""
    keep(url, "large")
    payload = b"x" * 65_536
    with magnetar.Client(url) as client:
        producer = client.create_producer("large", batching_enabled=False)
        for number in range(400):
            producer.send_async(b"%04d" % number + payload, None)
        producer.flush()
    frame = read(spark, url, topic="large", maxTasks="3")
    assert frame.rdd.getNumPartitions() == 3
    assert [value[:4] for value in values(frame)] == [b"%04d" % number for number in range(400)]


def test_all_batches_of_a_driver_have_one_lease_and_give_it_back(spark: SparkSession, url: str) -> None:
    """SPK-5: a program that polls a topic leaves one lease of it, which is shortened when all is read. A DataFrame that
    is read again while that lasts has the same rows."""
    keep(url, "polled")
    with magnetar.Client(url) as client, client.create_producer("polled", batching_enabled=False) as producer:
        for number in range(3 * PER_LEDGER):
            producer.send(b"%d" % number)
    with Admin(url) as admin:
        frames = [read(spark, url, topic="polled", maxTasks="4") for _ in range(3)]
        for frame in (*frames, frames[0]):
            assert frame.count() == 3 * PER_LEDGER
        [lease] = admin.topics.internal_stats("polled").leases
        assert lease.lease_ms == 3_600_000
        assert lease.left_ms <= 900_000


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def test_pushed_filters_read_fewer_entries_and_give_the_same_rows(spark: SparkSession, url: str, pushing: None) -> None:
    """SPK-1, SPK-3: on index, broker_time and partition; one DataFrame is for one query, as Spark would mix up two"""
    with Admin(url) as admin:
        admin.topics.create_partitioned("filtered", 2)
        admin.subscriptions.create("filtered", "keeps")
    with magnetar.Client(url) as client:
        producer = client.create_producer("filtered")
        for number in range(400):
            producer.send_async(b"%03d" % number, None, partition_key=str(number % 17))
            if number % 10 == 9:
                producer.flush()
                time.sleep(0.002)
    unfiltered = read(spark, url, topic="filtered")
    everything, schema = unfiltered.collect(), unfiltered.schema
    moments = sorted(row.broker_time for row in everything)
    low, high = moments[120].isoformat(), moments[180].isoformat()
    for condition in (
        "index >= 100 AND index < 103",
        f"broker_time > timestamp'{low}' AND broker_time <= timestamp'{high}'",
        "partition = 1 AND index BETWEEN 20 AND 60",
        f"broker_time = timestamp'{high}' AND value IS NOT NULL",
        "partition IS NULL OR index > 195",
        "index > 100000",
    ):
        wanted = sorted(row.value for row in spark.createDataFrame(everything, schema).filter(condition).collect())
        frame = read(spark, url, topic="filtered", pushFilters="true").filter(condition)
        rows = frame.collect()
        assert sorted(row.value for row in rows) == wanted, condition
        assert sorted(row.value for row in frame.collect()) == wanted, condition
        scanned = scanned_rows(frame)
        assert scanned <= (len(everything) if " OR " in condition else len(wanted) + 60), condition
    frame = read(spark, url, topic="filtered", pushFilters="true")
    some, others = frame.filter("index < 10"), frame.filter("index >= 50")
    with pytest.raises(Exception, match="another query has pushed other filters"):
        some.union(others).count()
    frame = read(spark, url, topic="filtered", pushFilters="true")
    assert frame.filter("index < 10").count() == 20
    with pytest.raises(Exception, match="a second query would read the messages selected by the filters of the first"):
        frame.count()
    with pytest.raises(Exception, match="is read as an RDD"):
        read(spark, url, topic="filtered", pushFilters="true").filter("index < 10").rdd.count()


def test_without_the_option_no_filter_is_pushed(spark: SparkSession, url: str, pushing: None) -> None:
    """SPK-1: so that other sources' filters can be pushed in the same session. With the option, and without Spark's
    setting, the error names both"""
    keep(url, "unfiltered")
    with magnetar.Client(url) as client:
        producer = client.create_producer("unfiltered")
        for number in range(20):
            producer.send(b"%d" % number)
    frame = read(spark, url, topic="unfiltered")
    assert frame.filter("index < 5").count() == 5
    assert frame.count() == 20
    assert frame.filter("index < 5").union(frame.filter("index > 15")).count() == 9
    spark.conf.set(PUSHDOWN, "false")
    with pytest.raises(Exception, match=f"PushFiltersReader implements pushFilters.* {PUSHDOWN!r} is false"):
        read(spark, url, topic="unfiltered", pushFilters="true").count()


def scanned_rows(frame: DataFrame) -> int:
    """How many rows the source gave to the filter."""
    plan = frame._jdf.queryExecution().executedPlan()
    while plan.children().size():
        plan = plan.children().head()
    return int(plan.metrics().apply("numOutputRows").value())
