"""Run one seed, from its first draw to the last check."""

from __future__ import annotations

import gc
import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sim.invariants import Violation
from tests.sim.loop import dropping_quietly
from tests.sim.network import is_mistake
from tests.sim.world.world import World

__all__ = ["Outcome", "run_seed"]

_COLLECT_EVERY = 8


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
    world: str = ""

    def __str__(self) -> str:
        where = f", --world {shlex.quote(self.world)}" if self.world else ""
        return f"seed {self.seed}: {self.failure or 'well'} (at {self.virtual_s:.4f} s{where})"


class _Mistakes(logging.Handler):
    """What a process catches, logs and survives may be a mistake still."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        process = self._world.loop.current_process
        if error is not None:
            self._world.trace.line(process.name, f"logs: {record.getMessage()}: {type(error).__name__}: {error}")
            if is_mistake(error):
                self._world.failed(process, record.getMessage(), error)


def run_seed(
    seed: int,
    write: Callable[[str], object] | None = None,
    *,
    raises: bool = False,
    collects: bool = True,
    make: Callable[[int, Callable[[str], object] | None], World] = World,
) -> Outcome:
    """Runs it; `write` gets the trace, a line at a time. With `raises` what went wrong is raised as it is.

    `make` makes another world than the usual one.

    Without `collects` what the run has left in cycles stays, about 2 MB: for a process that ends soon.
    """
    # When the collector runs depends on what else there is: it would finish abandoned generators at other moments.
    collecting = gc.isenabled()
    gc.disable()
    world = make(seed, write)
    log = logging.getLogger()
    mistakes = _Mistakes(world)
    # The only one: others would keep errors, and with them what the run has left.
    handlers, log.handlers = log.handlers, [mistakes]
    logging.disable(logging.WARNING)
    error: BaseException | None = None
    try:
        world.run()
    except Exception as raised:  # noqa: BLE001 (any error is the seed's outcome)
        error = raised
    finally:
        logging.disable(logging.NOTSET)
        log.handlers = handlers
    error = world.failure or error
    outcome = Outcome(seed, world.loop.elapsed_s, world.loop.steps, world.counts, world.looked)
    if error is not None:
        outcome.item = error.item if isinstance(error, Violation) else type(error).__name__
        outcome.failure = f"{type(error).__name__}: {error}"
    if error is not None and not raises:
        error.__traceback__ = error.__context__ = error.__cause__ = None
    # A look at everything there is takes a good part of a run's time: where nobody else minds, it is taken seldom.
    with dropping_quietly(collect=collects and (collecting or seed % _COLLECT_EVERY == 0)):
        world.loop.close(collect=False)
        del world, mistakes
        if not raises:
            error = None
    if collecting:
        gc.enable()
    if raises and error is not None:
        raise error
    return outcome
