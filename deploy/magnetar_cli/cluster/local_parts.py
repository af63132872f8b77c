"""One bookie or broker of a local cluster, for programs: `LocalCluster.bookie` and `LocalCluster.broker`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar_cli.cluster.daemon_parts import BrokerPart, DaemonPart

if TYPE_CHECKING:
    from magnetar_cli.cluster.local_cluster import LocalCluster

__all__ = ["LocalBookie", "LocalBroker", "LocalDaemon"]


class LocalDaemon:
    """A bookie or a broker by its name. Each call reads the cluster's state again."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._cluster.kill(self.name)

    def pause(self) -> None:
        """Pause it (SIGSTOP), as if its machine hung."""
        self._cluster.pause(self.name)

    def resume(self) -> None:
        self._cluster.resume(self.name)

    def stop(self) -> None:
        """Stop it gracefully (SIGTERM), and return when it has ended."""
        self._cluster.stop(self.name)

    def start(self) -> None:
        """Start it, and return when it is ready."""
        self._cluster.start(self.name)

    def restart(self) -> None:
        """Stop it gracefully if it runs, and start it."""
        self._cluster.restart(self.name)

    def set(self, *, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Change settings, which take effect at its next start."""
        self._cluster.set(self.name, environment=environment, **settings)

    @property
    def address(self) -> str:
        """The address at which it listens."""
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
        """Its process id, or None if it does not run."""
        part = self._part
        return part.record.process.pid if part.record.process is not None and part.running else None

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int | None, Any]:
        """Send an HTTP request. Return the status and the answer; the status is None if there was no answer."""
        return self._part.request(path, method, body, self._part.ready_timeout_s)

    @property
    def _part(self) -> DaemonPart:
        return self._cluster.daemon_part(self.name)


class LocalBookie(LocalDaemon):
    """A bookie."""

    @property
    def data_folder(self) -> Path:
        return self._part.folder / "data"


class LocalBroker(LocalDaemon):
    """A broker."""

    @property
    def url(self) -> str:
        """The service URL of this broker alone."""
        return f"magnetar://{self.address}"

    @property
    def pulsar_address(self) -> str:
        """The address at which it listens for Pulsar's clients."""
        part = self._part
        assert isinstance(part, BrokerPart), f"{self.name} is not a broker"
        return part.pulsar_address

    @property
    def pulsar_url(self) -> str:
        """The service URL of this broker alone for Pulsar's clients."""
        return f"pulsar://{self.pulsar_address}"
