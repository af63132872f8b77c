"""pulsar-client's consumers, as it comes, on a real standalone: types of subscriptions, receiving, many topics.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable

import _pulsar
import pulsar
import pytest
from pulsar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition

import magnetar
from magnetar.admin import Admin
from tests.running import GENEROUS_S
from tests.stock_clients import (
    ALL_TYPES,
    EARLIEST,
    LONG_MS,
    OURS_ALONE,
    SHORT_MS,
    SOON,
    StockServer,
    nothing_more,
    numbers,
    payloads,
    received,
    received_or_none,
    send_batches,
    send_singles,
    topic,
    until,
)

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_subscription_retains_unacknowledged_messages(client: pulsar.Client, kind: ConsumerType) -> None:
    """WIRE-1, SUB-1, SUB-7: from its first consumer's to its last; another one of the topic sees all."""
    name = topic("keeps")
    send_batches(client, name, 3, 1, 2)
    first = client.subscribe(name, "s", kind, properties={"a": "b"}, consumer_name="who", **EARLIEST)
    assert (first.topic(), first.subscription_name(), first.consumer_name()) == (name, "s", "who")
    messages = received(first, 6)
    assert [message.data() for message in messages] == numbers(*range(6))
    for message in messages[:3]:
        first.acknowledge(message)
    first.close()
    second = client.subscribe(name, "s", kind)
    assert payloads(second, 3, acknowledge=True) == numbers(3, 4, 5)
    nothing_more(second)
    second.close()
    other = client.subscribe(name, "other", kind, **EARLIEST)
    assert payloads(other, 6) == numbers(*range(6))
    other.close()


def test_new_subscription_starts_at_latest_unless_set_to_earliest(client: pulsar.Client) -> None:
    """WIRE-1, SUB-1."""
    name = topic("begins")
    producer = client.create_producer(name)
    producer.send(b"before")
    latest = client.subscribe(name, "latest")
    earliest = client.subscribe(name, "earliest", **EARLIEST)
    producer.send(b"after")
    assert payloads(latest, 1) == [b"after"]
    assert payloads(earliest, 2) == [b"before", b"after"]


def test_exclusive_is_for_one(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, SUB-2: the second is refused, on the same connection and on another, and of another type, too."""
    name = topic("exclusive")
    holder = client.subscribe(name, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, "s")
    with server.client() as other:
        with pytest.raises(pulsar.ConsumerBusy):
            other.subscribe(name, "s")
        with pytest.raises(pulsar.ConsumerBusy):
            other.subscribe(name, "s", ConsumerType.Shared)
        send_singles(client, name, 1)
        assert payloads(holder, 1) == [b"0"]
        holder.close()
        assert payloads(other.subscribe(name, "s"), 1) == [b"0"]


@OURS_ALONE  # a hash chooses the first there
def test_failover_serves_one_after_the_other(client: pulsar.Client) -> None:
    """WIRE-1, SUB-3: the first that came, then the next one, with all that is not acknowledged, in order."""
    name = topic("failover")
    first = client.subscribe(name, "s", ConsumerType.Failover, consumer_name="a", **EARLIEST)
    second = client.subscribe(name, "s", ConsumerType.Failover, consumer_name="b")
    send_singles(client, name, 10)
    messages = received(first, 10)
    nothing_more(second)
    first.acknowledge_cumulative(messages[3])
    first.close()
    assert payloads(second, 6, acknowledge=True) == numbers(*range(4, 10))


def test_partitions_are_spread_among_failover_consumers(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, SUB-3: each serves some; the last consumer gets all that is left. Exclusive is all of them, or none."""
    name = server.make_partitioned(topic("failover-parts"), 4)
    consumers = [client.subscribe(name, "s", ConsumerType.Failover, consumer_name=who, **EARLIEST) for who in "ab"]
    producer = client.create_producer(name)
    for content in numbers(*range(16)):
        producer.send(content)
    shares = [received(consumer, 8) for consumer in consumers]
    partitions = [{message.message_id().partition() for message in share} for share in shares]
    assert [len(one) for one in partitions] == [2, 2]
    assert not partitions[0] & partitions[1]
    consumers[0].close()
    left = received(consumers[1], 8)
    assert {message.data() for message in left} == {message.data() for message in shares[0]}
    consumers[1].close()
    holder = client.subscribe(name, "alone")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, "alone")
    producer.send(b"16")
    assert payloads(holder, 1) == [b"16"]
    holder.close()


