"""A real standalone, administered and looked at from outside."""

from __future__ import annotations

import json
import os
import queue
import re
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import magnetar
from magnetar import exceptions
from magnetar.admin import Admin, NamespacePolicies, Persistence, TenantSettings
from magnetar_cli.command import app
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.message_id import MessageId
from tests.faults.shim import shim
from tests.http_client import send_request

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]


def got(server: StandaloneProcess, path: str) -> tuple[int, bytes]:
    return send_request(server.http_url.removeprefix("http://"), path)


def metric(server: StandaloneProcess, line: str) -> float:
    status, body = got(server, "/metrics")
    assert status == 200
    (found,) = [one for one in body.decode().splitlines() if one.startswith(line + " ")]
    return float(found.rpartition(" ")[2])


def alerting_metrics() -> set[str]:
    """Return the names of our metrics in the page's section on alerts."""
    section = (PROJECT / "deploy" / "operating.md").read_text().partition("## What to alert on\n")[2]
    return set(re.findall(r"`((?:pulsar|magnetar)_\w+)`", section.partition("\n## ")[0]))


def exported_metrics(server: StandaloneProcess) -> set[str]:
    """Return the names of all metrics that have a sample. That of a histogram has no suffix."""
    lines = got(server, "/metrics")[1].decode().splitlines()
    samples = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in lines if not line.startswith("#")}
    kinds = [line.split()[2:4] for line in lines if line.startswith("# TYPE ")]
    return samples | {name for name, kind in kinds if kind == "histogram" and f"{name}_bucket" in samples}


def test_admin_changes_survive_kill_9(tmp_path: Path) -> None:
    """TOP-3."""
    with StandaloneProcess(tmp_path / "data") as server, Admin(server.service_url) as admin:
        admin.tenants.create("acme", TenantSettings(["amy"]))
        admin.namespaces.create("acme/shop", NamespacePolicies(Persistence(1, 1, 1)))
        admin.topics.create_partitioned("acme/shop/orders", 3)
        admin.subscriptions.create("acme/shop/orders", "billing", properties={"team": "money"})
        with magnetar.Client(server.service_url) as client:
            producer = client.create_producer("acme/shop/orders-partition-1")
            producer.send(b"one")
        server.kill()
        server.start()
        assert admin.tenants.list() == ["acme", "public"]
        assert admin.namespaces.policies("acme/shop") == NamespacePolicies(Persistence(1, 1, 1))
        admin.topics.update_partitioned("acme/shop/orders", 4)
        server.kill()
        server.start()
        assert admin.topics.get_partitioned("acme/shop/orders").partitions == 4
        assert len(admin.topics.list("acme/shop")) == 4
        stats = admin.topics.stats("acme/shop/orders").subscription("billing")
        assert (stats.backlog_messages, stats.properties) == (1, {"team": "money"})
        assert admin.subscriptions.list("acme/shop/orders-partition-3") == ["billing"]
        admin.tenants.delete("acme", force=True)
        server.kill()
        server.start()
        assert admin.tenants.list() == ["public"]
        with pytest.raises(exceptions.NotFound):
            admin.topics.list("acme/shop")


def test_health_and_numbers_are_those_of_real_messages(tmp_path: Path) -> None:
    """ADM-2."""
    with StandaloneProcess(tmp_path / "data", log_format="json") as server, Admin(server.service_url) as admin:
        assert got(server, "/health") == (200, b'{"healthy":true,"reasons":[]}')
        assert admin.brokers.health().healthy
        with magnetar.Client(server.service_url) as client:
            consumer = client.subscribe("orders", "s")
            producer = client.create_producer("orders")
            for number in range(100):
                producer.send_async(b"%d" % number, None)
            producer.flush()
            received = [consumer.receive(30_000) for _ in range(100)]
            labels = '{cluster="standalone",namespace="public/default",topic="persistent://public/default/orders"}'
            assert metric(server, f"pulsar_in_messages_total{labels}") == 100
            assert metric(server, f"pulsar_consumers_count{labels}") == 1
            of_broker = '{cluster="standalone"}'
            assert metric(server, f"pulsar_broker_out_messages_total{of_broker}") == 100
            assert metric(server, "magnetar_bookie_adds_total") >= 1
            # An alert on a name that does not exist never fires.
            assert len(alerting_metrics()) >= 10
            assert alerting_metrics() - exported_metrics(server) == set()
            stats = admin.topics.stats("orders")
            assert stats.received.messages == 100
            (one,) = stats.subscriptions
            assert (one.type, one.delivered.messages, len(one.consumers)) == ("EXCLUSIVE", 100, 1)
            for message in received:
                consumer.acknowledge(message)
            deadline = time.monotonic() + 60
            while admin.topics.stats("orders").subscription("s").backlog_entries:
                assert time.monotonic() < deadline
            (cursor,) = admin.topics.internal_stats("orders").cursors
            assert cursor.open_entries == 0
        # The heartbeat's topic is nobody's business.
        assert admin.topics.list("pulsar/system") == []
        (heartbeat,) = admin.topics.list("pulsar/system", include_system_topic=True)
        with magnetar.Client(server.service_url) as client, pytest.raises(exceptions.MagnetarException):
            client.create_producer(heartbeat)
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.logged.splitlines() if line.startswith("{")]
        assert {"time", "level", "logger", "message"} <= set(lines[0])


