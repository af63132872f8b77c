"""The kinds of worlds by their names, and the worlds in which a seed is run by default.

Those of ledgers and of the service can be limited to certain faults: `service:late entries+kill broker`.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from tests.sim.run import Outcome, run_seed
from tests.sim.service.faults import SERVICE_FAULTS
from tests.sim.service.world import ServiceWorld
from tests.sim.topics.world import TopicWorld
from tests.sim.world.plan import FAULTS, NOT_OF_TOPICS
from tests.sim.world.world import World

__all__ = ["WORLDS", "run_in_world", "world_named", "worlds_of"]

WORLDS: Final[dict[str, type[World]]] = {"ledgers": World, "topics": TopicWorld, "service": ServiceWorld}
# Worlds whose faults can be named, and what faults there are.
_WITH_FAULTS: Final[dict[str, tuple[type[World] | type[ServiceWorld], Iterable[str]]]] = {
    "ledgers": (World, FAULTS),
    "service": (ServiceWorld, (*SERVICE_FAULTS, *(fault for fault in FAULTS if fault not in NOT_OF_TOPICS))),
}
# One seed in this many runs there, too: larger worlds do more per seed, and take longer. The service has topics' logs
# in it.
_EVERY: Final = {"ledgers": 1, "service": 2, "topics": 10}


def world_named(name: str) -> str:
    """The same, if there is one. Raises `ArgumentTypeError`."""
    kind, _, faults = name.partition(":")
    if kind not in WORLDS or (faults and kind not in _WITH_FAULTS):
        raise ArgumentTypeError(f"there is no world {name!r}: {', '.join(WORLDS)}, and ledgers or service:FAULT+FAULT")
    for fault in faults.split("+") if faults else ():
        if fault not in _WITH_FAULTS[kind][1]:
            raise ArgumentTypeError(f"there is no fault {fault!r} in {kind}: {', '.join(_WITH_FAULTS[kind][1])}")
    return name


def _maker(name: str) -> Callable[[int, Callable[[str], object] | None], World]:
    kind, _, faults = name.partition(":")
    return partial(_WITH_FAULTS[kind][0], faults=faults.split("+")) if faults else WORLDS[kind]


def worlds_of(seed: int) -> list[str]:
    return [world for world, every in _EVERY.items() if seed % every == 0]


def run_in_world(
    run: tuple[str, int],
    write: Callable[[str], object] | None = None,
    *,
    raises: bool = False,
    collects: bool = True,
) -> Outcome:
    """`run` is a world's name and a seed."""
    name, seed = run
    outcome = run_seed(seed, write, raises=raises, collects=collects, make=_maker(name))
    outcome.world = name
    return outcome
