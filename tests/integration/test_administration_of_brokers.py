"""Administration of two real brokers, by the SDK and the command line: the owner of a topic or bundle executes each
call.

All tests share one cluster, in their order in this file.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import magnetar
from magnetar import exceptions
from magnetar.admin import Admin
from magnetar_cli.cluster import LocalCluster
from magnetar_cli.command import app
from magnetar_testing.quick_cluster import running_cluster
from magnetar_wire.bundles import default_bundles
from magnetar_wire.message_id import MessageId
from tests.running import GENEROUS_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("administration of brokers")]

_BUNDLES = [str(bundle) for bundle in default_bundles(4)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), bookies=3, brokers=2) as cluster:
        yield cluster


def admins(cluster: LocalCluster) -> list[Admin]:
    """One at each broker, who knows no other."""
    return [Admin(f"magnetar://{cluster.broker(name).address}") for name in cluster.broker_names()]


def command(cluster: LocalCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--folder", str(cluster.folder)])


def output_of(cluster: LocalCluster, *arguments: str) -> str:
    ended = command(cluster, *arguments)
    assert (ended.exit_code, ended.stderr) == (0, ""), (arguments, ended.stderr, ended.exception)
    return ended.stdout


def json_of(cluster: LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects that the command prints with --json, one a line."""
    return [json.loads(line) for line in output_of(cluster, *arguments, "--json").splitlines()]


def test_command_line_lists_brokers_and_moves_bundles(cluster: LocalCluster) -> None:
    """OWN-1."""
    brokers = json_of(cluster, "brokers", "list")
    assert [one["broker_id"] for one in brokers] == cluster.broker_names()
    addresses = {name: cluster.broker(name).address for name in cluster.broker_names()}
    assert {one["broker_id"]: one["listeners"]["internal"] for one in brokers} == addresses
    assert [one["pulsar_listeners"] for one in brokers] == [
        {"internal": cluster.broker(name).pulsar_address} for name in addresses
    ]
    assert [one["http_address"] for one in brokers] == [cluster.broker(name).http_address for name in addresses]
    for line, name in zip(output_of(cluster, "brokers", "list").splitlines(), addresses, strict=True):
        assert line.startswith(f"{name}: internal {addresses[name]} {cluster.broker(name).pulsar_url} bundles ")
    namespace = "public/default"
    for number, bundle in enumerate(_BUNDLES):
        name = list(addresses)[number % 2]
        assert output_of(cluster, "bundles", "unload", namespace, bundle, "--to", name) == (
            f"{bundle} of {namespace}: unloaded, {name} owns it now\n"
        )
    owners = [f"{bundle}: broker-{number % 2 + 1}" for number, bundle in enumerate(_BUNDLES)]
    assert [line.rpartition(" ")[0] for line in output_of(cluster, "bundles", "list", namespace).splitlines()] == owners
    found = command(cluster, "bundles", "find", "orders")
    assert found.exit_code == 1
    assert "there is no topic persistent://public/default/orders" in found.stderr
    lower, upper = _BUNDLES[3].split("_")
    cut = "0xe0000000"
    assert output_of(cluster, "bundles", "split", namespace, _BUNDLES[3]) == (
        f"{_BUNDLES[3]} of {namespace} is {lower}_{cut} and {cut}_{upper} now\n"
    )
    assert output_of(cluster, "bundles", "split", namespace, f"{cut}_{upper}", "--at", "0xf0000000").endswith(
        f"is {cut}_0xf0000000 and 0xf0000000_{upper} now\n"
    )
    shown = json_of(cluster, "bundles", "list", namespace)
    assert [one["broker_id"] for one in shown] == [
        "broker-1",
        "broker-2",
        "broker-1",
        "broker-2",
        "broker-2",
        "broker-2",
    ]
    output_of(cluster, "bundles", "unload", namespace)
    for wrong, why in (
        (("bundles", "unload", namespace, _BUNDLES[0], "--to", "broker-9"), "broker-9"),
        (("bundles", "split", namespace, _BUNDLES[3]), "no bundle"),
        (("bundles", "list", "public/none"), "public/none"),
        (("bundles", "split", namespace, _BUNDLES[0], "--by", "topics"), "no two topics"),
    ):
        ended = command(cluster, *wrong)
        assert ended.exit_code == 1, wrong
        assert why in ended.stderr


