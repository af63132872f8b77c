"""A stock client, the SDK and Spark on the same topics of one standalone: each reads what the others have written."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pulsar
import pytest

import magnetar
from magnetar import HashingScheme, MessageId, schema
from magnetar.admin import Admin
from magnetar.exceptions import IncompatibleSchema, Timeout
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running_spark import read, spark_session
from tests.stock_clients import until
from tests.vectors.native_client import send_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

LONG_MS: Final = 60_000
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
EARLIEST: Final[dict[str, Any]] = {"initial_position": magnetar.InitialPosition.Earliest}
STOCK_EARLIEST: Final[dict[str, Any]] = {"initial_position": pulsar.InitialPosition.Earliest}
# What a message may have besides its payload, as `send` of either client takes it.
KINDS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"partition_key": "Schlüssel ☂"},
    {"ordering_key": "ordering"},
    {"properties": {"n": "1", "": "", "é": "ü"}},
    {"event_timestamp": 1_700_000_000_123},
    {"partition_key": "k", "ordering_key": "o", "properties": {"a": "b"}, "event_timestamp": 5},
)


@pytest.fixture(scope="module")
def server(magnetar_standalone: StandaloneProcess) -> StandaloneProcess:
    return magnetar_standalone


@pytest.fixture(scope="module")
def native(server: StandaloneProcess) -> Iterator[magnetar.Client]:
    with magnetar.Client(server.service_url) as client:
        yield client


@pytest.fixture(scope="module")
def stock(server: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pulsar.Client]:
    log = tmp_path_factory.mktemp("stock") / "log"
    client = pulsar.Client(server.pulsar_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log)))
    yield client
    client.close()


@pytest.fixture(scope="module")
def admin(server: StandaloneProcess) -> Iterator[Admin]:
    with Admin(server.service_url) as admin:
        yield admin


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.replace("[", "-").replace("]", "")


def receive(consumer: Any, count: int) -> list[Any]:
    """Of either client's consumers."""
    return [consumer.receive(LONG_MS) for _ in range(count)]


def next_of(*consumers: Any) -> tuple[Any, Any]:
    """The next message that comes to one of them, and which one that is."""
    deadline = time.monotonic() + LONG_MS / 1000
    while time.monotonic() < deadline:
        for consumer in consumers:
            try:
                return consumer, consumer.receive(5)
            except (Timeout, pulsar.Timeout):
                continue
    raise AssertionError(f"nothing has come to any of {len(consumers)} consumers")


def nothing_more(consumer: Any) -> bool:
    try:
        consumer.receive(200)
    except (Timeout, pulsar.Timeout):
        return True
    return False


def payloads(messages: Sequence[Any]) -> list[bytes]:
    return [message.data() for message in messages]


def id_of(message_id: Any) -> tuple[int, int, int]:
    data = MessageIdData.FromString(message_id.serialize())
    return data.ledgerId, data.entryId, data.batch_index


def facts(message: Any) -> dict[str, Any]:
    """The fields of a message of either client."""
    return {
        "value": None if message.has_null_value() else message.data(),
        "partition_key": message.partition_key(),
        "ordering_key": message.ordering_key(),
        "properties": message.properties(),
        "event_timestamp": message.event_timestamp(),
        "publish_timestamp": message.publish_timestamp(),
        "producer_name": message.producer_name(),
        "topic_name": message.topic_name(),
        "redelivery_count": message.redelivery_count(),
        "place": id_of(message.message_id()),
    }


def send_batch(producer: Any, *contents: bytes | None, **more: Any) -> None:
    """As one batch, by a producer of either client."""
    for content in contents:
        producer.send_async(content, None, **more)
    producer.flush()


def batching(client: Any, topic: str, messages: int = 1000) -> Any:
    """A producer of either client that closes its batches at this many messages, or on a flush."""
    return client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=messages,
        batching_max_publish_delay_ms=10_000,
        block_if_queue_full=True,
    )


