"""The parts of a local cluster by name; add new ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from magnetar_cli.cluster.daemon_parts import BOOKIE_COMMAND, BROKER_COMMAND, BookiePart, BrokerPart, DaemonPart
from magnetar_cli.cluster.errors import ClusterError, NoSuchName
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.state import BookieState, BrokerState, ClusterState, ServerState
from magnetar_cli.cluster.zookeeper_part import ZOOKEEPER, ZooKeeperPart, list_server_names

__all__ = ["Members", "check_bookies"]

_ACK_QUORUM: Final = "managed_ledger_default_ack_quorum"
_STRIPING: Final = ("managed_ledger_default_ensemble_size", "managed_ledger_default_write_quorum", _ACK_QUORUM)
# The default of the brokers' setting, whose class takes long to import. A test compares the two.
ACK_QUORUM_DEFAULT: Final = 2
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}")


class Members:
    """Makes the parts of a cluster from its state, which each call passes."""

    def __init__(
        self,
        folder: Path,
        bookie_command: Sequence[str] = BOOKIE_COMMAND,
        broker_command: Sequence[str] = BROKER_COMMAND,
    ) -> None:
        self._folder = folder
        self._bookie_command = tuple(bookie_command)
        self._broker_command = tuple(broker_command)

    def all(self, state: ClusterState) -> list[Part]:
        return [*self.zookeepers(state), *self.bookies(state), *self.brokers(state)]

    def zookeepers(self, state: ClusterState) -> list[Part]:
        """Return the cluster's own servers. There are none if its ZooKeeper is external."""
        return [ZooKeeperPart(self._folder, name, one) for name, one in state.zookeeper.servers.items()]

    def bookies(self, state: ClusterState) -> list[BookiePart]:
        return [self.bookie(state, name) for name in state.bookies]

    def brokers(self, state: ClusterState) -> list[BrokerPart]:
        return [self.broker(state, name) for name in state.brokers]

    def require_brokers(self, state: ClusterState) -> list[BrokerPart]:
        """Return the brokers. Raise `ClusterError` if there are none."""
        if not state.brokers:
            raise ClusterError("the cluster has no brokers: `magnetar cluster add --broker` adds one")
        return self.brokers(state)

    def find_part(self, state: ClusterState, name: str) -> Part:
        """Return any process of the cluster. Raise `NoSuchName`."""
        if name in state.zookeeper.servers:
            return ZooKeeperPart(self._folder, name, state.zookeeper.servers[name])
        return self.daemon(state, name)

    def daemon(self, state: ClusterState, name: str) -> DaemonPart:
        """Return a bookie or a broker. Raise `NoSuchName`."""
        return self.broker(state, name) if name in state.brokers else self.bookie(state, name)

    def find_removable(self, state: ClusterState, name: str) -> DaemonPart:
        """Return a bookie or a broker. Raise `ClusterError` for a ZooKeeper server, and `NoSuchName`."""
        if name in state.zookeeper.servers:
            raise ClusterError(f"{name} can't be removed: only bookies and brokers can")
        return self.daemon(state, name)

    def bookie(self, state: ClusterState, name: str) -> BookiePart:
        if name not in state.bookies:
            raise NoSuchName(name, state.processes())
        return BookiePart(self._folder, name, state.bookies[name], self._bookie_command)

    def broker(self, state: ClusterState, name: str) -> BrokerPart:
        if name not in state.brokers:
            raise NoSuchName(name, state.processes())
        return BrokerPart(self._folder, name, state.brokers[name], self._broker_command)

    def add_zookeepers(self, state: ClusterState, servers: int) -> None:
        """Add the servers of a new cluster. An ensemble does not grow later."""
        for name in list_server_names(servers):
            server = state.zookeeper.servers[name] = ServerState()
            ZooKeeperPart(self._folder, name, server).choose_ports(state.ports())

    def add_bookie(
        self,
        state: ClusterState,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Add a bookie and return its name. Names of removed bookies, which may still have folders, are not reused."""
        name = _name_for(state, "bookie", name, state.removed)
        state.bookies[name] = BookieState(settings=dict(settings or {}), environment=dict(environment or {}))
        self.bookie(state, name).choose_ports(state.ports())
        return name

    def add_broker(
        self,
        state: ClusterState,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Add a broker and return its name. A removed broker leaves no data, so its name can be reused."""
        name = _name_for(state, "broker", name, ())
        state.brokers[name] = BrokerState(settings=dict(settings or {}), environment=dict(environment or {}))
        self.broker(state, name).choose_ports(state.ports())
        return name


def check_bookies(state: ClusterState) -> None:
    """Raise `ClusterError` if there are fewer bookies than an ack quorum. Publishing would wait for ever."""
    if not state.brokers:
        return
    needed = max(
        {**state.broker_settings, **one.settings}.get(_ACK_QUORUM, ACK_QUORUM_DEFAULT) for one in state.brokers.values()
    )
    if len(state.bookies) < needed:
        raise ClusterError(
            f"the brokers' ack quorum needs {needed} bookies, and the cluster has {len(state.bookies)}: add bookies, "
            f"or set {', '.join(_STRIPING)} to {len(state.bookies)} for brokers"
        )


def _name_for(state: ClusterState, kind: str, name: str | None, removed: Sequence[str]) -> str:
    daemons = {**state.bookies, **state.brokers}
    if name is None:
        return next(
            new for number in itertools.count(1) if (new := f"{kind}-{number}") not in daemons and new not in removed
        )
    if not _NAME.fullmatch(name) or name.startswith(ZOOKEEPER):
        raise ClusterError(
            f"a {kind} can't be named {name!r:.80}: use at most 60 letters, digits, '-' and '_', and no name that "
            f"begins with {ZOOKEEPER}"
        )
    other = "broker" if kind == "bookie" else "bookie"
    if name.startswith(other):
        raise ClusterError(f"a {kind} can't be named {name!r}: names that begin with {other} are for {other}s")
    if name in daemons:
        what = "bookie" if name in state.bookies else "broker"
        raise ClusterError(f"the cluster already has a {what} {name!r}: choose another name")
    if name in removed:
        raise ClusterError(f"{name!r} was removed, and its name can't be reused: choose another")
    return name
