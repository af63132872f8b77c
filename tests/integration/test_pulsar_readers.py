"""pulsar-client's readers and table views, as it comes, on a real standalone.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import threading
import time

import pulsar
import pytest
from pulsar import MessageId

from tests.stock_clients import BATCHES, LONG_MS, SHORT_MS, StockServer, send_batch, topic, until

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


def send(client: pulsar.Client, name: str, *sizes: int) -> list[bytes]:
    """Batches of these sizes, numbered through; what they hold."""
    producer, first = client.create_producer(name, **BATCHES), 0
    for size in sizes:
        send_batch(producer, *[b"%d" % number for number in range(first, first + size)])
        first += size
    producer.close()
    return [b"%d" % number for number in range(first)]


def read(reader: pulsar.Reader, count: int) -> list[bytes]:
    return [message.data() for message in messages(reader, count)]


def messages(reader: pulsar.Reader, count: int) -> list[pulsar.Message]:
    found = []
    for _ in range(count):
        assert reader.has_message_available()
        found.append(reader.read_next(LONG_MS))
    return found


def nothing_more(reader: pulsar.Reader) -> None:
    assert not reader.has_message_available()
    with pytest.raises(pulsar.Timeout):
        reader.read_next(SHORT_MS)


@pytest.mark.parametrize("queue", [1, 1_000])
def test_reader_starts_at_the_requested_position(client: pulsar.Client, queue: int) -> None:
    """WIRE-1, CON-11, SUB-7: at either end, behind a message or with it, within a batch too."""
    name = topic("begins")
    everything = send(client, name, 1, 3, 1, 2)
    first = client.create_reader(name, MessageId.earliest, receiver_queue_size=queue, reader_name="r")
    assert first.topic() == name
    assert first.is_connected()
    found = messages(first, 7)
    assert [message.data() for message in found] == everything
    nothing_more(first)
    for at, message in enumerate(found):
        message_id = MessageId.deserialize(message.message_id().serialize(), name)
        for inclusive in (False, True):
            options = {"start_message_id_inclusive": inclusive, "receiver_queue_size": queue}
            reader = client.create_reader(name, message_id, **options)
            begin = at if inclusive else at + 1
            assert read(reader, 7 - begin) == everything[begin:]
            assert not reader.has_message_available()
            reader.close()
    latest = client.create_reader(name, MessageId.latest, receiver_queue_size=queue)
    nothing_more(latest)
    producer = client.create_producer(name)
    producer.send(b"new")
    assert read(latest, 1) == read(first, 1) == [b"new"]
    for reader in (first, latest):
        reader.close()


def test_reader_starts_at_the_requested_unbatched_message(client: pulsar.Client) -> None:
    """WIRE-1, CON-11: entries that are no batches, with a queue of one."""
    name = topic("singles")
    producer = client.create_producer(name)
    ids = [producer.send(b"%d" % number) for number in range(4)]
    for at, message_id in enumerate(ids[:-1]):
        reader = client.create_reader(name, message_id)
        assert read(reader, 3 - at) == [b"%d" % number for number in range(at + 1, 4)]
        reader.close()
        reader = client.create_reader(name, message_id, start_message_id_inclusive=True, receiver_queue_size=1)
        assert read(reader, 4 - at) == [b"%d" % number for number in range(at, 4)]
        reader.close()


def test_the_last_message_with_itself_where_there_is_one(client: pulsar.Client) -> None:
    """WIRE-1, CON-11: `latest` with itself is the last message, if there is any."""
    name = topic("latest")
    empty = client.create_reader(name, MessageId.latest, start_message_id_inclusive=True)
    assert not empty.has_message_available()
    empty.close()
    send(client, name, 1, 3)
    reader = client.create_reader(name, MessageId.latest, start_message_id_inclusive=True)
    assert reader.has_message_available()
    assert reader.read_next(LONG_MS).data() == b"3"
    assert not reader.has_message_available()
    reader.close()


def test_readers_are_moved(client: pulsar.Client) -> None:
    """WIRE-1, SUB-9: to a message and to a time; what there is to read is known at once."""
    name = topic("seek")
    everything = send(client, name, 1, 3, 1)
    time.sleep(0.005)
    between = int(time.time() * 1000)
    time.sleep(0.005)
    send(client, name, 2)
    reader = client.create_reader(name, MessageId.earliest)
    ids = [message.message_id() for message in messages(reader, 7)]
    reader.seek(MessageId.earliest)
    assert read(reader, 7) == [*everything, b"0", b"1"]
    reader.seek(between)
    assert read(reader, 2) == [b"0", b"1"]
    reader.seek(MessageId.latest)
    nothing_more(reader)
    reader.seek(ids[2])
    assert read(reader, 4) == [b"3", b"4", b"0", b"1"]
    reader.close()
    inclusive = client.create_reader(name, MessageId.latest, start_message_id_inclusive=True)
    inclusive.seek(ids[2])
    assert read(inclusive, 5) == [b"2", b"3", b"4", b"0", b"1"]
    inclusive.close()


def test_readers_leave_nothing_behind(client: pulsar.Client) -> None:
    """WIRE-1, SUB-7: any number of them read the same, and no subscription stays."""
    name = topic("many")
    everything = send(client, name, 5)
    readers = [
        client.create_reader(name, MessageId.earliest, subscription_role_prefix="role", is_read_compacted=at == 0)
        for at in range(3)
    ]
    assert [read(reader, 5) for reader in readers] == [everything] * 3
    for reader in readers:
        reader.close()
        with pytest.raises(pulsar.AlreadyClosed):
            reader.read_next(SHORT_MS)


def test_reader_listener_receives_every_message(client: pulsar.Client) -> None:
    """WIRE-1, CON-11."""
    name, found, came = topic("listener"), list[bytes](), threading.Semaphore(0)

    def listen(reader: pulsar.Reader, message: pulsar.Message) -> None:
        found.append(message.data())
        came.release()

    everything = send(client, name, 1, 4)
    reader = client.create_reader(name, MessageId.earliest, reader_listener=listen, receiver_queue_size=2)
    assert all(came.acquire(timeout=60) for _ in everything)
    assert found == everything
    reader.close()


def test_a_reader_of_all_partitions(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, CON-11: each in its order."""
    name = server.make_partitioned(topic("partitioned"), 3)
    producer = client.create_producer(name)
    for number in range(12):
        producer.send(b"%d" % number, partition_key=f"k{number % 4}")
    reader = client.create_reader(name, MessageId.earliest)
    found = [reader.read_next(LONG_MS) for _ in range(12)]
    for key in range(4):
        of_key = [message.data() for message in found if message.partition_key() == f"k{key}"]
        assert of_key == [b"%d" % number for number in range(key, 12, 4)]
    assert not reader.has_message_available()
    producer.send(b"more")
    assert reader.read_next(LONG_MS).data() == b"more"
    reader.close()


