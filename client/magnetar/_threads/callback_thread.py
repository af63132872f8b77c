"""The thread on which the application's callbacks are called. They never run on the thread that does the I/O.

A client has one such thread, and each of its table views, too. It starts with the first callback, and is woken once for
each group of results that came together. Its queue is bounded by the producers' queues, which count a message until its
callback was called, and by a table view that waits for each group.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from magnetar_wire.interruptible_wait import join_thread

__all__ = ["CallbackThread"]

log = logging.getLogger(__name__)


class CallbackThread:
    def __init__(self, name: str = "magnetar callbacks") -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether this is called by a callback."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def call_later(self, work: Callable[[], object]) -> None:
        """Call `work` on the thread, after everything that was queued before. Only the client's loop may call this."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            # A thread that closes the client may join this one as soon as it finds it here, so start it first.
            thread.start()
            self._thread = thread
        self._queue.put(work)

    def stop(self) -> None:
        """End the thread after everything queued was called. Return at once."""
        if self._thread is not None:
            self._queue.put(None)

    def close(self, timeout_s: float | None = None) -> None:
        """Return when everything queued was called, or after the timeout; at once if a callback calls this."""
        self.stop()
        if self._thread is not None and not self.is_current:
            join_thread(self._thread, timeout_s)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                log.exception("a bug in the client, while callbacks were called")
