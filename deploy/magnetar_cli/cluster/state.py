"""The stored state of a local cluster, and the lock of its folder.

    cluster.json        the state, replaced as a whole
    lock                locked by a command while it changes the cluster; contains the command
    zookeeper/          configuration, data and log of the cluster's own ZooKeeper; several servers have a folder each
    bookies/NAME/       bookie.toml, bookie.log, data/
    brokers/NAME/       broker.toml, broker.log

Every command reads the state again, and stores each step before it: `launching` means that a process may have been
started whose process id was not stored. The next command finds it by its command line.
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
from magnetar_cli.cluster_folder import STATE_FILE

__all__ = [
    "BookieState",
    "BrokerState",
    "ClusterState",
    "DaemonState",
    "ProcessRecord",
    "ServerState",
    "ZooKeeperState",
    "delete_state",
    "load",
    "locked",
    "save",
]

_FORMAT: Final = 2
# The first format had no brokers, and at most one ZooKeeper server, whose fields were those of `zookeeper` itself.
_WITHOUT_BROKERS: Final = 1
_POLL_S: Final = 0.05


@dataclass
class ProcessRecord:
    """What is stored of one process, running or not."""

    process: ProcessId | None = None
    # It is being started, and `process` is not stored yet.
    launching: bool = False
    # It was ready once: its ports don't change any more.
    settled: bool = False
    # A command stopped it; it did not end by itself.
    stopped: bool = False
    # Offset in its log at which its last start begins, in bytes.
    log_from: int = 0


@dataclass
class DaemonState(ProcessRecord):
    port: int = 0
    http_port: int = 0
    # Its own settings, besides those of all bookies or all brokers, and additional environment variables.
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class BookieState(DaemonState):
    pass


@dataclass
class BrokerState(DaemonState):
    # For clients of Pulsar's protocol. 0: not chosen yet, since an earlier version had none.
    pulsar_port: int = 0


@dataclass
class ServerState(ProcessRecord):
    """One ZooKeeper server."""

    # Port for clients.
    port: int = 0
    # Ports for the other servers of an ensemble.
    peer_port: int = 0
    election_port: int = 0


@dataclass
class ZooKeeperState:
    """The cluster's own servers, or the addresses of external ones."""

    servers: dict[str, ServerState] = field(default_factory=dict)
    # External servers, "host:port,host:port", in which the cluster has its own chroot.
    outside: str = ""
    chroot: str = ""
    # The session of a killed process ends after this time.
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
    # Names of removed bookies.
    removed: list[str] = field(default_factory=list)

    def ports(self) -> list[int]:
        servers = self.zookeeper.servers.values()
        daemons = (*self.bookies.values(), *self.brokers.values())
        return [
            *(port for one in servers for port in (one.port, one.peer_port, one.election_port)),
            *(port for one in daemons for port in (one.port, one.http_port)),
            *(one.pulsar_port for one in self.brokers.values()),
        ]

    def processes(self) -> dict[str, ProcessRecord]:
        """Return the records of all processes by name."""
        return {**self.zookeeper.servers, **self.bookies, **self.brokers}


def load(folder: Path) -> ClusterState:
    """Read the state. Raise `NoCluster`, and `ClusterError` for a file that can't be read."""
    path = _state_file(folder)
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NoCluster(f"there is no cluster in {folder}: `magnetar cluster up` creates one") from None
    except ValueError as error:
        raise ClusterError(f"{path} can't be read: {error}") from None
    try:
        if stored["format"] == _WITHOUT_BROKERS:
            stored = _convert_first_format(stored)
        if stored["format"] != _FORMAT:
            raise ClusterError(f"{path} has the format {stored['format']!r}, and this version reads {_FORMAT}")
        zookeeper = stored["zookeeper"]
        servers = {name: ServerState(**_parse_process(one)) for name, one in zookeeper["servers"].items()}
        return ClusterState(
            ZooKeeperState(**{**zookeeper, "servers": servers}),
            {name: BookieState(**_parse_process(one)) for name, one in stored["bookies"].items()},
            {name: BrokerState(**_parse_process(one)) for name, one in stored["brokers"].items()},
            stored["settings"],
            stored["broker_settings"],
            stored["removed"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{path} is damaged, or was written by another version: {error!r}") from None


def save(folder: Path, state: ClusterState) -> None:
    """Replace the stored state atomically."""
    path = _state_file(folder)
    new = path.with_suffix(f".{os.getpid()}.new")
    with new.open("w") as file:
        json.dump({"format": _FORMAT, **dataclasses.asdict(state)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def delete_state(folder: Path) -> None:
    """Delete the state, and the folder if it is empty."""
    for left in (_state_file(folder), folder / "lock"):
        left.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def locked(folder: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock of the cluster. Raise `ClusterBusy`, which names the command that holds it."""
    deadline = time.monotonic() + timeout_s
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a+") as file:
            if _try_lock(file, folder):
                file.truncate(0)
                file.write(f"process {os.getpid()}: {' '.join(sys.argv)[:200]}")
                file.flush()
                yield
                return
        if time.monotonic() >= deadline:
            raise ClusterBusy(
                f"another command holds the lock of the cluster: {_read_holder(folder)}; try again when it has ended"
            )
        time.sleep(_POLL_S)


def _try_lock(file: IO[str], folder: Path) -> bool:
    """Return whether the lock was acquired. A lock on a file that `down --wipe` has just deleted does not count."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), (folder / "lock").stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _read_holder(folder: Path) -> str:
    try:
        return (folder / "lock").read_text(errors="replace").strip() or "unknown process"
    except OSError:
        return "unknown process"


def _state_file(folder: Path) -> Path:
    return folder / STATE_FILE


def _parse_process(stored: dict[str, Any]) -> dict[str, Any]:
    process = stored["process"]
    return {**stored, "process": ProcessId(**process) if process else None}


def _convert_first_format(stored: dict[str, Any]) -> dict[str, Any]:
    """Convert a state that was stored in the first format."""
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
