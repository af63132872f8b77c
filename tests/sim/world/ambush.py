"""An ambush: a writer with adds in flight meets several recoveries at once, while messages are slow.

Chance alone seldom combines what the protocol's oldest bugs need: an entry that some bookies have and others do not
yet, a fence that overtakes it, and recoverers that hear from different bookies. So the ambush combines them. Nothing is
done that could not happen: the writer appends a burst, messages between it and some bookies are slow or cut off, it may
die or be paused, and other processes recover its ledger, each with slow or cut lines of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar_bookie.errors import LedgerError
from magnetar_metadata.errors import MetadataError
from magnetar_testing.randomness import SeededRandomness
from tests.sim.world.chain_writer import ChainWriter

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["ambush"]

_BURST = 12


def ambush(world: World, draw: SeededRandomness) -> bool:
    victims = [client for client in world.clients if client.runs and client.owner is not None]
    if not victims:
        return False
    victim = draw.choice(victims)
    assert victim.owner is not None
    ledger_id = victim.owner.ledger_id
    names = [bookie.name for bookie in world.bookies]
    draw.shuffle(names)
    trap = _Trap(world, draw, quick=names[0], deaf=names[1])
    trap.around_the_writer(victim.name)
    for _ in range(_BURST):
        world.metadata_later(0.004 * draw.random(), partial(_append, victim, ledger_id))
    if draw.random() < 0.5:
        victim.owner.rests_until = victim.clock.monotonic() + 0.6
    others = [client for client in world.clients if client.runs and client is not victim and client.client is not None]
    draw.shuffle(others)
    for recoverer in others[: draw.choice((1, 1, 1, 2, 3))]:
        trap.around_a_recoverer(recoverer.name)
        begins_s = draw.choice((0.006, 0.05, 0.2)) * draw.random()
        world.metadata_later(begins_s, partial(_recover, recoverer, ledger_id))
    fate = draw.random()
    if fate < 0.15:
        world.metadata_later(0.01 * draw.random(), victim.kill)
        world.metadata_later(1.0 + draw.random(), partial(_restart, victim))
    elif fate < 0.25:
        world.metadata_later(0.01 * draw.random(), victim.pause)
        world.metadata_later(3 * draw.random(), victim.resume)
    return True


class _Trap:
    """Who hears whom how late, for a while.

    As a rule the writer is heard by one bookie at once, by another not at all and by the rest late, and the recoverer
    at once by the one that has not heard the writer. Otherwise each line is what chance makes it.
    """

    def __init__(self, world: World, draw: SeededRandomness, quick: str, deaf: str) -> None:
        self._world = world
        self._draw = draw
        self._quick = quick
        self._deaf = deaf
        self._seconds = 0.5 + 2 * draw.random()

    def around_the_writer(self, name: str) -> None:
        if self._draw.random() < 0.8:
            _cut(self._world, self._seconds, name, self._deaf)
            self._late_at_all_but(name, self._quick, self._deaf)
        else:
            self._anyhow(name)

    def around_a_recoverer(self, name: str) -> None:
        if self._draw.random() < 0.8:
            self._late_at_all_but(name, self._deaf if self._draw.random() < 0.6 else self._quick)
        else:
            self._anyhow(name)

    def _late_at_all_but(self, name: str, *others: str) -> None:
        slow_s = self._draw.choice((0.02, 0.3, 0.3))
        for bookie in self._world.bookies:
            if bookie.name not in others:
                _slow(self._world, self._seconds, slow_s, name, bookie.name)

    def _anyhow(self, name: str) -> None:
        for bookie in self._world.bookies:
            for source, target in ((name, bookie.name), (bookie.name, name)):
                fate = self._draw.random()
                if fate < 0.15:
                    _cut(self._world, self._seconds, source, target)
                elif fate < 0.6:
                    _slow(self._world, self._seconds, self._draw.choice((0.005, 0.02, 0.3)), source, target)


def _cut(world: World, seconds: float, source: str, target: str) -> None:
    world.network.cut(source, target, both_ways=False)
    world.metadata_later(seconds, partial(world.network.heal, source, target))


def _slow(world: World, seconds: float, slow_s: float, source: str, target: str) -> None:
    world.network.slow_down(source, target, slow_s)
    world.metadata_later(seconds, partial(world.network.speed_up, source, target))


def _append(victim: ChainWriter, ledger_id: int) -> None:
    owner, process = victim.owner, victim.process
    if owner is not None and owner.ledger_id == ledger_id and process is not None and victim.runs:
        process.call_soon(owner.append_one_more, ledger_id)


def _recover(recoverer: ChainWriter, ledger_id: int) -> None:
    async def recover() -> None:
        assert client is not None
        try:
            metadata = await client.recover(ledger_id)
            recoverer.trace(f"found ledger {ledger_id} closed at {metadata.last_entry_id}")
        except (LedgerError, MetadataError) as error:
            recoverer.trace(f"could not recover ledger {ledger_id}: {type(error).__name__}: {error}")

    client, process = recoverer.client, recoverer.process
    if client is not None and process is not None and recoverer.runs:
        recoverer.trace(f"is to recover ledger {ledger_id}")
        process.spawn(recover())


def _restart(victim: ChainWriter) -> None:
    if not victim.runs and not victim.world.quiet:
        victim.start()
