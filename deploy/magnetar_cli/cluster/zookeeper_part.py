"""A ZooKeeper server of the cluster's own: the only one, or one of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.ports import LOOPBACK, free_port
from magnetar_cli.cluster.state import ClusterState, ServerState
from magnetar_cli.local_zookeeper import configure_server, mode_at, server_command

__all__ = ["ZOOKEEPER", "ZooKeeperPart", "server_names"]

ZOOKEEPER: Final = "zookeeper"


def server_names(servers: int) -> list[str]:
    return [ZOOKEEPER] if servers == 1 else [f"{ZOOKEEPER}-{number}" for number in range(1, servers + 1)]


class ZooKeeperPart(Part):
    def __init__(self, folder: Path, name: str, server: ServerState) -> None:
        own = folder / ZOOKEEPER
        super().__init__(name, own if name == ZOOKEEPER else own / name, server)
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

    def waits_for(self) -> str:
        return "" if mode_at(self.server.port) else "it does not serve yet"
