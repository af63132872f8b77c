"""`magnetar broker` as a process of the operating system: its start, its signals, its exit statuses.

There is no metadata store: tests that need one are in test_broker_cluster.py.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar_wire.process.exit_status import ExitStatus
from tests.http_client import ask_json
from tests.running import run, until

pytestmark = pytest.mark.slow

_REPOSITORY = Path(__file__).resolve().parents[2]
_ROOTS = ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy")


class BrokerProcess:
    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self, **settings: Any) -> None:
        given = {
            "broker_id": "b1",
            "metadata": "zookeeper://127.0.0.1:1?connect_timeout_seconds=1",
            "listen_addresses": "127.0.0.1:0",
            "pulsar_listen_addresses": "127.0.0.1:0",
            "http_address": "127.0.0.1:0",
            **settings,
        }
        flags = [f"--set={name}={value}" for name, value in given.items()]
        path = os.pathsep.join(str(_REPOSITORY / root) for root in _ROOTS)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "magnetar_cli", "broker", *flags],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for_output(self, what: str) -> str:
        """When it does, what stands behind it."""
        assert self.process is not None
        process, found = self.process, re.compile(rf"{what}\s?(\S*)")
        run(until(lambda: process.poll() is not None or bool(found.search(self.output)), f"it logs: {what}"))
        output = found.search(self.output)
        assert output is not None, self.output
        return output[1]

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(60)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    one = BrokerProcess(tmp_path / "log")
    yield one
    if one.process is not None and one.process.poll() is None:
        one.process.kill()
        one.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_broker_without_metadata_store_reports_it_and_stops_gracefully(
    broker: BrokerProcess, number: signal.Signals
) -> None:
    broker.spawn()
    http = broker.wait_for_output("HTTP listens at")
    broker.wait_for_output("the metadata store can't be reached")

    async def look() -> None:
        status, answer = await ask_json(http, "/ready")
        assert (status, answer["ready"]) == (503, False)
        assert "no server of 127.0.0.1:1 opened a ZooKeeper session" in answer["reasons"][0]
        status, answer = await ask_json(http, "/status")
        assert (status, answer["serves"], answer["session"]) == (200, False, "lost")

    run(look())
    broker.signal(number)
    assert broker.ended() == ExitStatus.ENDED
    assert "Broker b1 has shut down gracefully" in broker.output.splitlines()[-1]


def test_two_signals_at_once_are_one(broker: BrokerProcess) -> None:
    """As of a supervisor that signals a process and its group."""
    broker.spawn()
    broker.wait_for_output("HTTP listens at")
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGINT)
    assert broker.ended() == ExitStatus.ENDED
    assert "at once" not in broker.output.splitlines()[-1]


def test_invalid_settings_and_addresses_in_use_are_refused(broker: BrokerProcess) -> None:
    """The error lists all mistakes at once, and an address in use, too."""
    broker.spawn(metadata="embedded:///x", listen_addreses="x")
    assert broker.ended() == ExitStatus.REFUSED
    assert "did you mean 'listen_addresses'" in broker.output
    assert "magnetar standalone" in broker.output
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = f"127.0.0.1:{somebody.getsockname()[1]}"
        for name in ("listen_addresses", "pulsar_listen_addresses", "http_address"):
            broker.spawn(**{name: taken})
            assert broker.ended() == ExitStatus.REFUSED
            assert taken in broker.output.splitlines()[-1]


def test_sigterm_ends_paused_broker_once_it_resumes(broker: BrokerProcess) -> None:
    """SIGTERM reaches it when it goes on."""
    broker.spawn()
    broker.wait_for_output("HTTP listens at")
    broker.signal(signal.SIGSTOP)
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGCONT)
    assert broker.ended() == ExitStatus.ENDED
