"""One connection of a client of Pulsar's protocol: bytes in, bytes out.

What comes is taken apart (server/pulsar/frames.py) and done at once, in its order; what has to wait for something goes
on in a task that answers by itself. A piece of many small frames is taken in turns with other connections, and so is a
command that names very many messages (`in_steps`).

**Reading is held** while the client has sent more than is decided (of this connection, of the broker), has asked more
than is answered, or does not take what it is sent. Entries for a topic that has no room wait at their producer, and the
connection is read on for the others, until a share of the connection's bound waits so. Nothing else is held: entries
for consumers have a bound of their own (outbound.py).

A client that breaks the protocol is told so, by an ERROR without a request, and its connection is closed: nobody knows
what the rest of it would mean. Everything else is answered, and the connection goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Final, Protocol, cast

from google.protobuf.message import DecodeError

from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.server.pulsar.consumer import ConnectedConsumer, leave_together
from magnetar_broker.server.pulsar.frames import BadFrame, FrameReader
from magnetar_broker.server.pulsar.handlers import Commands
from magnetar_broker.server.pulsar.keepalive import LifeSigns
from magnetar_broker.server.pulsar.listener_context import Door
from magnetar_broker.server.pulsar.lookup import FindingForClients
from magnetar_broker.server.pulsar.outbound import Outgoing
from magnetar_broker.server.pulsar.pending_requests import Requests
from magnetar_broker.server.pulsar.producer import NO_REQUEST, ConnectedProducer
from magnetar_broker.server.pulsar.replies import OWN_ERROR, error_frame, frame
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandPong,
    FeatureFlags,
    ServerError,
)
from magnetar_wire.process.listening_socket import format_address
from magnetar_wire.process.version import read_version

__all__ = ["PulsarConnection"]

_log = logging.getLogger(__name__)
PROTOCOL_VERSION: Final = 21
_SEND: Final = BaseCommand.SEND
# Without a turn for others; looked at once in so many frames, of which a command other than SEND counts for some.
_LONG_S: Final = 0.005
_FRAMES_BETWEEN_LOOKS: Final = 64
_COMMAND_COUNTS_FOR: Final = 8
# One eighth of the bound on entries that are not decided is for entries whose topics have no capacity.
_WAITING_SHARE: Final = 8
_TOKEN_BYTES: Final = 16
_MAX_VERSION_LENGTH: Final = 100
# How long who is closed may take to read what was written.
_CLOSING_S: Final = 5.0
_GONE: Final = TopicUnloaded("its connection has ended")


class Listening(Protocol):
    """Whose connections they are."""

    listener_name: str

    def opened(self, connection: PulsarConnection) -> str:
        """Why it may not be there; empty: it may."""

    def closed(self, connection: PulsarConnection) -> None: ...


class PulsarConnection(asyncio.BufferedProtocol):
    def __init__(self, door: Door, listening: Listening) -> None:
        self.door = door
        self.listening = listening
        self.address = ""
        # Where the client has reached this broker.
        self.came_to = ""
        # Told from other connections by it.
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        self.broken = False
        # Of CONNECT.
        self.connected = False
        self.wants_broker_part = False
        self.client_version = ""
        self.producers: dict[int, ConnectedProducer] = {}
        self.consumers: dict[int, ConnectedConsumer] = {}
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        # Where it is read to, by all connections: nothing of a piece stays there when `buffer_updated` returns.
        self._buffer = door.read_buffer
        self._reader = FrameReader(door.options.max_message_size)
        # The door knows of a frame that has begun.
        self._unfinished = False
        # Those that have entries which their topic does not know of yet.
        self._gathering: list[ConnectedProducer] = []
        # What is left of a command that is taken in steps; nothing behind it is taken before.
        self._steps: Iterator[object] | None = None
        # The memory of entries that are published and not decided, and its bound.
        self.undecided_bytes = 0
        self._most_undecided_bytes = door.options.max_pending_publish_bytes_per_connection
        # Of those, entries whose topics have no room; and how much that may be.
        self.waiting_publish_bytes = 0
        self._most_waiting_publish_bytes = self._most_undecided_bytes // _WAITING_SHARE
        # Asked and not answered.
        self.requests = Requests(self, self._go_on_soon)
        self.tasks = self.requests.tasks
        self.spawn, self.ask = self.requests.spawn, self.requests.ask
        self.asked, self.answered = self.requests.asked, self.requests.answered
        # Entries are read to learn how many messages they have (acknowledgments.py).
        self.reading_sizes = asyncio.Lock()
        # Nothing is read; it goes on in a moment; the broker has no room for what it sends.
        self._held = False
        self._going_on = False
        self._waits_for_room = False
        self.outgoing = Outgoing(door, self.has_room)
        self.write: Callable[[bytes], None] = self.outgoing.write
        self._life = LifeSigns(self, door.options)
        self._closing: asyncio.TimerHandle | None = None
        self._finding = FindingForClients(self)
        self._commands: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.CONNECT: self._connect,
            BaseCommand.PING: self._ping,
            BaseCommand.PONG: lambda command: None,
            BaseCommand.AUTH_RESPONSE: lambda command: None,
            **Commands(self).by_type,
            **self._finding.commands,
        }

    # The connection's beginning and end.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("unknown",)
        self.address = ":".join(str(part) for part in peer[:2])
        self.came_to = format_address(transport.get_extra_info("sockname"))
        self.outgoing.begin(transport)
        if why_not := self.listening.opened(self):
            self._refuse(why_not, ServerError.TOO_MANY_REQUESTS)
            return
        self._life.begin()

    def connection_lost(self, error: Exception | None) -> None:
        self._break()
        if self._closing is not None:
            self._closing.cancel()
        self.listening.closed(self)
        self.outgoing.gone()

    def close(self) -> None:
        """What was written is sent; then it ends."""
        self.outgoing.flush()
        self._break()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._closing = self._loop.call_later(_CLOSING_S, self._transport.abort)

    def abort(self) -> None:
        self._break()
        if self._transport is not None:
            self._transport.abort()

    def _break(self) -> None:
        if self.broken:
            return
        self.broken = True
        self._life.end()
        self.outgoing.end()
        self.door.unfinished.keeps(self, 0, another=True)
        self._reader = FrameReader(0)  # what it keeps is of no use
        self._steps = None
        consumers, self.consumers = list(self.consumers.values()), {}
        producers, self.producers = list(self.producers.values()), {}
        leave_together(consumers)
        for producer in producers:
            producer.leave(_GONE)
        self._finding.close()
        for task in self.tasks:
            task.cancel()

    def _refuse(self, text: str, error: ServerError = ServerError.NOT_ALLOWED_ERROR) -> None:
        if not self.broken:
            _log.info("the connection of %s is closed: %s", self.address, text)
            self.write(error_frame(NO_REQUEST, error, text))
            self.close()

    def take_no_more(self, why: str) -> None:
        self._refuse(why, ServerError.TOO_MANY_REQUESTS)

    # What comes.

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size_bytes: int) -> None:
        if self.broken:
            return
        self._life.heard = True
        if self._life.asked_now:
            self._life.tell()
        reader = self._reader
        reader.feed(self._buffer[:size_bytes])
        if not self._held:
            self._take(self._take_frames)
        if reader.left:
            reader.keep()

    def _take(self, some: Callable[[], None]) -> None:
        """Whatever comes out of that, other connections do not notice."""
        try:
            try:
                some()
            finally:
                self._publish()  # what stands before a bad frame is as good as any other
        except BadFrame as error:
            self._refuse(str(error))
        except DecodeError as error:
            self._refuse(f"a command can't be read: {error}")
        except Exception:  # noqa: BLE001 (one connection's trouble is not the others')
            _log.exception("the connection of %s is closed", self.address)
            self._refuse(OWN_ERROR, ServerError.UNKNOWN_ERROR)
        if not self.broken and self._too_much:
            self._hold()

    def _take_frames(self) -> None:
        """As long as there are whole ones, and nothing keeps this connection from going on."""
        reader, producers, gathering = self._reader, self.producers, self._gathering
        begun, counted = self._loop.time(), 0
        parts = reader.next()
        taken = parts is not None
        while parts is not None:
            command = BaseCommand.FromString(parts[0])
            if command.type == _SEND:
                send = command.send
                producer = producers.get(send.producer_id)
                # One that has ended: the client has been told or is about to be.
                if producer is not None and producer.opened:
                    if not producer.gathered:
                        gathering.append(producer)
                    producer.gather(send.sequence_id, send.highest_sequence_id, parts[1])
                counted += 1
            else:
                self._publish()
                self._take_command(command, len(parts[0]))
                counted += _COMMAND_COUNTS_FOR
                if self.broken or self._steps is not None:
                    return
            if counted >= _FRAMES_BETWEEN_LOOKS:
                counted = 0
                if self._loop.time() - begun > _LONG_S:
                    self._hold()
                    self._go_on_soon()
                    return
                if self._too_much:
                    return
            parts = reader.next() if reader.left else None
        if self._unfinished or reader.unfinished_bytes:
            self._unfinished = reader.unfinished_bytes > 0
            self.door.unfinished.keeps(self, reader.unfinished_bytes, another=taken)

    def _take_command(self, command: BaseCommand, size_bytes: int) -> None:
        take = self._commands.get(command.type)
        if take is None or not command.IsInitialized():
            self._refuse(f"command {command.type} is none that a broker takes, or lacks what it needs")
        elif not self.connected and command.type != BaseCommand.CONNECT:
            self._refuse("CONNECT comes first")
        else:
            self.requests.command_bytes = size_bytes
            take(command)
            if self._steps is None:
                self.requests.command_bytes = 0

    def in_steps(self, steps: Iterator[object]) -> None:
        """Of a command that takes long: others have a turn before each, and what came behind it waits."""
        self._steps = steps
        self._hold()
        self._go_on_soon()

    def _take_step(self) -> None:
        assert self._steps is not None
        if next(self._steps, self) is self:
            self._steps = None
            self.requests.command_bytes = 0
        self._go_on_soon()

    @property
    def _too_much(self) -> bool:
        return (
            self._waits_for_room
            or self.undecided_bytes >= self._most_undecided_bytes
            or self.waiting_publish_bytes > self._most_waiting_publish_bytes
            or self.requests.too_much
            or self.outgoing.behind
        )

    @property
    def held(self) -> bool:
        return self._held

    @property
    def behind(self) -> bool:
        return self.outgoing.behind

    @property
    def taken_bytes(self) -> int:
        return self.outgoing.taken_bytes

    @property
    def waiting_bytes(self) -> int:
        return self.outgoing.waiting_bytes

    def _hold(self) -> None:
        if not self._held and self._transport is not None and not self.broken:
            self._held = True
            self._transport.pause_reading()

    async def _until_room(self, producer: ConnectedProducer) -> None:
        try:
            await producer.broker_room()
        finally:
            self._waits_for_room = False
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._held and not self._going_on and not self.broken:
            self._going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = False
        if self.broken or self._too_much:
            return  # whatever keeps it has it go on later
        # What came before it was held.
        self._take(self._take_frames if self._steps is None else self._take_step)
        if not self.broken and not self._going_on and not self._too_much:
            assert self._transport is not None
            self._held = False
            self._transport.resume_reading()

    def has_room(self) -> None:
        """Something that may have held the connection does so no more."""
        if self._held:
            self._go_on_soon()

    def resume_writing(self) -> None:
        self.outgoing.taken()

    # Publishing.

    def _publish(self) -> None:
        if not self._gathering:
            return
        gathered = self._gathering[:]
        self._gathering.clear()
        for producer in gathered:
            if producer.publish() and not self._waits_for_room:
                self._waits_for_room = True
                self.spawn(self._until_room(producer))

    def decided(self, memory_bytes: int) -> None:
        self.undecided_bytes -= memory_bytes
        self.has_room()

    def soon(self, do: Callable[[], object]) -> None:
        self._loop.call_soon(do)

    async def lives(self) -> bool:
        """Whether the client gives a sign of life now; where it does not, its connection is closed."""
        return await self._life.lives()

    # What it has.

    def has_producer(self, producer: ConnectedProducer) -> bool:
        return self.producers.get(producer.producer_id) is producer

    def forget_producer(self, producer: ConnectedProducer) -> None:
        if self.has_producer(producer):
            del self.producers[producer.producer_id]

    def forget_consumer(self, consumer: ConnectedConsumer) -> None:
        self.outgoing.forget(consumer)
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]

    # Commands of the connection itself.

    def _connect(self, command: BaseCommand) -> None:
        if self.connected:
            self._refuse("CONNECT comes once")
            return
        self.connected = True
        asked, options = command.connect, self.door.options
        self.client_version = asked.client_version[:_MAX_VERSION_LENGTH]
        self.wants_broker_part = asked.feature_flags.supports_broker_entry_metadata
        told = CommandConnected(
            server_version=f"magnetar-{read_version()}",
            protocol_version=min(asked.protocol_version, PROTOCOL_VERSION),
            max_message_size=options.max_message_size,
            feature_flags=FeatureFlags(
                supports_broker_entry_metadata=True,
                supports_topic_watchers=True,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
        self.write(frame(BaseCommand(type=BaseCommand.CONNECTED, connected=told)))

    def _ping(self, command: BaseCommand) -> None:
        self.write(_PONG)


_PONG: Final = frame(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
