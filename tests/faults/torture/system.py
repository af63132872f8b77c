"""The interface of a system under torture for faults and the rig: processes, disks and connections, by name.

There are two: a cluster of processes (cluster.py) and a standalone (standalone.py). A part that one of them lacks is an
empty list: a standalone has one broker, and neither bookies nor a ZooKeeper.

All methods are called on the rig's loop, and blocking work is done elsewhere. A target may be down, removed or paused
already: then nothing happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from magnetar_wire.randomness import Randomness
from tests.faults.checker.recorder import Recorder
from tests.faults.proxy import Proxy

if TYPE_CHECKING:
    from tests.faults.torture.client_processes import ClientProcesses

__all__ = ["System"]


class System(ABC):
    # Who there is now, by name; those that are down belong to it.
    brokers: list[str]
    bookies: list[str]
    zookeepers: list[str]
    # Set by the rig before the first fault: all partitions of the workloads, and the processes of clients.
    partition_names: Sequence[str]
    clients: ClientProcesses
    # By which name clients ask brokers for addresses that lead through proxies; None: they need none.
    listener_name: str | None = None
    # The bookie whose stored bytes were damaged; empty: none's were. There is never another.
    damaged: str = ""

    # By process, between it and its callers: a broker and its clients (other brokers and the rig connect directly), a
    # bookie and all its callers.
    proxies: dict[str, Proxy]
    # By broker, between it and its clients of Pulsar's protocol.
    pulsar_proxies: dict[str, Proxy]
    # By who calls: between a broker or a bookie and each server of the metadata store.
    metadata_proxies: dict[str, tuple[Proxy, ...]]

    def __init__(self, recorder: Recorder) -> None:
        # The rig's: where acts are written down.
        self.recorder = recorder
        # Who had ended by itself, and was started again as an init system would: how often, and what is known of it.
        self.ended_by_themselves: Counter[str] = Counter()
        self.known_of_ends: dict[str, str] = {}
        # Who was killed or stopped, and is to stay down until `start`.
        self._down_by_fault: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Of all processes but clients', in the order in which they need each other."""
        return [*self.zookeepers, *self.bookies, *self.brokers]

    @property
    @abstractmethod
    def service_url(self) -> str:
        """Where clients find it, by a proxy for each broker that there is now."""

    @property
    def pulsar_url(self) -> str:
        """The same for clients of Pulsar's protocol."""
        return "pulsar://" + ",".join(self.pulsar_proxies[name].address for name in self.brokers)

    @property
    @abstractmethod
    def direct_url(self) -> str:
        """Where the rig does, without."""

    @property
    @abstractmethod
    def metadata(self) -> str:
        """Where its metadata are, without proxies."""

    @abstractmethod
    def broker_addresses(self) -> dict[str, list[str]]:
        """Under which clients may reach each broker that there is now: its proxy's, and its own."""

    @abstractmethod
    async def __aenter__(self) -> Self:
        """All of it runs, and is ready."""

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    # ── processes ──

    @abstractmethod
    def running(self, name: str) -> bool: ...

    @abstractmethod
    async def kill(self, *names: str) -> None:
        """At one stroke."""

    @abstractmethod
    async def stop(self, name: str) -> None:
        """Asks it to end, and waits a while."""

    @abstractmethod
    async def pause(self, *names: str) -> None:
        """They stand still when it returns."""

    @abstractmethod
    async def resume(self, name: str) -> None: ...

    @abstractmethod
    async def start(self, *names: str, timeout_s: float = 0.2) -> str:
        """Those that stand still go on, too. Why they are not ready yet; empty: they are. They go on starting."""

    @abstractmethod
    async def ready(self, name: str) -> str:
        """Why it is not ready; empty: it is, or it is none of the system's processes any more. One that has ended by
        itself is started."""

    # ── disks, of bookies ──

    @abstractmethod
    def disk(self, name: str) -> Path:
        """What stands in this file is what its disk does (failing_disk.c); without it the disk is sound."""

    @abstractmethod
    async def flip_bit(self, name: str, chance: Randomness) -> str:
        """Kills it, and flips a bit of what it has stored. Which; empty: it has nothing yet, or another's was."""

    # ── members ──

    @abstractmethod
    def may_add(self, kind: str) -> bool:
        """A `broker` or a `bookie`."""

    @abstractmethod
    def may_remove(self, name: str) -> bool:
        """Enough others would be left."""

    @abstractmethod
    async def add_broker(self) -> str:
        """Its name. It begins to run, with a proxy of its own."""

    @abstractmethod
    async def add_bookie(self) -> str: ...

    @abstractmethod
    async def remove(self, name: str, timeout_s: float) -> str:
        """Takes it out as an administrator does: a bookie's ledgers are copied before. Why it could not be done, and it
        stays; empty: it is out."""

    # ── the end ──

    @abstractmethod
    def logs(self) -> list[Path]:
        """Of what is written in Python."""
