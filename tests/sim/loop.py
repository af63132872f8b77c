"""An event loop in virtual time.

It has a queue of ready handles and a heap of timers. When no handle is ready the time jumps to the next timer. Nothing
else moves: no selector, no thread, no signal, so the same calls give the same run. asyncio's own tasks and futures run
on it unchanged.

A run that makes no progress fails: if the heap is empty and something still waits, if the queue spins without the time
moving, or after too many steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import logging
import sys
import warnings
from asyncio import events
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

from tests.sim.process import PROCESS, Process

__all__ = ["Handle", "NoProgress", "SimulatedLoop", "collect_quietly", "dropping_quietly", "new_loop"]

# Monotonic clocks begin anywhere.
_START_S: Final = 1000.0
# Of one moment; thousands of entries' worth of callbacks stay far below.
_MOST_STEPS_AT_ONCE: Final = 200_000


class NoProgress(AssertionError):
    """The run gets nowhere."""


class Handle:
    """A callback that is to run, in its process."""

    __slots__ = ("args", "callback", "context", "process", "when_s")

    def __init__(
        self,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
        when_s: float,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.when_s = when_s

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_s


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, most_steps: int = 20_000_000) -> None:
        self.now = _START_S
        self.steps = 0
        self._most_steps = most_steps
        self._ready: deque[Handle] = deque()
        self._due: list[tuple[float, int, Handle]] = []
        self._order = 0
        self._running = False
        self._stopping = False
        self._closed = False
        # What no process caught: (process, message, exception).
        self.failures: list[tuple[Process, str, BaseException | None]] = []
        self.on_failure: Callable[[Process, str, BaseException | None], object] | None = None
        self.processes: list[Process] = []
        # The process that is not simulated: it runs the world.
        self.outside = self.process("world")
        self._process = self.outside
        self._context = self.outside.context

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def process(self, name: str) -> Process:
        context = contextvars.Context()
        process = Process(self, name, context)
        context.run(PROCESS.set, process)
        self.processes.append(process)
        return process

    @property
    def elapsed_s(self) -> float:
        """Since the run began."""
        return self.now - _START_S

    @property
    def current_process(self) -> Process:
        return self._process

    def ready(self, handles: Iterable[Handle]) -> None:
        self._ready.extend(handles)

    # ── what asyncio asks of a loop ──────────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            handle = Handle(callback, args, self._context, self._process, 0.0)
        else:
            handle = Handle(callback, args, context, context.get(PROCESS, self.outside), 0.0)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            handle = Handle(callback, args, self._context, self._process, when)
        else:
            handle = Handle(callback, args, context, context.get(PROCESS, self.outside), when)
        self._order += 1
        heapq.heappush(self._due, (when, self._order, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        # A task's name comes from a counter of the whole Python process unless it is given.
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        (PROCESS.get(self.outside) if context is None else context.get(PROCESS, self.outside)).keep(task)
        return task

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._closed:
            return
        error = context.get("exception")
        message = str(context.get("message", "an error"))
        if message.startswith("Future exception was never retrieved"):
            return  # its waiter was cancelled at the same moment: that is no error of anybody's
        process = self._process
        if process.dead:
            return
        self.failures.append((process, message, error))
        if self.on_failure is not None:
            self.on_failure(process, message, error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def set_exception_handler(self, handler: Any) -> None:
        raise NotImplementedError("the loop keeps the failures itself")

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def run_until_complete(self, future: Any) -> Any:
        if not asyncio.isfuture(future):
            future = self.outside.spawn(future)
        future.add_done_callback(self._stop_with, context=self.outside.context)
        self.run_forever()
        if not future.done():
            raise NoProgress("the loop was stopped before what it ran for was done")
        return future.result()

    def _stop_with(self, _: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping = True

    def run_forever(self) -> None:
        if self._running or self._closed:
            raise RuntimeError("the loop is running already" if self._running else "the loop is closed")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._finish_generator)
        events._set_running_loop(self)
        self._running, self._stopping = True, False
        try:
            self._run()
        finally:
            self._running = False
            self._process, self._context = self.outside, self.outside.context
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed and not self._process.dead:
            self.create_task(generator.aclose())

    def _run(self) -> None:
        ready, due, pop_due = self._ready, self._due, heapq.heappop
        take = ready.popleft
        at_once = 0
        while not self._stopping:
            if not ready:
                if not due:
                    raise NoProgress("nothing is ready, nothing is due, and somebody still waits")
                now = due[0][0]
                if now > self.now:
                    self.now = now
                    at_once = 0
                while due and due[0][0] <= now:
                    handle = pop_due(due)[2]
                    if handle.callback is not None:
                        ready.append(handle)
            count = len(ready)
            at_once += count
            self.steps += count
            if at_once > _MOST_STEPS_AT_ONCE or self.steps > self._most_steps:
                raise NoProgress(self._what_spins(at_once))
            for _ in range(count):
                handle = take()
                callback = handle.callback
                if callback is None:
                    continue
                process = handle.process
                if process.halted:
                    if process.paused:
                        process.parked.append(handle)
                    continue
                self._process = process
                self._context = context = handle.context
                try:
                    context.run(callback, *handle.args)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 (any error is the process' failure)
                    self.call_exception_handler({"message": f"{_name_of(callback)} raised", "exception": error})

    def _what_spins(self, at_once: int) -> str:
        names = Counter(
            f"{handle.process.name}: {_name_of(handle.callback)}" for handle in self._ready if handle.callback
        )
        busiest = ", ".join(f"{count} times {name}" for name, count in names.most_common(8))
        where = f"at {self.elapsed_s:.3f} s after {self.steps} steps, {at_once} of them at this moment"
        return f"no progress {where}: {busiest}"

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self, *, collect: bool = True) -> None:
        """Drops everything that is left: nobody is to run any more. See `dropping_quietly`."""
        if self._closed:
            return
        self._closed = True
        with dropping_quietly(collect=collect):
            for process in self.processes:
                for task in process.tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    task._log_traceback = False
                process.tasks.clear()
                process.parked.clear()
                process.on_end.clear()
            self._ready.clear()
            self._due.clear()
            self.processes.clear()


def collect_quietly() -> None:
    """Release what earlier runs have left."""
    with dropping_quietly():
        pass


def new_loop() -> SimulatedLoop:
    # What asyncio asks of a loop and the simulation has no use for (sockets, signals, threads) is left out.
    return SimulatedLoop()  # type: ignore[abstract]


@contextlib.contextmanager
def dropping_quietly(*, collect: bool = True) -> Iterator[None]:
    """What is dropped within this, or is not referred to at its end, goes without a word.

    A coroutine that is collected has its `finally` blocks run, which find no loop any more and fail.
    """
    hook, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            # A coroutine's `finally` may have referenced others: they are collected in the next round.
            rounds = 5 if collect else 0
            while rounds and gc.collect():
                rounds -= 1
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)


def _name_of(callback: object) -> str:
    """What a callback is, without addresses: for a task's step the name of its coroutine."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    return str(getattr(callback, "__qualname__", type(callback).__name__))