def test_a_reader_of_one_partition(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1."""
    name = server.make_partitioned(topic("of-two"), 2)
    producer = client.create_producer(name, message_router=lambda message, count: 1)
    sent = producer.send(b"x")
    assert sent.partition() == 1
    reader = client.create_reader(f"{name}-partition-1", MessageId.earliest)
    message = reader.read_next(LONG_MS)
    assert (message.data(), message.message_id().partition()) == (b"x", 1)
    reader.close()


def test_a_table_view_holds_the_latest_of_each_key(client: pulsar.Client) -> None:
    """WIRE-1, CON-11: what there is when it is made, and what comes."""
    name = topic("table")
    producer = client.create_producer(name)
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        producer.send(value, partition_key=key)
    view = client.create_table_view(name)
    assert (len(view), view.get("a"), view.get("b"), view.get("c")) == (2, b"3", b"2", None)
    heard: dict[str, bytes] = {}
    view.for_each_and_listen(heard.__setitem__)
    assert heard == {"a": b"3", "b": b"2"}
    producer.send(b"4", partition_key="c")
    until(lambda: view.get("c") == b"4" and heard.get("c") == b"4", "the view has what came")
    seen: dict[str, bytes] = {}
    view.for_each(seen.__setitem__)
    assert seen == {"a": b"3", "b": b"2", "c": b"4"}
    view.close()
    empty = client.create_table_view(topic("empty"), subscription_name="mine")
    assert len(empty) == 0
    empty.close()


def test_a_table_view_of_partitions(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, CON-11."""
    name = server.make_partitioned(topic("table-partitioned"), 3)
    producer = client.create_producer(name)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 7}")
    view = client.create_table_view(name)
    until(lambda: len(view) == 7, "the view has all keys")
    assert {key: view.get(key) for key in ("k0", "k5", "k6")} == {"k0": b"14", "k5": b"19", "k6": b"13"}
    view.close()
