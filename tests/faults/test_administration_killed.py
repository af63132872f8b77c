"""Kill a process with -9 during administration, by seed: the same call finishes what was interrupted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar import exceptions
from magnetar.admin import Admin
from magnetar_testing.randomness import SeededRandomness
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.message_id import MessageId

pytestmark = pytest.mark.slow

_NAMESPACE = "public/shop"
_TOPIC = "public/shop/orders"
_PATIENCE_S = 60.0
# A call takes a few milliseconds.
_LONGEST_S = 0.02


def finished(grpc: str, operation: Callable[[Admin], object]) -> None:
    """Repeat the call until one reports that it is done."""
    deadline = time.monotonic() + _PATIENCE_S
    with Admin(grpc) as admin:
        while True:
            try:
                operation(admin)
                return
            except (exceptions.AlreadyExists, exceptions.NotFound):
                return
            except exceptions.MagnetarException:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_retry_completes_operation_interrupted_by_kill_9(tmp_path: Path) -> None:
    """TOP-3."""
    randomness = SeededRandomness(7)
    operations: list[Callable[[Admin], object]] = [
        lambda admin: admin.namespaces.create(_NAMESPACE),
        lambda admin: admin.topics.create_partitioned(_TOPIC, 2),
        lambda admin: admin.subscriptions.create(_TOPIC, "s", MessageId.earliest),
        lambda admin: admin.topics.update_partitioned(_TOPIC, 4),
        lambda admin: admin.namespaces.delete(_NAMESPACE, force=True),
    ]
    with StandaloneProcess(tmp_path / "data") as server:
        for number, operation in enumerate(operations):
            with Admin(server.service_url, 2) as admin:
                killer = threading.Timer(randomness.random() * _LONGEST_S, server.kill)
                killer.start()
                with contextlib.suppress(exceptions.MagnetarException):
                    operation(admin)
                killer.join()
            server.start()
            finished(server.service_url, operation)
            with Admin(server.service_url) as admin:
                if number == 3:
                    partitions = [f"persistent://{_TOPIC}-partition-{index}" for index in range(4)]
                    assert admin.topics.list(_NAMESPACE) == partitions
                    assert [admin.subscriptions.list(one) for one in partitions] == [["s"]] * 4
        with Admin(server.service_url) as admin:
            assert _NAMESPACE not in admin.namespaces.list("public")