def test_shared_deals_out_among_its_consumers(client: pulsar.Client) -> None:
    """WIRE-1, SUB-4: each message to one; what one leaves behind to the others."""
    name = topic("shared")
    consumers = [client.subscribe(name, "s", ConsumerType.Shared, receiver_queue_size=5, **EARLIEST) for _ in range(3)]
    send_singles(client, name, 15)
    shares: list[list[pulsar.Message]] = [[], [], []]
    deadline = time.monotonic() + GENEROUS_S
    while sum(map(len, shares)) < 15:
        assert time.monotonic() < deadline, shares
        for consumer, share in zip(consumers, shares, strict=True):
            with contextlib.suppress(pulsar.Timeout):
                share.append(consumer.receive(20))
    assert all(shares)
    assert sorted(int(message.data()) for share in shares for message in share) == list(range(15))
    for consumer, share in zip(consumers[:2], shares[:2], strict=True):
        for message in share:
            consumer.acknowledge(message)
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumers[2].acknowledge_cumulative(shares[2][0])
    consumers[2].close()
    left = {message.data() for message in shares[2]}
    deadline = time.monotonic() + GENEROUS_S
    while left:
        assert time.monotonic() < deadline, left
        for consumer in consumers[:2]:
            left.discard(received_or_none(consumer))
    for consumer in consumers[:2]:
        consumer.close()


def test_key_shared_consumers_get_different_keys_in_order(client: pulsar.Client) -> None:
    """(WIRE-1, SUB-5)"""
    name = topic("key-shared")
    consumers = [client.subscribe(name, "s", ConsumerType.KeyShared) for _ in range(2)]
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(100):
        producer.send(str(number).encode(), partition_key=f"key-{number % 20}")
    received: list[dict[str, list[int]]] = [{}, {}]
    deadline = time.monotonic() + GENEROUS_S
    while sum(len(numbers) for keys in received for numbers in keys.values()) < 100:
        assert time.monotonic() < deadline, received
        for consumer, keys in zip(consumers, received, strict=True):
            with contextlib.suppress(pulsar.Timeout):
                message = consumer.receive(100)
                keys.setdefault(message.partition_key(), []).append(int(message.data()))
                consumer.acknowledge(message)
    assert received[0]
    assert received[1]
    assert not set(received[0]) & set(received[1])
    for keys in received:
        assert all(numbers == sorted(numbers) for numbers in keys.values())


def test_unsubscribing_deletes_the_subscription(client: pulsar.Client) -> None:
    """WIRE-1, SUB-1: only the last consumer may; a later subscribe creates it again."""
    name = topic("unsubscribe")
    send_singles(client, name, 1)
    first = client.subscribe(name, "s", ConsumerType.Shared, **EARLIEST)
    second = client.subscribe(name, "s", ConsumerType.Shared)
    with pytest.raises(pulsar.PulsarException):
        first.unsubscribe()
    second.close()
    first.unsubscribe()
    assert not first.is_connected()
    with pytest.raises(pulsar.AlreadyClosed):
        first.receive(SHORT_MS)
    again = client.subscribe(name, "s")
    nothing_more(again)
    again.close()


