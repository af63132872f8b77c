"""One client's connection: it reads frames, passes each command to its handler, and pauses reading.

Frames (frames.py) are handled at once, in the order received. A handler that has to wait runs a task, which answers by
itself (pending_requests.py). Entries of SEND are gathered by their producers and published together, when all received
frames are parsed or before another command is handled. Many small frames are handled in several turns of the event
loop, so that other connections get their turns, and so is a command that lists very many message ids (`run_in_steps`).

**Pauses.** Reading is paused while too many published bytes are undecided (of this connection or of the broker), too
many requests are pending, or the client does not take its answers (`ClientSession.must_pause`). Entries whose topic has
no capacity wait at their producer. Reading continues for the other producers, until a share of the connection's limit
waits in this way. Entries for consumers never pause reading: they have a limit of their own (outbound.py).

**Errors.** A client that breaks the protocol gets an ERROR that answers no request, and its connection is closed: the
rest of the stream would have no known meaning. All other requests are answered, and the connection stays open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from google.protobuf.message import DecodeError

from magnetar_broker.server.pulsar.frames import FrameReader, ProtocolViolation
from magnetar_broker.server.pulsar.handlers import Handlers
from magnetar_broker.server.pulsar.listener_context import ListenerContext
from magnetar_broker.server.pulsar.replies import NO_REQUEST
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.request_errors import INTERNAL_ERROR
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError
from magnetar_wire.process.listening_socket import format_address

__all__ = ["PulsarConnection"]

_log = logging.getLogger(__name__)
_SEND: Final = BaseCommand.SEND
# The longest turn of one connection. The clock is read once per `_FRAMES_PER_CLOCK_READ` frames; a command other than
# SEND counts as several.
_MAX_TURN_S: Final = 0.005
_FRAMES_PER_CLOCK_READ: Final = 64
_FRAMES_PER_COMMAND: Final = 8
# How long a client may take to read its last frames after its connection was closed.
_CLOSE_TIMEOUT_S: Final = 5.0


class PulsarConnection(asyncio.BufferedProtocol):
    """Has a session and handlers from `connection_made` on."""

    session: ClientSession
    handlers: Handlers

    def __init__(
        self,
        context: ListenerContext,
        listener_name: str,
        on_opened: Callable[[PulsarConnection], str],
        on_lost: Callable[[PulsarConnection], None],
    ) -> None:
        """`on_opened` returns why the connection must be refused; empty: it is accepted."""
        self._context = context
        self._listener_name = listener_name
        self._on_opened = on_opened
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        # The read buffer of all connections. Unparsed bytes are copied out of it before `buffer_updated` returns.
        self._buffer = context.read_buffer
        self._reader = FrameReader(context.settings.max_message_size)
        # The context counts the bytes of an incomplete frame.
        self._has_incomplete_frame = False
        # `_resume` is scheduled.
        self._is_resuming = False
        self._close_timeout: asyncio.TimerHandle | None = None

    # Opening and closing.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has all of its methods, but is no subclass
        self.transport = transport
        peer = transport.get_extra_info("peername") or ("unknown",)
        self.session = ClientSession(
            self._context,
            transport,
            address=":".join(str(part) for part in peer[:2]),
            reached_address=format_address(transport.get_extra_info("sockname")),
            listener_name=self._listener_name,
            resume_reading=self._resume_soon,
            abort=self.abort,
        )
        self.handlers = Handlers(self.session)
        if reason := self._on_opened(self):
            self._refuse(reason, ServerError.TOO_MANY_REQUESTS)
            return
        self.session.keepalive.start()

    def connection_lost(self, error: Exception | None) -> None:
        self._close_session()
        if self._close_timeout is not None:
            self._close_timeout.cancel()
        self._on_lost(self)
        self.session.outbound.release()

    def close(self) -> None:
        """Send all frames that were written, and close the connection."""
        self.session.outbound.flush()
        self._close_session()
        if not self.transport.is_closing():
            self.transport.close()
            self._close_timeout = self._loop.call_later(_CLOSE_TIMEOUT_S, self.transport.abort)

    def abort(self) -> None:
        """Close the connection without sending anything."""
        self._close_session()
        self.transport.abort()

    def close_overloaded(self, reason: str) -> None:
        """Close the connection, because the broker has too much to hold."""
        self._refuse(reason, ServerError.TOO_MANY_REQUESTS)

    def _close_session(self) -> None:
        session = self.session
        if session.is_closed:
            return
        session.is_closed = True
        session.keepalive.stop()
        session.outbound.close()
        self._context.incomplete_frames.update(self, 0, is_new=True)
        self._reader = FrameReader(0)  # frees the buffered bytes
        session.steps = None
        self.handlers.close()
        session.requests.cancel_all()

    def _refuse(self, reason: str, error: ServerError = ServerError.NOT_ALLOWED_ERROR) -> None:
        """Close the connection with an ERROR that answers no request."""
        if not self.session.is_closed:
            _log.info("Closing the connection of the client at %s: %s", self.session.address, reason)
            self.session.fail(NO_REQUEST, error, reason)
            self.close()

    # Reading.

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size_bytes: int) -> None:
        session = self.session
        if session.is_closed:
            return
        session.keepalive.has_received = True
        if session.keepalive.waiters:
            session.keepalive.wake()
        reader = self._reader
        reader.feed(self._buffer[:size_bytes])
        if not session.is_paused:
            self._handle(self._handle_frames)
        if reader.unparsed:
            reader.copy_rest()

    def _handle(self, work: Callable[[], None]) -> None:
        """Call `work`, which handles received commands, and close the connection if it fails."""
        session = self.session
        try:
            try:
                work()
            finally:
                self.handlers.publish_gathered()  # entries before an invalid frame are as good as any others
        except ProtocolViolation as error:
            self._refuse(str(error))
        except DecodeError as error:
            self._refuse(f"a command can't be decoded: {error}")
        except Exception:  # noqa: BLE001 (an error of one connection must not affect the others)
            _log.exception("Closing the connection of the client at %s", session.address)
            self._refuse(INTERNAL_ERROR, ServerError.UNKNOWN_ERROR)
        if not session.is_closed and session.must_pause:
            self._pause()

    def _handle_frames(self) -> None:
        """Handle complete frames until there are no more, or the connection must pause."""
        session, reader, gather_send = self.session, self._reader, self.handlers.gather_send
        began_at, counted = self._loop.time(), 0
        parts = reader.next_frame()
        has_frame = parts is not None
        while parts is not None:
            command = BaseCommand.FromString(parts[0])
            if command.type == _SEND:
                gather_send(command.send, parts[1])
                counted += 1
            else:
                self.handlers.publish_gathered()
                self._handle_command(command, len(parts[0]))
                counted += _FRAMES_PER_COMMAND
                if session.is_closed:
                    return
                if session.steps is not None:
                    self._yield_turn()
                    return
            if counted >= _FRAMES_PER_CLOCK_READ:
                counted = 0
                if self._loop.time() - began_at > _MAX_TURN_S:
                    self._yield_turn()
                    return
                if session.must_pause:
                    return
            parts = reader.next_frame() if reader.unparsed else None
        if self._has_incomplete_frame or reader.incomplete_bytes:
            self._has_incomplete_frame = reader.incomplete_bytes > 0
            self._context.incomplete_frames.update(self, reader.incomplete_bytes, is_new=has_frame)

    def _handle_command(self, command: BaseCommand, size_bytes: int) -> None:
        session = self.session
        handler = self.handlers.by_command.get(command.type)
        if handler is None:
            raise ProtocolViolation(f"command type {command.type} is unknown, or not one that clients send")
        if not command.IsInitialized():
            raise ProtocolViolation(f"command type {command.type} lacks a required field")
        if not session.is_connected and command.type != BaseCommand.CONNECT:
            raise ProtocolViolation(f"command type {command.type} was received before CONNECT")
        session.requests.command_bytes = size_bytes
        handler(command)
        if session.steps is None:
            session.requests.command_bytes = 0

    def _handle_step(self) -> None:
        """Run the next step of a long command."""
        session = self.session
        assert session.steps is not None
        if next(session.steps, self) is self:
            session.steps = None
            session.requests.command_bytes = 0
        self._resume_soon()

    # Pauses.

    def _pause(self) -> None:
        if not self.session.is_paused and not self.session.is_closed:
            self.session.is_paused = True
            self.transport.pause_reading()

    def _yield_turn(self) -> None:
        """Pause reading until other connections have had their turns."""
        self._pause()
        self._resume_soon()

    def _resume_soon(self) -> None:
        """Resume reading in the next turn of the event loop, if the connection need not pause any more."""
        if self.session.is_paused and not self._is_resuming and not self.session.is_closed:
            self._is_resuming = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._is_resuming = False
        session = self.session
        if session.is_closed or session.must_pause:
            return  # the end of each reason to pause calls `_resume_soon`
        # First what was received before the pause.
        self._handle(self._handle_frames if session.steps is None else self._handle_step)
        if not session.is_closed and not self._is_resuming and not session.must_pause:
            session.is_paused = False
            self.transport.resume_reading()

    def resume_writing(self) -> None:
        """The transport reports that the client has taken bytes."""
        self.session.outbound.update_capacity()
