"""A simulated process: the owner of callbacks, which decides whether they may run.

Every handle of the loop carries its process. It is found through a context variable, which tasks, futures' callbacks
and timers inherit as they do with any loop, so that production code knows nothing of it. What one process sets in
motion in another (a network message, a sign of the metadata store) is queued in the other's context.

**Killed** is like `kill -9`: nothing of the process ever runs again, no `finally` and no cancellation. Its tasks stay
referenced until the run is over, since a collected task would run its `finally` blocks. **Paused** is like
SIGSTOP: what falls due is parked, and runs, late, when the process is resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.sim.loop import Handle, SimulatedLoop

__all__ = ["PROCESS", "Process"]

# After this many new tasks the finished ones are released.
_PRUNE_EVERY: Final = 512


class Process:
    """Made by `SimulatedLoop.process`. A restarted process is a new object."""

    __slots__ = (
        "_prune_at",
        "context",
        "dead",
        "halted",
        "loop",
        "name",
        "on_end",
        "parked",
        "paused",
        "resumed_at",
        "tasks",
        "unit",
        "wall_skew_ms",
    )

    def __init__(self, loop: SimulatedLoop, name: str, context: contextvars.Context) -> None:
        self.loop = loop
        self.name = name
        self.context = context
        self.dead = False
        self.paused = False
        # On the loop's clock; below 0: it never was paused.
        self.resumed_at = -1.0
        # Dead or paused: the one thing that the loop looks at.
        self.halted = False
        self.parked: list[Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        # Called when it is killed, in the killer's context: the network's and the metadata server's ends of it.
        self.on_end: list[Callable[[], object]] = []
        self.wall_skew_ms = 0
        # Parts of one operating system process have the same unit: nothing between them gets lost, and they may call
        # each other. Each has a name of its own all the same, by which others know it. None: it has a whole process.
        self.unit: object | None = None
        self._prune_at = _PRUNE_EVERY

    def spawn(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Start a task in this process, from any context."""
        return self.context.copy().run(self.loop.create_task, work, name=name)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon(callback, *args, context=self.context)

    def shares_unit(self, other: Process) -> bool:
        return self.unit is not None and self.unit is other.unit

    def kill(self) -> None:
        if self.dead:
            return
        self.dead = self.halted = True
        self.paused = False
        self.parked.clear()
        for callback in self.on_end:
            callback()
        self.on_end.clear()

    def pause(self) -> None:
        if not self.dead:
            self.paused = self.halted = True

    def resume(self) -> None:
        if self.paused:
            self.paused = self.halted = False
            self.resumed_at = self.loop.elapsed_s
            parked, self.parked = self.parked, []
            self.loop.ready(parked)

    def keep(self, task: asyncio.Task[Any]) -> None:
        self.tasks.append(task)
        if len(self.tasks) >= self._prune_at:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._prune_at = len(self.tasks) + _PRUNE_EVERY

    def __repr__(self) -> str:
        return f"<process {self.name}>"


PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("PROCESS")