def test_queues_of_any_size_bring_everything(client: pulsar.Client) -> None:
    """WIRE-1, CON-1: 0 is strictly one at a time, of batches no less."""
    for size in (0, 1, 2, 1_000):
        name = topic(f"queue-{size}")
        send_batches(client, name, *([1] * 5 if size == 0 else [4, 1, 3]))
        expected = numbers(*range(5 if size == 0 else 8))
        consumer = client.subscribe(name, "s", receiver_queue_size=size, **EARLIEST)
        found = []
        for _ in expected:
            message = consumer.receive()
            consumer.acknowledge(message)
            found.append(message.data())
        assert found == expected
        consumer.close()


def test_a_consumer_without_a_queue_leaves_the_rest_to_others(client: pulsar.Client) -> None:
    """WIRE-1, CON-1: who holds one message and asks for no more gets none."""
    name = topic("no-queue")
    consumers = [client.subscribe(name, "s", ConsumerType.Shared, receiver_queue_size=0, **EARLIEST) for _ in range(2)]
    send_singles(client, name, 6)
    held = consumers[0].receive()
    rest = [consumers[1].receive() for _ in range(5)]
    assert sorted([held.data(), *(message.data() for message in rest)]) == numbers(*range(6))
    for consumer in consumers:
        consumer.close()


def test_batch_receive_completes_by_count_size_or_timeout(client: pulsar.Client) -> None:
    """WIRE-1, CON-2."""
    name = topic("batch-receive")
    send_singles(client, name, 10)
    for policy, sizes in (
        (ConsumerBatchReceivePolicy(4, -1, 60_000), [4, 4]),
        (ConsumerBatchReceivePolicy(-1, 3, 60_000), [3, 3, 3]),
    ):
        consumer = client.subscribe(name, f"s{len(sizes)}", batch_receive_policy=policy, **EARLIEST)
        assert [len(consumer.batch_receive()) for _ in sizes] == sizes
        consumer.close()
    by_time = client.subscribe(name, "s", batch_receive_policy=ConsumerBatchReceivePolicy(100, -1, 50), **EARLIEST)
    found: list[bytes] = []
    while len(found) < 10:  # 100 will never be there
        found += [message.data() for message in by_time.batch_receive()]
    assert found == numbers(*range(10))
    by_time.close()


def test_a_listener_is_given_everything_and_can_be_paused(client: pulsar.Client) -> None:
    """WIRE-1, CON-2: what comes while it is paused waits."""
    name, got, more = topic("listener"), list[bytes](), threading.Semaphore(0)

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        got.append(message.data())
        consumer.acknowledge(message)
        more.release()

    consumer = client.subscribe(name, "s", message_listener=listen, receiver_queue_size=2)
    send_singles(client, name, 5)
    assert all(more.acquire(timeout=60) for _ in range(5))
    consumer.pause_message_listener()
    send_singles(client, name, 5)
    assert not more.acquire(timeout=SHORT_MS / 1000)
    consumer.resume_message_listener()
    assert all(more.acquire(timeout=60) for _ in range(5))
    assert got == numbers(*range(5)) * 2
    consumer.close()


