"""The forms in which an application receives, of each client on a real broker: of the SDK, synchronous and asyncio,
over gRPC, and of pulsar-client over Pulsar's protocol."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.running import GENEROUS_S
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client
from tests.unit.client.sync_consume_scene import wait_until

_of_each_client = pytest.mark.parametrize("kind", KINDS)
_of_our_clients = pytest.mark.parametrize("kind", ["sync", "aio"])
_NUMBERS = [b"%d" % number for number in range(10)]


def _subscribe(made: EachClient, topics: str | list[str], name: str, **options: Any) -> Any:
    return made.client.subscribe(topics, name, initial_position=made.library.InitialPosition.Earliest, **options)


def _publish(made: EachClient, topic: str, *contents: bytes) -> None:
    """Store an entry for each message."""
    producer = made.client.create_producer(topic, batching_enabled=False)
    made.send_all(producer, *contents)
    producer.close()


def _policy(made: EachClient, count: int, size: int, timeout_ms: int) -> Any:
    return made.library.ConsumerBatchReceivePolicy(count, size, timeout_ms)


@_of_each_client
@pytest.mark.parametrize("queue_size", [0, 3, 1_000])
def test_receive_returns_the_next_message_and_waits_for_it(kind: str, queue_size: int) -> None:
    """CON-1, CON-2: with a timeout at most for that, without one until there is a message."""
    with ThreadPoolExecutor(1) as thread, each_client(kind) as made:
        consumer = _subscribe(made, "t", "s", receiver_queue_size=queue_size)
        if made.is_ours or queue_size:  # pulsar-client for Python has no timeout without a queue
            with pytest.raises(made.errors.Timeout):
                consumer.receive(10)
        waiting = thread.submit(consumer.receive)
        _publish(made, "t", *_NUMBERS)
        got = [waiting.result(GENEROUS_S), *(consumer.receive() for _ in _NUMBERS[1:])]
        assert [message.data() for message in got] == _NUMBERS
        consumer.close()


@_of_each_client
def test_a_batch_is_complete_by_number_by_bytes_or_by_time(kind: str) -> None:
    """CON-2: the messages of a batch are in order, and the first limit that is reached counts."""
    with each_client(kind) as made:
        _publish(made, "t", *_NUMBERS)
        for policy, sizes in (
            (_policy(made, 4, -1, LONG_MS), [4, 4]),
            (_policy(made, 9, 3, LONG_MS), [3, 3, 3]),
            (_policy(made, 2, 100, LONG_MS), [2, 2, 2, 2, 2]),
        ):
            consumer = _subscribe(made, "t", f"{sizes}", batch_receive_policy=policy)
            batches = [consumer.batch_receive() for _ in sizes]
            assert [len(batch) for batch in batches] == sizes
            assert [message.data() for batch in batches for message in batch] == _NUMBERS[: sum(sizes)]
            consumer.close()
        consumer = _subscribe(made, "t", "time", batch_receive_policy=_policy(made, 100, -1, 20))
        found: list[bytes] = []
        while len(found) < len(_NUMBERS):
            found += [message.data() for message in consumer.batch_receive()]
        assert found == _NUMBERS
        assert list(consumer.batch_receive()) == []


@_of_each_client
def test_a_batch_has_messages_of_all_topics(kind: str) -> None:
    """CON-2: the limits are those of the whole batch, and what is over one of them waits for the next batch."""
    with each_client(kind) as made:
        topics = ["a", "b", "c"]
        consumer = _subscribe(made, topics, "s", batch_receive_policy=_policy(made, 6, -1, LONG_MS))
        for topic in topics:
            _publish(made, topic, b"1", b"2", b"3", b"4")
        found: dict[str, list[bytes]] = {}
        for _ in range(2):
            batch = consumer.batch_receive()
            assert len(batch) == 6
            for message in batch:
                found.setdefault(message.topic_name().rpartition("/")[2], []).append(message.data())
        assert found == {topic: [b"1", b"2", b"3", b"4"] for topic in topics}
        consumer.close()


@_of_each_client
def test_a_listener_gets_every_message_in_order_and_can_be_paused(kind: str) -> None:
    """CON-2: on a thread for the application's code, or in a task of its loop; what arrives in a pause waits."""
    with each_client(kind) as made:
        got: list[bytes] = []
        threads: set[str] = set()

        def listen(consumer: Any, message: Any) -> Any:
            threads.add(threading.current_thread().name)
            got.append(message.data())
            return consumer.acknowledge(message)

        consumer = _subscribe(made, "t", "s", message_listener=listen)
        _publish(made, "t", *_NUMBERS)
        wait_until(lambda: len(got) == len(_NUMBERS), "all are listened to")
        consumer.pause_message_listener()
        _publish(made, "t", b"in the pause")
        consumer.resume_message_listener()
        wait_until(lambda: len(got) > len(_NUMBERS), "the listener is called again")
        assert got == [*_NUMBERS, b"in the pause"]
        wait_until(lambda: _backlog(made, "t", "s") == 0, "all are acknowledged")
        consumer.close()
        # Of the asyncio client, the loop is the application's: in this test the shared one.
        assert (threads == {"magnetar"}) == (kind == "aio")
        assert threading.current_thread().name not in threads


