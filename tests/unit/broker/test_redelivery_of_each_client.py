"""Redelivery to each client on a real broker: to the SDK, synchronous and asyncio, over gRPC, and to pulsar-client over
Pulsar's protocol.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition
from magnetar_broker.position import Position
from magnetar_wire.topic_name import TopicName
from tests.running import GENEROUS_S, until
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

_of_each_client = pytest.mark.parametrize("kind", KINDS)
# The shortest delay of the stock client.
_SOON_MS = 100


def _subscribe(made: EachClient, consumer_type: str, **options: Any) -> Any:
    library = made.library
    return made.client.subscribe(
        "t",
        "s",
        getattr(library.ConsumerType, consumer_type),
        initial_position=library.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=_SOON_MS,
        # By default our library acknowledges single messages of batches.
        **({} if made.is_ours else {"batch_index_ack_enabled": True}) | options,
    )


def _publish(made: EachClient, *payloads: bytes, batched: bool = False) -> None:
    producer = made.client.create_producer(
        "t", batching_enabled=batched, batching_max_publish_delay_ms=3_600_000, batching_max_messages=1_000
    )
    made.send_all(producer, *payloads)
    producer.close()


def _receive(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(LONG_MS) for _ in range(count)]


def _payloads(messages: list[Any]) -> list[bytes]:
    return [message.data() for message in messages]


def _wait_for_unacknowledged(made: EachClient, messages: int) -> None:
    """Wait until the broker knows how many messages of a Shared subscription are delivered and not acknowledged."""

    async def is_so() -> bool:
        stats = await made.scene.admin.topics.stats("t")
        return stats.subscription("s").unacknowledged_messages == messages

    made.run(lambda: until(is_so, "the broker has the acknowledgements"))


def _wait_until_acknowledged(made: EachClient, messages: list[Any]) -> None:
    """Wait until the broker has the acknowledgements of these messages, each an entry."""
    topic = made.scene.broker_session.topics.get_loaded(TopicName.parse("t"))
    assert topic is not None
    cursor = topic.cursors.get("s")
    assert cursor is not None
    positions = [Position(one.message_id().ledger_id(), one.message_id().entry_id()) for one in messages]
    made.until(lambda: all(map(cursor.is_acknowledged, positions)), "the broker has the acknowledgements")


@_of_each_client
@pytest.mark.parametrize("consumer_type", ["Exclusive", "Failover"])
def test_a_nack_redelivers_everything_unacknowledged_in_order(kind: str, consumer_type: str) -> None:
    """(CON-5) From the first that is not acknowledged, and nothing that was delivered before comes in between. (CON-8)
    Each of them was delivered once before."""
    with each_client(kind) as made:
        _publish(made, *(b"%d" % number for number in range(10)))
        consumer = _subscribe(made, consumer_type)
        messages = _receive(consumer, 6)
        consumer.acknowledge(messages[0])
        consumer.acknowledge(messages[3])
        _wait_until_acknowledged(made, [messages[0], messages[3]])
        consumer.negative_acknowledge(messages[4])
        again = _receive(consumer, 1)
        while not again[0].redelivery_count():  # it was prefetched, and is received before the nack is due
            again = _receive(consumer, 1)
        again += _receive(consumer, 7)
        assert _payloads(again) == [b"1", b"2", b"4", b"5", b"6", b"7", b"8", b"9"]
        assert {message.redelivery_count() for message in again} == {1}
        _publish(made, b"next")
        [following] = _receive(consumer, 1)
        assert (following.data(), following.redelivery_count()) == (b"next", 0)


@_of_each_client
@pytest.mark.parametrize("consumer_type", ["Shared", "KeyShared"])
def test_a_nack_redelivers_the_entry_without_its_acknowledged_messages(kind: str, consumer_type: str) -> None:
    """(CON-5) And nothing else. (CON-8) It is counted for that entry."""
    with each_client(kind) as made:
        _publish(made, *(b"%d" % number for number in range(6)), batched=True)
        _publish(made, b"6", b"7")
        consumer = _subscribe(made, consumer_type)
        messages = _receive(consumer, 8)
        for number in (0, 1, 4, 6):
            consumer.acknowledge(messages[number])
        _wait_for_unacknowledged(made, 4)
        consumer.negative_acknowledge(messages[3])
        again = _receive(consumer, 3)
        assert _payloads(again) == [b"2", b"3", b"5"]
        assert {message.redelivery_count() for message in again} == {1}
        consumer.negative_acknowledge(messages[7])
        _publish(made, b"next")
        found = {message.data(): message.redelivery_count() for message in _receive(consumer, 2)}
        assert found == {b"next": 0, b"7": 1}


@_of_each_client
@pytest.mark.parametrize("consumer_type", ["Shared", "KeyShared"])
def test_messages_in_flight_do_not_overtake_those_that_the_application_has_redelivered(
    kind: str, consumer_type: str
) -> None:
    """(SUB-6, SUB-9) No later message is handed out before one that was only prefetched. Acknowledgements from before
    the redelivery count, and so do late ones. The permits of what was dropped are granted again."""
    numbers = [b"%d" % number for number in range(30)]
    with each_client(kind) as made, ThreadPoolExecutor(1) as thread:
        grouping: Any = {"ack_grouping_time_ms": 1e9} if made.is_ours else {}
        consumer = _subscribe(made, consumer_type, receiver_queue_size=10, **grouping)
        _publish(made, *numbers[:4])
        had = _receive(consumer, 2)
        consumer.acknowledge(had[0])
        if not made.is_ours:  # the SDK sends it with the request
            _wait_until_acknowledged(made, had[:1])
        redelivering = thread.submit(made.run, partial(_redeliver_when_delivered, made, consumer, 5))
        _publish(made, *numbers[4:])
        redelivering.result(GENEROUS_S)
        received = {one.data(): one for one in had}
        while len(received) < len(numbers):
            [message] = _receive(consumer, 1)
            # The second message was delivered in the epoch before.
            consumer.acknowledge(received.setdefault(message.data(), message))
        assert list(received) == numbers
        if made.is_ours:  # the stock client still hands out what it has prefetched
            assert [one.redelivery_count() for one in received.values()][:5] == [0, 0, 1, 1, 1]
        consumer.close()
        _wait_until_acknowledged(made, list(received.values()))


async def _redeliver_when_delivered(made: EachClient, consumer: Any, count: int) -> None:
    """Request the redelivery of everything as soon as the broker has delivered so many messages: the last of them is
    in flight."""
    topic = made.scene.broker_session.topics.get_loaded(TopicName.parse("t"))
    assert topic is not None
    while topic.subscriptions.stats()[0].counters.delivered.messages < count:
        await asyncio.sleep(0)
    getattr(consumer, "wrapped", consumer).redeliver_unacknowledged_messages()


@_of_each_client
def test_redelivered_messages_precede_new_ones(kind: str) -> None:
    """(SUB-14) In order: those that a consumer left behind, and then those that were published later."""
    with each_client(kind) as made:
        waiting = _subscribe(made, "Shared", receiver_queue_size=1)
        _publish(made, b"0")
        _wait_for_unacknowledged(made, 1)
        leaving = _subscribe(made, "Shared")
        _publish(made, *(b"%d" % number for number in range(1, 7)))
        _wait_for_unacknowledged(made, 7)
        leaving.close()
        _publish(made, b"7", b"8", b"9")
        assert _payloads(_receive(waiting, 10)) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_what_is_not_acknowledged_in_time_is_redelivered(kind: str) -> None:
    """(CON-6) By entry on a Shared or Key_Shared subscription, in order and with what was prefetched on an Exclusive or
    Failover one. pulsar-client takes ten seconds: tests/integration/test_pulsar_acknowledging.py."""
    timed: Any = {
        "initial_position": InitialPosition.Earliest,
        "unacked_messages_timeout_ms": 1_000,
        "ack_timeout_tick_time_ms": 100,
    }
    in_order = [ConsumerType.Exclusive, ConsumerType.Failover]
    with each_client(kind) as made:
        _publish(made, b"0", b"1", b"2", b"3")
        consumers = {one: made.client.subscribe("t", one.name, one, **timed) for one in ConsumerType}
        for consumer in consumers.values():
            first, *_ = _receive(consumer, 3)
            consumer.acknowledge(first)
        for consumer_type, consumer in consumers.items():
            again = [(one.data(), one.redelivery_count()) for one in _receive(consumer, 3)]
            if consumer_type in in_order:
                if again[0] == (b"3", 0):  # it was received before the timeout
                    again = [*again[1:], *((one.data(), one.redelivery_count()) for one in _receive(consumer, 1))]
                assert again == [(b"1", 1), (b"2", 1), (b"3", 1)]
            else:
                assert sorted(again) == [(b"1", 1), (b"2", 1), (b"3", 0)]
