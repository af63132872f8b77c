"""pulsar-client on non-persistent topics of a real standalone, beside our SDK.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import re

import pulsar
import pytest
from pulsar import ConsumerType

import magnetar
from magnetar.admin import Admin
from tests.stock_clients import LONG_MS, OURS_ALONE, StockServer, nothing_more, numbers, topic

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


def _topic(what: str) -> str:
    return f"non-{topic(what)}"


def _received(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    return [consumer.receive(LONG_MS).data() for _ in range(count)]


def test_messages_go_to_the_consumers_that_are_connected(client: pulsar.Client) -> None:
    """(TOP-5) Each type chooses its consumer, and a full receiver queue loses what comes then."""
    name = _topic("live")
    producer = client.create_producer(name)
    producer.send(b"before")
    exclusive = client.subscribe(name, "exclusive", receiver_queue_size=2)
    shared = [client.subscribe(name, "shared", ConsumerType.Shared) for _ in range(2)]
    failover = [client.subscribe(name, "failover", ConsumerType.Failover, consumer_name=one) for one in "ab"]
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, "exclusive")
    for number in range(6):
        producer.send(b"%d" % number)
    assert _received(exclusive, 2) == numbers(0, 1)
    assert sorted(_received(shared[0], 3) + _received(shared[1], 3)) == numbers(*range(6))
    assert _received(failover[0], 6) == numbers(*range(6))
    nothing_more(failover[1])
    assert [reader.read_next(LONG_MS).data() for _ in range(6)] == numbers(*range(6))
    producer.send(b"6")
    message = exclusive.receive(LONG_MS)
    assert message.data() == b"6"
    exclusive.negative_acknowledge(message)
    exclusive.acknowledge(message)
    nothing_more(exclusive)
    for one in (exclusive, *shared, *failover):
        one.close()
    reader.close()
    producer.close()


@OURS_ALONE
def test_partitions_patterns_and_both_clients(client: pulsar.Client, server: StockServer) -> None:
    """(TOP-3, TOP-5) The SDK and the stock client share partitioned topics, and growth is noticed."""
    name = _topic("parts")
    assert server.process is not None
    url = server.process.service_url
    with Admin(url) as admin, magnetar.Client(url) as sdk:
        admin.topics.create_partitioned(name, 2)
        assert name in admin.topics.list_partitioned("public/default", domain="non-persistent")
        of_all = client.subscribe(name, "all", ConsumerType.Shared)
        by_pattern = client.subscribe(
            re.compile(f"{name}.*"), "pattern", regex_subscription_mode=pulsar.RegexSubscriptionMode.NonPersistentOnly
        )
        ours = sdk.subscribe(name, "ours", magnetar.ConsumerType.Failover)
        producers = client.create_producer(name), sdk.create_producer(name)
        for number in range(8):
            producers[number % 2].send(b"%d" % number)
        for consumer in (of_all, by_pattern):
            assert sorted(_received(consumer, 8)) == numbers(*range(8))
        assert sorted(ours.receive(LONG_MS).data() for _ in range(8)) == numbers(*range(8))
        listed = admin.topics.list("public/default", domain="non-persistent")
        assert {f"{name}-partition-{index}" for index in range(2)} <= set(listed)
        assert not {one for one in admin.topics.list("public/default") if "parts" in one} & set(listed)
        stats = admin.topics.stats(name)
        assert (stats.received.messages, stats.subscription("ours").dropped_messages) == (8, 0)
        for one in (of_all, by_pattern, ours, *producers):
            one.close()
        admin.topics.delete_partitioned(name)