def test_hanging_disk_fails_health_check_until_it_recovers(tmp_path: Path) -> None:
    """ADM-2: with a real disk, whose syncs hang as long as there is a flag."""
    flag = tmp_path / "hang"
    environment = {"HANGING_DISK": str(flag), "LD_PRELOAD": shim("hanging_disk", tmp_path)}
    with StandaloneProcess(
        tmp_path / "data", environment, health_check_timeout_seconds=1, health_check_max_age_seconds=0
    ) as server:
        assert got(server, "/health")[0] == 200
        flag.touch()
        for _ in range(3):
            status, body = got(server, "/health")
            assert status == 503
            assert b"has not answered for" in body
        flag.unlink()
        deadline = time.monotonic() + 60
        while got(server, "/health")[0] != 200:
            assert time.monotonic() < deadline


def test_http_port_in_use_is_reported(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "one") as one:
        other = StandaloneProcess(tmp_path / "other")
        other.http_url = one.http_url
        try:
            other.spawn()
            assert other.wait() == 78
            assert "HTTP can't be served at 127.0.0.1:" in other.logged
        finally:
            other.close()


def test_admin_client_works_after_fork(tmp_path: Path) -> None:
    """CHK-60: in the child as in the parent."""
    with StandaloneProcess(tmp_path / "data") as server, Admin(server.service_url) as admin:
        admin.tenants.create("parent")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                admin.tenants.create("child")
                os.write(writing, json.dumps(admin.tenants.list()).encode())
                status = 0
            except BaseException:  # noqa: BLE001 (the child must not go on as the test)
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        assert "public" in admin.tenants.list()
        assert os.waitpid(child, 0)[1] == 0
        assert json.loads(os.read(reading, 1000)) == ["child", "parent", "public"]
        os.close(reading)
        assert admin.tenants.list() == ["child", "parent", "public"]


def test_subscriptions_are_looked_into_and_moved(magnetar_standalone: StandaloneProcess, magnetar_topic: str) -> None:
    """SUB-9."""
    with magnetar_standalone.admin() as admin:
        admin.topics.create(magnetar_topic)
        admin.subscriptions.create(magnetar_topic, "s", MessageId.earliest)
        with magnetar_standalone.client() as client:
            producer = client.create_producer(magnetar_topic)
            for number in range(3):
                producer.send_async(b"%d" % number, None, partition_key=f"k{number}", properties={"n": str(number)})
            producer.flush()
            peeked = admin.subscriptions.peek(magnetar_topic, "s")
            found = [(one.payload, one.key, one.properties) for one in peeked]
            assert found == [(b"%d" % number, f"k{number}", {"n": str(number)}) for number in range(3)]
            consumer = client.subscribe(magnetar_topic, "s")
            received: list[Any] = [consumer.receive(30_000) for _ in range(3)]
            consumer.acknowledge(received[1])
            consumer.close()
            deadline = time.monotonic() + 60
            while [one.payload for one in admin.subscriptions.peek(magnetar_topic, "s")] != [b"0", b"2"]:
                assert time.monotonic() < deadline
            admin.subscriptions.clear_backlog(magnetar_topic, "s")
            assert admin.subscriptions.peek(magnetar_topic, "s") == []
            admin.subscriptions.reset(magnetar_topic, "s", received[2].message_id())
            consumer = client.subscribe(magnetar_topic, "s")
            assert consumer.receive(30_000).data() == b"2"


def test_a_policy_that_the_bookies_can_not_meet_is_set_with_a_warning(tmp_path: Path) -> None:
    """Warnings go to standard error. A topic that waits for bookies resumes when the policy is corrected."""
    with StandaloneProcess(tmp_path / "data") as server, magnetar.Client(server.service_url) as client:

        def policies(persistence: str) -> Result:
            command = ["namespaces", "policies", "public/default", "--persistence", persistence, "--json"]
            ended = CliRunner().invoke(app, [*command, "--url", server.service_url])
            assert ended.exit_code == 0, ended.stderr
            return ended

        warned = policies("3,3,2")
        assert "magnetar: warning: namespace public/default: its persistence policy can't be met now" in warned.stderr
        assert "1 of 1 registered bookies accept a new ledger, and the ack quorum needs 2" in warned.stderr
        assert json.loads(warned.stdout)["persistence"]["ack_quorum"] == 2
        results: queue.Queue[magnetar.Result] = queue.Queue()
        client.create_producer("t").send_async(b"one", lambda result, _: results.put(result))
        with Admin(server.service_url) as admin:
            deadline = time.monotonic() + 60
            while "needs 2" not in admin.topics.stats("t").waiting_for:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            sent = CliRunner().invoke(
                app, ["produce", "t", "two", "--send-timeout-s", "2", "--url", server.service_url]
            )
            assert sent.exit_code != 0
            assert "the topic waits: a new ledger needs 2 bookies, but 1 of 1" in " ".join(sent.stderr.split())
            assert policies("1,1,1").stderr == ""
        assert results.get(timeout=60) == magnetar.Result.Ok
