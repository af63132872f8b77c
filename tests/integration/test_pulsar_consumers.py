"""pulsar-client's consumers, as it comes, on a real standalone: types, acknowledgements, redelivery, seek.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest
from pulsar import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerType, InitialPosition, MessageId

from tests.running import GENEROUS_S
from tests.stock_clients import (
    LONG_MS,
    OURS_ALONE,
    SHORT_MS,
    StockServer,
    payloads,
    send_batch,
    stock_server,
    topic,
    until,
)

pytestmark = pytest.mark.slow

BATCHES: Any = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}
EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
SOON: Any = {"negative_ack_redelivery_delay_ms": 100}
BY_MESSAGE: Any = {"batch_index_ack_enabled": True}
ONE_AT_A_TIME = [ConsumerType.Exclusive, ConsumerType.Failover]
ALL_TYPES = [*ONE_AT_A_TIME, ConsumerType.Shared]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    with stock_server(tmp_path_factory.mktemp("standalone") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: StockServer) -> Iterator[pulsar.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def slow_one(client: pulsar.Client) -> pulsar.Consumer:
    """Has a message that it does not acknowledge, all the while that the others run."""
    name = topic("time-out")
    consumer = client.subscribe(name, "s", ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
    send(client, name, 1)
    assert payloads(consumer, 1) == [b"0"]
    return consumer


def numbers(*which: int) -> list[bytes]:
    return [b"%d" % number for number in which]


def send(client: pulsar.Client, name: str, count: int) -> list[Any]:
    """One entry each."""
    producer = client.create_producer(name)
    sent = [producer.send(content) for content in numbers(*range(count))]
    producer.close()
    return sent


def send_batches(client: pulsar.Client, name: str, *sizes: int) -> None:
    producer, first = client.create_producer(name, **BATCHES), 0
    for size in sizes:
        send_batch(producer, *numbers(*range(first, first + size)))
        first += size
    producer.close()


def nothing_more(consumer: pulsar.Consumer) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SHORT_MS)


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(LONG_MS) for _ in range(count)]


def received_or_none(consumer: pulsar.Consumer) -> bytes:
    """Acknowledged; empty: there was none in a moment."""
    try:
        message = consumer.receive(20)
    except pulsar.Timeout:
        return b""
    consumer.acknowledge(message)
    return bytes(message.data())


# Types.


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_a_subscription_keeps_what_is_not_acknowledged(client: pulsar.Client, kind: ConsumerType) -> None:
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


def test_a_new_subscription_begins_at_the_end_unless_it_asks_for_all(client: pulsar.Client) -> None:
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
        send(client, name, 1)
        assert payloads(holder, 1) == [b"0"]
        holder.close()
        assert payloads(other.subscribe(name, "s"), 1) == [b"0"]


@OURS_ALONE  # who is the first, a hash says there
def test_failover_serves_one_after_the_other(client: pulsar.Client) -> None:
    """WIRE-1, SUB-3: the first that came, then the next one, with all that is not acknowledged, in order."""
    name = topic("failover")
    first = client.subscribe(name, "s", ConsumerType.Failover, consumer_name="a", **EARLIEST)
    second = client.subscribe(name, "s", ConsumerType.Failover, consumer_name="b")
    send(client, name, 10)
    messages = received(first, 10)
    nothing_more(second)
    first.acknowledge_cumulative(messages[3])
    first.close()
    assert payloads(second, 6, acknowledge=True) == numbers(*range(4, 10))


def test_shared_deals_out_among_its_consumers(client: pulsar.Client) -> None:
    """WIRE-1, SUB-4: each message to one; what one leaves behind to the others."""
    name = topic("shared")
    consumers = [client.subscribe(name, "s", ConsumerType.Shared, receiver_queue_size=5, **EARLIEST) for _ in range(3)]
    send(client, name, 15)
    shares = [received(consumer, 5) for consumer in consumers]
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


@OURS_ALONE
def test_key_shared_is_refused(client: pulsar.Client) -> None:
    """WIRE-1: as not allowed, which clients do not try again."""
    with pytest.raises(pulsar.PulsarException, match="NotAllowed"):
        client.subscribe(topic("key-shared"), "s", ConsumerType.KeyShared)


def test_unsubscribing_deletes_the_subscription(client: pulsar.Client) -> None:
    """WIRE-1, SUB-1: only the last consumer may; whoever subscribes after that begins anew."""
    name = topic("unsubscribe")
    send(client, name, 1)
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


# Receiving.


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
    send(client, name, 6)
    held = consumers[0].receive()
    rest = [consumers[1].receive() for _ in range(5)]
    assert sorted([held.data(), *(message.data() for message in rest)]) == numbers(*range(6))
    for consumer in consumers:
        consumer.close()


def test_messages_come_in_batches_by_count_size_or_time(client: pulsar.Client) -> None:
    """WIRE-1, CON-2."""
    name = topic("batch-receive")
    send(client, name, 10)
    for policy, sizes in (
        (ConsumerBatchReceivePolicy(4, -1, 60_000), [4, 4]),
        (ConsumerBatchReceivePolicy(-1, 3, 60_000), [3, 3, 3]),
        (ConsumerBatchReceivePolicy(100, -1, 500), [10]),
    ):
        consumer = client.subscribe(name, f"s{len(sizes)}", batch_receive_policy=policy, **EARLIEST)
        assert [len(consumer.batch_receive()) for _ in sizes] == sizes
        consumer.close()


def test_a_listener_is_given_everything_and_can_be_paused(client: pulsar.Client) -> None:
    """WIRE-1, CON-2: what comes while it is paused waits."""
    name, got, more = topic("listener"), list[bytes](), threading.Semaphore(0)

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        got.append(message.data())
        consumer.acknowledge(message)
        more.release()

    consumer = client.subscribe(name, "s", message_listener=listen, receiver_queue_size=2)
    send(client, name, 5)
    assert all(more.acquire(timeout=60) for _ in range(5))
    consumer.pause_message_listener()
    send(client, name, 5)
    assert not more.acquire(timeout=SHORT_MS / 1000)
    consumer.resume_message_listener()
    assert all(more.acquire(timeout=60) for _ in range(5))
    assert got == numbers(*range(5)) * 2
    consumer.close()


# Acknowledging.


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_parts_of_batches_are_acknowledged(client: pulsar.Client, kind: ConsumerType) -> None:
    """WIRE-1, CON-4: of a batch that comes again, the messages that are not; without the option all of them."""
    name = topic("parts")
    send_batches(client, name, 10, 70)
    for options, expected in ((BY_MESSAGE, [*range(1, 10, 2), *range(10, 80, 3)]), ({}, [*range(80)])):
        name_of_it = f"s{len(options)}"
        consumer = client.subscribe(name, name_of_it, kind, **EARLIEST, **options)
        for message in received(consumer, 80):
            if int(message.data()) not in (*range(1, 10, 2), *range(10, 80, 3)):
                consumer.acknowledge(message)
        consumer.close()
        again = client.subscribe(name, name_of_it, kind, **options)
        assert payloads(again, len(expected), acknowledge=True) == numbers(*expected)
        nothing_more(again)
        again.close()
        last = client.subscribe(name, name_of_it, kind, **options)
        nothing_more(last)
        last.close()


@pytest.mark.parametrize("options", [BY_MESSAGE, {}], ids=["by message", "by entry"])
@pytest.mark.parametrize("kind", ONE_AT_A_TIME, ids=lambda kind: kind.name)
def test_everything_up_to_a_message_is_acknowledged(
    client: pulsar.Client, kind: ConsumerType, options: dict[str, Any]
) -> None:
    """WIRE-1, CON-3: within a batch, to its message, or where the client counts by entries, to the entry before."""
    name = topic("up-to")
    send_batches(client, name, 3, 5, 2)
    consumer = client.subscribe(name, "s", kind, **EARLIEST, **options)
    messages = received(consumer, 10)
    consumer.acknowledge_cumulative(messages[5])
    consumer.close()
    consumer = client.subscribe(name, "s", kind, **options)
    first = 6 if options else 3
    messages = received(consumer, 10 - first)
    assert [message.data() for message in messages] == numbers(*range(first, 10))
    consumer.acknowledge_cumulative(messages[-1].message_id())
    consumer.close()
    consumer = client.subscribe(name, "s", kind, **options)
    nothing_more(consumer)
    consumer.close()


def test_what_is_acknowledged_counts_for_a_consumer_that_closes_at_once(client: pulsar.Client) -> None:
    """WIRE-1, CON-3: thousands, one by one and out of order, by ids that were kept as bytes, too."""
    name = topic("many")
    send_batches(client, name, *[50] * 40)
    consumer = client.subscribe(name, "s", ConsumerType.Shared, receiver_queue_size=5_000, **EARLIEST)
    messages = received(consumer, 2_000)
    for message in reversed(messages):
        if int(message.data()) % 50 == 7 and int(message.data()) < 1_000:
            continue
        consumer.acknowledge(MessageId.deserialize(message.message_id().serialize(), name))
    consumer.close()
    again = client.subscribe(name, "s", ConsumerType.Shared)
    found = {int(content) for content in payloads(again, 1_000)}
    assert found <= set(range(1_000))
    again.close()


# Redelivery.


def test_a_shared_message_that_is_refused_comes_again(client: pulsar.Client) -> None:
    """WIRE-1, CON-5, CON-8: that one alone, and how often it came is counted."""
    name = topic("refused")
    send(client, name, 5)
    consumer = client.subscribe(name, "s", ConsumerType.Shared, **EARLIEST, **SOON)
    for message in received(consumer, 5):
        assert message.redelivery_count() == 0
        if message.data() == b"2":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    for count in (1, 2):
        message = consumer.receive(LONG_MS)
        assert (message.data(), message.redelivery_count()) == (b"2", count)
        consumer.negative_acknowledge(message)
    message = consumer.receive(LONG_MS)
    consumer.acknowledge(message)
    nothing_more(consumer)
    consumer.close()


def test_of_a_refused_batch_what_is_not_acknowledged_comes_again(client: pulsar.Client) -> None:
    """WIRE-1, CON-4, CON-5."""
    name = topic("refused-batch")
    send_batches(client, name, 6)
    consumer = client.subscribe(name, "s", ConsumerType.Shared, **EARLIEST, **SOON, **BY_MESSAGE)
    messages = received(consumer, 6)
    for at in (0, 1, 4):
        consumer.acknowledge(messages[at])
    for at in (2, 3, 5):
        consumer.negative_acknowledge(messages[at])
    assert payloads(consumer, 3, acknowledge=True) == numbers(2, 3, 5)
    nothing_more(consumer)
    consumer.close()


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("queue", [1, 1_000])
def test_everything_unacknowledged_comes_again_when_asked_for(
    client: pulsar.Client, kind: ConsumerType, queue: int
) -> None:
    """WIRE-1, CON-5: in order, and as often as it is asked; permits are not used up by it."""
    name = topic("again")
    send_batches(client, name, 4, 1, 5)
    consumer = client.subscribe(name, "s", kind, receiver_queue_size=queue, **EARLIEST)
    messages = received(consumer, 10)
    for message in messages[:5]:
        consumer.acknowledge(message)
    found = []
    for _ in range(5):
        consumer.redeliver_unacknowledged_messages()
        found.append(payloads(consumer, 5))
        while found[0][0] < b"5":  # it was still on its way, being acknowledged
            found[0] = [*found[0][1:], consumer.receive(LONG_MS).data()]
    assert found == [numbers(*range(5, 10))] * 5
    consumer.close()


@pytest.mark.parametrize("kind", ONE_AT_A_TIME, ids=lambda kind: kind.name)
def test_where_one_is_served_all_come_again_after_a_refusal(client: pulsar.Client, kind: ConsumerType) -> None:
    """WIRE-1, CON-5: from the first that is not acknowledged."""
    name = topic("all-again")
    send(client, name, 5)
    consumer = client.subscribe(name, "s", kind, **EARLIEST, **SOON)
    messages = received(consumer, 5)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[3])
    assert payloads(consumer, 4, acknowledge=True) == numbers(1, 2, 3, 4)
    consumer.close()


def test_dead_letters_go_to_their_topic(client: pulsar.Client) -> None:
    """WIRE-1, CON-10: after so many redeliveries, into a topic whose first subscription is made with it."""
    name, dead = topic("work"), topic("dead")
    policy = ConsumerDeadLetterPolicy(2, dead, "undertaker")
    consumer = client.subscribe(name, "s", ConsumerType.Shared, dead_letter_policy=policy, **SOON)
    send(client, name, 2)
    for _ in range(3):
        message = consumer.receive(LONG_MS)
        while message.data() == b"0":
            consumer.acknowledge(message)
            message = consumer.receive(LONG_MS)
        consumer.negative_acknowledge(message)
    buried = client.subscribe(dead, "undertaker", ConsumerType.Shared).receive(LONG_MS)
    assert buried.data() == b"1"
    assert buried.properties()["REAL_TOPIC"] == name
    nothing_more(consumer)
    consumer.close()


# Moving.


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared], ids=lambda kind: kind.name)
def test_seeking_by_id(client: pulsar.Client, kind: ConsumerType) -> None:
    """WIRE-1, SUB-9: to the ends, to an entry, into a batch, back and forth; what is sent later comes behind."""
    name = topic("seek")
    send_batches(client, name, 1, 1, 5, 1, 1)
    consumer = client.subscribe(name, "s", kind, **EARLIEST)
    messages = received(consumer, 9)
    ids = [message.message_id() for message in messages]
    for target, first in ((MessageId.earliest, 0), (ids[1], 2), (ids[4], 5), (ids[0], 1), (ids[8], 9)):
        consumer.seek(target)
        assert payloads(consumer, 9 - first) == numbers(*range(first, 9))
    consumer.seek(MessageId.earliest)
    consumer.seek(MessageId.latest)
    nothing_more(consumer)
    producer = client.create_producer(name)
    producer.send(b"new")
    assert payloads(consumer, 1, acknowledge=True) == [b"new"]
    consumer.close()


def test_seeking_with_the_message_itself(client: pulsar.Client) -> None:
    """WIRE-1, SUB-9: a consumer may ask for the place itself to be among what comes."""
    name = topic("seek-inclusive")
    send_batches(client, name, 1, 4, 1)
    consumer = client.subscribe(name, "s", start_message_id_inclusive=True, **EARLIEST)
    ids = [message.message_id() for message in received(consumer, 6)]
    for at in (0, 3, 5):
        consumer.seek(ids[at])
        assert payloads(consumer, 6 - at) == numbers(*range(at, 6))
    consumer.close()


def test_seeking_by_time(client: pulsar.Client) -> None:
    """WIRE-1, SUB-9: by when the broker took it."""
    name = topic("seek-time")
    sent = send(client, name, 3)
    assert len(sent) == 3
    time.sleep(0.005)
    between = int(time.time() * 1000)
    time.sleep(0.005)
    send(client, name, 2)
    consumer = client.subscribe(name, "s", **EARLIEST)
    assert payloads(consumer, 5, acknowledge=True) == numbers(0, 1, 2, 0, 1)
    consumer.seek(between)
    assert payloads(consumer, 2) == numbers(0, 1)
    consumer.seek(1)
    assert payloads(consumer, 5) == numbers(0, 1, 2, 0, 1)
    consumer.seek(between + 3_600_000)
    nothing_more(consumer)
    consumer.close()


def test_all_consumers_of_a_shared_subscription_go_along_with_a_seek(client: pulsar.Client) -> None:
    """WIRE-1, SUB-9: what they had from before is dropped, and they go on."""
    name = topic("seek-together")
    send(client, name, 20)
    consumers = [client.subscribe(name, "s", ConsumerType.Shared, receiver_queue_size=4, **EARLIEST) for _ in range(2)]
    for consumer in consumers:
        consumer.receive(LONG_MS)
    consumers[0].seek(MessageId.earliest)
    left = set(numbers(*range(20)))
    deadline = time.monotonic() + GENEROUS_S
    while left:
        assert time.monotonic() < deadline, left
        for consumer in consumers:
            left.discard(received_or_none(consumer))
    for consumer in consumers:
        consumer.close()


def test_the_last_message_id(client: pulsar.Client) -> None:
    """WIRE-1, CON-11: of an empty topic, of one message, of a batch."""
    name = topic("last")
    consumer = client.subscribe(name, "s", **EARLIEST)
    assert consumer.get_last_message_id().entry_id() == -1
    [first] = send(client, name, 1)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (first.ledger_id(), first.entry_id())
    send_batches(client, name, 5)
    assert consumer.get_last_message_id().batch_index() == 4
    last_message = received(consumer, 6)[-1].message_id()
    assert last_message == consumer.get_last_message_id()
    consumer.close()


# Many topics.


def test_one_consumer_of_many_topics(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1, SUB-8: a list, and all partitions of a topic; acknowledged, refused and moved as one."""
    names = [topic("list") for _ in range(3)]
    partitioned = server.make_partitioned(topic("list-partitioned"), 3)
    consumer = client.subscribe([*names, partitioned], "s", ConsumerType.Shared, **SOON)
    for name in names:
        send(client, name, 3)
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
    again.unsubscribe()


def test_options_that_change_nothing_are_taken(client: pulsar.Client) -> None:
    """WIRE-1: replicated subscriptions of one cluster, reading of compacted topics where nothing is compacted."""
    name = topic("options")
    send(client, name, 1)
    replicated = client.subscribe(name, "r", replicate_subscription_state_enabled=True, **EARLIEST)
    compacted = client.subscribe(name, "c", is_read_compacted=True, **EARLIEST)
    assert payloads(replicated, 1) == payloads(compacted, 1) == [b"0"]
    with pytest.raises((pulsar.PulsarException, pulsar.InvalidConfiguration)):
        client.subscribe(name, "s", ConsumerType.Shared, is_read_compacted=True)
    for consumer in (replicated, compacted):
        consumer.close()


def test_receiving_ends_when_the_consumer_is_closed(client: pulsar.Client) -> None:
    """WIRE-1: whoever waits is told, in any thread."""
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


def test_what_is_not_acknowledged_in_time_comes_again(slow_one: pulsar.Consumer) -> None:
    """WIRE-1, CON-6: the library has ten seconds at least."""
    again = slow_one.receive(LONG_MS)
    assert (again.data(), again.redelivery_count()) == (b"0", 1)
    slow_one.acknowledge(again)
