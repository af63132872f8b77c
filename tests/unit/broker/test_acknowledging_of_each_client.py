"""Acknowledgements and permits of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of
pulsar-client over Pulsar's protocol. What is acknowledged is read from the broker's cursors.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_wire.topic_name import TopicName
from tests.running import GENEROUS_S
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

_of_each_client = pytest.mark.parametrize("kind", KINDS)
_NAME = TopicName.parse("t")
# Any change makes the ledger of a cursor full.
_SHORT_CURSOR_LEDGERS: Any = {"managed_ledger_cursor_max_size_per_ledger_bytes": 1}


def _publish(made: EachClient, count: int, batch: int = 0) -> None:
    """Publish numbered messages; in batches of this size, if there is one."""
    options: Any = {"batching_enabled": bool(batch), "batching_max_messages": batch or 1_000}
    producer = made.client.create_producer(
        "t", batching_max_publish_delay_ms=3_600_000, max_pending_messages=10_000, **options
    )
    made.send_all(producer, *(b"%d" % number for number in range(count)))
    producer.close()


def _subscribe(made: EachClient, consumer_type: str, subscription: str = "s", **options: Any) -> Any:
    library = made.library
    return made.client.subscribe(
        "t",
        subscription,
        getattr(library.ConsumerType, consumer_type),
        initial_position=library.InitialPosition.Earliest,
        # By default our library acknowledges single messages of batches.
        **({} if made.is_ours else {"batch_index_ack_enabled": True}) | options,
    )


def _receive(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(LONG_MS) for _ in range(count)]


def _numbers(messages: list[Any]) -> list[int]:
    return sorted(int(message.data()) for message in messages)


def _position(message: Any) -> Position:
    message_id = message.message_id()
    return Position(message_id.ledger_id(), message_id.entry_id())


def _cursor(made: EachClient, subscription: str = "s") -> Cursor:
    topic = made.scene.broker_session.topics.get_loaded(_NAME)
    assert topic is not None
    cursor = topic.cursors.get(subscription)
    assert cursor is not None
    return cursor


def _find_left(made: EachClient, messages: list[Any], subscription: str = "s") -> list[int]:
    """Return the messages, each an entry, that are not acknowledged."""
    cursor = _cursor(made, subscription)
    return _numbers([message for message in messages if not cursor.is_acknowledged(_position(message))])


async def _read_consumer_stats(made: EachClient) -> Any:
    """Return the statistics of the only consumer."""
    [consumer] = (await made.scene.admin.topics.stats("t")).subscription("s").consumers
    return consumer


def _unload(made: EachClient) -> None:
    made.run(lambda: made.scene.broker_session.topics.unload(_NAME))


def _crash(made: EachClient) -> None:
    """End the broker's session. As after a crash, nothing more is saved, and cursors are read from their ledgers."""
    scene, before = made.scene, made.scene.broker.session
    assert scene.store is not None
    store = scene.store
    made.run(lambda: scene.metadata.expire(store))
    made.until(lambda: scene.broker.session not in (None, before), "the broker has another session")


@_of_each_client
@pytest.mark.parametrize("consumer_type", ["Exclusive", "Failover", "Shared"])
def test_messages_are_acknowledged_singly_and_up_to_one(kind: str, consumer_type: str) -> None:
    """CON-3: by the message or its id, and by our library several in one call; all up to one on Exclusive and Failover,
    which Shared refuses. Closing the consumer sends what is not sent."""
    with each_client(kind) as made:
        _publish(made, 10)
        grouping: Any = {"ack_grouping_time_ms": 1e9} if made.is_ours else {}
        consumer = _subscribe(made, consumer_type, **grouping)
        messages = _receive(consumer, 10)
        consumer.acknowledge(messages[7])
        consumer.acknowledge(messages[5].message_id())
        if made.is_ours:
            consumer.acknowledge([messages[4], messages[8].message_id()])
        if consumer_type == "Shared":
            with pytest.raises(made.errors.CumulativeAcknowledgementNotAllowedError):
                consumer.acknowledge_cumulative(messages[9])
        else:
            consumer.acknowledge_cumulative(messages[2])
        consumer.close()
        left = {*range(10)} - {7, 5} - ({4, 8} if made.is_ours else set())
        assert _find_left(made, messages) == sorted(left - (set() if consumer_type == "Shared" else {0, 1, 2}))


