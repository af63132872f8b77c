"""What goes wrong, and when: drawn from the seed, one fault after another during the active time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from magnetar_metadata.memory.server import Fault
from magnetar_metadata.store import SessionState
from tests.sim.disk import DiskFaults
from tests.sim.process import Process
from tests.sim.world.ambush import ambush
from tests.sim.world.bookie_host import BookieHost
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["Faults"]

_ORDERLY = DiskFaults()


class _Trap:
    """Springs once, when an answer of this bookie to adds has arrived. A `Tap` of the network."""

    def __init__(self, bookie: str, springs: Callable[[], object]) -> None:
        self._bookie = bookie
        self._springs: Callable[[], object] | None = springs

    def request_sent(self, *_: object) -> None: ...

    def request_arrived(self, *_: object) -> None: ...

    def answer_sent(self, *_: object) -> None: ...

    def answer_arrived(self, *_: object) -> None: ...

    def message_sent(self, *_: object, served: bool) -> None: ...

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if served and source.name == self._bookie and self._springs is not None:
            springs, self._springs = self._springs, None
            springs()


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draw = world.chance.stream("faults")
        # Hosts whose connection to the metadata server is kept down.
        self.metadata_down: dict[str, None] = {}
        options = world.network.options
        self._network_as_planned = (
            options.long_share,
            options.long_delay_s,
            options.loss_share,
            options.duplicate_share,
        )
        self._decommissioned = False
        self._wiped = False

    async def strike(self, active_s: float) -> None:
        world, draw = self._world, self._draw
        clock = world.bookies[0].disk.clock
        ends = clock.monotonic() + active_s
        while True:
            pause_s = world.plan.fault_interval_s * (0.1 + 1.8 * draw.random())
            left_s = ends - clock.monotonic()
            if world.entries_left <= 0:
                left_s = min(left_s, 5.0)
            await clock.sleep(min(pause_s, max(left_s, 0.0)))
            if pause_s >= left_s or not world.plan.faults:
                return
            self._one(draw.choice(world.plan.faults))

    def _one(self, kind: str) -> None:
        world = self._world
        method: Callable[[], bool] = getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))
        world.trace.line("world", f"FAULT {kind}")
        if method():
            world.count(f"fault: {kind}")

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _bookie(self, among: list[BookieHost] | None = None) -> BookieHost | None:
        running = [bookie for bookie in (among or self._world.bookies) if bookie.runs]
        return self._draw.choice(running) if running else None

    def _client(self) -> Host | None:
        running = [client for client in self._world.clients if client.runs]
        return self._draw.choice(running) if running else None

    def _later(self, seconds: float, callback: Callable[[], object]) -> None:
        self._world.metadata_later(seconds, callback)

    def _restart(self, host: Host) -> None:
        if host.runs or (isinstance(host, BookieHost) and host.refused):
            return
        if isinstance(host, BookieHost) or not self._world.quiet:
            host.start()

    def _kill(self, host: Host | None) -> bool:
        if host is None:
            return False
        host.kill()
        seconds = self._draw.choice((0.05, 0.5, 2.0, 8.0, 20.0)) * (0.5 + self._draw.random())
        self._later(seconds, lambda: self._restart(host))
        return True

    def _kill_bookie(self) -> bool:
        return self._kill(self._bookie())

    def _kill_client(self) -> bool:
        return self._kill(self._client())

    def _ambush(self, tries: int = 10) -> bool:
        """As soon as there is a writer to be caught."""
        world = self._world
        if ambush(world, self._draw):
            world.count("ambushed")
        elif tries and not world.quiet:
            self._later(0.2, lambda: self._ambush(tries - 1))
        return True

    def _kill_all(self) -> bool:
        for host in self._world.hosts:
            if host.runs:
                self._kill(host)
        return True

    def _pause(self, host: Host | None) -> bool:
        if host is None:
            return False
        host.pause()
        seconds = self._draw.choice((0.3, 1.5, 3.0, 6.0, 12.0)) * (0.5 + self._draw.random())
        self._later(seconds, host.resume)
        return True

    def _pause_bookie(self) -> bool:
        return self._pause(self._bookie())

    def _pause_client(self) -> bool:
        return self._pause(self._client())

    # ── the network ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _seconds(self) -> float:
        return self._draw.choice((0.2, 1.0, 3.0, 6.0)) * (0.5 + self._draw.random())

    def _cut(self, one: str, other: str, *, both_ways: bool) -> None:
        network = self._world.network
        network.cut(one, other, both_ways=both_ways)
        self._later(self._seconds(), lambda: network.heal(one, other))

    def _pair(self) -> tuple[str, str]:
        bookie = self._draw.choice(self._world.bookies)
        other = self._draw.choice([host for host in self._world.hosts if host is not bookie])
        return bookie.name, other.name

    def _cut_pair(self) -> bool:
        self._cut(*self._pair(), both_ways=True)
        return True

    def _cut_one_way(self) -> bool:
        one, other = self._pair()
        if self._draw.random() < 0.5:
            one, other = other, one
        self._cut(one, other, both_ways=False)
        return True

    def _isolate(self, host: Host) -> bool:
        seconds, network = self._seconds(), self._world.network
        for other in self._world.hosts:
            if other is not host:
                network.cut(host.name, other.name)
                self._later(seconds, partial(network.heal, host.name, other.name))
        return True

    def _isolate_bookie(self) -> bool:
        return self._isolate(self._draw.choice(self._world.bookies))

    def _isolate_client(self) -> bool:
        return self._isolate(self._draw.choice(self._world.clients))

    def _bad_network(self) -> bool:
        options = self._world.network.options
        before = self._network_as_planned
        options.long_share, options.long_delay_s = 0.2 * self._draw.random(), 2 * self._draw.random()
        options.loss_share = self._draw.choice((0.0, 0.02))
        options.duplicate_share = self._draw.choice((0.0, 0.2))

        def heal() -> None:
            if not self._world.quiet:
                options.long_share, options.long_delay_s, options.loss_share, options.duplicate_share = before

        self._later(self._seconds(), heal)
        return True

    # ── the metadata ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _any_host(self) -> Host | None:
        """Clients as often as bookies, though there may be fewer of them."""
        host = self._client() if self._draw.random() < 0.5 else self._bookie()
        return host if host is not None and host.store is not None else None

    def _suspend_metadata(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.process is not None
        assert host.store is not None
        name = host.name
        self.metadata_down[name] = None
        host.process.call_soon(self._world.metadata.suspend, host.store)
        self._later(self._seconds(), lambda: self.metadata_down.pop(name, None))
        return True

    def _expire(self, *, told: bool) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.process is not None
        assert host.store is not None
        self._world.metadata.expire(host.store, told=told)
        return True

    def _expire_session(self) -> bool:
        return self._expire(told=True)

    def _expire_session_untold(self) -> bool:
        return self._expire(told=False)

    def _request(self, *faults: Fault | None) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.store is not None
        waits = self._draw.below(6)
        self._world.metadata.next_request(host.store, *([None] * waits), *faults)
        return True

    def _lose_metadata_request(self) -> bool:
        return self._request(Fault.LOSE_REQUEST)

    def _lose_metadata_answer(self) -> bool:
        return self._request(*([Fault.LOSE_ANSWER] * (1 + self._draw.below(2))))

    def _hold_metadata_request(self) -> bool:
        return self._request(Fault.HOLD_REQUEST)

    def _slow_metadata(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        store = host.store
        assert store is not None
        self._world.metadata.delay_answers(store, self._draw.random() * self._draw.choice((0.3, 3.0)))
        self._later(self._seconds(), lambda: self._world.metadata.delay_answers(store, 0.001))
        return True

    def _metadata_lags(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.store is not None
        self._world.metadata.lag(host.store)
        return True

    def _cut_metadata_silently(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        store, process = host.store, host.process
        assert store is not None
        assert process is not None
        which = self._draw.below(3)
        self._world.metadata.cut_silently(store, requests=which != 0, answers=which != 1)
        self._later(self._seconds(), lambda: process.call_soon(self._world.metadata.heal, store))
        return True

    # ── the disks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fail_sync(self) -> bool:
        bookie = self._bookie()
        if bookie is None:
            return False
        bookie.disk.fail_next_sync()
        # Its process ends by itself; somebody starts it again.
        for after in (1.0, 5.0):
            self._later(after + self._draw.random() * 5, lambda: self._restart(bookie))
        return True

    def _slow_disk(self) -> bool:
        bookie = self._draw.choice(self._world.bookies)
        slow = 0.05 + self._draw.random() * self._draw.choice((0.3, 2.0))
        bookie.disk.faults = replace(_ORDERLY, longest_sync_s=slow, longest_read_s=slow)
        self._later(self._seconds(), lambda: setattr(bookie.disk, "faults", bookie.usual_faults))
        return True

    def _lose_who_acknowledged(self) -> bool:
        """One bookie acknowledges while the others are slow, and is lost right then: what it said must not count."""
        world = self._world
        one = self._bookie()
        if one is None:
            return False
        for bookie in world.bookies:
            if bookie is not one:
                slow_s = 0.2 + 0.6 * self._draw.random()
                bookie.disk.faults = replace(_ORDERLY, shortest_sync_s=slow_s / 4, longest_sync_s=slow_s)
                self._later(2.0, partial(setattr, bookie.disk, "faults", bookie.usual_faults))
        dies = self._draw.random() < 0.7

        def lose() -> None:
            if dies:
                self._kill(one)
            else:
                self._isolate(one)

        trap = _Trap(one.name, lambda: self._later(0.0, lose))
        world.network.taps.append(trap)
        self._later(2.0, lambda: world.network.taps.remove(trap))
        return True

    def _full_disk(self) -> bool:
        bookie = self._draw.choice(self._world.bookies)
        bookie.disk.fill()
        if self._draw.random() < 0.5:
            self._later(2 * self._seconds(), lambda: setattr(bookie.disk, "capacity_bytes", None))
        return True

    def _loser(self) -> BookieHost | None:
        losers = [self._world.bookies[number] for number in self._world.plan.losers]
        return self._draw.choice(losers) if losers else None

    def _bit_flip(self) -> bool:
        bookie = self._loser()
        if bookie is None:
            return False
        self._world.checker.disk_loses(bookie.name, bookie.disk.damage_any)
        return True

    def _lossy_restart(self) -> bool:
        bookie = self._loser()
        if bookie is None or bookie.refused:
            return False
        self._kill(bookie)
        # One that loses its first groups has lost who it is: that is `wipe`, which takes a spare bookie.
        count = min(1 + self._draw.below(20), len(bookie.disk._synced) - 4)
        if count <= 0:
            return False
        self._world.checker.disk_loses(bookie.name, lambda: bookie.disk.lose_synced(count))
        return True

    def _wipe(self) -> bool:
        bookie = self._loser()
        if bookie is None or self._wiped or bookie.refused or bookie.disk._bookie is None:
            return False
        self._wiped = True
        bookie.kill()
        self._world.checker.disk_loses(bookie.name, bookie.disk.wipe)
        bookie.known.wiped = True
        self._later(self._seconds(), lambda: self._restart(bookie))
        return True

    # ── operators ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _order(self, what: str, whom: str) -> None:
        self._draw.choice(self._world.admins).order(what, whom)

    def _recover_a_ledger(self) -> bool:
        self._order("recover", self._draw.choice(self._world.chain_names))
        return True

    def _fight_over_the_end(self) -> bool:
        """Two recover one ledger while it is written, and each of them, and the writers, miss another bookie."""
        world, chain = self._world, self._draw.choice(self._world.chain_names)
        for host in world.clients:
            if self._draw.random() < 0.6:
                self._cut(self._draw.choice(world.bookies).name, host.name, both_ways=self._draw.random() < 0.5)
        for admin in world.admins:
            self._later(0.05 * self._draw.random(), partial(admin.order, "recover", chain))
        return True

    def _zombie_writer(self) -> bool:
        """A writer stands still while its ledgers are taken from it and deleted, and goes on as if nothing were."""
        world = self._world
        writers = [host for host in world.clients[: world.plan.writers] if host.runs]
        if not writers:
            return False
        host = self._draw.choice(writers)
        host.pause()
        self._later(4.0 + 12.0 * self._draw.random(), host.resume)
        for chain in world.chain_names:
            self._order("recover", chain)
            self._later(1.0 + self._draw.random(), partial(self._order, "delete", chain))
        return True

    def _delete_a_ledger(self) -> bool:
        self._order("delete", self._draw.choice(self._world.chain_names))
        return True

    def _read_only(self) -> bool:
        host = self._bookie()
        if host is None or not host.serves:
            return False
        assert host.process is not None
        bookie = host.bookie
        assert bookie is not None
        host.process.call_soon(setattr, bookie.bookie, "read_only", True)
        process = host.process
        self._later(2 * self._seconds(), lambda: process.call_soon(setattr, bookie.bookie, "read_only", False))
        return True

    def _decommission(self) -> bool:
        if self._decommissioned:
            return False
        # Not one that may lose data: wiped and struck off it would be a new bookie, and rightly so.
        losers = [self._world.bookies[number] for number in self._world.plan.losers]
        bookie = self._bookie([bookie for bookie in self._world.bookies if bookie not in losers])
        if bookie is None:
            return False
        self._decommissioned = bookie.leaving = True
        self._order("decommission", bookie.name)
        return True

    def heal(self) -> None:
        """All of it."""
        world = self._world
        world.network.heal_all()
        options = world.network.options
        options.loss_share = options.long_share = options.duplicate_share = 0.0
        self.metadata_down.clear()
        for bookie in world.bookies:
            bookie.disk.faults = _ORDERLY
            bookie.disk.capacity_bytes = None
            bookie.disk._fail_next = False
        for host in world.hosts:
            host.resume()
            if host.runs and host.store is not None and host.store.session.state is not SessionState.LOST:
                world.metadata.delay_answers(host.store, 0.001)
                assert host.process is not None
                host.process.call_soon(world.metadata.heal, host.store)
