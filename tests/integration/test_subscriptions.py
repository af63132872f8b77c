"""Subscriptions through the SDK on a standalone: who gets what, and what is left of it after kill -9."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from magnetar import Client, Consumer, ConsumerType, InitialPosition, Message, MessageId, exceptions
from magnetar.admin import Admin
from magnetar_testing.standalone_process import StandaloneProcess

pytestmark = pytest.mark.slow

_LONG_MS = 60_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("standalone") / "data") as running:
        yield running


@pytest.fixture
def client(server: StandaloneProcess) -> Iterator[Client]:
    connected = Client(server.service_url)
    yield connected
    connected.close()


def _earliest(client: Client, topic: str, name: str = "s", **more: object) -> Consumer:
    return client.subscribe(topic, name, initial_position=InitialPosition.Earliest, **more)  # type: ignore[arg-type]


def _receive(consumer: Consumer, count: int) -> list[Message]:
    return [consumer.receive(_LONG_MS) for _ in range(count)]


def _received_by(consumers: Sequence[Consumer], enough: Callable[[list[list[bytes]]], bool]) -> list[list[bytes]]:
    """What each of them gets, acknowledged, until it is enough."""
    got: list[list[bytes]] = [[] for _ in consumers]
    for _ in range(600):
        if enough(got):
            return got
        for consumer, had in zip(consumers, got, strict=True):
            try:
                message = consumer.receive(100)
            except exceptions.Timeout:
                continue
            had.append(message.data())
            consumer.acknowledge(message)
    raise AssertionError(f"not enough: {got}")


def _data(messages: Sequence[Message]) -> list[bytes]:
    return [message.data() for message in messages]


def test_cursor_survives_kill_9(server: StandaloneProcess, client: Client) -> None:
    """SUB-7, SUB-9: single acks, parts of batches, a seek and an admin's skip are durable once they are answered."""
    topic = "killed"
    producer = client.create_producer(topic, batching_max_publish_delay_ms=60_000)
    for number in range(10):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    for number in range(10, 13):
        producer.send(b"%d" % number)
    parts = _earliest(client, topic, "parts of a batch")
    messages = _receive(parts, 13)
    for number in (0, 1, 4, 11):
        parts.acknowledge(messages[number], receipt=True)
    sought = _earliest(client, topic, "sought")
    _receive(sought, 13)
    sought.acknowledge_cumulative(messages[12].message_id(), receipt=True)
    sought.seek(messages[10].message_id())
    with Admin(server.service_url) as admin:
        admin.subscriptions.create(topic, "skipped", MessageId.earliest)
        admin.subscriptions.skip(topic, "skipped", 2)
    client.close()  # else it would come back, and have them before the next one
    server.kill()
    server.start()
    with Admin(server.service_url) as admin:
        again = Client(server.service_url)
        try:
            left = [b"%d" % number for number in range(13) if number not in (0, 1, 4, 11)]
            assert _data(_receive(_earliest(again, topic, "parts of a batch"), len(left))) == left
            assert _data(_receive(_earliest(again, topic, "sought"), 2)) == [b"11", b"12"]
            assert _data(_receive(_earliest(again, topic, "skipped"), 2)) == [b"11", b"12"]
            stats = admin.topics.stats(topic)
            assert stats.subscription("parts of a batch").consumers[0].permits > 0
        finally:
            again.close()


def test_failover_serves_each_partition_by_one_and_hands_it_on(server: StandaloneProcess, client: Client) -> None:
    """SUB-3"""
    topic = "partitioned"
    with Admin(server.service_url) as admin:
        admin.topics.create_partitioned(topic, 4)
        producer = client.create_producer(topic, batching_enabled=False)
        other = Client(server.service_url)
        b = _earliest(other, topic, consumer_type=ConsumerType.Failover, consumer_name="b")
        a = _earliest(client, topic, consumer_type=ConsumerType.Failover, consumer_name="a")
        active = [
            admin.topics.stats(f"{topic}-partition-{number}").subscription("s").active_consumer for number in range(4)
        ]
        assert active == ["a", "b", "a", "b"]
        for number in range(40):
            producer.send(b"%d" % number)
        got = _received_by([a, b], lambda got: sum(map(len, got)) == 40)
        assert all(got)
        # The other one goes without a word, and what it had not acknowledged comes to the first.
        for number in range(40, 60):
            producer.send(b"%d" % number)
        b.receive(_LONG_MS)
        other.close()
        [rest] = _received_by([a], lambda got: len(set(got[0])) == 20)
        assert set(rest) == {b"%d" % number for number in range(40, 60)}
        for number in range(4):
            stats = admin.topics.stats(f"{topic}-partition-{number}").subscription("s")
            assert stats.active_consumer == "a"


def test_shared_dispatches_evenly_and_redelivers_after_close(server: StandaloneProcess, client: Client) -> None:
    """SUB-4, ACK-3"""
    topic = "shared"
    producer = client.create_producer(topic, batching_enabled=False)
    other = Client(server.service_url)
    mine = [_earliest(client, topic, consumer_type=ConsumerType.Shared) for _ in range(2)]
    idle = _earliest(other, topic, consumer_type=ConsumerType.Shared)
    for number in range(60):
        producer.send(b"%d" % number)
    _receive(idle, 5)  # and acknowledges none
    with Admin(server.service_url) as admin:
        stats = admin.topics.stats(topic).subscription("s")
        assert [consumer.unacknowledged_messages for consumer in stats.consumers] == [20, 20, 20]
    other.close()
    got = _received_by(mine, lambda got: sum(map(len, got)) == 60)
    assert sorted(map(int, [one for had in got for one in had])) == list(range(60))
    # The redelivery count shows that these had been delivered before.
    for consumer in mine:
        consumer.close()
    with pytest.raises(exceptions.ConsumerBusy):
        first = _earliest(client, topic, consumer_type=ConsumerType.Shared)
        assert first.is_connected()
        _earliest(client, topic)


def test_exclusive_on_partitions_is_all_or_none(server: StandaloneProcess, client: Client) -> None:
    """SUB-2"""
    with Admin(server.service_url) as admin:
        admin.topics.create_partitioned("all-or-none", 3)
        first = _earliest(client, "all-or-none")
        with pytest.raises(exceptions.ConsumerBusy):
            _earliest(client, "all-or-none")
        for number in range(3):
            stats = admin.topics.stats(f"all-or-none-partition-{number}").subscription("s")
            assert len(stats.consumers) == 1
        first.close()
        _earliest(client, "all-or-none").close()


def test_stats_report_why_a_subscription_is_blocked(server: StandaloneProcess, client: Client) -> None:
    producer = client.create_producer("why", batching_enabled=False)
    _earliest(client, "why", receiver_queue_size=2)
    for number in range(10):
        producer.send(b"%d" % number)
    with Admin(server.service_url) as admin:
        admin.subscriptions.create("why", "nobody", MessageId.earliest)
        stats = admin.topics.stats("why")
        assert "permits" in stats.subscription("s").blocked_by
        assert stats.subscription("nobody").blocked_by == "no consumer is connected"
        assert stats.subscription("s").backlog_entries == 10


def test_unsubscribing_deletes_it(server: StandaloneProcess, client: Client) -> None:
    """SUB-1"""
    consumer = _earliest(client, "deleted")
    with Admin(server.service_url) as admin:
        assert admin.subscriptions.list("deleted") == ["s"]
        consumer.unsubscribe()
        assert admin.subscriptions.list("deleted") == []
