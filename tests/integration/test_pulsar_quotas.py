"""Backlog quotas, as pulsar-client's producers and consumers meet them, on a real standalone.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from magnetar.admin import Admin, BacklogQuota, TopicPolicies
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S
from tests.stock_clients import EARLIEST, LONG_MS, StockServer, is_elsewhere, topic

pytestmark = pytest.mark.slow
_KB = 1_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    if is_elsewhere():
        yield StockServer(None)
        return
    fast: dict[str, Any] = {"backlog_quota_check_interval_in_seconds": 0.1, "topic_housekeeping_interval_seconds": 0.1}
    with StandaloneProcess(
        tmp_path_factory.mktemp("quotas") / "data", metadata_cache_ttl_seconds=0.1, **fast
    ) as process:
        yield StockServer(process)


def _fill(server: StockServer, client: pulsar.Client, policy: str, limit: int = 5 * _KB) -> tuple[str, pulsar.Consumer]:
    """Return a topic with ten messages of 1 kB, of which a subscription has acknowledged none, and a quota by size."""
    name = topic("quota")
    consumer = client.subscribe(name, "s", receiver_queue_size=1, **EARLIEST)
    producer = client.create_producer(name)
    for number in range(10):
        producer.send(b"%d" % number + bytes(_KB))
    producer.close()
    with Admin(server.http_url) as admin:
        admin.topics.change_policies(name, TopicPolicies(backlog_quota_size=BacklogQuota(policy, limit)))
    return name, consumer


def _refusal(server: StockServer, client: pulsar.Client, name: str) -> type[Exception]:
    """Return the error with which a producer is refused, as soon as the quota is known."""
    deadline = time.monotonic() + GENEROUS_S
    while time.monotonic() < deadline:
        try:
            client.create_producer(name).close()
        except pulsar.PulsarException as error:
            return type(error)
        time.sleep(0.05)
    raise AssertionError("the quota is not enforced")


def _create_producer(client: pulsar.Client, name: str) -> pulsar.Producer:
    """Return a producer as soon as the broker has the acknowledgements."""
    deadline = time.monotonic() + GENEROUS_S
    while True:
        try:
            return client.create_producer(name)
        except pulsar.ProducerBlockedQuotaExceededException:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _drain(consumer: pulsar.Consumer, messages: int = 10) -> None:
    for _ in range(messages):
        consumer.acknowledge(consumer.receive(LONG_MS))


def test_a_stock_producer_is_held_and_goes_on_when_the_backlog_has_shrunk(server: StockServer) -> None:
    """RET-4: its messages wait, and are stored once consumers have drained the topic."""
    with server.client() as client:
        name, consumer = _fill(server, client, "producer_request_hold", 50 * _KB)
        producer = client.create_producer(name, send_timeout_millis=0)
        with Admin(server.http_url) as admin:
            quota = BacklogQuota("producer_request_hold", 5 * _KB)
            admin.topics.change_policies(name, TopicPolicies(backlog_quota_size=quota))
            deadline = time.monotonic() + GENEROUS_S
            while producer.is_connected():
                assert time.monotonic() < deadline
                admin.brokers.check_backlog_quotas()
                time.sleep(0.01)
        results: list[pulsar.Result] = []
        producer.send_async(b"held", lambda result, message_id: results.append(result))
        assert not results
        _drain(consumer)
        held = consumer.receive(LONG_MS)
        assert held.data() == b"held"
        producer.flush()
        assert results == [pulsar.Result.Ok]


def test_a_stock_producers_messages_fail_with_the_exception(server: StockServer) -> None:
    """RET-4: until the backlog has shrunk."""
    with server.client() as client:
        name, consumer = _fill(server, client, "producer_exception")
        assert _refusal(server, client, name) is pulsar.ProducerBlockedQuotaExceededException
        _drain(consumer)
        _create_producer(client, name).send(b"stored")
        assert consumer.receive(LONG_MS).data() == b"stored"


def test_the_oldest_messages_of_a_stock_consumer_are_evicted(server: StockServer) -> None:
    """RET-4: down to 90 % of the quota, in whole entries, of which the last one is left."""
    with server.client() as client:
        name, consumer = _fill(server, client, "consumer_backlog_eviction", 5 * _KB + 500)
        with Admin(server.http_url) as admin:
            deadline = time.monotonic() + GENEROUS_S
            while (left := admin.topics.stats(name).subscription("s").backlog_entries) == 10:
                assert time.monotonic() < deadline
                admin.brokers.check_backlog_quotas()
                time.sleep(0.05)
        assert left == 5
        consumer.close()
        consumer = client.subscribe(name, "s")
        found = [int(consumer.receive(LONG_MS).data()[:1]) for _ in range(left)]
        assert found == [5, 6, 7, 8, 9]
