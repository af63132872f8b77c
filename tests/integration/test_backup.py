"""A backup as deploy/operating.md describes it: folders that are copied while nothing runs, and put back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import magnetar
from magnetar_testing.quick_cluster import running_cluster
from magnetar_testing.standalone_process import StandaloneProcess

pytestmark = pytest.mark.slow


def test_a_standalone_is_as_its_backup_was(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "data") as server:
        _publish(server.service_url, b"before")
        _read_on(server.service_url, b"before")
        server.stop()
        shutil.copytree(server.folder, tmp_path / "backup")
        server.start()
        _publish(server.service_url, b"after")
        _read_on(server.service_url, b"after")
        server.stop()
        _put_back(tmp_path / "backup", server.folder)
        server.start()
        _publish(server.service_url, b"again")
        _read_on(server.service_url, b"again")


def test_a_cluster_is_as_its_backup_was(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", bookies=3, brokers=2) as cluster:
        _publish(cluster.service_url, b"before")
        _read_on(cluster.service_url, b"before")
        cluster.down()
        shutil.copytree(cluster.folder, tmp_path / "backup")
        cluster.up()
        _publish(cluster.service_url, b"after")
        _read_on(cluster.service_url, b"after")
        cluster.down()
        _put_back(tmp_path / "backup", cluster.folder)
        cluster.up()
        _publish(cluster.service_url, b"again")
        _read_on(cluster.service_url, b"again")


def _put_back(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def _publish(url: str, payload: bytes) -> None:
    with magnetar.Client(url) as client:
        producer = client.create_producer("orders")
        for number in range(20):
            producer.send(b"%s %d" % (payload, number))


def _read_on(url: str, payload: bytes) -> None:
    """The subscription goes on with these messages, and has no others."""
    with magnetar.Client(url) as client:
        consumer = client.subscribe("orders", "billing", initial_position=magnetar.InitialPosition.Earliest)
        for number in range(20):
            message = consumer.receive(timeout_millis=60_000)
            assert message.data() == b"%s %d" % (payload, number)
            consumer.acknowledge(message, receipt=True)
