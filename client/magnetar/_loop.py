"""The event loop that all synchronous clients of a process share, on a thread of its own, and what becomes of it when
the process forks.

The thread runs while there is a client. What the application calls goes to it as a coroutine (`run`) or as a plain call
(`call_soon`); the application's own functions never run on it.

**The loop outlives its clients**, and goes on in a new thread when the next one comes. gRPC has one queue of events for
all loops of a process, and whichever of them wakes hands each event to its own loop: one for a loop that was closed
meanwhile raises, and takes the events behind it along, a new client's, which would wait for ever.

**Fork.** gRPC's channels don't survive it: one that was used before is fatal in the child. So before a fork every
client closes its channels, which is to its producers and consumers like any broken connection, and the thread is
stopped and joined. In the parent the same loop goes on in a new thread, with all that waited on it: channels are opened
again, and what was pending is sent again. The child leaves the old loop alone, whose file descriptors it shares with
the parent, and has a new one when one of its clients is used.

A client of `magnetar.aio` lives on the application's loop, which nobody can stop for it: close it before the process
forks, or start children anew (multiprocessing's `spawn`).
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
from typing import Any, Final, Protocol, TypeVar

from magnetar._blocking_call import BlockingCall
from magnetar.exceptions import AlreadyClosed, MagnetarException

__all__ = ["BackgroundLoop", "Forkable", "background"]

log = logging.getLogger(__name__)
T = TypeVar("T")

# A fork, and the end of the process, wait no longer than that for brokers.
_LONGEST_WAIT_S: Final = 5.0
# What gRPC's asyncio part calls the thread that waits for its core.
_POLLER: Final = "_poll_wrapper"
# What its core calls its own, which end by themselves, a moment after that one. A fork in between would leave the child
# with a lock that one of them held.
_CORE_THREADS: Final = ("grpc_", "event_engine", "lifeguard")
_CORE_ENDS_S: Final = 0.5
_COLLECTIONS: Final = 3
# So that whoever forks has come back from it.
_MOMENT_S: Final = 0.01
_TURNS: Final = 20
_SETTLING_S: Final = 1.0


class Forkable(Protocol):
    """A synchronous client."""

    async def _suspend(self) -> None:
        """Closes all channels, and opens none until it is resumed. On the loop."""

    def _resume(self) -> None:
        """In the parent, on the loop."""

    def _forked(self) -> None:
        """In the child: nothing of what there was may be used."""

    def _close_at_exit(self, timeout_s: float) -> None:
        """The process ends."""


class _Loop(asyncio.SelectorEventLoop):
    """One that a child, which only has a copy of it, never closes: it would take the parent's descriptors off epoll."""

    # 0: it was not made yet, not whole.
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
        # One that is to end, and is waited for.
        self._stopping: threading.Thread | None = None
        # Those that are not closed, in the order in which they came: also those that nobody else knows any more.
        self._clients: dict[Forkable, None] = {}
        self._suspended = False
        # By Ctrl-C, while it was being suspended.
        self._struck = False
        # Loops of the process that this one was forked off.
        self._inherited: list[object] = []

    def enter(self, client: Forkable) -> None:
        """One more client uses the loop."""
        with self.lock:
            if self._loop is None:
                self._loop = _Loop()
            if self._thread is None:
                self._start(self._loop)
            self._clients[client] = None

    def leave(self, client: Forkable) -> None:
        """The client is closed. With the last one the thread ends."""
        with self.lock:
            self._clients.pop(client, None)
            if self._clients or self._loop is None or self._thread is None:
                return
            if not self.inside:
                self.run(_settled(), _LONGEST_WAIT_S)
            self._stop(self._loop)

    def run(
        self,
        work: Coroutine[Any, Any, T],
        timeout_s: float | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """What the coroutine returns or raises. Breaking the wait off, with Ctrl-C say, cancels it; what it has made
        all the same is given to `undo`, on the loop."""
        if self.inside:
            work.close()
            raise RuntimeError("a blocking call on the client's own loop would wait for itself: use magnetar.aio there")
        call = BlockingCall(work, undo)
        try:
            with self.lock:  # the thread does not end between the look and the call, and a fork is waited for
                if self._loop is None or self._thread is None:
                    work.close()
                    raise AlreadyClosed("the client is closed")
                self._loop.call_soon_threadsafe(call.begin)
            return call.wait(timeout_s)
        except BaseException:
            call.give_up(self.call_soon)
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Has it called on the loop: where that stands still, for a fork or since nobody uses it, when it goes on."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(callback)

    @property
    def inside(self) -> bool:
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def _start(self, loop: _Loop) -> None:
        before = self._stopping

        def run() -> None:
            if before is not None:  # somebody was struck while he waited for its end
                before.join()
            while self._thread is thread:  # else it is told to end; it may be told more than once
                loop.run_forever()

        thread = threading.Thread(target=run, name="magnetar", daemon=True)
        self._thread = thread
        thread.start()

    def _stop(self, loop: _Loop) -> None:
        assert self._thread is not None
        self._stopping, self._thread = self._thread, None
        loop.call_soon_threadsafe(loop.stop)
        self._stopping.join()
        self._stopping = None

    def before_fork(self) -> None:
        """With the lock. Nobody enters, or leaves, until the fork is over. Ctrl-C waits until then: what is raised here
        nobody meets, and half of this would leave the parent without its connections."""
        if "grpc" not in sys.modules or self.inside:
            return
        for step in (self._suspend_clients, self._collect, self._stop_for_fork):
            try:
                step()
            except Exception:
                log.exception("before a fork the channels could not be closed")
            except BaseException:  # noqa: BLE001 (Ctrl-C, which is raised again)
                self._struck = True
                step()

    def _suspend_clients(self) -> None:
        loop, clients = self._loop, list(self._clients)

        async def suspend() -> None:
            for client in clients:
                await client._suspend()

        if loop is not None:
            self._suspended = True
            if self._thread is None:  # what is left of clients that are closed may need some turns to end
                self._start(loop)
            self.run(suspend(), _LONGEST_WAIT_S)

    def _stop_for_fork(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._stop(self._loop)
        elif self._stopping is not None:
            self._stopping.join()

    def _collect(self) -> None:
        """gRPC's own thread ends with the last of its objects, some of which are in cycles that only the collector
        frees; and the calls among them need a few turns of the loop to end. It passes over what was there when somebody
        froze all that there was (`gc.freeze`), so where objects are left that is looked at, too."""
        for number in range(_COLLECTIONS):
            if self._loop is not None:
                self.run(_turns(), _LONGEST_WAIT_S)
            if number:
                gc.unfreeze()
            gc.collect()
            if not any(_POLLER in thread.name for thread in threading.enumerate()):
                _wait_for_core()
                return
        log.warning("the process forks while others use gRPC, a client of magnetar.aio say: children should be spawned")

    def after_fork_in_parent(self) -> None:
        """With the lock."""
        try:
            self._go_on()
        except BaseException:  # noqa: BLE001 (Ctrl-C, which is raised again)
            self._struck = True
            self._go_on()

    def _go_on(self) -> None:
        if not self._suspended or self._loop is None:
            return
        if self._clients and self._thread is None:
            self._start(self._loop)
        for client in list(self._clients):
            self.call_soon(client._resume)
        self._suspended = False
        if self._struck and self._clients:
            self._struck = False
            loop = self._loop
            self.call_soon(lambda: loop.call_later(_MOMENT_S, _thread.interrupt_main))

    def after_fork_in_child(self) -> None:
        self._inherited.append(self._loop)
        clients, inherited, lock = list(self._clients), self._inherited, self.lock
        BackgroundLoop.__init__(self)
        self._inherited, self.lock = inherited, lock
        for client in clients:
            client._forked()

    def at_exit(self) -> None:
        _let_daemons_end_in_silence()
        for client in list(self._clients):
            try:
                client._close_at_exit(_LONGEST_WAIT_S)
            except Exception as error:  # noqa: BLE001 (the process ends, and the others are to be closed, too)
                log.debug("a client could not be closed at exit: %r", error)


def _let_daemons_end_in_silence() -> None:
    """The process ends, and with it every daemon thread wherever it is. One that meets the end of its client a moment
    before that has nothing to tell anybody."""
    tell = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not (isinstance(args.exc_value, MagnetarException) and args.thread is not None and args.thread.daemon):
            tell(args)

    threading.excepthook = hook


def _wait_for_core() -> None:
    """Returns when gRPC's core has ended, or another user of it in this process keeps it."""
    deadline = time.monotonic() + _CORE_ENDS_S
    while _core_runs() and time.monotonic() < deadline:
        time.sleep(0.001)


def _core_runs() -> bool:
    names = []
    for task in glob.glob("/proc/self/task/*/comm"):
        with contextlib.suppress(OSError), open(task, encoding="utf-8", errors="replace") as comm:  # it may have ended
            names.append(comm.read())
    return any(name.startswith(_CORE_THREADS) for name in names)


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _settled() -> None:
    """Returns when nothing runs on the loop any more: what gRPC's calls leave behind ends by itself."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if others:
        await asyncio.wait(others, timeout=_SETTLING_S)


background: Final = BackgroundLoop()
# Python ignores an exception of such a function. So Ctrl-C as it begins or ends must not keep the lock: acquiring and
# releasing have functions of their own, which run no bytecode. `before` is called in reverse order.
os.register_at_fork(
    before=background.before_fork,
    after_in_parent=background.after_fork_in_parent,
    after_in_child=background.after_fork_in_child,
)
os.register_at_fork(
    before=background.lock.acquire,
    after_in_parent=background.lock.release,
    after_in_child=background.lock.release,
)
atexit.register(background.at_exit)