def test_sdk_stock_client_and_spark_read_the_same_messages(
    server: StandaloneProcess, native: magnetar.Client, stock: pulsar.Client, admin: Admin, topic: str
) -> None:
    """MSG-4, WIRE-1: batches and single messages of each compression, keys, ordering keys, properties, event times and
    null values, as the SDK, a stock client and Spark see them."""
    admin.topics.create(topic)
    admin.subscriptions.create(topic, "keeps", MessageId.earliest)
    sent: list[dict[str, Any]] = []
    clients: dict[str, tuple[Any, Any]] = {"native": (native, magnetar), "stock": (stock, pulsar)}
    for name, (client, module) in clients.items():
        for compression in COMPRESSIONS:
            for batched in (True, False):
                producer = client.create_producer(
                    topic,
                    f"{name}-{compression}-{batched}",
                    compression_type=getattr(module.CompressionType, compression),
                    batching_enabled=batched,
                    batching_max_publish_delay_ms=10_000,
                )
                for at, kind in enumerate(KINDS):
                    value = f"{name} {compression} {batched} {at} ".encode() * 20
                    producer.send_async(value, None, **kind)
                    sent.append({"value": value, **kind})
                if compression != "ZLib" or batched or name == "native":  # that a stock client can't read from another
                    producer.send_async(None, None, partition_key="deleted")
                    sent.append({"value": None, "partition_key": "deleted"})
                producer.flush()
                producer.close()
    by_sdk = [facts(one) for one in receive(native.subscribe(topic, "native", **EARLIEST), len(sent))]
    by_stock = [facts(one) for one in receive(stock.subscribe(topic, "stock", **STOCK_EARLIEST), len(sent))]
    assert by_stock == by_sdk
    defaults = {"partition_key": "", "ordering_key": "", "properties": {}, "event_timestamp": 0}
    assert [{name: one[name] for name in ("value", *defaults)} for one in by_sdk] == [{**defaults, **o} for o in sent]

    rows = read(spark_session(), server.service_url, topic=topic).orderBy("index").collect()
    for row, one in zip(rows, by_sdk, strict=True):
        assert (None if row.value is None else bytes(row.value)) == one["value"]
        assert (None if row.key is None else row.key.decode()) == (one["partition_key"] or None)
        assert (row.properties or {}) == one["properties"]
        assert row.producer_name == one["producer_name"]
        assert row.publish_time.timestamp() * 1000 == pytest.approx(one["publish_timestamp"])
        event_ms = 0 if row.event_time is None else row.event_time.timestamp() * 1000
        assert event_ms == pytest.approx(one["event_timestamp"])
        assert (row.message_id.ledger_id, row.message_id.entry_id, row.message_id.batch_index) == one["place"]


def test_a_key_of_bytes_is_text_to_a_stock_client(native: magnetar.Client, stock: pulsar.Client, topic: str) -> None:
    """MSG-4: in base64, as Pulsar's own clients write it, which the SDK turns back"""
    consumer = stock.subscribe(topic, "s")
    again = native.subscribe(topic, "t")
    for batched in (True, False):
        native.create_producer(topic, batching_enabled=batched).send(b"v", partition_key=b"\xff\x00key")
        assert receive(consumer, 1)[0].partition_key() == "/wBrZXk="
        assert receive(again, 1)[0].key_bytes() == b"\xff\x00key"


def test_batches_by_key_are_read_by_both(native: magnetar.Client, stock: pulsar.Client, topic: str) -> None:
    """PRD-5, PRD-10: published by either client, each entry has messages of one key, in the order of sending"""
    consumers: tuple[Any, Any] = native.subscribe(topic, "n"), stock.subscribe(topic, "s")
    by_key: dict[str, Any] = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}
    for client, module in ((native, magnetar), (stock, pulsar)):
        producer: Any = client.create_producer(topic, batching_type=module.BatchingType.KeyBased, **by_key)
        for number in range(12):
            producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"k{number % 3}")
        producer.flush()
        for consumer in consumers:
            entries: dict[int, list[tuple[str, bytes]]] = {}
            for message in receive(consumer, 12):
                entry = entries.setdefault(message.message_id().entry_id(), [])
                entry.append((message.partition_key(), message.data()))
            assert sorted(entries.values()) == [[(f"k{k}", b"%d" % n) for n in range(k, 12, 3)] for k in range(3)]


