"""Bookies and brokers of a local cluster. They read their settings from a file, and report their state over HTTP."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from magnetar_cli.cluster.daemon_settings import BOOKIES, BROKERS, DaemonKind, rename_former, write_settings
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.ports import LOOPBACK, free_port
from magnetar_cli.cluster.state import BookieState, BrokerState, ClusterState, DaemonState
from magnetar_cli.http_request import HTTP_TIMEOUT_S, format_reasons, request_http

__all__ = ["BOOKIE_COMMAND", "BROKER_COMMAND", "BookiePart", "BrokerPart", "DaemonPart"]

BOOKIE_COMMAND: Final = (sys.executable, "-m", "magnetar_cli", "bookie")
BROKER_COMMAND: Final = (sys.executable, "-m", "magnetar_cli", "broker")


class DaemonPart(Part):
    """A bookie or a broker."""

    # The kind of the process, with its settings.
    kind: ClassVar[DaemonKind]
    # Timeout of a request to /ready.
    ready_timeout_s: ClassVar[float] = HTTP_TIMEOUT_S

    def __init__(self, folder: Path, name: str, daemon: DaemonState, command: Sequence[str]) -> None:
        super().__init__(name, folder / f"{self.kind.name}s" / name, daemon)
        self.daemon = daemon
        self._command = command

    @abstractmethod
    def make_settings(self, state: ClusterState) -> dict[str, Any]:
        """Return the settings for its file."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.kind.name}.log"

    @property
    def settings_file(self) -> Path:
        return self.folder / f"{self.kind.name}.toml"

    @property
    def command(self) -> Sequence[str]:
        return [*self._command, "--config", str(self.settings_file)]

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.daemon.port, self.daemon.http_port)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.daemon.port}"

    @property
    def http_address(self) -> str:
        return f"{LOOPBACK}:{self.daemon.http_port}"

    def choose_ports(self, taken: Sequence[int]) -> None:
        self.daemon.port = free_port(taken)
        self.daemon.http_port = free_port([*taken, self.daemon.port])

    def configure(self, state: ClusterState) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_settings(self.settings_file, self.make_settings(state))

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.daemon.environment}

    def find_unready_reason(self) -> str:
        status, answer = self.request("/ready", timeout_s=self.ready_timeout_s)
        if status == 200:
            return ""
        return "it does not answer yet" if status is None else format_reasons(answer)

    def request(
        self, path: str, method: str = "GET", body: Any = None, timeout_s: float = HTTP_TIMEOUT_S
    ) -> tuple[int | None, Any]:
        return request_http(self.http_address, path, method, body, timeout_s)


class BookiePart(DaemonPart):
    kind = BOOKIES

    def __init__(self, folder: Path, name: str, bookie: BookieState, command: Sequence[str] = BOOKIE_COMMAND) -> None:
        super().__init__(folder, name, bookie, command)

    def make_settings(self, state: ClusterState) -> dict[str, Any]:
        return {
            **rename_former(self.kind, {**state.settings, **self.daemon.settings}),
            "bookie_id": self.name,
            "data_folder": str(self.folder / "data"),
            "metadata": state.zookeeper.location,
            "listen_address": self.address,
            "http_address": self.http_address,
        }


class BrokerPart(DaemonPart):
    kind = BROKERS
    # Above health_check_timeout_seconds, so that a check that times out can report the reason.
    ready_timeout_s = 8.0

    def __init__(self, folder: Path, name: str, broker: BrokerState, command: Sequence[str] = BROKER_COMMAND) -> None:
        super().__init__(folder, name, broker, command)
        self.broker = broker

    @property
    def ports(self) -> tuple[int, ...]:
        return (*super().ports, self.broker.pulsar_port)

    @property
    def pulsar_address(self) -> str:
        return f"{LOOPBACK}:{self.broker.pulsar_port}"

    def choose_ports(self, taken: Sequence[int]) -> None:
        super().choose_ports(taken)
        self.broker.pulsar_port = free_port([*taken, self.broker.port, self.broker.http_port])

    def configure(self, state: ClusterState) -> None:
        if not self.broker.pulsar_port:
            self.broker.pulsar_port = free_port(state.ports())
        super().configure(state)

    def make_settings(self, state: ClusterState) -> dict[str, Any]:
        return {
            **rename_former(self.kind, {**state.broker_settings, **self.daemon.settings}),
            "broker_id": self.name,
            "metadata": state.zookeeper.location,
            "listen_addresses": [self.address],
            "pulsar_listen_addresses": [self.pulsar_address],
            "http_address": self.http_address,
        }
