"""An ambush: a writer is caught with adds under way, by several recoveries at once, while messages crawl.

Chance alone seldom brings together what the protocol's oldest bugs need: an entry that some bookies have and others do
not yet, a fence that overtakes it, and recoverers who each hear from other bookies. So they are brought together here.
Nothing is done that could not happen: the writer appends a burst, messages between it and some bookies are slow or cut
off, it may die or be paused, and other processes recover its ledger, each with slow or cut lines of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar_bookie.errors import LedgerError
from magnetar_metadata.errors import MetadataError
from magnetar_wire.randomness import SeededRandomness
from tests.sim.world.chain_writer import ChainWriter

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["ambush"]

_BURST = 12
_OF_A_WRITER = 0.2


def ambush(world: World, draw: SeededRandomness) -> bool:
    victims = [client for client in world.clients if client.runs and client.owner is not None]
    if not victims:
        return False
    victim = draw.choice(victims)
    assert victim.owner is not None
    ledger_id = victim.owner.ledger_id
    _disturb(world, draw, victim.name, cut=_OF_A_WRITER)
    for _ in range(_BURST):
        world.metadata_later(0.004 * draw.random(), partial(_append, victim, ledger_id))
    others = [client for client in world.clients if client.runs and client is not victim and client.client is not None]
    draw.shuffle(others)
    for recoverer in others[: 1 + draw.below(3)]:
        _disturb(world, draw, recoverer.name, cut=0.15)
        begins_s = draw.choice((0.006, 0.05, 0.2)) * draw.random()
        world.metadata_later(begins_s, partial(_recover, recoverer, ledger_id))
    fate = draw.random()
    if fate < 0.25:
        world.metadata_later(0.01 * draw.random(), victim.kill)
        world.metadata_later(1.0 + draw.random(), partial(_restart, victim))
    elif fate < 0.4:
        world.metadata_later(0.01 * draw.random(), victim.pause)
        world.metadata_later(3 * draw.random(), victim.resume)
    return True


def _disturb(world: World, draw: SeededRandomness, name: str, *, cut: float) -> None:
    """Some lines between this process and the bookies are slow or cut for a while.

    Either each for itself; or all are slow but one, and for a writer another is cut: so it has just one bookie on its
    side, and of the others nobody can say who hears first.
    """
    bookies = [bookie.name for bookie in world.bookies]
    draw.shuffle(bookies)
    seconds, slow_s = 0.5 + 2 * draw.random(), draw.choice((0.02, 0.3))
    if draw.random() < 0.6:
        spared = 2 if cut >= _OF_A_WRITER else 1
        if spared == 2:
            _cut(world, seconds, name, bookies[1])
        for bookie in bookies[spared:]:
            _slow(world, seconds, slow_s, name, bookie)
        return
    for bookie in bookies:
        for source, target in ((name, bookie), (bookie, name)):
            fate = draw.random()
            if fate < cut:
                _cut(world, seconds, source, target)
            elif fate < 0.6:
                _slow(world, seconds, draw.choice((0.005, 0.02, 0.3)), source, target)


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
