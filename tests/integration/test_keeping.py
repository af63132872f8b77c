"""What policies keep and what they let expire, on a standalone, for clients of both protocols; and the freed disk."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest

import magnetar
from magnetar import InitialPosition
from magnetar.admin import Admin, InactiveTopics, Retention, TopicPolicies
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S

pytestmark = pytest.mark.slow

_LONG_MS: Final = 60_000
# Settings with which ledgers, and the files of the bookie's log, are small, and everything is looked at often.
_SMALL: Final[dict[str, Any]] = {
    "topic_housekeeping_interval_seconds": 0.05,
    "metadata_cache_ttl_seconds": 0.2,
    "message_expiry_check_interval_in_minutes": 0.005,
    "subscription_expiry_check_interval_in_minutes": 0.005,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "managed_ledger_max_size_per_ledger_bytes": 262_144,
    "segment_bytes": 1_048_576,
    "garbage_interval_seconds": 0.2,
}
_MB: Final = 1_048_576


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("keeping") / "data"
    with StandaloneProcess(folder, subscription_expiration_time_minutes=0.01, **_SMALL) as server:
        yield server


class _StockClient:
    """The part of the SDK's client that these tests use, on a client of Pulsar."""

    def __init__(self, url: str) -> None:
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))

    def create_producer(self, topic: str) -> Any:
        return self._client.create_producer(topic)

    def subscribe(self, topic: str, name: str) -> Any:
        return self._client.subscribe(topic, name, initial_position=pulsar.InitialPosition.Earliest)

    def close(self) -> None:
        self._client.close()


class _OurClient(_StockClient):
    def __init__(self, url: str) -> None:
        self._client = magnetar.Client(url)

    def subscribe(self, topic: str, name: str) -> Any:
        return self._client.subscribe(topic, name, initial_position=InitialPosition.Earliest)


@pytest.fixture(scope="module", params=["grpc", "pulsar"])
def client(server: StandaloneProcess, request: pytest.FixtureRequest) -> Iterator[_StockClient]:
    stock = request.param == "pulsar"
    client = _StockClient(server.pulsar_url) if stock else _OurClient(server.service_url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def admin(server: StandaloneProcess) -> Iterator[Admin]:
    with Admin(server.service_url) as admin:
        yield admin


@pytest.fixture
def topic(client: _StockClient, admin: Admin, request: pytest.FixtureRequest) -> str:
    """A topic of its own, of a namespace without policies."""
    name = f"{type(client).__name__.strip('_').lower()}-{request.node.originalname}"
    admin.topics.create(name)
    return name


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_messages_expire_for_clients(server: StandaloneProcess, client: _StockClient, admin: Admin, topic: str) -> None:
    """RET-2: for a consumer that has not acknowledged them; it gets what is published later. The policy is set while
    they are connected, by topic. Statistics and metrics count what has expired."""
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    for number in range(10):
        producer.send(b"old %d" % number)
    assert consumer.receive(_LONG_MS).data() == b"old 0"
    admin.topics.change_policies(topic, TopicPolicies(message_ttl_seconds=1))
    _wait(lambda: admin.topics.stats(topic).subscription("s").expired_entries == 10, "all expire")
    assert admin.topics.stats(topic).subscription("s").backlog_messages == 0
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=GENEROUS_S) as answer:
        (line,) = re.findall(rf'^pulsar_subscription_total_msg_expired{{.*/{topic}".*', answer.read().decode(), re.M)
    assert line.endswith(" 10.0")
    admin.topics.change_policies(topic, TopicPolicies(message_ttl_seconds=10_000))
    producer.send(b"new")
    received = b""
    while received != b"new":  # the old ones are in the client's queue already
        received = consumer.receive(_LONG_MS).data()
    assert admin.topics.stats(topic).subscription("s").backlog_messages == 1
    consumer.close()
    producer.close()


def test_retention_retains_by_size_and_then_frees_the_disk(
    server: StandaloneProcess, client: _StockClient, admin: Admin, topic: str
) -> None:
    """RET-2, RET-3: acknowledged messages stay as the policy has it; when it is removed, the bookie's files shrink."""
    admin.topics.change_policies(topic, TopicPolicies(retention=Retention(time_minutes=-1, size_mb=4)))
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    for number in range(40):
        producer.send(os.urandom(_MB // 4) + b"%d" % number)
        consumer.acknowledge(consumer.receive(_LONG_MS))

    def stored_mb() -> float:
        return sum(ledger.bytes for ledger in admin.topics.internal_stats(topic).ledgers) / _MB

    _wait(lambda: stored_mb() <= 4.6, "ledgers beyond the size are deleted")
    assert stored_mb() >= 4
    log = server.folder / "bookie"
    before = _size_mb(log)
    assert before >= 4
    admin.topics.change_policies(topic, TopicPolicies(), remove=["retention"])
    _wait(lambda: stored_mb() < 1, "what is acknowledged is deleted")
    _wait(lambda: _size_mb(log) < before - 3, "the disk is freed")
    consumer.close()
    producer.close()


def _size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MB


def test_unused_subscriptions_expire(client: _StockClient, admin: Admin, topic: str) -> None:
    """RET-2: one with a consumer stays."""
    used = client.subscribe(topic, "used")
    client.subscribe(topic, "unused").close()
    _wait(lambda: admin.subscriptions.list(topic) == ["used"], "the unused one is deleted")
    used.close()


def test_inactive_topics_are_deleted_when_subscriptions_have_caught_up(
    client: _StockClient, admin: Admin, topic: str
) -> None:
    """TOP-2: neither one with a client, nor one with a backlog."""
    unused = InactiveTopics(True, "delete_when_subscriptions_caught_up", max_inactive_seconds=0)
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    admin.topics.change_policies(topic, TopicPolicies(inactive_topics=unused))
    producer.send(b"one")
    consumer.acknowledge(consumer.receive(_LONG_MS))
    producer.close()
    assert admin.topics.list("public/default").count(f"persistent://public/default/{topic}") == 1
    consumer.close()
    _wait(lambda: f"persistent://public/default/{topic}" not in admin.topics.list("public/default"), "it is deleted")
