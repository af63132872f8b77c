"""Stock Pulsar clients on a cluster of real processes: they find the owner of a topic, and follow it when it moves."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest

from magnetar.admin import Admin
from magnetar_cli.cluster import LocalCluster
from tests.running import run, until
from tests.topic_owner import looked_up, owner_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

_LONG_MS: Final = 60_000
_LONG_S: Final = 60.0


@contextlib.contextmanager
def connected(url: str, log: Path, **options: Any) -> Iterator[pulsar.Client]:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log / "client.log"))
    client = pulsar.Client(url, **{"operation_timeout_seconds": 60, "logger": logger, **options})
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def administered(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(cluster.service_url) as admin:
        yield admin


def other_than(cluster: LocalCluster, name: str) -> str:
    return next(one for one in cluster.broker_names() if one != name)


def clients_at(cluster: LocalCluster, name: str) -> dict[str, float]:
    """How many producers and consumers of Pulsar's protocol a broker has."""
    _, text = cluster.broker(name).ask("/metrics")
    return {
        what: float(re.findall(rf"^pulsar_listener_{what}{{.*}} (\S+)", text, re.MULTILINE)[0])
        for what in ("producers", "consumers")
    }


class Traffic:
    """A producer and a consumer of one topic, which go on while something happens to the brokers."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        self.producer = client.create_producer(
            topic, block_if_queue_full=True, batching_max_publish_delay_ms=1, send_timeout_millis=_LONG_MS
        )
        self._sent = 0
        # The results of sends, in the order of the callbacks.
        self._results: list[tuple[int, pulsar.Result]] = []

    def send(self, messages: int) -> None:
        """Without waiting for receipts."""
        for number in range(self._sent, self._sent + messages):
            self.producer.send_async(b"%d" % number, lambda result, _, number=number: self._on_sent(number, result))
        self._sent += messages

    def _on_sent(self, number: int, result: pulsar.Result) -> None:
        self._results.append((number, result))

    def all_receipted(self) -> None:
        run(until(lambda: len(self._results) == self._sent, "every send has a result"), 2 * _LONG_S)
        assert self._results == [(number, pulsar.Result.Ok) for number in range(self._sent)]

    def whole(self) -> None:
        """All that had a receipt comes, in order; what comes again came before."""
        seen: dict[int, None] = {}
        while len(seen) < self._sent:
            message = self.consumer.receive(timeout_millis=_LONG_MS)
            number = int(message.data())
            assert number in seen or number == len(seen), (number, len(seen))
            seen[number] = None
            self.consumer.acknowledge(message)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Publishes without end in the background."""
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                self.send(10)
                stop.wait(0.002)

        publishing = threading.Thread(target=publish)
        publishing.start()
        try:
            yield
        finally:
            stop.set()
            publishing.join()


def test_lookup_at_any_broker_leads_to_the_owner(cluster: LocalCluster, tmp_path: Path) -> None:
    """WIRE-1, OWN-1: whichever a client is given, it connects to the owner."""
    owner = owner_of(cluster, "stock-led")
    for contacted in cluster.broker_names():
        with connected(cluster.broker(contacted).pulsar_url, tmp_path) as client:
            going = Traffic(client, "stock-led")
            assert clients_at(cluster, owner) == {"producers": 1, "consumers": 1}
            assert clients_at(cluster, other_than(cluster, owner)) == {"producers": 0, "consumers": 0}
            going.send(10)
            going.all_receipted()
            going.whole()


def test_an_unload_moves_clients_and_loses_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """WIRE-1, OWN-3: the broker notifies them, they go to the bundle's new owner, and resend messages without a
    receipt.
    """
    with connected(cluster.pulsar_url, tmp_path) as client, administered(cluster) as admin:
        going = Traffic(client, "stock-unloaded")
        owner = owner_of(cluster, "stock-unloaded")
        to = other_than(cluster, owner)
        (topic,) = admin.topics.owners("stock-unloaded")
        with going.going_on():
            admin.namespaces.unload("public/default", topic.bundle, to)
            run(until(lambda: clients_at(cluster, to)["producers"] == 1, "its producer comes to the other broker"))
        going.all_receipted()
        going.whole()
        assert owner_of(cluster, "stock-unloaded") == to
        assert clients_at(cluster, owner) == {"producers": 0, "consumers": 0}
        with going.going_on():  # of the topic alone: it is opened again where it was
            admin.topics.unload("stock-unloaded")
        going.all_receipted()