@_of_each_client
def test_acknowledged_messages_of_a_batch_stay_acknowledged(kind: str) -> None:
    """CON-4: over a redelivery, a reconnect, and a crash of the broker. The entry is done when all its messages are."""
    with each_client(kind) as made:
        _publish(made, 6, batch=6)
        consumer = _subscribe(made, "Shared")
        messages = _receive(consumer, 6)
        position, cursor = _position(messages[0]), _cursor(made)

        def acknowledge(*numbers: int, expected: int) -> None:
            for message in messages:
                if int(message.data()) in numbers:
                    consumer.acknowledge(message)
            made.until(lambda: cursor.get_acknowledged_messages(position) == expected, "they are acknowledged")

        acknowledge(1, 3, expected=0b001010)
        consumer.redeliver_unacknowledged_messages()
        messages = _receive(consumer, 4)
        assert _numbers(messages) == [0, 2, 4, 5]
        acknowledge(0, expected=0b001011)
        _unload(made)
        messages = _receive(consumer, 3)
        assert _numbers(messages) == [2, 4, 5]
        cursor = _cursor(made)
        acknowledge(2, expected=0b001111)
        made.run(cursor.wait_until_saved)
        _crash(made)
        messages = _receive(consumer, 2)
        assert _numbers(messages) == [4, 5]
        cursor = _cursor(made)
        assert not cursor.is_acknowledged(position)
        for message in messages:
            consumer.acknowledge(message)
        made.until(lambda: cursor.mark_delete == position, "the entry is done")
        consumer.close()


@_of_each_client
def test_without_batch_index_acks_a_batch_is_acknowledged_as_a_whole(kind: str) -> None:
    """CON-4: when all its messages are, which a stock client does unless it is configured otherwise."""
    with each_client(kind) as made:
        _publish(made, 3, batch=3)
        consumer = _subscribe(made, "Shared", batch_index_ack_enabled=False)
        messages = _receive(consumer, 3)
        for message in messages[:2]:
            consumer.acknowledge(message)
        consumer.redeliver_unacknowledged_messages()
        again = _receive(consumer, 3)
        assert _numbers(again) == [0, 1, 2]
        assert _cursor(made).get_acknowledged_messages(_position(again[0])) == 0
        for message in again:
            consumer.acknowledge(message)
        made.until(lambda: _cursor(made).mark_delete == _position(again[0]), "the entry is done")
        consumer.close()


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_receipt_comes_when_the_acknowledgement_is_durable(kind: str) -> None:
    """ACK-1, CON-3: then no crash of the broker loses it. `test_receipts_of_acknowledgements_are_sent_when_durable` is
    the same of Pulsar's protocol; pulsar-client for Python requests no receipts."""
    with each_client(kind) as made, ThreadPoolExecutor(1) as thread:
        _publish(made, 8)
        consumer = _subscribe(made, "Shared")
        messages = _receive(consumer, 8)
        made.hold_bookies()
        adds = made.count_adds()
        receipt = thread.submit(consumer.acknowledge, messages[1::2], receipt=True)
        made.until(lambda: made.count_adds() > adds, "the bookies have got it")
        assert _find_left(made, messages) == [0, 2, 4, 6]
        assert not receipt.done()
        made.resume_bookies()
        receipt.result(GENEROUS_S)
        _crash(made)
        assert _numbers(_receive(consumer, 4)) == [0, 2, 4, 6]
        assert _find_left(made, messages) == [0, 2, 4, 6]
        consumer.close()


@_of_each_client
def test_a_topic_that_another_broker_took_goes_on(kind: str) -> None:
    """CHK-30, OWN-2: its owner is fenced, and closes it. The clients reopen it. What they publish and acknowledge then
    is stored by its new owner, and nothing is lost."""
    with each_client(kind) as made:
        producer = made.client.create_producer("t", batching_enabled=False)
        consumer = _subscribe(made, "Exclusive")
        made.send_all(producer, b"0", b"1", b"2")
        messages = _receive(consumer, 3)
        consumer.acknowledge(messages[0])
        made.until(lambda: _find_left(made, messages) == [1, 2], "it is acknowledged")
        made.run(lambda: _cursor(made).wait_until_saved())
        fenced = made.scene.broker_session.topics.get_loaded(_NAME)
        assert fenced is not None
        made.run(lambda: made.scene.take_topic(_NAME))
        made.send_all(producer, b"3")
        assert fenced.ended is not None
        again = _receive(consumer, 3)
        assert _numbers(again) == [1, 2, 3]
        for message in again:
            consumer.acknowledge(message)
        made.until(lambda: not _find_left(made, [*messages, *again]), "all are acknowledged")
        assert made.payloads("t") == [b"0", b"1", b"2", b"3"]
        consumer.close()


