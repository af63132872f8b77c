"""The thread that writes and syncs the log. It runs one job at a time, in the order of submission.

An executor would do the same, but takes a tenth of the time of an entry that is added alone: it needs a future of its
own with locks, one of the event loop, and three iterations of the loop from the end of a sync to its caller. This needs
one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

__all__ = ["SyncThread"]

# The work, the callback for its error, and the callback's event loop. None: there are no more jobs.
_Job = tuple[Callable[[], object], Callable[[BaseException | None], object], asyncio.AbstractEventLoop] | None


class SyncThread:
    def __init__(self, name: str) -> None:
        self._jobs: Final[SimpleQueue[_Job]] = SimpleQueue()
        self._name = name
        # Started with the first job.
        self._thread: Thread | None = None
        self._is_stopping = False

    def submit(self, work: Callable[[], object], on_done: Callable[[BaseException | None], object]) -> None:
        """Run `work` in the thread, and then `on_done` on the present event loop, with the error if it failed."""
        if self._is_stopping:
            raise RuntimeError(f"the thread {self._name} is being stopped")
        if self._thread is None:
            self._thread = Thread(target=self._run_jobs, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, on_done, asyncio.get_running_loop()))

    def shutdown(self) -> None:
        """Return when all jobs are done. It blocks: call it in another thread than the event loop's."""
        self._is_stopping = True
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, on_done, loop = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 (the callback gets it)
                error = problem
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for the result
                loop.call_soon_threadsafe(on_done, error)
            del job, work, on_done, loop, error  # no references while it waits
