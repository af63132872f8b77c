"""The cluster of deploy/docker-compose.yml, with real containers: what its users are promised holds.

`make test-compose` runs this: it builds images and takes minutes, so it is no part of `make test`.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Final

import pulsar
import pytest

import magnetar
from magnetar.admin import Admin
from magnetar_wire.process.exit_status import ExitStatus
from tests.compose.compose_project import BOOKIES, BROKERS, ComposeProject, docker
from tests.compose.numbered_messages import publishing, read_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_RECEIVE_MS: Final = 60_000
_MARKER: Final = 1000


def test_containers_are_unprivileged_and_published_on_loopback_only(project: ComposeProject) -> None:
    for service in (*BOOKIES, *BROKERS):
        inspected = project.inspected(service)
        host = inspected["HostConfig"]
        assert inspected["Config"]["User"] == "magnetar", service
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["Privileged"], service
        published = [one for ports in host["PortBindings"].values() for one in ports]
        assert published, service
        assert {one["HostIp"] for one in published} == {"127.0.0.1"}, service
    image = project.variables["MAGNETAR_IMAGE"]
    within = ["run", "--rm", "--entrypoint", "sh", image, "-c"]
    assert docker(*within, "id --user") != "0"
    assert docker(*within, "ls /opt/magnetar/bin; command -v gcc || echo none").endswith("none")
    assert docker(*within, "ls /opt/magnetar/bin | grep -c pip || true") == "0"


def test_brokers_report_ready_and_all_bookies_are_writable(project: ComposeProject) -> None:
    for number in (1, 2):
        address = f"http://localhost:{project.variables[f'BROKER_{number}_HTTP_PORT']}"
        with urllib.request.urlopen(f"{address}/ready", timeout=10) as answer:
            assert json.load(answer) == {"ready": True, "reasons": []}
    assert project.compose("exec", "-T", "broker-1", "magnetar", "bookies", "list", "--metadata",
                           "zookeeper://zookeeper/magnetar").count("writable") == len(BOOKIES)  # fmt: skip


def test_this_machine_publishes_and_consumes(project: ComposeProject) -> None:
    """Topics of both brokers, looked up at either."""
    with magnetar.Client(project.url) as client, Admin(project.url) as admin:
        admin.topics.create_partitioned("spread", 8)
        owners = admin.topics.lookup_partitioned("spread").values()
        outside = {f"localhost:{project.variables[f'BROKER_{number}_PORT']}" for number in (1, 2)}
        assert {owner.address.removeprefix("magnetar://") for owner in owners} == outside
        producer = client.create_producer("spread")
        consumer = client.subscribe("spread", "all", initial_position=magnetar.InitialPosition.Earliest)
        for number in range(100):
            producer.send(b"%d" % number)
        received = [consumer.receive(_RECEIVE_MS) for _ in range(100)]
        assert sorted(int(message.data()) for message in received) == list(range(100))
        consumer.acknowledge(received)


def test_stock_clients_publish_and_consume(project: ComposeProject) -> None:
    """WIRE-1: topics of both brokers, and each leads to the other by its address on this machine."""
    with Admin(project.url) as admin:
        admin.topics.create_partitioned("stock", 8)
        assert len({owner.address for owner in admin.topics.lookup_partitioned("stock").values()}) == len(BROKERS)
    client = pulsar.Client(project.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    try:
        producer = client.create_producer("stock", batching_enabled=False)
        consumer = client.subscribe("stock", "all", initial_position=pulsar.InitialPosition.Earliest)
        for number in range(100):
            producer.send(b"%d" % number)
        received = [consumer.receive(_RECEIVE_MS) for _ in range(100)]
        assert sorted(int(message.data()) for message in received) == list(range(100))
        assert len({message.topic_name() for message in received}) == 8
    finally:
        client.close()


def test_a_bookie_that_is_killed_loses_nothing(project: ComposeProject) -> None:
    """While messages come in; it comes back by itself, and takes part again."""
    with magnetar.Client(project.url) as client:
        for bookie in BOOKIES:
            topic = f"without-{bookie}"
            consumer = client.subscribe(topic, "reads-later")  # and so keeps it
            with publishing(client, topic) as published:
                published.wait_more(200)
                project.kill(bookie)
                published.wait_more(200)
                project.wait_healthy(bookie)
                published.wait_more(200)
            assert published.failures == []
            _check(published.receipts, read_all(consumer, published.sent - 1))


def test_killed_broker_loses_no_message_and_preserves_order(project: ComposeProject) -> None:
    with magnetar.Client(project.url) as client, Admin(project.url) as admin:
        consumer = client.subscribe("failed-over", "reads-later")
        with publishing(client, "failed-over") as published:
            for _ in range(2):
                published.wait_more(300)
                owner = admin.topics.lookup("failed-over").broker_id
                assert owner in BROKERS
                project.kill(owner)
                published.wait_more(300)
                project.wait_healthy(owner)
        assert published.failures == []
        _check(published.receipts, read_all(consumer, published.sent - 1))


def test_data_survives_compose_down_and_up(project: ComposeProject) -> None:
    """New containers at new addresses, and the volumes of before: messages, what was acknowledged, and topics."""
    with magnetar.Client(project.url) as client, Admin(project.url) as admin:
        admin.topics.create_partitioned("retained-in-parts", 3)
        producer = client.create_producer("retained")
        cumulative = client.subscribe("retained", "cumulative")
        single = client.subscribe("retained", "single", consumer_type=magnetar.ConsumerType.Shared)
        client.subscribe("retained", "untouched")
        for number in range(100):
            producer.send_async(b"%d" % number, lambda result, message_id: None)
        producer.flush()
        first = [cumulative.receive(_RECEIVE_MS) for _ in range(40)]
        cumulative.acknowledge_cumulative(first[-1])
        for message in [single.receive(_RECEIVE_MS) for _ in range(100)]:
            if int(message.data()) % 3 == 0:
                single.acknowledge(message)
    before = {service: project.inspected(service)["Id"] for service in (*BOOKIES, *BROKERS)}
    project.down()
    project.up()
    assert not set(before.values()) & {project.inspected(service)["Id"] for service in before}
    with magnetar.Client(project.url) as client, Admin(project.url) as admin:
        assert (
            admin.topics.list_partitioned("public/default").count("persistent://public/default/retained-in-parts") == 1
        )
        client.create_producer("retained").send(b"%d" % _MARKER)
        assert _left(client, "cumulative", magnetar.ConsumerType.Exclusive) == list(range(40, 100))
        assert _left(client, "single", magnetar.ConsumerType.Shared) == [n for n in range(100) if n % 3]
        assert _left(client, "untouched", magnetar.ConsumerType.Exclusive) == list(range(100))


def test_stopped_container_shuts_down_gracefully(project: ComposeProject) -> None:
    """SIGTERM reaches it, and not a shell; it is there again afterwards."""
    for service in ("broker-1", "bookie-1"):
        assert project.stop_one(service) is ExitStatus.ENDED
        project.compose("start", service)
        project.wait_healthy(service)


def test_misspelled_setting_is_refused_with_suggestion(project: ComposeProject) -> None:
    image = project.variables["MAGNETAR_IMAGE"]
    command = ["docker", "run", "--rm", "--env", "MAGNETAR_BROKRE_ID=x", image, "broker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitStatus.REFUSED
    assert "did you mean 'broker_id'?" in done.stderr


def _left(client: magnetar.Client, subscription: str, kind: magnetar.ConsumerType) -> list[int]:
    """The unacknowledged messages of the topic `retained`, whose last message is `_MARKER`."""
    with client.subscribe("retained", subscription, consumer_type=kind) as consumer:
        return read_all(consumer, _MARKER)[:-1]


def _check(receipts: list[int], read: list[int]) -> None:
    """Nothing with a receipt is missing, and what is read for the first time is in order."""
    assert receipts
    assert set(receipts) <= set(read)
    first_time = list(dict.fromkeys(read))
    assert first_time == sorted(first_time)