def test_kill_of_the_owner(cluster: LocalCluster, tmp_path: Path) -> None:
    """WIRE-1, OWN-2: another broker takes over, and stock clients find it by themselves; nothing receipted is lost."""
    with connected(cluster.pulsar_url, tmp_path) as client:
        going = Traffic(client, "stock-killed")
        owner = owner_of(cluster, "stock-killed")
        with going.going_on():
            cluster.kill(owner)
            other = other_than(cluster, owner)
            run(until(lambda: clients_at(cluster, other)["producers"] == 1, "its producer comes to the other broker"))
        going.all_receipted()
        assert owner_of(cluster, "stock-killed") == other
        going.whole()
    cluster.start(owner)


def test_a_pause_of_the_owner_beyond_its_session(cluster: LocalCluster, tmp_path: Path) -> None:
    """WIRE-1, OWN-2: a broker that stood still finds its session over, and closes its clients' producers, so that they
    look their topic up again; messages without a receipt are resent there.
    """
    with connected(cluster.pulsar_url, tmp_path) as client:
        going = Traffic(client, "stock-paused")
        owner = owner_of(cluster, "stock-paused")
        other = other_than(cluster, owner)

        async def taken_over() -> bool:
            there = cluster.broker(other).address
            return (await looked_up(there, "stock-paused")).address == there

        with going.going_on():
            logged = len(cluster.log(owner).read_text())
            cluster.pause(owner)
            run(until(taken_over, "the other broker takes over"))
            cluster.resume(owner)
            run(until(lambda: clients_at(cluster, other)["producers"] == 1, "its producer comes to the other broker"))
        going.all_receipted()
        going.whole()
        assert "All topics are closed" in cluster.log(owner).read_text()[logged:]


def test_clients_reconnect_when_the_owner_shuts_down_gracefully(cluster: LocalCluster, tmp_path: Path) -> None:
    """WIRE-1: its clients are notified, and go on at the other one; it ends all the same, with them connected."""
    with connected(cluster.pulsar_url, tmp_path) as client:
        going = Traffic(client, "stock-peace")
        owner = owner_of(cluster, "stock-peace")
        with going.going_on():
            cluster.stop(owner)
        going.all_receipted()
        assert "has shut down gracefully" in cluster.log(owner).read_text().splitlines()[-1]
        going.whole()
    cluster.start(owner)


def test_a_partitioned_topic_over_both_brokers(cluster: LocalCluster, tmp_path: Path) -> None:
    """WIRE-1: one producer and one consumer have connections to both; each partition keeps its order."""
    with connected(cluster.broker("broker-1").pulsar_url, tmp_path) as client, administered(cluster) as admin:
        admin.topics.create_partitioned("stock-parts", 8)
        owners = {one.topic: one.broker_id for one in admin.topics.owners("stock-parts")}
        if len(set(owners.values())) == 1:  # by chance
            (first, *_) = admin.topics.owners("stock-parts")
            admin.namespaces.unload("public/default", first.bundle, other_than(cluster, first.broker_id))
        consumer = client.subscribe("stock-parts", "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(
            "stock-parts",
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            batching_enabled=False,
        )
        assert all(clients_at(cluster, name)["producers"] > 0 for name in cluster.broker_names())
        for number in range(80):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        found: Counter[str] = Counter()
        last: dict[str, int] = {}
        for _ in range(80):
            message = consumer.receive(timeout_millis=_LONG_MS)
            topic, number = message.topic_name(), int(message.data())
            assert last.get(topic, -1) < number
            last[topic] = number
            found[topic] += 1
            consumer.acknowledge(message)
        assert set(found) == set(owners)
        assert set(found.values()) == {10}


def test_a_listener_by_its_name(cluster: LocalCluster, tmp_path: Path) -> None:
    """OWN-1: a client gets the owner's address at the listener that it names, whomever it asks."""
    owner = owner_of(cluster, "stock-listened")
    contacted = cluster.broker(other_than(cluster, owner))
    with connected(contacted.pulsar_url, tmp_path, listener_name="external") as client:
        going = Traffic(client, "stock-listened")
        going.send(5)
        going.all_receipted()
        going.whole()
        assert clients_at(cluster, owner) == {"producers": 1, "consumers": 1}
    for name in ("nowhere", "not there"):
        with (
            connected(contacted.pulsar_url, tmp_path, listener_name=name, operation_timeout_seconds=1) as client,
            pytest.raises(pulsar.PulsarException),
        ):
            client.create_producer("stock-listened")
