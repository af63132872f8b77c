"""pulsar-client's producers, as it comes, on a real standalone: what each option of theirs does.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pulsar
import pytest
from pulsar import CompressionType, MessageId, PartitionsRoutingMode, ProducerAccessMode

from tests.stock_clients import BATCHES, LONG_MS, OURS_ALONE, StockServer, payloads, send_batch, topic

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


def read(client: pulsar.Client, name: str, count: int, **options: Any) -> list[pulsar.Message]:
    """The topic's messages from its beginning."""
    reader = client.create_reader(name, MessageId.earliest, **options)
    found = [reader.read_next(LONG_MS) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def test_everything_that_a_message_can_say_arrives(client: pulsar.Client) -> None:
    """WIRE-1, MSG-1: alone and in a batch, keys, properties, event times, an empty payload, and none at all."""
    sent: list[dict[str, Any]] = [
        {"content": b"plain"},
        {"content": b"", "partition_key": "empty"},
        {"content": None, "partition_key": "null"},
        {
            "content": b"\x00\xff",
            "properties": {"a": "1", "b": "ü"},
            "partition_key": "key",
            "ordering_key": "order",
            "event_timestamp": 1_700_000_000_123,
            "disable_replication": True,
        },
    ]
    for batching in (False, True):
        name = topic("fields")
        producer = client.create_producer(name, producer_name="who", **BATCHES if batching else {})
        for one in sent:
            producer.send_async(**one, callback=lambda result, message_id: None)
        producer.flush()
        found = read(client, name, len(sent))
        assert [message.data() for message in found] == [b"plain", b"", b"", b"\x00\xff"]
        assert [message.partition_key() for message in found] == ["", "empty", "null", "key"]
        assert [message.message_id().batch_index() for message in found] == ([0, 1, 2, 3] if batching else [-1] * 4)
        assert [message._message.has_null_value() for message in found] == [False, False, True, False]
        full = found[3]
        assert full.properties() == {"a": "1", "b": "ü"}
        assert full.ordering_key() == "order"
        assert full.event_timestamp() == 1_700_000_000_123
        assert full.publish_timestamp() > 1_700_000_000_000
        assert full.producer_name() == "who"
        assert full.topic_name() == name
        producer.close()


@pytest.mark.parametrize("kind", list(CompressionType.__members__.values()), ids=lambda kind: kind.name)
def test_every_compression_arrives(client: pulsar.Client, kind: CompressionType) -> None:
    """WIRE-1, PRD-3: batches and single messages, small and large."""
    name = topic("compressed")
    batched = client.create_producer(name, compression_type=kind, **BATCHES)
    send_batch(batched, *[b"%d" % number * 1_000 for number in range(20)])
    single = client.create_producer(name, compression_type=kind)
    single.send(b"single" * 100_000)
    found = [message.data() for message in read(client, name, 21)]
    assert found == [b"%d" % number * 1_000 for number in range(20)] + [b"single" * 100_000]


@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({"batching_max_messages": 4}, [4, 4, 2]),
        ({"batching_max_allowed_size_in_bytes": 2_500}, [2, 2, 2, 2, 2]),
        ({"batching_max_publish_delay_ms": 1}, None),
    ],
    ids=["count", "bytes", "delay"],
)
def test_a_batch_ends_by_count_bytes_or_time(
    client: pulsar.Client, limit: dict[str, int], batches: list[int] | None
) -> None:
    """WIRE-1, PRD-4: messages of a batch are of one entry, with indexes, in the order in which they were sent."""
    name, acknowledged = topic("batches"), threading.Semaphore(0)
    producer = client.create_producer(name, **{**BATCHES, **limit})
    for number in range(10):
        producer.send_async(b"%d" % number + b"x" * 999, lambda result, message_id: acknowledged.release())
    if batches is not None:
        producer.flush()
    assert all(acknowledged.acquire(timeout=LONG_MS / 1000) for _ in range(10))
    found = read(client, name, 10)
    assert [message.data()[:1] for message in found] == [b"%d" % number for number in range(10)]
    if batches is not None:
        entries: dict[int, list[int]] = defaultdict(list)
        for message in found:
            entries[message.message_id().entry_id()].append(message.message_id().batch_index())
        assert list(entries.values()) == [list(range(size)) for size in batches]


def test_sequence_ids_go_on_under_a_name(client: pulsar.Client) -> None:
    """WIRE-1, PRD-7: from where the application begins, or where the name's last producer ended."""
    name = topic("sequence")
    first = client.create_producer(name, producer_name="p", initial_sequence_id=41)
    assert first.last_sequence_id() == 41
    first.send(b"42")
    assert first.last_sequence_id() == 42
    first.send(b"100", sequence_id=100)
    assert first.last_sequence_id() == 100
    first.close()
    batched = client.create_producer(name, producer_name="q", **BATCHES)
    assert batched.last_sequence_id() == -1
    send_batch(batched, b"0", b"1", b"2")
    assert batched.last_sequence_id() == 2
    assert [message.data() for message in read(client, name, 5)] == [b"42", b"100", b"0", b"1", b"2"]


