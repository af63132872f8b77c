"""A cluster on this machine: real processes that outlive the command or the test that started them.

    cluster = LocalCluster(folder)
    cluster.up(bookies=3, brokers=2)
    client = magnetar.Client(cluster.service_url)
    cluster.broker("broker-1").kill()
    async with cluster.client() as ledgers: ...
    cluster.down()

The cluster's state is stored in its folder (state.py). Each change reads it again while it holds the folder's lock, so
several commands and tests can use one cluster, and the next command continues after one that was killed. Calls that
change nothing don't use the lock.

With `die_with_parent` the kernel ends the processes when this one ends, also after kill -9: this is for tests. The
methods block; coroutines call them through `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from magnetar_cli.cluster.daemon_parts import BOOKIE_COMMAND, BROKER_COMMAND, DaemonPart
from magnetar_cli.cluster.daemon_settings import BOOKIES, BROKERS, check_daemon_settings
from magnetar_cli.cluster.errors import ClusterError, NoCluster, NotThere
from magnetar_cli.cluster.external_zookeeper import check_hosts, delete_chroot
from magnetar_cli.cluster.lifecycle import Starter, kill_parts, stop_parts
from magnetar_cli.cluster.local_parts import LocalBookie, LocalBroker
from magnetar_cli.cluster.members import Members, check_bookies
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.process import find_by_command, is_paused, send
from magnetar_cli.cluster.state import ClusterState, ZooKeeperState, delete_state, load, locked, save
from magnetar_cli.cluster.status import ClusterStatus, format_pulsar_url, format_service_url, inspect_cluster

if TYPE_CHECKING:
    from magnetar_bookie.client.ledger_client import LedgerClient
    from magnetar_bookie.settings.client import LedgerClientSettings

__all__ = ["LocalCluster"]

_UP_S: Final = 60.0
# Above the shutdown timeouts of bookies and brokers.
_STOP_S: Final = 30.0
_LOCK_S: Final = 60.0
_BOOKIES: Final = 3


def _ignore_progress(_: str) -> None:
    pass


class LocalCluster:
    """A cluster in a folder, which may not exist yet."""

    def __init__(
        self,
        folder: Path,
        *,
        die_with_parent: bool = False,
        bookie_command: Sequence[str] = BOOKIE_COMMAND,
        broker_command: Sequence[str] = BROKER_COMMAND,
        on_progress: Callable[[str], None] = _ignore_progress,
        lock_timeout_s: float = _LOCK_S,
    ) -> None:
        """`on_progress` is called with descriptions of what a method waits for. Nothing is read or created yet."""
        self.folder = folder.absolute()
        self._die_with_parent = die_with_parent
        self._members = Members(self.folder, bookie_command, broker_command)
        self._on_progress = on_progress
        self._lock_timeout_s = lock_timeout_s

    @property
    def metadata(self) -> str:
        """The location of the cluster's metadata store, for `open_metadata`."""
        return load(self.folder).zookeeper.location

    @property
    def exists(self) -> bool:
        """Whether the folder holds a cluster."""
        with contextlib.suppress(NoCluster):
            load(self.folder)
            return True
        return False

    @property
    def service_url(self) -> str:
        """The service URL with all brokers. Raise `ClusterError` if there are none."""
        return format_service_url(self._members.require_brokers(load(self.folder)))

    @property
    def pulsar_url(self) -> str:
        """The service URL for Pulsar's clients."""
        return format_pulsar_url(self._members.require_brokers(load(self.folder)))

    def names(self) -> list[str]:
        """Return the names of the bookies."""
        return list(load(self.folder).bookies)

    def broker_names(self) -> list[str]:
        return list(load(self.folder).brokers)

    def zookeeper_names(self) -> list[str]:
        """Return the names of its own ZooKeeper servers."""
        return list(load(self.folder).zookeeper.servers)

    def bookie(self, name: str) -> LocalBookie:
        """Return a bookie. Raise `NoSuchName`."""
        self._members.bookie(load(self.folder), name)
        return LocalBookie(self, name)

    def broker(self, name: str) -> LocalBroker:
        """Return a broker. Raise `NoSuchName`."""
        self._members.broker(load(self.folder), name)
        return LocalBroker(self, name)

    def daemon_part(self, name: str) -> DaemonPart:
        """Return a bookie or a broker as it is stored now. Raise `NoSuchName`."""
        return self._members.daemon(load(self.folder), name)

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._members.find_part(load(self.folder), name).log

    def running(self, name: str) -> bool:
        return self._members.find_part(load(self.folder), name).running

    def status(self) -> ClusterStatus:
        state = load(self.folder)
        return inspect_cluster(self.folder, state, self._members.all(state))

    @contextlib.asynccontextmanager
    async def client(self, options: LedgerClientSettings | None = None) -> AsyncIterator[LedgerClient]:
        """Open a ledger client with its own metadata session."""
        from magnetar_cli.ledger_connection import open_ledger_client  # gRPC takes long to import

        async with open_ledger_client(self.metadata, options) as client:
            yield client

    def up(
        self,
        bookies: int | None = None,
        brokers: int | None = None,
        *,
        zookeepers: int | None = None,
        zookeeper: str | None = None,
        settings: Mapping[str, Any] | None = None,
        broker_settings: Mapping[str, Any] | None = None,
        session_timeout_s: float | None = None,
        timeout_s: float = _UP_S,
    ) -> None:
        """Create the cluster, or start its processes that are down. Return when all are ready.

        `bookies` and `brokers` are the minimum numbers (a new cluster has 3 and 0 by default). `zookeepers` is the
        number of a new cluster's own ZooKeeper servers (1). `zookeeper`, "host:port,…", is an external ZooKeeper to use
        instead, in which a new cluster gets its own chroot. `settings` are those of all bookies, `broker_settings`
        those of all brokers, and `session_timeout_s` the timeout of their metadata sessions; they take effect when
        a process is started next. Raise `NotStarted`: then call `up` again, or `down`.
        """
        for_bookies = check_daemon_settings(BOOKIES, settings or {})
        for_brokers = check_daemon_settings(BROKERS, broker_settings or {})
        if zookeeper is not None:
            check_hosts(zookeeper)
            if zookeepers is not None:
                raise ClusterError("the number of servers of an external ZooKeeper can't be set: leave out zookeepers")
        with self._change(create=lambda: self._new_state(zookeeper, zookeepers or 1)) as state:
            self._check_same_metadata(state, zookeeper, zookeepers)
            state.settings |= for_bookies
            state.broker_settings |= for_brokers
            if session_timeout_s is not None:
                state.zookeeper.session_timeout_s = session_timeout_s
            wanted = bookies if bookies is not None else len(state.bookies) or _BOOKIES
            while len(state.bookies) < wanted:
                self._members.add_bookie(state)
            while len(state.brokers) < (brokers or 0):
                self._members.add_broker(state)
            check_bookies(state)
            save(self.folder, state)
            self._bring_up(state, self._members.all(state), timeout_s)

    def down(self, *, wipe: bool = False, force: bool = False, timeout_s: float = _STOP_S) -> None:
        """Stop all processes: first brokers, then bookies, then ZooKeeper. `wipe` deletes all data, too.

        `force` deletes the local data even if that in an external ZooKeeper can't be deleted.
        """
        with self._change() as state:
            zookeepers, bookies, brokers = (
                self._members.zookeepers(state),
                self._members.bookies(state),
                self._members.brokers(state),
            )
            # Brokers close ledgers on the bookies, and both close their ZooKeeper sessions.
            self._resume([*zookeepers, *bookies])
            for parts in (brokers, bookies, zookeepers):
                stop_parts(parts, timeout_s, self._on_progress)
            for part in (*brokers, *bookies, *zookeepers):
                part.record.stopped = True
            save(self.folder, state)
            if wipe:
                self._wipe(state, force=force)

    def add(
        self,
        name: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = _UP_S,
        **settings: Any,
    ) -> LocalBookie:
        """Add a bookie, and return when it is ready. `environment` has additional variables for it."""
        chosen = check_daemon_settings(BOOKIES, settings)
        with self._change() as state:
            name = self._members.add_bookie(state, name, chosen, environment)
            save(self.folder, state)
            self._bring_up(state, [self._members.find_part(state, name)], timeout_s)
        return LocalBookie(self, name)

    def add_broker(
        self,
        name: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = _UP_S,
        **settings: Any,
    ) -> LocalBroker:
        """Add a broker, and return when it is ready. `environment` has additional variables for it."""
        chosen = check_daemon_settings(BROKERS, settings)
        with self._change() as state:
            name = self._members.add_broker(state, name, chosen, environment)
            check_bookies(state)
            save(self.folder, state)
            self._bring_up(state, [self._members.find_part(state, name)], timeout_s)
        return LocalBroker(self, name)

    def remove(self, name: str, *, force: bool = False, timeout_s: float | None = None) -> None:
        """Remove a bookie or a broker.

        A bookie is decommissioned: its ledgers are copied to other bookies first. If there would be too few of them,
        this is refused. With `force` the bookie is marked as leaving, and killed at once. Its ledgers are then copied
        from other replicas, and lost if there are none. Its data stays in the folder.

        A broker hands over its topics when it stops. With `force` it is killed, and other brokers take its topics over.
        """
        state = load(self.folder)
        self._members.find_removable(state, name)
        if name in state.bookies:
            from magnetar_cli.cluster.bookie_removal import decommission_bookie

            work = decommission_bookie(
                state.zookeeper.location, name, self._on_progress, wait=not force, timeout_s=timeout_s
            )
            asyncio.run(work)
        with self._change() as state:
            part = self._members.daemon(state, name)
            if force:
                kill_parts([part])
            else:
                stop_parts([part], _STOP_S, self._on_progress)
            if name in state.bookies:
                del state.bookies[name]
                state.removed.append(name)
            else:
                del state.brokers[name]
            save(self.folder, state)
            if not force:
                shutil.rmtree(part.folder, ignore_errors=True)

    def start(self, *names: str, timeout_s: float = _UP_S) -> None:
        """Start those that don't run, and return when they are ready. If too few ZooKeeper servers run for a quorum,
        name several: they wait for each other."""
        with self._change() as state:
            self._bring_up(state, [self._members.find_part(state, name) for name in names], timeout_s)

    def stop(self, name: str, *, timeout_s: float = _STOP_S) -> None:
        """Stop it gracefully (SIGTERM)."""
        with self._use_running(name) as part:
            stop_parts([part], timeout_s, self._on_progress)
            part.record.stopped = True

    def kill(self, name: str) -> None:
        """Kill it (SIGKILL)."""
        with self._use_running(name) as part:
            kill_parts([part])

    def pause(self, name: str) -> None:
        """Pause it (SIGSTOP), as if its machine hung: connections stay open, and nothing is answered."""
        with self._use_running(name) as part:
            assert part.record.process is not None
            send(part.record.process, signal.SIGSTOP)
            # Return only when the kernel has stopped it.
            while part.running and not is_paused(part.record.process):
                time.sleep(0.001)

    def resume(self, name: str) -> None:
        with self._use_running(name) as part:
            self._resume([part])

    def restart(self, name: str, *, timeout_s: float = _UP_S) -> None:
        """Stop it gracefully if it runs, and start it."""
        with self._change() as state:
            part = self._members.find_part(state, name)
            stop_parts([part], _STOP_S, self._on_progress)
            self._bring_up(state, [part], timeout_s)

    def set(self, name: str, *, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Change settings of a bookie or broker, and its environment if one is given, from its next start on."""
        chosen = check_daemon_settings(self.daemon_part(name).kind, settings)
        with self._change() as state:
            daemon = self._members.daemon(state, name).daemon
            daemon.settings |= chosen
            if environment is not None:
                daemon.environment = dict(environment)
            save(self.folder, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(NoCluster):
            self.down()

    @contextlib.contextmanager
    def _change(self, create: Callable[[], ClusterState] | None = None) -> Iterator[ClusterState]:
        """Yield the state while holding the lock. `create` returns the state of a new cluster."""
        if create is None:
            load(self.folder)  # raise before the lock file is created
        with locked(self.folder, self._lock_timeout_s):
            try:
                state = load(self.folder)
            except NoCluster:
                if create is None:
                    raise
                state = create()
            self._find_launched(state)
            yield state

    @contextlib.contextmanager
    def _use_running(self, name: str) -> Iterator[Part]:
        """Yield a running process, and store the state afterwards. Raise `NotThere`."""
        with self._change() as state:
            part = self._members.find_part(state, name)
            if not part.running:
                raise NotThere(f"{name} does not run: `magnetar cluster restart {name}` starts it")
            yield part
            save(self.folder, state)

    def _find_launched(self, state: ClusterState) -> None:
        """Find processes that a command started before it was killed, without storing their ids."""
        for part in self._members.all(state):
            if part.record.launching:
                part.record.process = find_by_command(part.command)
                part.record.launching = False
                save(self.folder, state)

    def _bring_up(self, state: ClusterState, parts: Sequence[Part], timeout_s: float) -> None:
        self._resume(parts)
        starter = Starter(
            state, lambda: save(self.folder, state), self._on_progress, die_with_parent=self._die_with_parent
        )
        starter.bring_up(parts, timeout_s)

    def _resume(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.record.process is not None:
                send(part.record.process, signal.SIGCONT)

    def _wipe(self, state: ClusterState, *, force: bool) -> None:
        """Delete the cluster's data and nothing else."""
        if state.zookeeper.outside:
            try:
                delete_chroot(state.zookeeper.outside, state.zookeeper.chroot)
            except ClusterError:
                if not force:
                    raise
        for folder in ("brokers", "bookies", "zookeeper"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        delete_state(self.folder)

    def _new_state(self, zookeeper: str | None, zookeepers: int) -> ClusterState:
        """Return the state of a new cluster."""
        if zookeeper is not None:
            return ClusterState(ZooKeeperState(outside=zookeeper, chroot=f"/magnetar-{secrets.token_hex(4)}"))
        state = ClusterState()
        self._members.add_zookeepers(state, zookeepers)
        return state

    def _check_same_metadata(self, state: ClusterState, zookeeper: str | None, zookeepers: int | None) -> None:
        have = state.zookeeper
        if (zookeeper is not None and zookeeper != have.outside) or zookeepers not in (None, len(have.servers)):
            raise ClusterError(
                f"the cluster in {self.folder} has its metadata at {have.location}, which can't be changed"
            )