def _backlog(made: EachClient, topic: str, subscription: str) -> int:
    stats = made.run(lambda: made.scene.admin.topics.stats(topic))
    return int(next(one.backlog_entries for one in stats.subscriptions if one.subscription == subscription))


# Not batch_receive of pulsar-client for Python, which doesn't return when its consumer is closed.
@pytest.mark.parametrize(("kind", "batches"), [*((kind, False) for kind in KINDS), ("sync", True), ("aio", True)])
def test_closing_ends_receives_and_what_was_not_received_is_redelivered(kind: str, batches: bool) -> None:
    """(CON-2) Each receive that waits raises an error, also one that waits for a batch of which it has a part."""
    with ThreadPoolExecutor(2) as threads, each_client(kind) as made:
        consumer = _subscribe(made, "t", "s", batch_receive_policy=_policy(made, 100, -1, LONG_MS))
        started = threading.Barrier(3)

        def receive() -> Any:
            started.wait(GENEROUS_S)
            return consumer.batch_receive() if batches else consumer.receive()

        waiting: list[Future[Any]] = [threads.submit(receive) for _ in range(2)]
        started.wait(GENEROUS_S)
        if batches:
            _publish(made, "t", *_NUMBERS)
        consumer.close()
        for one in waiting:
            assert isinstance(one.exception(GENEROUS_S), made.errors.AlreadyClosed)
        if not batches:
            _publish(made, "t", *_NUMBERS)
        again = _subscribe(made, "t", "s")
        assert [again.receive(LONG_MS).data() for _ in _NUMBERS] == _NUMBERS
        again.close()


@_of_our_clients
def test_a_paused_consumer_is_delivered_nothing(kind: str) -> None:
    """CON-1, CON-2: `pause` and `resume`, of Java's clients, which pulsar-client for Python has not."""
    with ThreadPoolExecutor(1) as thread, each_client(kind) as made:
        consumer = _subscribe(made, "t", "s", receiver_queue_size=2)
        consumer.pause()
        _publish(made, "t", *_NUMBERS)
        got = [consumer.receive(LONG_MS).data() for _ in range(2)]
        waiting = thread.submit(consumer.receive)
        stats = made.run(lambda: made.scene.admin.topics.stats("t"))
        assert [one.permits for one in stats.subscriptions[0].consumers] == [0]
        assert not waiting.done()
        consumer.resume()
        got += [waiting.result(GENEROUS_S).data(), *(consumer.receive(LONG_MS).data() for _ in _NUMBERS[3:])]
        assert got == _NUMBERS


@_of_our_clients
def test_a_listener_may_close_its_consumer_and_others_wait_for_its_call(kind: str) -> None:
    """CON-2: so that it can acknowledge its message."""
    with ThreadPoolExecutor(1) as thread, each_client(kind) as made:
        going, called = threading.Event(), threading.Event()

        def listen(consumer: Any, message: Any) -> Any:
            called.set()
            if kind == "sync":
                going.wait(GENEROUS_S)
                consumer.acknowledge(message, receipt=True)
                return None
            return acknowledge_later(consumer, message)

        async def acknowledge_later(consumer: Any, message: Any) -> None:
            import asyncio

            while not going.is_set():
                await asyncio.sleep(0.001)
            await consumer.acknowledge(message, receipt=True)

        consumer = _subscribe(made, "t", "s", message_listener=listen)
        _publish(made, "t", b"1", b"2")
        assert called.wait(GENEROUS_S)
        closing = thread.submit(consumer.close)
        going.set()
        closing.result(GENEROUS_S)
        assert _backlog(made, "t", "s") == 1
        closed = threading.Event()

        def close(consumer: Any, message: Any) -> Any:
            result = consumer.close()
            closed.set()
            return result

        closing_itself = _subscribe(made, "t", "s", message_listener=close)
        assert closed.wait(GENEROUS_S)
        wait_until(lambda: not closing_itself.is_connected(), "it is closed")