@pytest.mark.parametrize("scheme", [HashingScheme.JavaStringHash, HashingScheme.Murmur3_32Hash])
def test_a_key_s_partition_is_the_same_for_both(
    scheme: HashingScheme, server: StandaloneProcess, native: magnetar.Client, admin: Admin, topic: str
) -> None:
    """MSG-4, PRD-10 (among clients): by each of the hashes that both have"""
    admin.topics.create_partitioned(topic, 5)
    keys = [*(f"key-{number}" for number in range(40)), "x" * 300]
    if scheme == HashingScheme.Murmur3_32Hash:  # what the library calls Java's is that for ASCII alone
        keys += ["é", "☂", "𝄞"]
    consumer = native.subscribe(topic, "s", **EARLIEST)
    producer = native.create_producer(topic, hashing_scheme=scheme)
    for key in keys:
        producer.send_async(b"", None, partition_key=key)
    producer.flush()
    send_keys(server.pulsar_url, topic, scheme.name, keys)
    messages = receive(consumer, 2 * len(keys))
    found = Counter((message.partition_key(), message.message_id().partition()) for message in messages)
    assert set(found.values()) == {2}
    assert {partition for _, partition in found} == set(range(5))


def test_message_ids_are_interchangeable_between_clients(
    native: magnetar.Client, stock: pulsar.Client, topic: str
) -> None:
    """MSG-3, MSG-4: within batches too; from a receipt and from a message; for readers and for seeks"""
    consumers: tuple[Any, Any] = native.subscribe(topic, "n"), stock.subscribe(topic, "s")
    for batch in range(3):
        producer = batching(native if batch % 2 else stock, topic)
        send_batch(producer, *[b"%d.%d" % (batch, at) for at in range(4)])
    everything = [b"%d.%d" % (batch, at) for batch in range(3) for at in range(4)]
    by_sdk, by_stock = (receive(consumer, 12) for consumer in consumers)
    assert payloads(by_sdk) == payloads(by_stock) == everything
    for at in range(12):
        ours, theirs = by_sdk[at].message_id(), by_stock[at].message_id()
        assert id_of(ours) == id_of(theirs)
        moved = MessageId.deserialize(theirs.serialize())
        assert moved == ours
        for inclusive in (True, False):
            if (expected := everything[at + (not inclusive) :]) and at in (0, 2, 3, 5):
                to_stock = pulsar.MessageId.deserialize(ours.serialize())
                with native.create_reader(topic, moved, start_message_id_inclusive=inclusive) as reader:
                    assert payloads([reader.read_next(LONG_MS) for _ in expected]) == expected
                other = stock.create_reader(topic, to_stock, start_message_id_inclusive=inclusive)
                assert payloads([other.read_next(LONG_MS) for _ in expected]) == expected
                other.close()
    consumers[0].seek(MessageId.deserialize(by_stock[5].message_id().serialize()))
    assert payloads(receive(consumers[0], 6)) == everything[6:]
    receipt = stock.create_producer(topic).send(b"last")
    with native.create_reader(topic, MessageId.deserialize(receipt.serialize())) as reader:
        assert not reader.has_message_available()
        native.create_producer(topic).send(b"behind it")
        assert reader.read_next(LONG_MS).data() == b"behind it"


