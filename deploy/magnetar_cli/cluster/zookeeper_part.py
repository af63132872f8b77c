"""One of the cluster's own ZooKeeper servers, alone or in an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.ports import LOOPBACK, free_port
from magnetar_cli.cluster.state import ClusterState, ServerState
from magnetar_cli.zookeeper_server import configure_server, read_server_mode, server_command

__all__ = ["ZOOKEEPER", "ZooKeeperPart", "list_server_names"]

ZOOKEEPER: Final = "zookeeper"


def list_server_names(servers: int) -> list[str]:
    return [ZOOKEEPER] if servers == 1 else [f"{ZOOKEEPER}-{number}" for number in range(1, servers + 1)]


class ZooKeeperPart(Part):
    def __init__(self, folder: Path, name: str, server: ServerState) -> None:
        base = folder / ZOOKEEPER
        super().__init__(name, base if name == ZOOKEEPER else base / name, server)
        self.server = server

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def command(self) -> Sequence[str]:
        return server_command(self.folder)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.server.port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(port for port in (self.server.port, self.server.peer_port, self.server.election_port) if port)

    def choose_ports(self, taken: Sequence[int]) -> None:
        server = self.server
        server.port = free_port(taken)
        server.peer_port = free_port([*taken, server.port])
        server.election_port = free_port([*taken, server.port, server.peer_port])

    def configure(self, state: ClusterState) -> None:
        servers = state.zookeeper.servers
        ensemble = "".join(
            f"server.{number}={LOOPBACK}:{one.peer_port}:{one.election_port}\n"
            for number, one in enumerate(servers.values(), 1)
        )
        number = list(servers).index(self.name) + 1
        configure_server(self.folder, self.server.port, number=number, ensemble=ensemble if len(servers) > 1 else "")

    def find_unready_reason(self) -> str:
        return "" if read_server_mode(self.server.port) else "it does not serve yet"