def test_one_consumer_of_many_topics(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, SUB-8: a list, and all partitions of a topic; acknowledged, refused and moved as one."""
    names = [topic("list") for _ in range(3)]
    partitioned = server.make_partitioned(topic("list-partitioned"), 3)
    consumer = client.subscribe([*names, partitioned], "s", ConsumerType.Shared, **SOON)
    for name in names:
        send_singles(client, name, 3)
    producer = client.create_producer(partitioned)
    for content in numbers(*range(9)):
        producer.send(content)
    messages = received(consumer, 18)
    by_topic: dict[str, list[bytes]] = {}
    for message in messages:
        by_topic.setdefault(message.topic_name(), []).append(message.data())
        if message.data() == b"1":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    assert {name for name in by_topic if "partition" not in name} == set(names)
    assert sorted(content for name, some in by_topic.items() if name not in names for content in some) == numbers(
        *range(9)
    )
    assert payloads(consumer, 4, acknowledge=True) == [b"1"] * 4
    nothing_more(consumer)
    consumer.close()
    again = client.subscribe(partitioned, "s", ConsumerType.Shared)
    nothing_more(again)
    again.close()


def test_a_pattern_of_topics(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, SUB-8: those that there are, and those that come later, from their first message."""
    prefix = topic("pattern")
    names = [f"{prefix}-a", server.make_partitioned(f"{prefix}-b", 2)]
    for name in (*names, topic("stranger")):
        send_singles(client, name, 1)
    consumer = client.subscribe(re.compile(f"{prefix}-.*"), "s", **EARLIEST)
    assert sorted(message.topic_name().removeprefix(prefix)[:2] for message in received(consumer, 2)) == ["-a", "-b"]
    nothing_more(consumer)
    consumer.close()
    options = _pulsar.ConsumerConfiguration()  # the module's own way has no period
    options.pattern_auto_discovery_period(1)
    options.subscription_initial_position(InitialPosition.Earliest)
    watching = client._client.subscribe_pattern(f"{prefix}-.*", "watching", options)
    assert len({watching.receive(LONG_MS).topic_name() for _ in range(2)}) == 2
    send_singles(client, f"{prefix}-c", 1)
    assert watching.receive(LONG_MS).topic_name() == f"{prefix}-c"
    watching.close()


@OURS_ALONE
def test_administrators_see_and_move_stock_consumers(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, ADM-3, SUB-9: moved, they drop what they have, and go on from there."""
    assert server.process is not None
    name = topic("administered")
    producer = client.create_producer(name, producer_name="p", properties={"team": "a"})
    for content in numbers(*range(4)):
        producer.send(content)
    consumer = client.subscribe(name, "s", ConsumerType.Shared, consumer_name="c", properties={"team": "b"}, **EARLIEST)
    messages = received(consumer, 4)
    with Admin(server.process.service_url) as admin:
        stats = admin.topics.stats(name)
        [seen] = stats.producers
        assert (seen.producer_name, dict(seen.properties)) == ("p", {"team": "a"})
        [held] = stats.subscription("s").consumers
        assert (held.consumer_name, dict(held.properties)) == ("c", {"team": "b"})
        assert (held.unacknowledged_messages, held.permits) == (4, 996)
        for message in messages:
            consumer.acknowledge(message)
        until(lambda: admin.topics.stats(name).subscription("s").backlog_entries == 0, "all is acknowledged")
        admin.subscriptions.reset(name, "s", magnetar.MessageId.earliest)
        assert payloads(consumer, 4) == numbers(*range(4))
        admin.subscriptions.skip_all(name, "s")
    producer.send(b"4")
    assert payloads(consumer, 1, acknowledge=True) == [b"4"]
    consumer.close()


def test_options_without_effect_are_accepted(client: pulsar.Client) -> None:
    """WIRE-1: replicated subscriptions of one cluster, reading of compacted topics where nothing is compacted."""
    name = topic("options")
    send_singles(client, name, 1)
    replicated = client.subscribe(name, "r", replicate_subscription_state_enabled=True, **EARLIEST)
    compacted = client.subscribe(name, "c", is_read_compacted=True, **EARLIEST)
    assert payloads(replicated, 1) == payloads(compacted, 1) == [b"0"]
    with pytest.raises((pulsar.PulsarException, pulsar.InvalidConfiguration)):
        client.subscribe(name, "s", ConsumerType.Shared, is_read_compacted=True)
    for consumer in (replicated, compacted):
        consumer.close()


def test_receiving_ends_when_the_consumer_is_closed(client: pulsar.Client) -> None:
    """WIRE-1: a waiting receive gets an error, in any thread."""
    consumer = client.subscribe(topic("closed"), "s")
    outcome: list[Callable[[], object] | Exception] = []

    def wait() -> None:
        try:
            consumer.receive()
        except pulsar.PulsarException as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(thread.is_alive, "it waits")
    consumer.close()
    thread.join(60)
    assert [type(one) for one in outcome] == [pulsar.AlreadyClosed]