def test_both_on_one_shared_subscription(native: magnetar.Client, stock: pulsar.Client, topic: str) -> None:
    """MSG-4, SUB-3: each message goes to one of them; what one leaves behind the other gets"""
    ours: Any = native.subscribe(topic, "s", magnetar.ConsumerType.Shared, receiver_queue_size=20)
    theirs: Any = stock.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=20)
    producers = batching(native, topic, 3), batching(stock, topic, 3)
    for number in range(300):
        producers[number // 3 % 2].send_async(b"%d" % number, None)
    for producer in producers:
        producer.flush()
    found: Counter[bytes] = Counter()
    held: set[bytes] = set()
    while len(found) < 300:
        consumer, message = next_of(ours, theirs)
        found[message.data()] += 1
        if len(held) < 10:
            held.add(message.data())
        else:
            consumer.acknowledge(message)
    assert set(found) == {b"%d" % number for number in range(300)}
    assert set(found.values()) == {1}
    theirs.close()  # its messages go to the other
    ours.redeliver_unacknowledged_messages()
    missing = set(held)
    while missing:
        message = ours.receive(LONG_MS)
        assert message.data() in held
        missing.discard(message.data())
        ours.acknowledge(message)
    ours.close()


def test_a_failover_passes_from_one_to_the_other_and_back(
    native: magnetar.Client, stock: pulsar.Client, admin: Admin, topic: str
) -> None:
    """MSG-4, SUB-2: what the one has not acknowledged the other gets, in order"""
    producer = batching(stock, topic, 4)
    opened: Any = native.subscribe(topic, "s", magnetar.ConsumerType.Failover, consumer_name="0", **EARLIEST)
    send_batch(producer, *[b"%d" % number for number in range(100)])
    at = 0
    for turn in range(1, 5):
        kind: Any = (pulsar if turn % 2 else magnetar).ConsumerType.Failover
        follower: Any = (stock if turn % 2 else native).subscribe(topic, "s", kind, consumer_name=str(turn))
        messages = receive(opened, 20)
        assert payloads(messages) == [b"%d" % number for number in range(at, at + 20)]
        # In the middle of a batch, and then at the end of one: a stock client acknowledges nothing less.
        opened.acknowledge_cumulative(messages[17])
        opened.close()
        at += 18
        opened = follower
    assert payloads(receive(opened, 100 - at)) == [b"%d" % number for number in range(at, 100)]
    opened.close()
    [stats] = admin.topics.stats(topic).subscriptions
    assert stats.consumers == []


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_rest_of_partly_acked_batch_is_redelivered_to_either_client(
    kind: str, native: magnetar.Client, stock: pulsar.Client, admin: Admin, topic: str
) -> None:
    """MSG-4, ACK-1: from either client to the other, for many times as many batches as a consumer has permits"""
    batches, size = 60, 8
    producer = batching(stock, topic, size)
    ours: Any = native.subscribe(topic, "s", getattr(magnetar.ConsumerType, kind), **EARLIEST)
    for number in range(batches * size):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    left = list(range(batches * size))
    for turn in range(4):
        messages = receive(ours, len(left))
        assert sorted(int(message.data()) for message in messages) == left
        acknowledged = [one for one in messages if int(one.data()) % size in (turn, 7 - turn % 2)]
        for message in acknowledged:
            ours.acknowledge(message)
        ours.close()
        done = {int(message.data()) for message in acknowledged}
        left = [number for number in left if number not in done]
        options: dict[str, Any] = {"receiver_queue_size": 7}
        if turn % 2:
            ours = native.subscribe(topic, "s", getattr(magnetar.ConsumerType, kind), **options)
        else:
            options["batch_index_ack_enabled"] = True
            ours = stock.subscribe(topic, "s", getattr(pulsar.ConsumerType, kind), **options)
    messages = receive(ours, len(left))
    assert sorted(int(message.data()) for message in messages) == left
    assert nothing_more(ours)
    for message in messages:
        ours.acknowledge(message)
    ours.close()
    [stats] = admin.topics.stats(topic).subscriptions
    assert stats.backlog_entries == 0


def test_nacked_message_is_redelivered_to_either_client(
    native: magnetar.Client, stock: pulsar.Client, topic: str
) -> None:
    """MSG-4, CON-5: one message of a batch, by both kinds of client"""
    ours: Any = native.subscribe(topic, "s", magnetar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=10)
    send_batch(batching(native, topic), b"0", b"1", b"2")
    messages = receive(ours, 3)
    theirs: Any = stock.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=10)
    ours.acknowledge(messages[0], receipt=True)
    ours.negative_acknowledge(messages[1])
    ours.acknowledge(messages[2], receipt=True)
    for count in range(1, 6):
        holder, got = next_of(ours, theirs)
        assert got.data() == b"1"
        assert got.redelivery_count() == count
        holder.negative_acknowledge(got)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("who", ["native", "stock"])
