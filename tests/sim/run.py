"""One seed, from its first draw to the last check."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sim.invariants import Violation
from tests.sim.world.world import World

__all__ = ["Outcome", "run_seed"]


@dataclass(slots=True)
class Outcome:
    seed: int
    virtual_s: float
    steps: int
    counts: dict[str, int]
    looked: dict[str, int] = field(default_factory=dict)
    # What was violated, empty: nothing.
    item: str = ""
    failure: str = ""

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.failure or 'well'} (at {self.virtual_s:.4f} s)"


def run_seed(seed: int, write: Callable[[str], object] | None = None, *, raises: bool = False) -> Outcome:
    """Runs it; `write` gets the trace, a line at a time. With `raises` what went wrong is raised as it is."""
    # When the collector runs depends on what else there is: it would finish abandoned generators at other moments.
    collecting = gc.isenabled()
    gc.disable()
    if write is None:
        logging.disable(logging.CRITICAL)
    world = World(seed, write)
    error: BaseException | None = None
    try:
        world.run()
    except Exception as raised:  # noqa: BLE001 (whatever it is, it is the seed's outcome)
        error = raised
    finally:
        logging.disable(logging.NOTSET)
    error = world.failure or error
    outcome = Outcome(seed, world.loop.now, world.loop.steps, world.counts, world.checker.history.looked)
    if error is not None:
        outcome.item = error.item if isinstance(error, Violation) else type(error).__name__
        outcome.failure = f"{type(error).__name__}: {error}"
    world.loop.close()
    if collecting:
        gc.enable()
    if raises and error is not None:
        raise error
    return outcome
