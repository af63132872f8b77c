"""What a cluster's folder remembers from one command to the next.

    cluster.json        this, replaced as a whole
    lock                held by the command that changes something; it names that command
    zookeeper/          configuration, data and log of the cluster's own ZooKeeper; of several, in a folder each
    bookies/NAME/       bookie.toml, bookie.log, data/
    brokers/NAME/       broker.toml, broker.log

Every command reads it anew, and writes down what it is about to do before it does it: `launching` says that a process
is perhaps there whose number is not known yet. Whoever finds that looks for the process by its command.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from magnetar_cli.cluster.errors import ClusterBusy, ClusterError, NoCluster
from magnetar_cli.cluster.process import ProcessId
from magnetar_cli.local_folder import STATE_FILE

__all__ = [
    "BookieState",
    "BrokerState",
    "ClusterState",
    "DaemonState",
    "Launched",
    "ServerState",
    "ZooKeeperState",
    "forget",
    "load",
    "locked",
    "save",
]

_FORMAT: Final = 2
# There were no brokers, and one ZooKeeper server at most, whose place stood where the others' common settings do.
_WITHOUT_BROKERS: Final = 1
_POLL_S: Final = 0.05


@dataclass
class Launched:
    """A process of the cluster, or its place."""

    process: ProcessId | None = None
    # A process is being started, and is not written down yet.
    launching: bool = False
    # It was ready once at its ports: they are kept from then on.
    settled: bool = False
    # It was stopped by hand, and did not end by itself.
    stopped: bool = False
    # Where in its log its last start begins, in bytes.
    log_from: int = 0


@dataclass
class DaemonState(Launched):
    port: int = 0
    http_port: int = 0
    # Settings that differ from those of all of its kind, and variables of its environment.
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class BookieState(DaemonState):
    pass


@dataclass
class BrokerState(DaemonState):
    # For clients of Pulsar's protocol; 0: none was chosen yet, as brokers had none once.
    pulsar_port: int = 0


@dataclass
class ServerState(Launched):
    """One ZooKeeper server."""

    # For clients.
    port: int = 0
    # For the other servers, where there are any.
    peer_port: int = 0
    election_port: int = 0


@dataclass
class ZooKeeperState:
    """The cluster's own servers, or where outside ones are."""

    servers: dict[str, ServerState] = field(default_factory=dict)
    # "host:port,host:port": outside ones, in which the cluster has a chroot of its own.
    outside: str = ""
    chroot: str = ""
    # After so long without a word a session is over: who was killed counts as there until then.
    session_timeout_s: float = 10.0

    @property
    def location(self) -> str:
        hosts = self.outside or ",".join(f"127.0.0.1:{one.port}" for one in self.servers.values())
        return f"zookeeper://{hosts}{self.chroot}?session_timeout_seconds={self.session_timeout_s:g}"


@dataclass
class ClusterState:
    zookeeper: ZooKeeperState = field(default_factory=ZooKeeperState)
    bookies: dict[str, BookieState] = field(default_factory=dict)
    brokers: dict[str, BrokerState] = field(default_factory=dict)
    # Settings of all bookies, and of all brokers.
    settings: dict[str, Any] = field(default_factory=dict)
    broker_settings: dict[str, Any] = field(default_factory=dict)
    # Names of bookies that were taken out.
    removed: list[str] = field(default_factory=list)

    def ports(self) -> list[int]:
        servers = self.zookeeper.servers.values()
        daemons = (*self.bookies.values(), *self.brokers.values())
        return [
            *(port for one in servers for port in (one.port, one.peer_port, one.election_port)),
            *(port for one in daemons for port in (one.port, one.http_port)),
            *(one.pulsar_port for one in self.brokers.values()),
        ]

    def launched(self) -> dict[str, Launched]:
        """All processes that belong to it, by name."""
        return {**self.zookeeper.servers, **self.bookies, **self.brokers}


def load(folder: Path) -> ClusterState:
    """Raises `NoCluster`, and `ClusterError` for a file that is not ours."""
    path = _path(folder)
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NoCluster(f"there is no cluster in {folder}: `magnetar cluster up` creates one") from None
    except ValueError as error:
        raise ClusterError(f"{path} can't be read: {error}") from None
    try:
        if stored["format"] == _WITHOUT_BROKERS:
            stored = _with_brokers(stored)
        if stored["format"] != _FORMAT:
            raise ClusterError(f"{path} has the format {stored['format']!r}, and this version reads {_FORMAT}")
        zookeeper = stored["zookeeper"]
        servers = {name: ServerState(**_with_process(one)) for name, one in zookeeper["servers"].items()}
        return ClusterState(
            ZooKeeperState(**{**zookeeper, "servers": servers}),
            {name: BookieState(**_with_process(one)) for name, one in stored["bookies"].items()},
            {name: BrokerState(**_with_process(one)) for name, one in stored["brokers"].items()},
            stored["settings"],
            stored["broker_settings"],
            stored["removed"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{path} is damaged, or was written by another version: {error!r}") from None


def save(folder: Path, state: ClusterState) -> None:
    """Atomic: whoever reads finds what was there before, or all of this."""
    path = _path(folder)
    new = path.with_suffix(f".{os.getpid()}.new")
    with new.open("w") as file:
        json.dump({"format": _FORMAT, **dataclasses.asdict(state)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def forget(folder: Path) -> None:
    """There is no cluster any more. The folder goes with it if nothing else is in it."""
    for left in (_path(folder), folder / "lock"):
        left.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def locked(folder: Path, timeout_s: float) -> Iterator[None]:
    """One command at a time changes a cluster. Raises `ClusterBusy`, which names the other."""
    deadline = time.monotonic() + timeout_s
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a+") as file:
            if _taken(file, folder):
                file.truncate(0)
                file.write(f"process {os.getpid()}: {' '.join(sys.argv)[:200]}")
                file.flush()
                yield
                return
        if time.monotonic() >= deadline:
            raise ClusterBusy(
                f"another command holds the lock of the cluster: {_holder(folder)}; try again when it has ended"
            )
        time.sleep(_POLL_S)


def _taken(file: IO[str], folder: Path) -> bool:
    """Whether the lock is ours. One on a file that a `down --wipe` has deleted meanwhile locks nobody out."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), (folder / "lock").stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _holder(folder: Path) -> str:
    try:
        return (folder / "lock").read_text(errors="replace").strip() or "unknown process"
    except OSError:
        return "unknown process"


def _path(folder: Path) -> Path:
    return folder / STATE_FILE


def _with_process(stored: dict[str, Any]) -> dict[str, Any]:
    process = stored["process"]
    return {**stored, "process": ProcessId(**process) if process else None}


def _with_brokers(stored: dict[str, Any]) -> dict[str, Any]:
    """What was written before there were any."""
    zookeeper = dict(stored["zookeeper"])
    server = {name: zookeeper.pop(name) for name in ("process", "launching", "settled", "stopped", "log_from", "port")}
    servers = {} if zookeeper["outside"] else {"zookeeper": server}
    return {
        **stored,
        "format": _FORMAT,
        "zookeeper": {**zookeeper, "servers": servers},
        "brokers": {},
        "broker_settings": {},
    }
