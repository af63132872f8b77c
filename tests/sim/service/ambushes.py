"""Ambushes: faults that wait for a certain moment, since they bring together what chance alone seldom does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.sim.process import Process
from tests.sim.service.letters import IN_EACH_LETTER, LETTER_TOPICS
from tests.sim.service.striker import ServiceStriker
from tests.sim.service.turn_ambush import TurnAmbush

if TYPE_CHECKING:
    from tests.sim.service.broker_host import BrokerHost

__all__ = ["Ambushes"]

# How long a message takes at most that is in flight when its sender is to die; and about how long until it is stored.
_DELAYS_S: Final = (0.0, 0.05, 0.3, 0.3)
_STORED_S: Final = 0.005


class _Trap:
    """Fires once, when a message of that method has arrived at a broker, or at a client of one. A `Tap`."""

    def __init__(self, method: str, served: bool, springs: Callable[[Process, Process], object]) -> None:
        self._method = method
        self._served = served
        self._springs: Callable[[Process, Process], object] | None = springs

    def request_sent(self, *_: object) -> None: ...

    def request_arrived(self, *_: object) -> None: ...

    def answer_sent(self, *_: object) -> None: ...

    def answer_arrived(self, *_: object) -> None: ...

    def message_sent(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None: ...

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


class _LetterTrap(_Trap):
    """Fires once, when an application sends a message that has one of the marks in it, after `passing` others. A
    `Tap`.
    """

    def __init__(self, marks: Sequence[bytes], passing: int, springs: Callable[[Process, Process], object]) -> None:
        super().__init__("", False, springs)
        self._marks = marks
        self._passing = passing

    def message_sent(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if method == "produce" and not served and any(mark in message for mark in self._marks):
            self._passing -= 1
            if self._passing == -1 and self._springs is not None:
                self._springs(source, target)


class Ambushes(ServiceStriker):
    def _when(self, method: str, springs: Callable[[BrokerHost, str], object], *, served: bool = False) -> bool:
        """Call it with the broker and the client's name as soon as such a message has arrived there."""
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
        """Kill the broker or end its session, so that another broker has the topic soon."""
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
        """Pause the owner with requests before it, end its session, and resume it when another broker has the topic."""

        def inject(broker: BrokerHost, client: str) -> None:
            if broker.runs:
                if broker.store is not None and self._draw.random() < 0.7:
                    self._world.metadata.expire(broker.store, notify=False)
                if self._draw.random() < 0.5:
                    self._cut(broker.name, client, both_ways=True)
                self._pause(broker, 0.3, 1.0, 3.0, 6.0)

        return self._when(self._draw.choice(("produce", "produce", "consume")), inject)

    def break_after_the_entry(self) -> bool:
        """Break the client's stream between an entry and its receipt."""

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
        """Delay acknowledgements, so that they are in flight to a broker when a subscription is moved."""
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
        """Delete a topic while one of its applications is away, and others create it again."""
        application = self._application()
        if application is None:
            return False
        self._later(0.2 + 0.3 * self._draw.random(), partial(self._order_in_time, "delete"))
        return self._isolate(application)

    def late_entries(self) -> bool:
        """Delay entries, so that they are in flight to a broker when their stream breaks, and their client opens
        another.
        """
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

    def kill_with_a_letter_in_flight(self) -> bool:
        """Kill an application between a message's last delivery, or its retry, and the receipt of its letter: while a
        producer is opened for it, or the letter is sent, which may take long, so that acknowledgements overtake it.
        """
        world, draw = self._world, self._draw
        if not world.service.letters:
            return False

        def sprung(source: Process, target: Process) -> None:
            host = next((host for host in world.applications if host.process is source), None)
            if host is None or world.quiet:
                return
            world.count("a letter's application was killed")
            delay_s = draw.choice(_DELAYS_S)
            if delay_s:
                world.network.slow_down(source.name, target.name, delay_s)
                self._later(0.0, partial(world.network.speed_up, source.name, target.name))
            dies_s = (delay_s + _STORED_S) * draw.random()
            self._later(dies_s, lambda: None if world.quiet or source.dead else self._kill(host))

        marks = draw.choice(((IN_EACH_LETTER,), (IN_EACH_LETTER, *LETTER_TOPICS)))
        trap = _LetterTrap(marks, draw.choice((0, 0, 0, 1, 3)), sprung)
        world.network.taps.append(trap)
        self._later(6.0, lambda: world.network.taps.remove(trap))
        return True

    def change_as_consumers_change(self) -> bool:
        """Change a subscription and its consumers in one turn of a broker's loop: an application's streams break."""
        application = self._application()
        if application is None or application.process is None:
            return False
        ambush = TurnAmbush(self._world, self._draw.choice(("reset", "reset", "delete", "skip")))
        taps = self._world.network.stream_taps
        taps.append(ambush)
        self._later(3.0, lambda: taps.remove(ambush))
        self._world.network.breaks_at(application.process)
        return True
