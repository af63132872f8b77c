"""A cluster on this machine: real processes that outlive the command or the test that started them.

    cluster = LocalCluster(folder)
    cluster.up(bookies=3)
    cluster.bookie("bookie-2").kill()
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
import itertools
import re
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from magnetar_cli.cluster.bookie_settings import checked
from magnetar_cli.cluster.errors import ClusterError, NoCluster, NoSuchName, NotThere
from magnetar_cli.cluster.local_bookie import LocalBookie
from magnetar_cli.cluster.outside_zookeeper import check_hosts, wipe_chroot
from magnetar_cli.cluster.parts import BOOKIE_COMMAND, BookiePart, Part, ZooKeeperPart
from magnetar_cli.cluster.ports import free_port
from magnetar_cli.cluster.process import find_by_command, is_paused, send
from magnetar_cli.cluster.starting import Starter
from magnetar_cli.cluster.state import BookieState, ClusterState, ZooKeeperState, forget, load, locked, save
from magnetar_cli.cluster.status import ClusterStatus, look
from magnetar_cli.cluster.stopping import kill, stop

if TYPE_CHECKING:
    from magnetar_bookie.client.ledger_client import LedgerClient
    from magnetar_bookie.client.options import LedgerClientOptions

__all__ = ["LocalCluster"]

UP_S: Final = 60.0
# Longer than a bookie takes to drain.
STOP_S: Final = 30.0
LOCK_S: Final = 60.0
ZOOKEEPER: Final = "zookeeper"
_BOOKIE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}")


def _silent(_: str) -> None:
    pass


class LocalCluster:
    def __init__(
        self,
        folder: Path,
        *,
        die_with_parent: bool = False,
        bookie_command: Sequence[str] = BOOKIE_COMMAND,
        say: Callable[[str], None] = _silent,
        lock_timeout_s: float = LOCK_S,
    ) -> None:
        """`say` is told what is waited for. Nothing is read or made yet."""
        self.folder = folder.absolute()
        self._die_with_parent = die_with_parent
        self._bookie_command = tuple(bookie_command)
        self._say = say
        self._lock_timeout_s = lock_timeout_s

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> str:
        """Where the cluster's metadata are, as `open_metadata` takes it."""
        return load(self.folder).zookeeper.location

    def names(self) -> list[str]:
        """Its bookies."""
        return list(load(self.folder).bookies)

    def bookie(self, name: str) -> LocalBookie:
        """Raises `NoSuchName`."""
        self.bookie_part(name)
        return LocalBookie(self, name)

    def bookie_part(self, name: str) -> BookiePart:
        """As it is written down now."""
        return self._bookie_part(load(self.folder), name)

    def log(self, name: str) -> Path:
        """The log of a bookie or of "zookeeper"."""
        return self._part(load(self.folder), name).log

    def status(self) -> ClusterStatus:
        state = load(self.folder)
        return look(self.folder, state, self._parts(state))

    @contextlib.asynccontextmanager
    async def client(self, options: LedgerClientOptions | None = None) -> AsyncIterator[LedgerClient]:
        """A ledger client with a metadata session of its own."""
        from magnetar_cli.connection import connected  # gRPC takes its time to load

        async with connected(self.metadata, options) as client:
            yield client

    # -- all of it -----------------------------------------------------------------------------------------------------

    def up(
        self,
        bookies: int | None = None,
        zookeeper: str | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        session_timeout_s: float | None = None,
        timeout_s: float = UP_S,
    ) -> None:
        """Makes the cluster, or brings up what is down of it; returns when all are ready.

        `bookies`: so many there are to be at least (3 if it is new). `zookeeper`: "host:port,…" of one from outside, in
        which a new cluster gets a chroot of its own. `settings` are those of all bookies, and `session_timeout_s` that
        of their metadata sessions, from now on, at their next start. Raises `NotStarted`: call it again, or `down`.
        """
        chosen = checked(settings or {})
        if zookeeper is not None:
            check_hosts(zookeeper)
        with self._change(make=lambda: _new_state(zookeeper)) as state:
            if zookeeper is not None and zookeeper != state.zookeeper.outside:
                raise ClusterError(
                    f"the cluster in {self.folder} has its metadata at {state.zookeeper.location}, and they stay there"
                )
            state.settings |= chosen
            if session_timeout_s is not None:
                state.zookeeper.session_timeout_s = session_timeout_s
            wanted = bookies if bookies is not None else len(state.bookies) or 3
            while len(state.bookies) < wanted:
                self._new_bookie(state, None, {}, {})
            save(self.folder, state)
            self._bring_up(state, self._parts(state), timeout_s)

    def down(self, *, wipe: bool = False, force: bool = False, timeout_s: float = STOP_S) -> None:
        """Ends all its processes, bookies before ZooKeeper. `wipe`: deletes everything that it stored, too.

        `force`: what is here goes even if what is in a ZooKeeper from outside can't be deleted, and is left there.
        """
        with self._change() as state:
            parts = self._parts(state)
            bookies = [part for part in parts if isinstance(part, BookiePart)]
            # Bookies take their leave of it.
            self._resume([part for part in parts if part not in bookies])
            stop(bookies, timeout_s, self._say)
            stop([part for part in parts if part not in bookies], timeout_s, self._say)
            for part in parts:
                part.place.stopped = True
            save(self.folder, state)
            if wipe:
                self._wipe(state, force=force)

    # -- its bookies ---------------------------------------------------------------------------------------------------

    def add(
        self,
        name: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = UP_S,
        **settings: Any,
    ) -> LocalBookie:
        """Another bookie, ready. `environment`: variables that it gets besides ours."""
        chosen = checked(settings)
        with self._change() as state:
            name = self._new_bookie(state, name, chosen, dict(environment or {}))
            save(self.folder, state)
            self._bring_up(state, [self._part(state, name)], timeout_s)
        return LocalBookie(self, name)

    def remove(self, name: str, *, force: bool = False, timeout_s: float | None = None) -> None:
        """Has the bookie's ledgers copied to others, and takes it out when it is struck off.

        Refused where too few others would be left for them. `force`: marks it as leaving all the same, and ends it at
        once. Its ledgers are copied from their other replicas; those of which there is none are lost. Its data stay in
        the folder.
        """
        from magnetar_cli.cluster.removal import leave

        state = load(self.folder)
        part = self._bookie_part(state, name)
        asyncio.run(leave(state.zookeeper.location, name, self._say, wait=not force, timeout_s=timeout_s))
        with self._change() as state:
            part = self._bookie_part(state, name)
            (kill([part]) if force else stop([part], STOP_S, self._say))
            del state.bookies[name]
            state.removed.append(name)
            save(self.folder, state)
            if not force:
                shutil.rmtree(part.folder, ignore_errors=True)

    def start(self, name: str, *, timeout_s: float = UP_S) -> None:
        """Starts a bookie or "zookeeper", if it does not run, and returns when it is ready."""
        with self._change() as state:
            self._bring_up(state, [self._part(state, name)], timeout_s)

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
            part = self._part(state, name)
            stop([part], STOP_S, self._say)
            self._bring_up(state, [part], timeout_s)

    def set(self, name: str, *, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Other options of one bookie, and another environment if one is given; at its next start."""
        chosen = checked(settings)
        with self._change() as state:
            bookie = self._bookie_part(state, name).bookie
            bookie.settings |= chosen
            if environment is not None:
                bookie.environment = dict(environment)
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
            part = self._part(state, name)
            if not part.running:
                raise NotThere(f"{name} does not run: `magnetar cluster restart {name}` starts it")
            yield part
            save(self.folder, state)

    def _find_launched(self, state: ClusterState) -> None:
        """A command that was killed may have started a process without writing it down."""
        for part in self._parts(state):
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

    def _parts(self, state: ClusterState) -> list[Part]:
        own: list[Part] = [] if state.zookeeper.outside else [ZooKeeperPart(self.folder, state)]
        return [*own, *(self._bookie_part(state, name) for name in state.bookies)]

    def _part(self, state: ClusterState, name: str) -> Part:
        if name == ZOOKEEPER and not state.zookeeper.outside:
            return ZooKeeperPart(self.folder, state)
        return self._bookie_part(state, name)

    def _bookie_part(self, state: ClusterState, name: str) -> BookiePart:
        if name not in state.bookies:
            raise NoSuchName(name, state.launched())
        return BookiePart(self.folder, name, state.bookies[name], self._bookie_command)

    def _new_bookie(
        self, state: ClusterState, name: str | None, settings: dict[str, Any], environment: dict[str, str]
    ) -> str:
        if name is None:
            # Names of bookies that were removed are not given out again, nor are their folders.
            taken = {*state.bookies, *state.removed}
            name = next(new for number in itertools.count(1) if (new := f"bookie-{number}") not in taken)
        if not _BOOKIE_NAME.fullmatch(name) or name == ZOOKEEPER:
            raise ClusterError(f"a bookie can't be called {name!r:.80}: it takes letters, digits, - and _, 60 at most")
        if name in state.bookies:
            raise ClusterError(f"the cluster has a bookie {name!r} already")
        if name in state.removed:
            raise ClusterError(f"{name!r} was removed, and its name is not given out again: choose another")
        bookie = BookieState(settings=settings, environment=environment)
        state.bookies[name] = bookie
        self._bookie_part(state, name).choose_ports(state.ports())
        return name

    def _wipe(self, state: ClusterState, *, force: bool) -> None:
        """What is ours and nothing else."""
        if state.zookeeper.outside:
            try:
                wipe_chroot(state.zookeeper.outside, state.zookeeper.chroot)
            except ClusterError:
                if not force:
                    raise
        for folder in ("bookies", "zookeeper"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        forget(self.folder)


def _new_state(zookeeper: str | None) -> ClusterState:
    """Of a cluster that does not exist yet."""
    if zookeeper is None:
        state = ClusterState()
        state.zookeeper.port = free_port()
        return state
    return ClusterState(ZooKeeperState(outside=zookeeper, chroot=f"/magnetar-{secrets.token_hex(4)}"))