def test_one_moves_the_subscription_while_the_other_is_connected(
    who: str, native: magnetar.Client, stock: pulsar.Client, topic: str
) -> None:
    """MSG-4, SUB-9: everything behind the new position comes again, to one of them"""
    ours: Any = native.subscribe(topic, "s", magnetar.ConsumerType.Shared)
    theirs: Any = stock.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_batch(batching(stock, topic, 5), *[b"%d" % number for number in range(50)])
    ids: dict[bytes, Any] = {}

    def drain(wanted: set[bytes]) -> None:
        missing = set(wanted)
        while missing:
            consumer, message = next_of(ours, theirs)
            ids[message.data()] = message.message_id()
            missing.discard(message.data())
            consumer.acknowledge(message)

    everything = {b"%d" % number for number in range(50)}
    drain(everything)
    if who == "native":
        ours.seek(MessageId.deserialize(ids[b"24"].serialize()))
    else:
        theirs.seek(pulsar.MessageId.deserialize(ids[b"24"].serialize()))
    drain({b"%d" % number for number in range(25, 50)})
    if who == "native":
        ours.seek(MessageId.earliest)
    else:
        theirs.seek(pulsar.MessageId.earliest)
    drain(everything)
    ours.close()
    theirs.close()


def test_table_views_of_both_clients_hold_the_same(native: magnetar.Client, stock: pulsar.Client, topic: str) -> None:
    """WIRE-1, CON-11: of what either client has published, before and after they were created."""
    ours = native.create_producer(topic)
    theirs = stock.create_producer(topic)

    def publish(start: int) -> None:
        for number in range(start, start + 30):
            producer = theirs if number % 2 else ours
            producer.send(b"" if number % 11 == 0 else b"%d" % number, partition_key=f"k{number % 7}")
        ours.send(None, partition_key="k1")
        theirs.send(b"without a key")

    publish(0)
    views = native.create_table_view(topic), stock.create_table_view(topic)
    publish(30)
    expected = {f"k{number % 7}": b"%d" % number for number in range(60) if number % 7 != 1 and number != 55}
    del expected["k6"]  # by message 55
    views[0].refresh()
    assert dict(views[0].items()) == expected
    until(lambda: len(views[1]) == len(expected), "the stock client's view has caught up")
    found: dict[str, bytes] = {}
    views[1].for_each(found.__setitem__)
    assert found == expected
    for view in views:
        view.close()


def test_table_views_of_both_clients_decode_the_same_values(
    native: magnetar.Client, stock: pulsar.Client, topic: str
) -> None:
    """(SCH-3) Records that the stock client has written. A view with another schema is refused."""

    class Reading(pulsar.schema.Record):  # type: ignore[misc]
        celsius = pulsar.schema.Double(required=True)

    class OurReading(schema.Record):
        celsius = schema.Double(required=True)

    OurReading.__name__ = "Reading"
    theirs = stock.create_producer(topic, schema=pulsar.schema.AvroSchema(Reading))
    theirs.send(Reading(celsius=20.5), partition_key="hall")
    theirs.send(Reading(celsius=1.5), partition_key="cellar")
    our_schema = schema.AvroSchema(OurReading)
    ours = native.create_producer(topic, schema=our_schema)
    ours.send(OurReading(celsius=21.5), partition_key="hall")
    ours.send(None, partition_key="cellar")
    view = native.create_table_view(topic, schema=our_schema)
    assert {key: value.celsius for key, value in view.items()} == {"hall": 21.5}
    other = stock.create_table_view(topic, schema=pulsar.schema.AvroSchema(Reading))
    until(lambda: len(other) == 1, "the stock client's view has caught up")
    assert other.get("hall").celsius == 21.5
    with pytest.raises(IncompatibleSchema):
        native.create_table_view(topic, schema=schema.StringSchema())
    view.close()
    other.close()
