"""The metadata store loses requests, answers and sessions, is slow, and shows what was."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar_bookie import paths
from magnetar_testing.metadata.server import Fault
from magnetar_testing.metadata.store import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.sim.world.faults.injector import FaultGroup
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["MetadataFaults"]


class MetadataFaults(FaultGroup):
    def __init__(self, world: World, draw: SeededRandomness) -> None:
        super().__init__(world, draw)
        # Hosts whose connection to the metadata server stays down.
        self.down: dict[str, None] = {}
        self._forgotten: dict[int, None] = {}

    def _any_host(self) -> Host | None:
        """Clients as often as bookies, though there may be fewer of them."""
        host = self._client() if self._draw.random() < 0.5 else self._bookie()
        return host if host is not None and host.store is not None else None

    def suspend_metadata(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.process is not None
        assert host.store is not None
        name = host.name
        self.down[name] = None
        host.process.call_soon(self._world.metadata.suspend, host.store)
        self._later(self._seconds(), lambda: self.down.pop(name, None))
        return True

    def _expire(self, *, notify: bool) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.process is not None
        assert host.store is not None
        self._world.metadata.expire(host.store, notify=notify)
        return True

    def expire_session(self) -> bool:
        return self._expire(notify=True)

    def expire_session_untold(self) -> bool:
        return self._expire(notify=False)

    def _request(self, *faults: Fault | None) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.store is not None
        waits = self._draw.below(6)
        self._world.metadata.queue_faults(host.store, *([None] * waits), *faults)
        return True

    def lose_metadata_request(self) -> bool:
        return self._request(Fault.LOSE_REQUEST)

    def lose_metadata_answer(self) -> bool:
        return self._request(*([Fault.LOSE_ANSWER] * (1 + self._draw.below(2))))

    def hold_metadata_request(self) -> bool:
        return self._request(Fault.HOLD_REQUEST)

    def slow_metadata(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        store = host.store
        assert store is not None
        self._world.metadata.delay_answers(store, self._draw.random() * self._draw.choice((0.3, 3.0)))
        self._later(self._seconds(), lambda: self._world.metadata.delay_answers(store, 0.001))
        return True

    def metadata_lags(self) -> bool:
        host = self._any_host()
        if host is None:
            return False
        assert host.store is not None
        self._world.metadata.lag(host.store)
        return True

    def cut_metadata_silently(self) -> bool:
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

    def strike_a_change(self) -> bool:
        """Inject a fault into the very request that creates, claims, changes or sweeps a ledger."""
        world, draw = self._world, self._draw
        below = draw.choice((paths.LEDGERS, paths.LEDGERS, paths.INTENTS, paths.LEDGER_IDS))
        injected = False
        for host in world.hosts:
            store = host.store
            if not host.runs or store is None or draw.random() < 0.4:
                continue
            fault = draw.choice((Fault.LOSE_ANSWER, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST, Fault.LOSE_REQUEST))
            then = draw.choice((self._comes_back, self._stays_away, self._loses_its_session))
            world.metadata.fail_change(store, below, fault, partial(then, host, store))
            injected = True
        return injected

    def _comes_back(self, host: Host, store: MemoryStore) -> None:
        self._world.count("a fault hit a change")

    def _stays_away(self, host: Host, store: MemoryStore) -> None:
        """Long enough that others change what it wanted to, at times for longer than its session lasts."""
        self._world.count("a fault hit a change, and kept the session away")
        self.down[host.name] = None
        self._later(6.0 * self._draw.random(), lambda: self.down.pop(host.name, None))

    def _loses_its_session(self, host: Host, store: MemoryStore) -> None:
        self._world.count("a fault hit a change, and ended the session")
        self._world.metadata.expire(store)

    def forget_a_ledger(self) -> bool:
        """Do as a store does that was restored from yesterday: the node is missing, and later it is back as it was.

        It is one that its chain lists: a process that claims, deletes or sweeps the ledger believes the store that it
        is deleted.
        """
        world, draw = self._world, self._draw
        listed = [ledger_id for chain in world.checker.history.chains.values() for ledger_id in chain.ledgers]
        if not listed:
            return False
        ledger_id = draw.choice(listed)
        path = paths.ledger(ledger_id)
        if not world.metadata.forget(path):
            return False
        self._forgotten[ledger_id] = None
        world.checker.metadata_forget(ledger_id)
        world.trace.line("metadata", f"{path} is forgotten")
        seconds = draw.choice((0.3, 2.0, 10.0, 20.0)) * (0.5 + draw.random())
        self._later(seconds, partial(self._remember, ledger_id))
        return True

    def heal(self) -> None:
        self.down.clear()
        self._world.metadata.cancel_planned_faults()
        for ledger_id in list(self._forgotten):
            self._remember(ledger_id)

    def _remember(self, ledger_id: int) -> None:
        if ledger_id not in self._forgotten:
            return
        del self._forgotten[ledger_id]
        path = paths.ledger(ledger_id)
        self._world.trace.line("metadata", f"{path} is remembered")
        self._world.metadata.remember(path)
