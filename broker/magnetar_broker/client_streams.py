"""The open gRPC streams of clients in one session with the metadata store.

A stream knows the topics of its session only, and ends with it. Each is served in a task of its own, for which the
listener's task waits. It is cancelled for one of two reasons:

- The client has disconnected, or the listener closes. Both tasks are cancelled.
- The session ends, and the client does not read its last messages in time. Only the stream's own task is cancelled; the
  listener's task gets a `Refusal` and sends it. If that were cancelled too, the listener would take the client for
  disconnected and send no status, and the client would wait for ever.

A stream's task is cancelled once, because a second cancellation would interrupt its clean-up. The stream counts as open
until its task has ended.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, Protocol

from magnetar_wire.transport import Code, Refusal, TransportError

__all__ = ["ClientStream", "ClientStreams"]

_log = logging.getLogger(__name__)
# How long the end of a session waits for clients to read their last messages.
_LAST_MESSAGES_TIMEOUT_S: Final = 2.0


class ClientStream(Protocol):
    """A stream of a client."""

    async def serve(self) -> None: ...

    def end(self) -> None:
        """Accept nothing more. `serve` returns when the client was sent all results."""


class ClientStreams:
    """The open streams. `end` waits `last_messages_timeout_s` for their clients."""

    def __init__(self, last_messages_timeout_s: float = _LAST_MESSAGES_TIMEOUT_S) -> None:
        self._last_messages_timeout_s = last_messages_timeout_s
        # Oldest first.
        self._tasks: dict[ClientStream, asyncio.Task[None]] = {}
        # Why streams are cancelled. Before the session ends, something that a stream waits for may be cancelled.
        self._end_reason = "the stream was interrupted"

    def __len__(self) -> int:
        return len(self._tasks)

    async def serve(self, stream: ClientStream) -> None:
        """Serve a stream until it ends. Raises what it raises, and `Refusal` if it is cancelled."""
        task = self._tasks[stream] = asyncio.get_running_loop().create_task(stream.serve())
        task.add_done_callback(partial(self._remove, stream))
        try:
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                _cancel(task)
                await asyncio.wait([task])
                raise
            if task.cancelling() or task.cancelled():
                raise Refusal(Code.UNAVAILABLE, f"{self._end_reason}: look the topic up again")
            task.result()
        finally:
            del task  # its error refers to this frame: that would be a reference cycle

    def _remove(self, stream: ClientStream, task: asyncio.Task[None]) -> None:
        del self._tasks[stream]
        error = None if task.cancelled() else task.exception()
        if error is not None and task.cancelling() and not isinstance(error, Refusal | TransportError):
            _log.error("A stream failed while it was cancelled", exc_info=error)

    async def end(self, reason: str) -> None:
        """End all streams. Clients open others. `reason`: why the session ends.

        A stream whose client does not read its last messages in time is cancelled.
        """
        self._end_reason = reason
        tasks = list(self._tasks.values())
        for stream in list(self._tasks):
            stream.end()
        if tasks:
            await asyncio.wait(tasks, timeout=self._last_messages_timeout_s)
            for task in tasks:
                _cancel(task)
            await asyncio.wait(tasks)


def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task, unless it has ended or is being cancelled already."""
    if not task.cancelling():
        task.cancel()