@_of_each_client
def test_no_hole_is_dropped(kind: str) -> None:
    """ACK-1, ACK-2, CHK-34: when the topic is unloaded, when the broker crashes after they were saved, and when the
    cursor's ledgers are replaced by others, which begin with a snapshot."""
    with each_client(kind, **_SHORT_CURSOR_LEDGERS) as made:
        _publish(made, 120)
        consumer = _subscribe(made, "Exclusive")
        messages = _receive(consumer, 120)
        for message in messages[1:80:2]:
            consumer.acknowledge(message)
        made.until(lambda: len(_find_left(made, messages)) == 80, "they are acknowledged")
        _unload(made)
        _receive(consumer, 80)
        for message in messages[81::2]:
            consumer.acknowledge(message)
        made.until(lambda: len(_find_left(made, messages)) == 60, "they are acknowledged")
        made.run(lambda: _cursor(made).wait_until_saved())
        _crash(made)
        assert _numbers(_receive(consumer, 60)) == _find_left(made, messages) == [*range(0, 120, 2)]
        consumer.close()


@_of_each_client
def test_a_position_in_deleted_ledgers_moves_to_the_next_message(kind: str) -> None:
    """CHK-54, ACK-2: once, also if the topic is unloaded then. Ledgers are deleted by the stored position of durable
    subscriptions, so a reader does not retain them."""
    with each_client(
        kind, managed_ledger_max_entries_per_ledger=5, managed_ledger_min_ledger_rollover_time_minutes=0
    ) as made:
        consumer = _subscribe(made, "Exclusive")
        _publish(made, 20)
        reader = made.client.create_reader("t", made.library.MessageId.earliest, receiver_queue_size=1)
        found = [int(reader.read_next(LONG_MS).data())]
        messages = _receive(consumer, 20)
        made.hold_bookies()
        consumer.acknowledge_cumulative(messages[16])
        made.until(lambda: _cursor(made).mark_delete == _position(messages[16]), "it is acknowledged")
        assert made.run(lambda: _trim(made)) == 20
        made.resume_bookies()
        made.run(lambda: _cursor(made).wait_until_saved())
        assert made.run(lambda: _trim(made)) == 5
        _unload(made)
        while found[-1] != 19:
            found.append(int(reader.read_next(LONG_MS).data()))
        prefetched = [number for number in found if number < 15]
        assert found == [*range(len(prefetched)), *range(15, 20)]
        assert _numbers(_receive(consumer, 3)) == [17, 18, 19]
        consumer.close()
        reader.close()


async def _trim(made: EachClient) -> int:
    """Delete the ledgers that are not needed. Return how many entries are left."""
    topic = made.scene.broker_session.topics.get_loaded(_NAME)
    assert topic is not None
    await topic.log.trim(topic.cursors.find_slowest_position)
    topic.drop_trimmed_ledgers()
    return topic.log.entries_between(topic.log.before_first, topic.log.last)


@_of_each_client
def test_a_consumer_holds_a_bounded_number_of_unacknowledged_messages(kind: str) -> None:
    """ACK-3: then it waits, and others go on. When it leaves, what it held goes to others."""
    with each_client(kind, max_unacked_messages_per_consumer=4) as made:
        _publish(made, 10)
        waiting = _subscribe(made, "Shared")
        held = _receive(waiting, 4)
        assert made.run(lambda: _read_consumer_stats(made)).blocked_on_unacknowledged
        other = _subscribe(made, "Shared")
        received = _receive(other, 4)
        assert _numbers(held + received) == [*range(8)]
        waiting.acknowledge(held[0])
        [more] = _receive(waiting, 1)
        assert int(more.data()) == 8
        waiting.close()
        for message in received:
            other.acknowledge(message)
        left = _receive(other, 4)
        for message in left:
            other.acknowledge(message)
        left += _receive(other, 1)
        assert _numbers(left) == [*_numbers([*held[1:], more]), 9]
        other.close()


@_of_each_client
def test_the_receiver_queue_decides_what_is_delivered(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CON-1: 1,000 messages by default, and more when half of them were received; without a queue, one at a time."""
    granted: list[int] = []
    flow = Consumer.flow

    def count(consumer: Consumer, epoch: int, permits: int) -> None:
        granted.append(permits)
        flow(consumer, epoch, permits)

    monkeypatch.setattr(Consumer, "flow", count)
    with each_client(kind) as made:
        _publish(made, 2_000, batch=100)
        consumer = _subscribe(made, "Shared")

        async def is_full() -> bool:
            return bool((await _read_consumer_stats(made)).unacknowledged_messages == 1_000)

        made.until(is_full, "the queue is full")
        _receive(consumer, 399)
        assert made.run(is_full)
        assert sum(granted) == 1_000
        _receive(consumer, 601)  # the library counts in groups
        made.until(lambda: sum(granted) > 1_000, "more is granted")
        assert granted[-1] >= 500
        consumer.close()
        granted.clear()
        made.send_all(made.client.create_producer("u", batching_enabled=False), b"0", b"1", b"2")
        consumer = made.client.subscribe(
            "u", "s", receiver_queue_size=0, initial_position=made.library.InitialPosition.Earliest
        )
        for number in range(3):
            assert int(consumer.receive().data()) == number
            assert granted == [1] * (number + 1)
        consumer.close()
