"""A cluster on this machine: real processes that outlive the command or the test that started them.

    cluster = LocalCluster(folder)
    cluster.up(bookies=3, brokers=2)
    client = magnetar.Client(cluster.service_url)
    cluster.broker("broker-1").kill()
    async with cluster.client() as ledgers: ...
    cluster.down()

All that is known of it stands in its folder (state.py), and each act reads it anew under the folder's lock: so
commands and tests may act on one cluster by turns, and a command that was killed half way is gone on from. An act that
only looks takes no lock.

With `die_with_parent` the kernel ends the processes when this one ends, however that comes: for tests. The methods
block; from a coroutine they are called through `asyncio.to_thread`.
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
from magnetar_cli.cluster.local_parts import LocalBookie, LocalBroker
from magnetar_cli.cluster.members import Members, check_bookies
from magnetar_cli.cluster.outside_zookeeper import check_hosts, wipe_chroot
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.process import find_by_command, is_paused, send
from magnetar_cli.cluster.starting import Starter
from magnetar_cli.cluster.state import ClusterState, ZooKeeperState, forget, load, locked, save
from magnetar_cli.cluster.status import ClusterStatus, look, pulsar_url_of, service_url_of
from magnetar_cli.cluster.stopping import kill, stop

if TYPE_CHECKING:
    from magnetar_bookie.ledger.ledger_client import LedgerClient
    from magnetar_bookie.settings.ledger_client import LedgerClientSettings

__all__ = ["LocalCluster"]

UP_S: Final = 60.0
# Longer than a bookie or a broker takes to drain.
STOP_S: Final = 30.0
LOCK_S: Final = 60.0
_BOOKIES: Final = 3


def _silent(_: str) -> None:
    pass


class LocalCluster:
    def __init__(
        self,
        folder: Path,
        *,
        die_with_parent: bool = False,
        bookie_command: Sequence[str] = BOOKIE_COMMAND,
        broker_command: Sequence[str] = BROKER_COMMAND,
        say: Callable[[str], None] = _silent,
        lock_timeout_s: float = LOCK_S,
    ) -> None:
        """`say` is told what is waited for. Nothing is read or made yet."""
        self.folder = folder.absolute()
        self._die_with_parent = die_with_parent
        self._members = Members(self.folder, bookie_command, broker_command)
        self._say = say
        self._lock_timeout_s = lock_timeout_s

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> str:
        """Where the cluster's metadata are, as `open_metadata` takes it."""
        return load(self.folder).zookeeper.location

    @property
    def exists(self) -> bool:
        """Whether there is one in the folder."""
        with contextlib.suppress(NoCluster):
            load(self.folder)
            return True
        return False

    @property
    def service_url(self) -> str:
        """What a client is given. Raises `ClusterError` where there are no brokers."""
        return service_url_of(self._members.some_brokers(load(self.folder)))

    @property
    def pulsar_url(self) -> str:
        """The same for Pulsar's clients."""
        return pulsar_url_of(self._members.some_brokers(load(self.folder)))

    def names(self) -> list[str]:
        """Its bookies."""
        return list(load(self.folder).bookies)

    def broker_names(self) -> list[str]:
        return list(load(self.folder).brokers)

    def zookeeper_names(self) -> list[str]:
        """Its own ZooKeeper's servers."""
        return list(load(self.folder).zookeeper.servers)

    def bookie(self, name: str) -> LocalBookie:
        """Raises `NoSuchName`."""
        self._members.bookie(load(self.folder), name)
        return LocalBookie(self, name)

    def broker(self, name: str) -> LocalBroker:
        """Raises `NoSuchName`."""
        self._members.broker(load(self.folder), name)
        return LocalBroker(self, name)

    def daemon_part(self, name: str) -> DaemonPart:
        """A bookie or a broker as it is written down now."""
        return self._members.daemon(load(self.folder), name)

    def log(self, name: str) -> Path:
        """The log of any of its processes."""
        return self._members.one(load(self.folder), name).log

    def running(self, name: str) -> bool:
        return self._members.one(load(self.folder), name).running

    def status(self) -> ClusterStatus:
        state = load(self.folder)
        return look(self.folder, state, self._members.all(state))

    @contextlib.asynccontextmanager
    async def client(self, options: LedgerClientSettings | None = None) -> AsyncIterator[LedgerClient]:
        """A ledger client with a metadata session of its own."""
        from magnetar_cli.connection import connected  # gRPC takes its time to load

        async with connected(self.metadata, options) as client:
            yield client

    # -- all of it -----------------------------------------------------------------------------------------------------

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
        timeout_s: float = UP_S,
    ) -> None:
        """Makes the cluster, or brings up what is down of it; returns when all are ready.

        `bookies`, `brokers`: so many there are to be at least (3 and none if it is new). `zookeepers`: of so many
        servers a new cluster's own ZooKeeper is made (1). `zookeeper`: "host:port,…" of one from outside in its place,
        in which a new cluster gets a chroot of its own. `settings` are those of all bookies, `broker_settings` those of
        all brokers, and `session_timeout_s` that of their metadata sessions, from now on, at their next start. Raises
        `NotStarted`: call it again, or `down`.
        """
        chosen = check_daemon_settings(BOOKIES, settings or {})
        for_brokers = check_daemon_settings(BROKERS, broker_settings or {})
        if zookeeper is not None:
            check_hosts(zookeeper)
            if zookeepers is not None:
                raise ClusterError("the number of servers of an external ZooKeeper can't be set: leave out zookeepers")
        with self._change(make=lambda: self._new_state(zookeeper, zookeepers or 1)) as state:
            self._stays_where_it_is(state, zookeeper, zookeepers)
            state.settings |= chosen
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

    def down(self, *, wipe: bool = False, force: bool = False, timeout_s: float = STOP_S) -> None:
        """Ends all its processes, brokers before bookies before ZooKeeper. `wipe`: deletes everything that it stored,
        too.

        `force`: what is here goes even if what is in a ZooKeeper from outside can't be deleted, and is left there.
        """
        with self._change() as state:
            zookeepers, bookies, brokers = (
                self._members.zookeepers(state),
                self._members.bookies(state),
                self._members.brokers(state),
            )
            # Brokers close what they have on bookies, and both take their leave of ZooKeeper.
            self._resume([*zookeepers, *bookies])
            for parts in (brokers, bookies, zookeepers):
                stop(parts, timeout_s, self._say)
            for part in (*brokers, *bookies, *zookeepers):
                part.place.stopped = True
            save(self.folder, state)
            if wipe:
                self._wipe(state, force=force)

    # -- each of them --------------------------------------------------------------------------------------------------

    def add(
        self,
        name: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = UP_S,
        **settings: Any,
    ) -> LocalBookie:
        """Another bookie, ready. `environment`: variables that it gets besides ours."""
        chosen = check_daemon_settings(BOOKIES, settings)
        with self._change() as state:
            name = self._members.add_bookie(state, name, chosen, environment)
            save(self.folder, state)
            self._bring_up(state, [self._members.one(state, name)], timeout_s)
        return LocalBookie(self, name)

    def add_broker(
        self,
        name: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = UP_S,
        **settings: Any,
    ) -> LocalBroker:
        """Another broker, ready. `environment`: variables that it gets besides ours."""
        chosen = check_daemon_settings(BROKERS, settings)
        with self._change() as state:
            name = self._members.add_broker(state, name, chosen, environment)
            check_bookies(state)
            save(self.folder, state)
            self._bring_up(state, [self._members.one(state, name)], timeout_s)
        return LocalBroker(self, name)

    def remove(self, name: str, *, force: bool = False, timeout_s: float | None = None) -> None:
        """Takes a bookie or a broker out.

        A bookie has its ledgers copied to others first, and goes when it is struck off; that is refused where too few
        others would be left for them. `force`: it is marked as leaving all the same, and ended at once. Its ledgers are
        copied from their other replicas; those of which there is none are lost. Its data stay in the folder.

        A broker stores nothing: it hands over its topics as it ends, and with `force` they are taken over as after a
        crash.
        """
        state = load(self.folder)
        self._members.removable(state, name)
        if name in state.bookies:
            from magnetar_cli.cluster.removal import leave

            asyncio.run(leave(state.zookeeper.location, name, self._say, wait=not force, timeout_s=timeout_s))
        with self._change() as state:
            part = self._members.daemon(state, name)
            (kill([part]) if force else stop([part], STOP_S, self._say))
            if name in state.bookies:
                del state.bookies[name]
                state.removed.append(name)
            else:
                del state.brokers[name]
            save(self.folder, state)
            if not force:
                shutil.rmtree(part.folder, ignore_errors=True)

    def start(self, *names: str, timeout_s: float = UP_S) -> None:
        """Starts those that don't run, and returns when they are ready. ZooKeeper's servers wait for each other: where
        too few of them run, several have to be named."""
        with self._change() as state:
            self._bring_up(state, [self._members.one(state, name) for name in names], timeout_s)

    def stop(self, name: str, *, timeout_s: float = STOP_S) -> None:
        """Asks it to end; it drains."""
        with self._acting_on(name) as part:
            stop([part], timeout_s, self._say)
            part.place.stopped = True

    def kill(self, name: str) -> None:
        """Kill -9."""
        with self._acting_on(name) as part:
            kill([part])

    def pause(self, name: str) -> None:
        """It stands still, as a machine that hangs: its connections stay, and nothing is answered."""
        with self._acting_on(name) as part:
            assert part.place.process is not None
            send(part.place.process, signal.SIGSTOP)
            # The signal is on its way still: whoever pauses it relies on its standing still.
            while part.running and not is_paused(part.place.process):
                time.sleep(0.001)

    def resume(self, name: str) -> None:
        with self._acting_on(name) as part:
            self._resume([part])

    def restart(self, name: str, *, timeout_s: float = UP_S) -> None:
        """Asks it to end if it runs, and starts it."""
        with self._change() as state:
            part = self._members.one(state, name)
            stop([part], STOP_S, self._say)
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

    # -- what they share -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(NoCluster):
            self.down()

    @contextlib.contextmanager
    def _change(self, make: Callable[[], ClusterState] | None = None) -> Iterator[ClusterState]:
        """The state, as nobody else changes it meanwhile. `make`: what it is where there is none."""
        if make is None:
            load(self.folder)  # no lock is made where there is no cluster
        with locked(self.folder, self._lock_timeout_s):
            try:
                state = load(self.folder)
            except NoCluster:
                if make is None:
                    raise
                state = make()
            self._find_launched(state)
            yield state

    @contextlib.contextmanager
    def _acting_on(self, name: str) -> Iterator[Part]:
        """A process that runs. Raises `NotThere`."""
        with self._change() as state:
            part = self._members.one(state, name)
            if not part.running:
                raise NotThere(f"{name} does not run: `magnetar cluster restart {name}` starts it")
            yield part
            save(self.folder, state)

    def _find_launched(self, state: ClusterState) -> None:
        """A command that was killed may have started a process without writing it down."""
        for part in self._members.all(state):
            if part.place.launching:
                part.place.process = find_by_command(part.command)
                part.place.launching = False
                save(self.folder, state)

    def _bring_up(self, state: ClusterState, parts: Sequence[Part], timeout_s: float) -> None:
        self._resume(parts)
        starter = Starter(state, lambda: save(self.folder, state), self._say, die_with_parent=self._die_with_parent)
        starter.bring_up(parts, timeout_s)

    def _resume(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.place.process is not None:
                send(part.place.process, signal.SIGCONT)

    def _wipe(self, state: ClusterState, *, force: bool) -> None:
        """What is ours and nothing else."""
        if state.zookeeper.outside:
            try:
                wipe_chroot(state.zookeeper.outside, state.zookeeper.chroot)
            except ClusterError:
                if not force:
                    raise
        for folder in ("brokers", "bookies", "zookeeper"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        forget(self.folder)

    def _new_state(self, zookeeper: str | None, zookeepers: int) -> ClusterState:
        """Of a cluster that does not exist yet."""
        if zookeeper is not None:
            return ClusterState(ZooKeeperState(outside=zookeeper, chroot=f"/magnetar-{secrets.token_hex(4)}"))
        state = ClusterState()
        self._members.add_zookeepers(state, zookeepers)
        return state

    def _stays_where_it_is(self, state: ClusterState, zookeeper: str | None, zookeepers: int | None) -> None:
        have = state.zookeeper
        if (zookeeper is not None and zookeeper != have.outside) or zookeepers not in (None, len(have.servers)):
            raise ClusterError(
                f"the cluster in {self.folder} has its metadata at {have.location}, which can't be changed"
            )
