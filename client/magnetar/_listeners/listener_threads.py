"""The threads that call the message listeners of a synchronous client.

A client has `message_listener_threads` of them, as Pulsar's clients have. Each consumer is assigned to one, so that its
listener is always called on the same thread. An application can pass threads of its own for a consumer's listener
(`message_listener_executor`): a `concurrent.futures.Executor`, or an object with the method of Java's
`MessageListenerExecutor`. Its methods are called on the client's threads, never on the one that does the I/O.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, Final, Protocol

from magnetar.exceptions import InvalidConfiguration

__all__ = ["ListenerThread", "ListenerThreads", "MessageListenerExecutor", "check_executor", "in_listener"]

log = logging.getLogger("magnetar")

# Whether this code is called by a message listener. Tasks that a listener creates inherit it.
in_listener: Final[ContextVar[bool]] = ContextVar("magnetar_in_listener", default=False)


class MessageListenerExecutor(Protocol):
    """Threads of the application that call a consumer's listener. It chooses a thread for each message, and the order
    in which the calls are made."""

    def execute(self, message: Any, run: Callable[[], object], /) -> object:
        """Have `run` called, which calls the listener with the message. `execute` is called in the order in which the
        messages are received."""


def check_executor(executor: Any) -> None:
    """Raises InvalidConfiguration."""
    if executor is not None and not (isinstance(executor, Executor) or callable(getattr(executor, "execute", None))):
        raise InvalidConfiguration(
            f"message_listener_executor = {executor!r}: use a concurrent.futures.Executor, or an object with a method "
            "execute(message, run)"
        )


class ListenerThread:
    """A thread that runs jobs one after the other."""

    def __init__(self, name: str) -> None:
        # How many consumers are assigned to it.
        self.users = 0
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: Callable[[], object]) -> None:
        """Run the job behind all that were submitted before. Any thread may call this."""
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread when everything submitted was run."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a bug in the client, on a thread of its message listeners")
            del job  # it has the consumer


class ListenerThreads:
    """The threads of one client. Each starts when the first consumer needs it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._threads: list[ListenerThread] = []

    def assign(self) -> ListenerThread:
        """Return the thread of a new consumer: the one that the fewest consumers have."""
        with self._lock:
            if len(self._threads) < self.size:
                self._start_thread()
            thread = min(self._threads, key=lambda one: one.users)
            thread.users += 1
            return thread

    def all(self) -> list[ListenerThread]:
        """Return all threads, of which each has a share of the keys of a Key_Shared consumer."""
        with self._lock:
            while len(self._threads) < self.size:
                self._start_thread()
            return list(self._threads)

    def _start_thread(self) -> None:
        self._threads.append(ListenerThread(f"magnetar listener {len(self._threads)}"))

    def stop(self) -> None:
        """End the threads when what was submitted is done. Return at once."""
        with self._lock:
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.stop()
