"""The thread on which the application's callbacks are called: never the one that does the I/O.

A client has one, from the first callback on. It is woken once for each group of receipts that came together, and calls
what belongs to one batch in a loop. What may be in line is bounded by the producers' queues, which count a message
until its callback was called.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from magnetar._batch import Callback
from magnetar.exceptions import Result
from magnetar_wire.interruptible_wait import join_thread
from magnetar_wire.message_id import MessageId

__all__ = ["CallbackThread", "call_all"]

log = logging.getLogger(__name__)


class CallbackThread:
    def __init__(self) -> None:
        self._line: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def inside(self) -> bool:
        """Whoever asks is a callback."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def put(self, work: Callable[[], object]) -> None:
        """Has it called behind all else. From the client's loop only."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="magnetar callbacks", daemon=True)
            # Another thread that closes may join it as soon as it is known here, so not before it has started.
            thread.start()
            self._thread = thread
        self._line.put(work)

    def close(self, timeout_s: float | None = None) -> None:
        """Returns when all that was put was called, or that took too long; from a callback, at once."""
        if self._thread is not None:
            self._line.put(None)
            if not self.inside:
                join_thread(self._thread, timeout_s)

    def _run(self) -> None:
        while (work := self._line.get()) is not None:
            try:
                work()
            except Exception:
                log.exception("a fault of ours among the callbacks")


def call_all(callbacks: Iterable[Callback | None], result: Result, message_ids: Iterable[MessageId | None]) -> None:
    """One that raises is logged, and the others are called all the same."""
    for callback, message_id in zip(callbacks, message_ids, strict=False):
        if callback is not None:
            try:
                callback(result, message_id)
            except BaseException:
                log.exception("the callback %r of a message failed", callback)