@OURS_ALONE
def test_reopened_producer_receives_its_last_sequence_id(client: pulsar.Client) -> None:
    """WIRE-1, PRD-7: the last message of a batch. Pulsar reports it only with deduplication."""
    name = topic("again")
    for expected in (-1, 2, 5):
        producer = client.create_producer(name, producer_name="p", **BATCHES)
        assert producer.last_sequence_id() == expected
        send_batch(producer, b"0", b"1", b"2")
        producer.close()


def test_messages_of_given_ids_are_stored_once(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, DUP-1, PRD-7: a duplicate's id is (-1,-1), and a producer goes on behind its last id, over an unload."""
    name = topic("deduplicated")
    client.create_producer(name).close()
    server.deduplicate(name)
    for run in range(2):
        producer = client.create_producer(name, producer_name="p", send_timeout_millis=0)
        assert producer.last_sequence_id() == (-1, 30)[run]
        for number, sequence_id in enumerate((10, 20, 30, 20)):
            message_id = producer.send(b"%d" % sequence_id, sequence_id=sequence_id)
            is_duplicate = run == 1 or number == 3
            assert (message_id.ledger_id() == message_id.entry_id() == -1) == is_duplicate
        producer.close()
        server.unload(name)
    producer = client.create_producer(name, producer_name="p")
    producer.send(b"next")
    assert producer.last_sequence_id() == 31
    assert [message.data() for message in read(client, name, 4)] == [b"10", b"20", b"30", b"next"]


def test_a_name_belongs_to_one_producer_at_a_time(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, PRD-11: refused while it is taken, on the same connection and on another; free when it is left."""
    name = topic("names")
    made_up = [client.create_producer(name).producer_name() for _ in range(3)]
    assert all(made_up)
    assert len(set(made_up)) == 3
    own = client.create_producer(name, producer_name="mine")
    assert own.producer_name() == "mine"
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(name, producer_name="mine")
    with server.client() as other, pytest.raises(pulsar.ProducerBusy):
        other.create_producer(name, producer_name="mine")
    own.send(b"it still works")
    own.close()
    assert not own.is_connected()
    again = client.create_producer(name, producer_name="mine")
    assert again.is_connected()
    again.send(b"and so does this")


def test_messages_go_to_partitions_as_the_client_routes_them(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, PRD-6: in turns, one partition, by key, by the application's own function."""
    name = server.make_partitioned(topic("partitioned"), 3)
    partitions = client.get_topic_partitions(name)
    assert partitions == [f"{name}-partition-{number}" for number in range(3)]

    def counts() -> list[int]:
        found = []
        for partition in partitions:
            reader = client.create_reader(partition, MessageId.earliest)
            count = 0
            while reader.has_message_available():
                reader.read_next(LONG_MS)
                count += 1
            reader.close()
            found.append(count)
        return found

    in_turns = client.create_producer(name, message_routing_mode=PartitionsRoutingMode.RoundRobinDistribution)
    sent = [in_turns.send(b"in turns") for _ in range(6)]
    assert sorted(message_id.partition() for message_id in sent) == [0, 0, 1, 1, 2, 2]
    assert counts() == [2, 2, 2]
    single = client.create_producer(
        name, message_routing_mode=PartitionsRoutingMode.UseSinglePartition, lazy_start_partitioned_producers=True
    )
    assert len({single.send(b"one").partition() for _ in range(4)}) == 1
    by_key = [in_turns.send(b"keyed", partition_key="k").partition() for _ in range(3)]
    assert len(set(by_key)) == 1
    routed = client.create_producer(name, message_router=lambda message, count: int(message.properties()["to"]) % count)
    assert [routed.send(b"routed", properties={"to": str(to)}).partition() for to in (2, 0, 1)] == [2, 0, 1]
    assert sum(counts()) == 16
    consumer = client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert len(payloads(consumer, 16)) == 16
    consumer.close()


def test_more_than_may_be_pending_is_refused_or_waits(client: pulsar.Client) -> None:
    """WIRE-1, PRD-1: nothing of what is accepted is lost."""
    name, results, done = topic("pending"), list[pulsar.Result](), threading.Semaphore(0)

    def on_sent(result: pulsar.Result, message_id: Any) -> None:
        results.append(result)
        done.release()

    refusing = client.create_producer(name, max_pending_messages=3, **BATCHES)
    for _ in range(5):
        refusing.send_async(b"x", on_sent)
    refusing.flush()
    assert all(done.acquire(timeout=60) for _ in range(5))
    stored = sum(result == pulsar.Result.Ok for result in results)
    assert {result.name for result in results} == {"Ok", "ProducerQueueIsFull"}
    assert stored >= 3
    waiting = client.create_producer(name, max_pending_messages=3, block_if_queue_full=True)
    results.clear()
    for _ in range(50):
        waiting.send_async(b"y", on_sent)
    waiting.flush()
    assert all(done.acquire(timeout=60) for _ in range(50))
    assert {result.name for result in results} == {"Ok"}
    assert len(read(client, name, stored + 50)) == stored + 50


def test_message_above_the_maximum_size_is_refused(client: pulsar.Client) -> None:
    """WIRE-1, MSG-2: the broker sets the limit; the producer goes on."""
    name = topic("large")
    producer = client.create_producer(name)
    limit, around = 5 * 1024 * 1024, 200  # this library counts a message's metadata, too
    producer.send(b"x" * (limit - around))
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(b"x" * limit)
    producer.send(b"small")
    assert [len(message.data()) for message in read(client, name, 2)] == [limit - around, 5]


def test_exclusive_producers_take_turns(client: pulsar.Client, server: StockServer) -> None:
    """PRD-2, WIRE-1: in all four modes; one that is fenced does not come back, and its late message is not stored."""
    name = topic("exclusive")
    leader = client.create_producer(name, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(name)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(name, access_mode=ProducerAccessMode.Exclusive)
    leader.send(b"first")
    # The library may report at the close of a client that its fenced producer was closed before.
    is_late_refused = False
    with suppress(pulsar.AlreadyClosed), ThreadPoolExecutor() as threads, server.client() as other:
        waiting = threads.submit(other.create_producer, name, access_mode=ProducerAccessMode.WaitForExclusive)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        leader.close()
        waiter = waiting.result(timeout=60)
        waiter.send(b"second")
        waiter.close()
        fenced = other.create_producer(name, access_mode=ProducerAccessMode.Exclusive)
        fencing = client.create_producer(name, access_mode=ProducerAccessMode.ExclusiveWithFencing)
        fencing.send(b"third")
        with pytest.raises(pulsar.PulsarException, match=r"Fenced|AlreadyClosed"):
            for _ in range(100):
                fenced.send(b"late")
        is_late_refused = True
    assert is_late_refused
    fencing.close()
    client.create_producer(name).send(b"fourth")
    assert [one.data() for one in read(client, name, 4)] == [b"first", b"second", b"third", b"fourth"]


@OURS_ALONE
def test_delayed_message_is_refused_without_affecting_others(client: pulsar.Client) -> None:
    """WIRE-1: a delayed message among others: its application gets an error, and everything else goes on."""
    name, results, done = topic("later"), dict[bytes, pulsar.Result](), threading.Semaphore(0)
    bystander = client.subscribe(topic("bystander"), "s")
    # The library closes the open batch before a delayed message, and sends that alone.
    producer = client.create_producer(name, batching_enabled=True)

    def on_sent(content: bytes, result: pulsar.Result) -> None:
        results[content] = result
        done.release()

    for number in range(20):
        content = b"%d" % number
        later: Any = {"deliver_after": timedelta(hours=1)} if number in (3, 4, 11) else {}
        producer.send_async(content, lambda result, _, content=content: on_sent(content, result), **later)
    assert all(done.acquire(timeout=60) for _ in range(20))
    refused = [content for content, result in results.items() if result != pulsar.Result.Ok]
    assert refused == [b"3", b"4", b"11"]
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"later", deliver_at=4_000_000_000_000)
    assert [message.data() for message in read(client, name, 17)] == [one for one in results if one not in refused]
    assert bystander.is_connected()


def test_close_decides_every_pending_send(client: pulsar.Client) -> None:
    """WIRE-1, PRD-9: each message is stored or refused, and each callback gets the result."""
    name, results, done = topic("closing"), list[pulsar.Result](), threading.Semaphore(0)
    producer = client.create_producer(name, **BATCHES)

    def on_sent(result: pulsar.Result, message_id: Any) -> None:
        results.append(result)
        done.release()

    for _ in range(100):
        producer.send_async(b"x", on_sent)
    producer.close()
    assert all(done.acquire(timeout=60) for _ in range(100))
    stored = sum(result == pulsar.Result.Ok for result in results)
    read(client, name, stored)
    with pytest.raises(pulsar.AlreadyClosed):
        producer.send(b"after")


def test_topics_that_can_not_be_are_refused(client: pulsar.Client) -> None:
    """WIRE-1: names that are none, namespaces and tenants that are not there, topics that nothing keeps."""
    for name in ("persistent://public/none/t", "persistent://nobody/default/t"):
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(name)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public//t")


def test_producer_with_properties_serves_two_threads_in_order(client: pulsar.Client) -> None:
    """WIRE-1, PRD-10: of each of its threads."""
    name = topic("threads")
    producer = client.create_producer(name, properties={"team": "a"}, **{**BATCHES, "batching_max_publish_delay_ms": 1})
    threads = [
        threading.Thread(target=lambda at=at: [producer.send(b"%d.%d" % (at, n)) for n in range(50)]) for at in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [message.data() for message in read(client, name, 100)]
    for at in range(2):
        mine = [one for one in found if one.startswith(b"%d." % at)]
        assert mine == [b"%d.%d" % (at, n) for n in range(50)]
