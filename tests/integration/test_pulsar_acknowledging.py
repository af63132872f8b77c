"""What pulsar-client's consumers acknowledge, refuse and seek, as it comes, on a real standalone.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import time
from typing import Any

import pulsar
import pytest
from pulsar import ConsumerDeadLetterPolicy, ConsumerType, MessageId

from tests.running import GENEROUS_S
from tests.stock_clients import (
    ALL_TYPES,
    BY_MESSAGE,
    EARLIEST,
    LONG_MS,
    ONE_AT_A_TIME,
    SOON,
    nothing_more,
    numbers,
    payloads,
    received,
    received_or_none,
    send_batches,
    send_singles,
    topic,
)

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("acknowledging")]


@pytest.fixture(scope="module", autouse=True)
def slow_one(client: pulsar.Client) -> pulsar.Consumer:
    """Has a message that it does not acknowledge, all the while that the others run."""
    name = topic("timeout")
    consumer = client.subscribe(name, "s", ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
    send_singles(client, name, 1)
    assert payloads(consumer, 1) == [b"0"]
    return consumer


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


def test_acknowledgements_just_before_close_take_effect(client: pulsar.Client) -> None:
    """WIRE-1, CON-3: thousands, one by one and out of order, also by ids that were stored as bytes."""
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


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("queue", [1, 1_000])
def test_all_unacknowledged_messages_are_redelivered_on_request(
    client: pulsar.Client, kind: ConsumerType, queue: int
) -> None:
    """WIRE-1, CON-5: in order, and at each request; permits are not used up by it."""
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
        while found[0][0] < b"5":  # it was still in flight, being acknowledged
            found[0] = [*found[0][1:], consumer.receive(LONG_MS).data()]
    assert found == [numbers(*range(5, 10))] * 5
    consumer.close()


def test_dead_letters_go_to_their_topic(client: pulsar.Client) -> None:
    """WIRE-1, CON-10: after the maximum of redeliveries, into a topic whose first subscription is created with it."""
    name, dead = topic("work"), topic("dead")
    policy = ConsumerDeadLetterPolicy(2, dead, "undertaker")
    consumer = client.subscribe(name, "s", ConsumerType.Shared, dead_letter_policy=policy, **SOON)
    send_singles(client, name, 2)
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


def test_seeking_by_id(client: pulsar.Client) -> None:
    """WIRE-1, SUB-9: to the ends, to an entry, into a batch, back and forth; what is sent later comes behind."""
    name = topic("seek")
    send_batches(client, name, 1, 1, 5, 1, 1)
    consumer = client.subscribe(name, "s", **EARLIEST)
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
    """WIRE-1, SUB-9: a consumer may request that the message at the position itself is delivered, too."""
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
    sent = send_singles(client, name, 3)
    assert len(sent) == 3
    time.sleep(0.005)
    between = int(time.time() * 1000)
    time.sleep(0.005)
    send_singles(client, name, 2)
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
    send_singles(client, name, 20)
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
    [first] = send_singles(client, name, 1)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (first.ledger_id(), first.entry_id())
    send_batches(client, name, 5)
    assert consumer.get_last_message_id().batch_index() == 4
    last_message = received(consumer, 6)[-1].message_id()
    assert last_message == consumer.get_last_message_id()
    consumer.close()


def test_message_is_redelivered_after_ack_timeout(slow_one: pulsar.Consumer) -> None:
    """WIRE-1, CON-6: the library has ten seconds at least."""
    again = slow_one.receive(LONG_MS)
    assert (again.data(), again.redelivery_count()) == (b"0", 1)
    slow_one.acknowledge(again)
