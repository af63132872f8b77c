"""The event loop that all synchronous clients of a process share, on a thread of its own.

The thread runs while there is a client. A call of the application goes to it as a coroutine (`run`, which waits for the
result) or as a plain call (`call_soon`). The application's own functions never run on it.

**The loop outlives its clients**, and goes on in a new thread when the next client comes. gRPC has one queue of events
for all loops of a process, and whichever loop wakes hands each event to its own loop. An event for a closed loop raises
an error there, and the events after it in the queue are lost. If a new client waits for one of them, it waits for ever.

**Fork.** gRPC's channels don't survive a fork: a child that uses one crashes. So before a fork every client closes its
channels, which its producers and consumers handle like any broken connection, and the thread is stopped and joined.
In the parent the same loop goes on in a new thread, with everything that waited on it: channels are opened again, and
pending messages are resent. The child leaves the old loop alone, whose file descriptors it shares with the parent, and
gets a new loop when one of its clients is used.

A client of `magnetar.aio` lives on the application's loop, which cannot be stopped for it. Close it before the process
forks, or start child processes with multiprocessing's `spawn`.

**Ctrl-C** interrupts a wait at any moment, and then nobody ever gets the result. What waits is cancelled. If it has
succeeded all the same, because the interrupt came too late, its result is passed to `undo`: otherwise a producer that
no one can close would keep its name, and a consumer its share of the subscription, until the client is closed.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import gc
import glob
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_wire.interruptible_wait import acquire_lock

__all__ = ["BackgroundLoop", "Forkable", "background"]

log = logging.getLogger(__name__)
T = TypeVar("T")

# The longest time that a fork, and the end of the process, wait for brokers.
_LONGEST_WAIT_S: Final = 5.0
# The name that gRPC's asyncio part gives to the thread that waits for its core.
_POLLER: Final = "_poll_wrapper"
# The names of the core's own threads. They end by themselves, a moment after the poller. After a fork in between, the
# child would have a lock that one of them held.
_CORE_THREADS: Final = ("grpc_", "event_engine", "lifeguard")
_CORE_ENDS_S: Final = 0.5
_COLLECTIONS: Final = 3
# After this time, the caller of os.fork has returned from it.
_MOMENT_S: Final = 0.01
_TURNS: Final = 20
_SETTLING_S: Final = 1.0


class Forkable(Protocol):
    """A synchronous client."""

    async def _suspend(self) -> None:
        """Close all channels, and open none until `_resume`. Called on the loop."""

    def _resume(self) -> None:
        """Go on after a fork. Called in the parent, on the loop."""

    def _forked(self) -> None:
        """Forget everything that was there before the fork. Called in the child."""

    def _close_at_exit(self, timeout_s: float) -> None:
        """Close the client, because the process ends."""


class _Loop(asyncio.SelectorEventLoop):
    """A loop that a child never closes: its copy shares the epoll instance, and would remove the parent's descriptors
    from it."""

    # 0: `__init__` has not finished.
    _made_by = 0

    def __init__(self) -> None:
        super().__init__()
        self._made_by = os.getpid()

    def __del__(self, _warn: Any = None) -> None:
        if os.getpid() == self._made_by and not self.is_closed():
            self.close()


class BackgroundLoop:
    def __init__(self) -> None:
        # Held while the process forks.
        self.lock = threading.RLock()
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        # A thread that is about to end, and is joined.
        self._stopping: threading.Thread | None = None
        # Clients that are not closed, in the order in which they came. A client that the application has forgotten
        # stays here, so that it is closed when the process ends.
        self._clients: dict[Forkable, None] = {}
        self._suspended = False
        # Whether `before_fork` has done everything.
        self._is_ready_to_fork = False
        # Whether Ctrl-C came while clients were suspended or resumed.
        self._interrupted = False
        # Loops of the parent process, which must not be freed here.
        self._inherited: list[object] = []

    def enter(self, client: Forkable) -> None:
        """Add a client. The first one starts the thread."""
        with self.lock:
            if self._loop is None:
                self._loop = _Loop()
            if self._thread is None:
                self._start(self._loop)
            self._clients[client] = None

    def leave(self, client: Forkable) -> None:
        """Remove a closed client. The last one stops the thread."""
        with self.lock:
            self._clients.pop(client, None)
            if self._clients or self._loop is None or self._thread is None:
                return
            if not self.inside:
                self.run(_settle(), _LONGEST_WAIT_S)
            self._stop(self._loop)

    def run(
        self,
        work: Coroutine[Any, Any, T],
        timeout_s: float | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and return what it returns. Raises TimeoutError.

        If Ctrl-C interrupts the wait, the coroutine is cancelled. If it has a result all the same, `undo` is called
        with it, on the loop.
        """
        if self.inside:
            work.close()
            raise RuntimeError("a blocking call on the client's own loop would wait for itself: use magnetar.aio there")
        call = _BlockingCall(work, undo)
        try:
            with self.lock:  # the thread can't end between the check and the call; a fork finishes first
                if self._loop is None or self._thread is None:
                    work.close()
                    raise AlreadyClosed("the client is closed")
                self._loop.call_soon_threadsafe(call.begin)
            return call.wait(timeout_s)
        except BaseException:
            call.abandon(self.call_soon)
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop. If the loop stands still, for a fork or because it has no client, the call is
        made when the loop goes on."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(callback)

    @property
    def inside(self) -> bool:
        """Whether this is called on the loop's thread."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def _start(self, loop: _Loop) -> None:
        before = self._stopping
        if before is not None:
            loop.call_soon_threadsafe(loop.stop)  # Ctrl-C may have come before the first call

        assigned = threading.Lock()
        assigned.acquire()

        def run() -> None:
            with assigned:
                pass
            if before is not None:  # Ctrl-C interrupted the thread that waited for its end
                before.join()
            while self._thread is thread:  # else it was stopped; `loop.stop` may be called more than once
                loop.run_forever()

        thread = threading.Thread(target=run, name="magnetar", daemon=True)
        try:
            thread.start()
            self._thread = thread  # not if Ctrl-C interrupted the start: then the thread ends, if it runs
        finally:
            assigned.release()

    def _stop(self, loop: _Loop) -> None:
        assert self._thread is not None
        self._stopping, self._thread = self._thread, None
        loop.call_soon_threadsafe(loop.stop)
        self._stopping.join()
        self._stopping = None

    # Around a fork. The lock is held from before it until after it, so that no client enters or leaves.

    def before_fork(self) -> None:
        """Close all channels, and stop the thread.

        Ctrl-C waits until the fork is over: Python ignores an exception that is raised here, and if half of this was
        done, the parent would be left without its connections.
        """
        if "grpc" not in sys.modules or self.inside or self._is_ready_to_fork:
            return
        for step in (self._suspend_clients, self._collect, self._stop_for_fork):
            self._finish(step)
        self._is_ready_to_fork = True

    def _finish(self, step: Callable[[], None]) -> None:
        """Repeat a step until Ctrl-C doesn't interrupt it."""
        while True:
            try:
                step()
            except Exception:
                log.exception("the clients could not be prepared for a fork, or go on after it")
            except BaseException:  # noqa: BLE001 (Ctrl-C, which is raised again)
                self._interrupted = True
                continue
            return

    def _suspend_clients(self) -> None:
        loop, clients = self._loop, list(self._clients)

        async def suspend() -> None:
            for client in clients:
                await client._suspend()

        if loop is not None:
            self._suspended = True
            if self._thread is None:  # calls of clients that were closed may need some steps of the loop to end
                self._start(loop)
            self.run(suspend(), _LONGEST_WAIT_S)

    def _stop_for_fork(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._stop(self._loop)
        elif self._loop is not None and self._stopping is not None:  # Ctrl-C interrupted `_stop`
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._stopping.join()

    def _collect(self) -> None:
        """Free gRPC's objects, so that its own threads end.

        Some of the objects are in cycles that only the garbage collector frees, and calls among them need a few steps
        of the loop to end. The collector skips objects that were frozen (`gc.freeze`), so if objects are left, they are
        unfrozen.
        """
        for number in range(_COLLECTIONS):
            if self._loop is not None:
                self.run(_take_turns(), _LONGEST_WAIT_S)
            if number:
                gc.unfreeze()
            gc.collect()
            if not any(_POLLER in thread.name for thread in threading.enumerate()):
                _wait_for_core()
                return
        log.warning(
            "the process forks while gRPC is in use, maybe by a client of magnetar.aio: start children with spawn"
        )

    def after_fork_in_parent(self) -> None:
        """Go on with the same loop, in a new thread."""
        self._finish(self._go_on)
        self._is_ready_to_fork = False

    def _go_on(self) -> None:
        if not self._suspended or self._loop is None:
            return
        if self._clients and self._thread is None:
            self._start(self._loop)
        for client in list(self._clients):
            self.call_soon(client._resume)
        self._suspended = False
        if self._interrupted and self._clients:
            self._interrupted = False
            loop = self._loop
            self.call_soon(lambda: loop.call_later(_MOMENT_S, _thread.interrupt_main))

    def after_fork_in_child(self) -> None:
        """Leave the parent's loop alone. The next client that is used gets a new one."""
        self._inherited.append(self._loop)
        clients, inherited, lock = list(self._clients), self._inherited, self.lock
        BackgroundLoop.__init__(self)
        self._inherited, self.lock = inherited, lock
        for client in clients:
            client._forked()

    def at_exit(self) -> None:
        """Close the clients that the application has not closed."""
        _silence_daemon_threads()
        for client in list(self._clients):
            try:
                client._close_at_exit(_LONGEST_WAIT_S)
            except Exception as error:  # noqa: BLE001 (the process ends, and the other clients have to be closed)
                log.debug("a client could not be closed at exit: %r", error)


class _BlockingCall(Generic[T]):
    """A coroutine that one thread has run on the loop, and waits for."""

    def __init__(self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> None:
        self._work = work
        self._undo = undo
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        # Released when the coroutine has ended. A plain lock: a thread that is interrupted while it waits for it holds
        # nothing that others need.
        self._ended = threading.Lock()
        self._ended.acquire()

    # On the thread that waits:

    def wait(self, timeout_s: float | None) -> T:
        """Return what the coroutine returns. Raises TimeoutError."""
        if not acquire_lock(self._ended, timeout_s):
            raise TimeoutError
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise AlreadyClosed("the client was closed before the call ended") from None

    def abandon(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Cancel the coroutine, because no thread waits for it any more."""
        self._abandoned = True
        call_soon(self._cancel)

    # On the loop:

    def begin(self) -> None:
        if not self._abandoned:
            self._task = asyncio.get_running_loop().create_task(self._work)
            self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if self._abandoned:
            self._undo_result(task)
        self._ended.release()

    def _cancel(self) -> None:
        if self._task is None:
            self._work.close()
        elif self._task.done():
            self._undo_result(self._task)
        else:
            self._task.cancel()

    def _undo_result(self, task: asyncio.Task[T]) -> None:
        undo, self._undo = self._undo, None
        if not task.cancelled() and task.exception() is None and undo is not None:
            undo(task.result())


def _silence_daemon_threads() -> None:
    """Have daemon threads end silently if their client is closed while the process ends, a moment before they do."""
    report = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not (isinstance(args.exc_value, MagnetarException) and args.thread is not None and args.thread.daemon):
            report(args)

    threading.excepthook = hook


def _wait_for_core() -> None:
    """Return when gRPC's core has ended, or after a moment, if another user of gRPC in this process keeps it."""
    deadline = time.monotonic() + _CORE_ENDS_S
    while _core_runs() and time.monotonic() < deadline:
        time.sleep(0.001)


def _core_runs() -> bool:
    names = []
    for task in glob.glob("/proc/self/task/*/comm"):
        with contextlib.suppress(OSError), open(task, encoding="utf-8", errors="replace") as comm:  # it may have ended
            names.append(comm.read())
    return any(name.startswith(_CORE_THREADS) for name in names)


async def _take_turns() -> None:
    """Let the loop take some steps."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _settle() -> None:
    """Return when nothing runs on the loop any more. Tasks of closed gRPC calls end by themselves."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if others:
        await asyncio.wait(others, timeout=_SETTLING_S)


background: Final = BackgroundLoop()
# Python ignores an exception of such a function. So Ctrl-C at its beginning or end must not leave the lock held:
# acquiring and releasing are functions of their own, which run no bytecode. A function that is ended at its first
# instruction does nothing: Ctrl-C that comes while the kernel forks does that. So each is registered twice, and does
# nothing the second time. `before` functions are called in reverse.
for _ in range(2):
    os.register_at_fork(before=background.before_fork, after_in_parent=background.after_fork_in_parent)
os.register_at_fork(after_in_child=background.after_fork_in_child)
os.register_at_fork(
    before=background.lock.acquire,
    after_in_parent=background.lock.release,
    after_in_child=background.lock.release,
)
atexit.register(background.at_exit)
