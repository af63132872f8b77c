"""The requests of one connection that are not answered yet.

A request that has to wait runs in a task, which holds the command in memory until it is answered. A command may have
two megabytes, and a multiple of that in memory. Therefore both the number and the bytes of pending requests are
limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import error_frame
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.pulsar_pb2 import ServerError

__all__ = ["PendingRequests"]

_log = logging.getLogger(__name__)


class PendingRequests:
    __slots__ = (
        "_address",
        "_bytes",
        "_is_closed",
        "_logged_errors",
        "_loop",
        "_max_bytes",
        "_max_requests",
        "_on_answered",
        "_replies_due",
        "_write",
        "command_bytes",
        "queued_producers",
        "tasks",
    )

    def __init__(
        self,
        settings: BrokerServiceSettings,
        address: str,
        write: Callable[[bytes], None],
        on_answered: Callable[[], object],
    ) -> None:
        """`address`: of the client, for the log. `on_answered` is called whenever fewer requests are pending."""
        self._max_requests = settings.max_waiting_requests_per_connection
        self._max_bytes = settings.max_waiting_requests_bytes_per_connection
        self._address = address
        self._write = write
        self._on_answered = on_answered
        self._loop = asyncio.get_running_loop()
        # Codes of the errors that requests were answered with: each is logged once.
        self._logged_errors: set[int] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        # Requests that are answered by no task.
        self._replies_due = 0
        # Requests whose producers wait for their turn, for any time: they don't keep others from being read.
        self.queued_producers = 0
        # Size of the command that is being handled, and of all commands whose tasks run.
        self.command_bytes = 0
        self._bytes = 0
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        waiting = self._replies_due + len(self.tasks) - self.queued_producers
        return waiting > self._max_requests or self._bytes > self._max_bytes

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`, which answers by itself in all cases, in a task of the connection."""
        size = self.command_bytes
        self._bytes += size

        def done(task: asyncio.Task[None]) -> None:
            self._bytes -= size
            self.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("A request of the client at %s failed", self._address, exc_info=error)
            self._on_answered()

        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(done)
        return task

    def start(self, request_id: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`, which answers a request if it succeeds. Errors and cancellation are answered with ERROR."""

        def done(task: asyncio.Task[None]) -> None:
            work.close()  # the task may be cancelled before it has begun
            if task.cancelled() and not self._is_closed:
                text = "the producer or consumer was closed before the request was completed"
                self._write(error_frame(request_id, ServerError.SERVICE_NOT_READY, text))

        task = self.spawn(self._answer_errors(request_id, work))
        task.add_done_callback(done)
        return task

    async def _answer_errors(self, request_id: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            with as_broker_error(f"Request {request_id} of the client at {self._address}"):
                await work
        except BrokerError as error:
            self._log_once(error)
            self._write(error_frame(request_id, server_error(error.code, error.about), str(error)))

    def _log_once(self, error: BrokerError) -> None:
        """Log the first failed request for each error: libraries retry, and may not show the reason."""
        if error.code not in self._logged_errors:
            self._logged_errors.add(error.code)
            _log.info("A request of the client at %s failed: %s", self._address, error)

    def expect_reply(self) -> None:
        """Count a request that is answered by no task, until `count_reply`."""
        self._replies_due += 1

    def count_reply(self) -> None:
        self._replies_due -= 1
        self._on_answered()

    def cancel_all(self) -> None:
        """Cancel the tasks of a closed connection."""
        self._is_closed = True
        for task in self.tasks:
            task.cancel()
