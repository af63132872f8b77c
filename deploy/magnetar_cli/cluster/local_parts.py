"""One bookie or broker of a local cluster, to act on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar_cli.cluster.daemon_parts import BrokerPart, DaemonPart

if TYPE_CHECKING:
    from magnetar_cli.cluster.local_cluster import LocalCluster

__all__ = ["LocalBookie", "LocalBroker", "LocalDaemon"]


class LocalDaemon:
    """It holds nothing but the name: each act looks anew."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def kill(self) -> None:
        """Kill -9."""
        self._cluster.kill(self.name)

    def pause(self) -> None:
        """Stands still, as a machine that hangs."""
        self._cluster.pause(self.name)

    def resume(self) -> None:
        self._cluster.resume(self.name)

    def stop(self) -> None:
        """SIGTERM; returns when it has ended."""
        self._cluster.stop(self.name)

    def start(self) -> None:
        """Returns when it is ready."""
        self._cluster.start(self.name)

    def restart(self) -> None:
        """Stops it if it runs, and starts it."""
        self._cluster.restart(self.name)

    def set(self, *, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Options for its next start."""
        self._cluster.set(self.name, environment=environment, **settings)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._part.address

    @property
    def http_address(self) -> str:
        return self._part.http_address

    @property
    def log(self) -> Path:
        return self._part.log

    @property
    def running(self) -> bool:
        return self._part.running

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        part = self._part
        return part.place.process.pid if part.place.process is not None and part.running else None

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int | None, Any]:
        """Its HTTP: the status and the answer; None if there was none."""
        return self._part.ask(path, method, body, self._part.ready_answer_s)

    @property
    def _part(self) -> DaemonPart:
        return self._cluster.daemon_part(self.name)


class LocalBookie(LocalDaemon):
    """`LocalCluster.bookie` gives it."""

    @property
    def data_folder(self) -> Path:
        return self._part.folder / "data"


class LocalBroker(LocalDaemon):
    """`LocalCluster.broker` gives it."""

    @property
    def url(self) -> str:
        """For a client that is to begin with this one."""
        return f"magnetar://{self.address}"

    @property
    def pulsar_address(self) -> str:
        """Where it listens for Pulsar's clients."""
        part = self._part
        assert isinstance(part, BrokerPart), f"{self.name} is not a broker"
        return part.pulsar_address

    @property
    def pulsar_url(self) -> str:
        """For one of Pulsar's clients that is to begin with this one."""
        return f"pulsar://{self.pulsar_address}"
