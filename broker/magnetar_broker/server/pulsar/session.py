"""One client's connection, as the handlers of its commands see it.

The connection (connection.py) reads commands and passes each to its handler (handlers.py). A handler answers through
this object. It never sees the connection, so handlers and the connection can be read and tested apart.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.keepalive import Keepalive
from magnetar_broker.server.pulsar.listener_context import ListenerContext
from magnetar_broker.server.pulsar.outbound import OutboundFrames
from magnetar_broker.server.pulsar.pending_requests import PendingRequests
from magnetar_broker.server.pulsar.replies import error_frame
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import ServerError

__all__ = ["ClientSession"]

# One eighth of a connection's limit on pending entries is for entries whose topics have no capacity.
_WAITING_SHARE: Final = 8
_TOKEN_BYTES: Final = 16
_SCHEMA_READERS: Final = 4


class ClientSession:
    """What a handler may do with its connection. Also the `Peer` of its keepalive."""

    __slots__ = (
        "_loop",
        "_max_pending_publish_bytes",
        "_max_waiting_publish_bytes",
        "_paused_until",
        "abort",
        "address",
        "batch_size_lock",
        "client_version",
        "context",
        "is_closed",
        "is_connected",
        "is_paused",
        "keepalive",
        "listener_name",
        "outbound",
        "pending_publish_bytes",
        "reached_address",
        "requests",
        "resume_reading",
        "schema_readers",
        "steps",
        "token",
        "waiting_publish_bytes",
        "wants_broker_metadata",
        "write",
    )

    def __init__(
        self,
        context: ListenerContext,
        transport: asyncio.Transport,
        *,
        address: str,
        reached_address: str,
        listener_name: str,
        resume_reading: Callable[[], object],
        abort: Callable[[], None],
    ) -> None:
        """`resume_reading` is called whenever the reason of a pause may have ended."""
        settings = context.settings
        self._loop = asyncio.get_running_loop()
        self.context = context
        # Address of the client; address of this broker as the client reached it; the listener that it reached (empty:
        # the internal one).
        self.address = address
        self.reached_address = reached_address
        self.listener_name = listener_name
        # Distinguishes the producers of this connection from those of others.
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        # The connection is closed: nothing is sent any more.
        self.is_closed = False
        self.abort = abort
        # From CONNECT: whether it was received, the name and version of the library, whether entries are sent with the
        # broker's metadata.
        self.is_connected = False
        self.client_version = ""
        self.wants_broker_metadata = False
        # Reading. `steps` are the remaining steps of the current command, see `run_in_steps`.
        self.resume_reading = resume_reading
        self.is_paused = False
        self.steps: Iterator[object] | None = None
        self._paused_until: asyncio.Task[None] | None = None
        # Sending.
        self.outbound = OutboundFrames(transport, settings, context.server.outbox_budget, resume_reading)
        self.write: Callable[[bytes], None] = self.outbound.write
        self.requests = PendingRequests(settings, address, self.write, resume_reading)
        self.keepalive = Keepalive(self, settings)
        # Memory of the entries that were received and are not decided; and of those among them that wait for their
        # topics' capacity.
        self.pending_publish_bytes = 0
        self._max_pending_publish_bytes = settings.max_pending_publish_bytes_per_connection
        self.waiting_publish_bytes = 0
        self._max_waiting_publish_bytes = self._max_pending_publish_bytes // _WAITING_SHARE
        # Held while entries are read to learn the sizes of batches (acknowledgments.py).
        self.batch_size_lock = asyncio.Lock()
        # Held while schemas are read: each may have a megabyte.
        self.schema_readers = asyncio.Semaphore(_SCHEMA_READERS)

    # Answering.

    def fail(self, request_id: int, error: ServerError, text: str) -> None:
        """Answer a request with ERROR."""
        self.write(error_frame(request_id, error, text))

    def fail_not_ready(self, request_id: int, channel: str) -> None:
        """Answer that a producer or consumer, "producer 3", can't be opened again yet."""
        text = f"{channel} is being opened or closed on this connection: retry once that is answered"
        self.fail(request_id, server_error(ErrorCode.SERVICE_NOT_READY), text)

    def fail_too_many(self, request_id: int, channels: str, maximum: int) -> None:
        """Answer that this connection has the maximum of "producers" or "consumers"."""
        text = f"this connection has {maximum} {channels}, the maximum of max_{channels}_per_stream: use another one"
        self.fail(request_id, ServerError.TOO_MANY_REQUESTS, text)

    def start_request(self, request_id: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`, which answers a request if it succeeds. Errors and cancellation are answered with ERROR."""
        return self.requests.start(request_id, work)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`, which answers by itself in all cases, in a task of the connection."""
        return self.requests.spawn(work)

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    # Reading.

    @property
    def must_pause(self) -> bool:
        """Whether reading must pause until the broker has caught up, or the client takes its answers."""
        return (
            self._paused_until is not None
            or self.pending_publish_bytes >= self._max_pending_publish_bytes
            or self.waiting_publish_bytes > self._max_waiting_publish_bytes
            or self.requests.is_full
            or self.outbound.is_behind
        )

    def pause_until(self, wait: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Pause reading until `wait` returns. Does nothing if reading is paused by an earlier call."""
        if self._paused_until is None:
            self._paused_until = self.spawn(wait())
            self._paused_until.add_done_callback(self._end_pause)

    def _end_pause(self, task: asyncio.Task[None]) -> None:
        self._paused_until = None
        self.resume_reading()

    def run_in_steps(self, steps: Iterator[object]) -> None:
        """Let the connection run a long command step by step, each in a turn of its own.

        No later command is handled before the last step. Only the handler of the current command may call this.
        """
        self.steps = steps

    # Publishing.

    def finish_publish(self, memory_bytes: int) -> None:
        """Count entries as decided."""
        self.pending_publish_bytes -= memory_bytes
        if self.is_paused:
            self.resume_reading()

    # The client.

    async def check_alive(self) -> bool:
        """Ping the client and return whether it is alive. If it is not, its connection is closed."""
        return await self.keepalive.check_alive()

    @property
    def is_behind(self) -> bool:
        return self.outbound.is_behind

    @property
    def waiting_bytes(self) -> int:
        return self.outbound.waiting_bytes

    @property
    def taken_bytes(self) -> int:
        return self.outbound.taken_bytes
