"""What goes wrong besides bookies, disks, network and metadata: brokers die, stand still and end, applications do, and
administrators do things at the wrong moment. Ambushes bring together what chance alone seldom does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from magnetar_bookie import paths
from magnetar_broker.paths import NAMESPACES, OWNERS, TOPICS
from magnetar_testing.metadata.server import Fault
from magnetar_testing.metadata.store import MemoryStore
from tests.sim.process import Process
from tests.sim.service.striker import ServiceStriker
from tests.sim.service.turn_ambush import TurnAmbush

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


class _Trap:
    """Springs once, when a message of that method has arrived at a broker, or at a client of one. A `Tap`."""

    def __init__(self, method: str, served: bool, springs: Callable[[Process, Process], object]) -> None:
        self._method = method
        self._served = served
        self._springs: Callable[[Process, Process], object] | None = springs

    def request_sent(self, *_: object) -> None: ...

    def request_arrived(self, *_: object) -> None: ...

    def answer_sent(self, *_: object) -> None: ...

    def answer_arrived(self, *_: object) -> None: ...

    def message_sent(self, *_: object, served: bool) -> None: ...

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if method == self._method and served is self._served and self._springs is not None:
            springs, self._springs = self._springs, None
            springs(source, target)


class _PlanTrap(_Trap):
    """Fires once, when a broker gets a plan request, or answers one. A `Tap`."""

    def __init__(self, answered: bool, springs: Callable[[Process, Process], object]) -> None:
        super().__init__("", False, springs)
        self._answered = answered

    def request_arrived(self, *about: object) -> None:
        if not self._answered:
            self._spring(*about)

    def answer_sent(self, *about: object) -> None:
        if self._answered:
            self._spring(*about)

    def _spring(self, source: Any, target: Any, method: Any, *_: object) -> None:
        if method in ("admin.plan", "here.plan") and self._springs is not None:
            springs, self._springs = self._springs, None
            springs(source, target)


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
        """Or all but one. It goes on with the bookies and the metadata store, and does not know."""
        broker = self._broker()
        if broker is None:
            return False
        spared = self._draw.choice([*self._world.applications, None])
        for host in self._world.applications:
            if host is not spared:
                self._cut(broker.name, host.name, both_ways=self._draw.random() < 0.5)
        return True

    def break_streams(self) -> bool:
        """A line is cut so shortly that nobody looks for another broker."""
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
        """Nothing reaches the metadata store, or comes back, for so long that it gives the session up; and clients and
        bookies are there as ever."""
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

    # ── ambushes ──

    def _when(self, method: str, springs: Callable[[BrokerHost, str], object], *, served: bool = False) -> bool:
        """Calls it with the broker and the client's name as soon as such a message has arrived there."""
        world = self._world

        def sprung(source: Process, target: Process) -> None:
            broker, client = (source, target) if served else (target, source)
            host = next((host for host in world.brokers if host.process is broker), None)
            if host is not None and not world.quiet:
                world.count("ambushed")
                world.metadata_later(0.003 * self._draw.random(), partial(springs, host, client.name))

        trap = _Trap(method, served, sprung)
        world.network.taps.append(trap)
        self._later(2.0, lambda: world.network.taps.remove(trap))
        return True

    def _when_planned(self, springs: Callable[[BrokerHost], object], *, answered: bool) -> bool:
        """Call it with the broker that got a plan request, or has answered one."""
        world = self._world

        def sprung(source: Process, target: Process) -> None:
            host = next((host for host in world.brokers if host.process is (source if answered else target)), None)
            if host is not None and not world.quiet:
                world.count("ambushed at a plan")
                world.metadata_later(0.002 * self._draw.random(), partial(springs, host))

        trap = _PlanTrap(answered, sprung)
        world.network.taps.append(trap)
        self._later(4.0, lambda: world.network.taps.remove(trap))
        return True

    def kill_after_a_plan(self) -> bool:
        """Or end its session, so that another broker has the topic soon."""
        ends = self._draw.random() < 0.6

        def inject(broker: BrokerHost) -> None:
            if ends and broker.runs and broker.store is not None:
                self._world.metadata.expire(broker.store, notify=True)
            elif broker.runs:
                self._kill(broker)

        return self._when_planned(inject, answered=True)

    def truncate_during_a_plan(self) -> bool:
        return self._when_planned(lambda broker: self._order("truncate"), answered=self._draw.random() < 0.5)

    def take_over_from_a_paused(self) -> bool:
        """The owner stands still with requests before it, loses its session, and goes on when another has the topic."""

        def inject(broker: BrokerHost, client: str) -> None:
            if broker.runs:
                if broker.store is not None and self._draw.random() < 0.7:
                    self._world.metadata.expire(broker.store, notify=False)
                if self._draw.random() < 0.5:
                    self._cut(broker.name, client, both_ways=True)
                self._pause(broker, 0.3, 1.0, 3.0, 6.0)

        return self._when(self._draw.choice(("produce", "produce", "consume")), inject)

    def break_after_the_entry(self) -> bool:
        """The client's stream breaks between an entry and its receipt."""

        def inject(broker: BrokerHost, client: str) -> None:
            network = self._world.network
            network.cut(broker.name, client, both_ways=False)
            self._later(0.3 * self._draw.random(), partial(network.heal, broker.name, client))

        return self._when(self._draw.choice(("produce", "produce", "consume")), inject)

    def kill_after_the_entry(self) -> bool:
        return self._when("produce", lambda broker, client: self._kill(broker) if broker.runs else None)

    def unload_during_a_publish(self) -> bool:
        what = self._draw.choice(("unload", "unload a bundle", "split"))
        return self._when("produce", lambda broker, client: self._order(what))

    def reset_during_deliveries(self) -> bool:
        what = self._draw.choice(("reset", "reset", "skip all", "unload", "unload a bundle"))
        return self._when("consume", lambda broker, client: self._order(what), served=True)

    def late_acknowledgements(self) -> bool:
        """They are in flight to a broker when a subscription is moved."""
        broker, application = self._broker(), self._application()
        if broker is None or application is None:
            return False
        network, draw = self._world.network, self._draw
        network.slow_down(application.name, broker.name, 0.2 + draw.random())
        self._later(2.0, partial(network.speed_up, application.name, broker.name))
        for _ in range(2):
            what = draw.choice(("reset", "reset", "skip all"))
            self._later(draw.random(), partial(self._order_in_time, what))
        return True

    def delete_behind_a_back(self) -> bool:
        """A topic goes while one of its applications is away, and others make it again."""
        application = self._application()
        if application is None:
            return False
        self._later(0.2 + 0.3 * self._draw.random(), partial(self._order_in_time, "delete"))
        return self._isolate(application)

    def late_entries(self) -> bool:
        """They are in flight to a broker when their stream breaks, and their client comes with another one."""
        broker, application = self._broker(), self._application()
        if broker is None or application is None:
            return False
        network, draw = self._world.network, self._draw
        network.slow_down(application.name, broker.name, 0.2 + draw.random())
        self._later(3.0, partial(network.speed_up, application.name, broker.name))
        cut_after_s = 0.5 * draw.random()
        self._later(cut_after_s, partial(network.cut, broker.name, application.name, both_ways=False))
        self._later(cut_after_s + 0.4 * draw.random(), partial(network.heal, broker.name, application.name))
        return True

    def kill_during_acknowledgements(self) -> bool:
        def inject(broker: BrokerHost, client: str) -> None:
            victim = broker if self._draw.random() < 0.6 else self._application()
            if victim is not None and victim.runs:
                self._kill(victim)

        return self._when("consume", inject)

    def change_as_consumers_change(self) -> bool:
        """In one turn of a broker's loop. An application's streams break, so that its consumers come back."""
        application = self._application()
        if application is None or application.process is None:
            return False
        ambush = TurnAmbush(self._world, self._draw.choice(("reset", "reset", "delete", "skip")))
        taps = self._world.network.stream_taps
        taps.append(ambush)
        self._later(3.0, lambda: taps.remove(ambush))
        self._world.network.breaks_at(application.process)
        return True
