"""What goes wrong between the service and its bookies: add streams that break, and records that rot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar_broker import paths
from tests.sim.process import Process
from tests.sim.service.letters import is_letter_topic
from tests.sim.service.striker import ServiceStriker

if TYPE_CHECKING:
    from tests.sim.network import SimulatedNetwork

__all__ = ["StorageFaults"]


class _AddStreamDropper:
    """Breaks all add streams of a process that sends a frame of adds after an answer to the one before. A `Tap`.

    So each ledger stores what was in its first frame, and fails.
    """

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._answered: dict[Process, None] = {}

    def request_sent(self, *_: object) -> None: ...

    def request_arrived(self, *_: object) -> None: ...

    def answer_sent(self, *_: object) -> None: ...

    def answer_arrived(self, *_: object) -> None: ...

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if served and method == "add":
            self._answered[target] = None

    def message_sent(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if not served and method == "add" and source in self._answered:
            del self._answered[source]
            self._network.later(source, 0.0, self._network.breaks_at, source, "add")


class StorageFaults(ServiceStriker):
    def drop_add_streams(self) -> bool:
        """Have bookies take one frame of adds, and break the stream at the next, as overload or a proxy may: each
        ledger stores something, and fails soon.
        """
        taps, dropper = self._world.network.taps, _AddStreamDropper(self._world.network)
        taps.append(dropper)
        self._later(1.0 + 5 * self._draw.random(), partial(taps.remove, dropper))
        return True

    def rot_a_cursor(self) -> bool:
        """Damage the first or last record of a cursor's ledger, on one bookie or on all; its broker unloads the topic
        or dies. If all replicas are damaged, an administrator repairs the cursor later.
        """
        rotten = self._rot(cursors=True)
        if rotten == "everywhere":
            self._later(0.5 + 2 * self._draw.random(), partial(self._order_in_time, "mend"))
        return bool(rotten)

    def rot_an_entry(self) -> bool:
        """Damage the first or last entry of one of a topic's ledgers, on one bookie or on all; its broker unloads the
        topic or dies, so that the entry is read from bookies.
        """
        return bool(self._rot(cursors=False))

    def _rot(self, *, cursors: bool) -> str:
        """Return where a record rots; empty: nowhere."""
        world, draw = self._world, self._draw
        history = world.checker.history
        chains = [
            chain
            for name, chain in history.chains.items()
            if (" " in name) is cursors
            and chain.ledgers
            and not name.startswith(paths.SCHEMAS)
            and not is_letter_topic(name.partition(" ")[0])
        ]
        if not chains:
            return ""
        ledgers = draw.choice(chains).ledgers
        ledger = history.ledger(ledgers[-1] if draw.random() < 0.5 else draw.choice(ledgers))
        if ledger.acked < 0:
            return ""
        entry = ledger.ledger_id, draw.choice((0, ledger.acked))
        losers = [world.bookies[number] for number in world.plan.losers]
        if losers and draw.random() < 0.5:
            bookie = draw.choice(losers)
            world.checker.disk_loses(bookie.name, partial(bookie.disk.damage, *entry))
            where = "on one bookie"
        elif world.checker.entry_destroyed(*entry):
            where = "everywhere"
        else:
            return ""
        world.trace.line("world", f"entry {entry} rots {where}")
        world.count(f"{'cursor' if cursors else 'entry'} rotten {where}")
        if draw.random() < 0.5:
            self._kill(self._broker())
        else:
            self._order(draw.choice(("unload the namespace", "unload")))
        return where