def test_partitions_at_both_brokers_are_administered_through_either(cluster: LocalCluster) -> None:
    """TOP-3."""
    one, two = admins(cluster)
    with one, two, magnetar.Client(cluster.service_url) as client:
        one.namespaces.create("public/shop", bundles=8)
        for number, bundle in enumerate(two.namespaces.bundles("public/shop")):
            two.namespaces.unload("public/shop", bundle.bundle, f"broker-{number % 2 + 1}")
        one.topics.create_partitioned("public/shop/events", 8)
        two.subscriptions.create("public/shop/events", "s", MessageId.earliest)
        owners = two.topics.lookup_partitioned("public/shop/events")
        assert {owner.broker_id for owner in owners.values()} == {"broker-1", "broker-2"}
        with client.create_producer("public/shop/events") as producer:
            for number in range(80):
                producer.send_async(b"%d" % number, None, partition_key=str(number))
            producer.flush()
        for admin in (one, two):
            assert admin.topics.stats("public/shop/events").received.messages == 80
            for name, owner in owners.items():
                assert admin.topics.stats(name).owner_broker == owner.broker_id
        two.topics.update_partitioned("public/shop/events", 12)
        one.subscriptions.skip_all("public/shop/events", "s")
        assert two.topics.stats("public/shop/events").subscription("s").backlog_entries == 0
        shown = json_of(cluster, "bundles", "find", "public/shop/events")
        assert len(shown) == 12
        assert {one["address"] for one in shown} == {cluster.broker(name).address for name in cluster.broker_names()}


def test_a_dead_brokers_topics_are_administered_at_their_next_one(cluster: LocalCluster) -> None:
    """OWN-2, TOP-3: kill -9 and SIGSTOP of an owner, seen by an administrator at the other one, and of both."""
    names = cluster.broker_names()
    for stop_method, heal in (("kill", "start"), ("pause", "resume")):
        at_other = Admin(f"magnetar://{cluster.broker(names[0]).address}", GENEROUS_S)
        at_both = Admin(f"magnetar://{cluster.broker(names[1]).address},{cluster.broker(names[0]).address}", GENEROUS_S)
        with at_other, at_both, magnetar.Client(cluster.service_url) as client:
            topic = f"public/shop/{stop_method}"
            at_other.topics.create(topic)
            bundle = at_other.topics.lookup(topic).bundle
            at_other.namespaces.unload("public/shop", bundle, names[1])
            at_other.subscriptions.create(topic, "s", MessageId.earliest)
            with client.create_producer(topic, batching_enabled=False) as producer:
                for number in range(5):
                    producer.send(b"%d" % number)
            assert at_both.topics.stats(topic).owner_broker == names[1]
            getattr(cluster.broker(names[1]), stop_method)()
            stats = at_other.topics.stats(topic)
            assert (stats.owner_broker, stats.subscription("s").backlog_entries) == (names[0], 5)
            at_other.subscriptions.skip(topic, "s", 2)
            assert at_both.topics.stats(topic).subscription("s").backlog_entries == 3
            getattr(cluster.broker(names[1]), heal)()
            registered(at_other, 2)
            # It comes back knowing that the topic is another broker's.
            assert at_both.topics.stats(topic).owner_broker == names[0]
            assert at_other.topics.stats("public/shop/events").received.messages >= 0


def registered(admin: Admin, brokers: int) -> None:
    deadline = time.monotonic() + GENEROUS_S
    while len(admin.brokers.list()) < brokers:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_forced_deletion_that_is_broken_off_by_kill_9_is_finished_by_the_same_call(cluster: LocalCluster) -> None:
    """TOP-3: the broker that got the call dies, then one that it called."""
    names = cluster.broker_names()
    addresses = [cluster.broker(name).address for name in names]
    with (
        Admin(f"magnetar://{','.join(addresses)}", GENEROUS_S) as admin,
        magnetar.Client(cluster.service_url) as client,
    ):
        for turn, victim in enumerate(names):
            namespace = f"public/doomed{turn}"
            admin.namespaces.create(namespace)
            for number, bundle in enumerate(admin.namespaces.bundles(namespace)):
                admin.namespaces.unload(namespace, bundle.bundle, names[number % 2])
            admin.topics.create_partitioned(f"{namespace}/events", 8)
            producer = client.create_producer(f"{namespace}/events")
            producer.send(b"one")
            killer = threading.Timer(0.05, cluster.broker(victim).kill)
            with Admin(f"magnetar://{addresses[0]}", GENEROUS_S) as first_admin:
                killer.start()
                with contextlib.suppress(exceptions.MagnetarException):
                    first_admin.namespaces.delete(namespace, force=True)
                killer.join()
            if not cluster.running(victim):
                cluster.start(victim)
            deadline = time.monotonic() + GENEROUS_S
            while namespace in admin.namespaces.list("public"):
                try:
                    admin.namespaces.delete(namespace, force=True)
                except exceptions.NotFound:
                    break
                except exceptions.MagnetarException:
                    assert time.monotonic() < deadline
            with pytest.raises(exceptions.NotFound):
                admin.topics.list(namespace)
            producer.close()
            registered(admin, 2)
