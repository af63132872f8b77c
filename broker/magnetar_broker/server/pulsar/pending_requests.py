"""What one connection's client has asked, and is not answered yet.

What takes its time goes on in a task, which keeps the command for so long. A command may have a megabyte, and in memory
a multiple of that; so not only how many wait is bounded, but also their bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import OWN_ERROR, error_frame
from magnetar_protos.pulsar_pb2 import ServerError
from magnetar_wire.errors import InvalidTopicName

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["Requests"]

_log = logging.getLogger(__name__)


class Requests:
    __slots__ = (
        "_answered",
        "_asked",
        "_bytes",
        "_connection",
        "_loop",
        "_most",
        "_most_bytes",
        "command_bytes",
        "tasks",
    )

    def __init__(self, connection: PulsarConnection, answered: Callable[[], object]) -> None:
        """`answered` is called whenever fewer wait."""
        self._connection = connection
        self._most = connection.door.options.max_waiting_requests_per_connection
        self._most_bytes = connection.door.options.max_waiting_requests_bytes_per_connection
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        # Those that no task answers.
        self._asked = 0
        # Of the command that is being taken, and of those whose tasks go on.
        self.command_bytes = 0
        self._bytes = 0

    @property
    def too_much(self) -> bool:
        return self._asked + len(self.tasks) > self._most or self._bytes > self._most_bytes

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        size = self.command_bytes
        self._bytes += size

        def done(task: asyncio.Task[None]) -> None:
            self._bytes -= size
            self.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("a request of %s failed", self._connection.address, exc_info=error)
            self._answered()

        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(done)
        return task

    def ask(self, request_id: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Has it done, which answers by itself; what it raises is answered as ERROR, as is that it was cancelled."""

        def done(task: asyncio.Task[None]) -> None:
            work.close()  # it may be cancelled before it has begun
            if task.cancelled() and not self._connection.broken:
                text = "it was closed before that was done"
                self._connection.write(error_frame(request_id, ServerError.SERVICE_NOT_READY, text))

        task = self.spawn(self._ask(request_id, work))
        task.add_done_callback(done)
        return task

    async def _ask(self, request_id: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BrokerError as error:
            self._connection.write(error_frame(request_id, server_error(error.code), str(error)))
        except InvalidTopicName as error:
            self._connection.write(error_frame(request_id, ServerError.INVALID_TOPIC_NAME, str(error)))
        except Exception:  # noqa: BLE001 (the client waits for an answer)
            _log.exception("request %d of %s failed", request_id, self._connection.address)
            self._connection.write(error_frame(request_id, ServerError.UNKNOWN_ERROR, OWN_ERROR))

    def asked(self) -> None:
        """Something is to be answered, by no task."""
        self._asked += 1

    def answered(self) -> None:
        self._asked -= 1
        self._answered()
