"""What goes wrong besides bookies, disks, network and metadata: brokers die, stand still and end, applications do, and
administrators do things at the wrong moment. What waits for a certain moment is in ambushes.py.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar_bookie import paths
from magnetar_broker.paths import NAMESPACES, OWNERS, TOPICS
from magnetar_testing.metadata.server import Fault
from magnetar_testing.metadata.store import MemoryStore
from tests.sim.service.striker import ServiceStriker

if TYPE_CHECKING:
    from tests.sim.service.broker_host import BrokerHost

__all__ = ["SERVICE_FAULTS", "ServiceFaults"]

# Each, and how much of it there is among the others.
SERVICE_FAULTS: Final = {
    "kill broker": 10,
    "pause broker": 8,
    "stop broker": 5,
    "isolate broker": 5,
    "refuse a broker": 8,
    "kill application": 6,
    "pause application": 4,
    "cut off a broker's clients": 5,
    "break streams": 6,
    "break at the client": 8,
    "suspend a broker": 5,
    "end a broker's session": 6,
    "silence a broker's session": 8,
    "strike a change of a topic": 10,
    "unload": 6,
    "unload a bundle": 8,
    "unload the namespace": 2,
    "split": 4,
    "delete a topic": 4,
    "grow": 3,
    "truncate": 2,
    "unsubscribe": 2,
    "reset": 4,
    "skip all": 2,
    "take over from a paused": 8,
    "break after the entry": 8,
    "kill after the entry": 6,
    "unload during a publish": 6,
    "reset during deliveries": 6,
    "kill during acknowledgements": 6,
    "kill with a letter in flight": 6,
    "late acknowledgements": 6,
    "late entries": 6,
    "delete behind a back": 5,
    "rot a cursor": 3,
    "rot an entry": 3,
    "drop add streams": 3,
    "change as consumers change": 6,
    "kill after a plan": 5,
    "truncate during a plan": 3,
}


class ServiceFaults(ServiceStriker):
    # ── processes ──

    def kill_broker(self) -> bool:
        return self._kill(self._broker())

    def pause_broker(self) -> bool:
        return self._pause(self._broker(), 0.3, 1.5, 3.0, 6.0, 12.0)

    def stop_broker(self) -> bool:
        """Restart it as an upgrade does: with SIGTERM, and a new start."""
        broker = self._broker()
        if broker is None or not broker.serves:
            return False
        process = broker.process
        broker.stop()
        self._later(12.0, lambda: broker.kill() if broker.process is process else None)
        for after in (0.3, 3.0, 12.5):
            self._later(after + self._draw.random(), lambda: self._restart(broker))
        return True

    def kill_application(self) -> bool:
        return self._kill(self._application())

    def pause_application(self) -> bool:
        return self._pause(self._application(), 0.3, 1.5, 6.0)

    # ── network ──

    def isolate_broker(self) -> bool:
        broker = self._broker()
        return broker is not None and self._isolate(broker)

    def refuse_a_broker(self) -> bool:
        """Its address refuses some of the other brokers, or all, though it is alive and clients reach it; sometimes
        they refuse it, too.
        """
        broker = self._broker()
        others = [host for host in self._world.brokers if host is not broker]
        if broker is None or not others:
            return False
        network, seconds = self._world.network, self._seconds()
        both_ways = self._draw.random() < 0.3
        for other in others if self._draw.random() < 0.7 else [self._draw.choice(others)]:
            for source, target in ((other, broker), (broker, other)) if both_ways else ((other, broker),):
                network.refuse(source.name, target.name)
                self._later(seconds, partial(network.accept, source.name, target.name))
        return True

    def cut_off_a_brokers_clients(self) -> bool:
        """Cut off all clients or all but one. The broker goes on with the bookies and the metadata store, and does not
        know.
        """
        broker = self._broker()
        if broker is None:
            return False
        spared = self._draw.choice([*self._world.applications, None])
        for host in self._world.applications:
            if host is not spared:
                self._cut(broker.name, host.name, both_ways=self._draw.random() < 0.5)
        return True

    def break_streams(self) -> bool:
        """Break streams so shortly that no client looks for another broker."""
        broker, application = self._broker(), self._application()
        if broker is None or application is None:
            return False
        network = self._world.network
        network.cut(broker.name, application.name, both_ways=self._draw.random() < 0.5)
        self._later(0.05 * self._draw.random(), partial(network.heal, broker.name, application.name))
        return True

    def break_at_the_client(self) -> bool:
        """An application reconnects before brokers have noticed: what it sent before is still in flight."""
        application = self._application()
        if application is None or application.process is None:
            return False
        network, process = self._world.network, application.process
        for broker in self._world.brokers:
            network.slow_down(application.name, broker.name, 0.4)
        breaks_s = 0.3 * self._draw.random()

        def breaks() -> None:
            for broker in self._world.brokers:
                network.speed_up(application.name, broker.name)
            network.breaks_at(process)

        self._later(breaks_s, breaks)
        return True

    # ── metadata ──

    def suspend_a_broker(self) -> bool:
        broker = self._broker()
        if broker is None or broker.store is None or broker.process is None:
            return False
        name, down = broker.name, self._world.faults.metadata.down
        down[name] = None
        broker.process.call_soon(self._world.metadata.suspend, broker.store)
        self._later(self._draw.choice((0.5, 3.0, 8.0)), lambda: down.pop(name, None))
        return True

    def silence_a_brokers_session(self) -> bool:
        """Lose the broker's metadata requests and answers until its session is over; all else stays connected."""
        broker = self._broker()
        if broker is None or broker.store is None or broker.process is None:
            return False
        store, process, metadata = broker.store, broker.process, self._world.metadata
        metadata.cut_silently(store)
        self._later(3.0 + 9.0 * self._draw.random(), lambda: process.call_soon(metadata.heal, store))
        return True

    def end_a_brokers_session(self) -> bool:
        broker = self._broker()
        if broker is None or broker.store is None:
            return False
        self._world.metadata.expire(broker.store, notify=self._draw.random() < 0.5)
        return True

    def strike_a_change_of_a_topic(self) -> bool:
        """Inject a fault into the very request that creates, opens, changes or closes something."""
        world, draw = self._world, self._draw
        below = draw.choice((TOPICS, TOPICS, paths.INTENTS, paths.INTENTS, paths.LEDGERS, OWNERS, NAMESPACES))
        injected = False
        for broker in world.brokers:
            store = broker.store
            if not broker.runs or store is None or draw.random() < 0.3:
                continue
            fault = draw.choice((Fault.LOSE_ANSWER, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST, Fault.LOSE_REQUEST))
            then = draw.choice((self._comes_back, self._stays_away, self._loses_its_session, self._dies))
            world.metadata.fail_change(store, below, fault, partial(then, broker, store))
            injected = True
        return injected

    def _comes_back(self, host: BrokerHost, store: MemoryStore) -> None:
        self._world.count("a fault hit a change")

    def _stays_away(self, host: BrokerHost, store: MemoryStore) -> None:
        self._world.count("a fault hit a change, and kept the session away")
        down = self._world.faults.metadata.down
        down[host.name] = None
        self._later(6.0 * self._draw.random(), lambda: down.pop(host.name, None))

    def _loses_its_session(self, host: BrokerHost, store: MemoryStore) -> None:
        self._world.count("a fault hit a change, and ended the session")
        self._world.metadata.expire(store)

    def _dies(self, host: BrokerHost, store: MemoryStore) -> None:
        self._world.count("a fault hit a change, and killed the broker")
        self._later(0.0, lambda: None if self._world.quiet else self._kill(host))

    # ── administrators ──

    def unload(self) -> bool:
        return self._order("unload")

    def unload_a_bundle(self) -> bool:
        return self._order("unload a bundle")

    def unload_the_namespace(self) -> bool:
        return self._order("unload the namespace")

    def split(self) -> bool:
        return self._order("split")

    def delete_a_topic(self) -> bool:
        return self._order("delete")

    def grow(self) -> bool:
        return self._order("grow")

    def truncate(self) -> bool:
        return self._order("truncate")

    def unsubscribe(self) -> bool:
        return self._order("unsubscribe")

    def reset(self) -> bool:
        return self._order("reset")

    def skip_all(self) -> bool:
        return self._order("skip all")
