"""The thread in which a bookie's log is written and synced: one thing after the other, in the order of asking.

An executor would do, and takes a tenth of what an entry that comes alone costs: a future of threads with its locks, one
of the loop's beside it, and three turns of the loop from the end of a sync to whoever waits for it. Here it is one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

__all__ = ["SyncThread"]

# What was asked for, and the loop on which to tell how it went; None: nothing more comes.
_Job = tuple[Callable[[], object], Callable[[BaseException | None], object], asyncio.AbstractEventLoop] | None


class SyncThread:
    def __init__(self, name: str) -> None:
        self._jobs: Final[SimpleQueue[_Job]] = SimpleQueue()
        self._name = name
        # Begun with the first that is asked for.
        self._thread: Thread | None = None
        self._ended = False

    def run(self, work: Callable[[], object], done: Callable[[BaseException | None], object]) -> None:
        """Has it done in the thread, and `done` called on this loop with what it raised, whoever waits for it still."""
        if self._ended:
            raise RuntimeError(f"the thread {self._name} is being stopped")
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, done, asyncio.get_running_loop()))

    def shutdown(self) -> None:
        """Returns when all that was asked for is done: to be called in another thread than the loop's."""
        self._ended = True
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done, loop = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 (it is told)
                error = problem
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(done, error)
            del job, work, done, loop, error  # nothing is held while it waits
