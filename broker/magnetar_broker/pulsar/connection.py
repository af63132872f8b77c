"""One connection of a client of Pulsar's protocol: bytes in, bytes out.

What comes is taken apart (core/pulsar/frames.py) and done at once, in its order; what has to wait for something goes on
in a task that answers by itself. A piece of many small frames is taken in turns with other connections.

**Reading is held** while the client has sent more than is decided (of this connection, of a topic, of the broker), has
asked more than is answered, or does not take what it is sent. Nothing else is held: what goes to consumers is bounded
by `room_for`, so that a client that takes nothing costs what that says, and no other one waits for it.

**Writing** is gathered within a turn of the loop, so that a thousand receipts are one write.

A client that breaks the protocol is told so, by an ERROR without a request, and its connection is closed: nobody knows
what the rest of it would mean. Everything else is answered, and the connection goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

from google.protobuf.message import DecodeError

from magnetar_broker.core.pulsar.errors import server_error
from magnetar_broker.core.pulsar.frames import BadFrame, FrameReader
from magnetar_broker.core.pulsar.replies import error_frame, frame, no_consumer_frame, success_frame
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.pulsar.consumer import ConnectedConsumer
from magnetar_broker.pulsar.finding import FindingForClients
from magnetar_broker.pulsar.producer import NO_REQUEST, ConnectedProducer
from magnetar_broker.pulsar.serving import Door
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandPing,
    CommandPong,
    FeatureFlags,
    ServerError,
)
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.version import magnetar_version

__all__ = ["PulsarConnection"]

_log = logging.getLogger(__name__)
PROTOCOL_VERSION: Final = 21
_SEND: Final = BaseCommand.SEND
# Without a turn for others; looked at once in so many frames.
_LONG_S: Final = 0.005
_FRAMES_BETWEEN_LOOKS: Final = 64
# Events about what waits to be written come at these; the first is what each may always have (outbox_budget.py).
_HIGH_WATER_BYTES: Final = 262_144
_LOW_WATER_BYTES: Final = 65_536
# What answers may add to what goes to consumers, before nothing more is asked.
_WAITING_ANSWERS_BYTES: Final = 1_048_576
# Pieces of this size on average are written one by one, and smaller ones put together first.
_LARGE_PIECE_BYTES: Final = 8_192
_TOKEN_BYTES: Final = 16
# How long who is closed may take to read what was written.
_CLOSING_S: Final = 5.0
_GONE: Final = TopicGivenUp("its connection has ended")


class Listening(Protocol):
    """Whose connections they are."""

    listener_name: str

    def opened(self, connection: PulsarConnection) -> str:
        """Why it may not be there; empty: it may."""

    def closed(self, connection: PulsarConnection) -> None: ...


class PulsarConnection(asyncio.Protocol):
    def __init__(self, door: Door, listening: Listening) -> None:
        self.door = door
        self.listening = listening
        self.address = ""
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
        self._reader = FrameReader(door.options.max_message_size)
        # Of the reader, as the door knows it.
        self._kept_bytes = 0
        # Those that have entries which their topic does not know of yet.
        self._gathering: list[ConnectedProducer] = []
        # Published and not decided; asked and not answered, in tasks and otherwise.
        self._undecided_bytes = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._asked = 0
        # Nothing is read; it goes on in a moment; a topic or the broker has no room for what it sends.
        self._held = False
        self._going_on = False
        self._waits_for_room = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        # Of what is read for consumers, and what the budget of all connections knows of this one.
        self._reserved_bytes = 0
        self._counted_bytes = 0
        # Those who found no room, in that order.
        self._starved: dict[ConnectedConsumer, None] = {}
        self._heard = True
        self._asked_for_life = False
        self._signs_of_life: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._finding = FindingForClients(self)
        self._commands: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.CONNECT: self._connect,
            BaseCommand.PRODUCER: self._open_producer,
            BaseCommand.CLOSE_PRODUCER: self._close_producer,
            BaseCommand.SUBSCRIBE: self._subscribe,
            BaseCommand.ACK: self._acknowledge,
            BaseCommand.FLOW: self._flow,
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: self._redeliver,
            BaseCommand.UNSUBSCRIBE: self._unsubscribe,
            BaseCommand.SEEK: self._seek,
            BaseCommand.CLOSE_CONSUMER: self._close_consumer,
            BaseCommand.PING: self._ping,
            BaseCommand.PONG: lambda command: None,
            BaseCommand.AUTH_RESPONSE: lambda command: None,
            **self._finding.commands,
        }

    # The connection's beginning and end.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("unknown",)
        self.address = ":".join(str(part) for part in peer[:2])
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES, low=_LOW_WATER_BYTES)
        if why_not := self.listening.opened(self):
            self._refuse(why_not, ServerError.TOO_MANY_REQUESTS)
            return
        self._timer = self._loop.call_later(self.door.options.keep_alive_interval_seconds, self._look_for_life)

    def connection_lost(self, error: Exception | None) -> None:
        self._break()
        self.listening.closed(self)
        self._count_written(0)

    def close(self) -> None:
        """What was written is sent; then it ends."""
        self._flush()
        self._break()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(_CLOSING_S, self._transport.abort)

    def abort(self) -> None:
        self._break()
        if self._transport is not None:
            self._transport.abort()

    @property
    def waiting_bytes(self) -> int:
        """Written, and not taken by the client's side yet."""
        return self._out_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def _break(self) -> None:
        if self.broken:
            return
        self.broken = True
        if self._timer is not None:
            self._timer.cancel()
        self._count_kept(0)
        consumers, self.consumers = list(self.consumers.values()), {}
        producers, self.producers = list(self.producers.values()), {}
        for consumer in consumers:
            consumer.closed = True  # what one has had must not go to another that is about to leave
        for consumer in consumers:
            consumer.leave()
        for producer in producers:
            producer.leave(_GONE)
        self._finding.close()
        for task in self.tasks:
            task.cancel()
        self._tell_of_life()

    def _refuse(self, text: str, error: ServerError = ServerError.NOT_ALLOWED_ERROR) -> None:
        _log.info("the connection of %s is closed: %s", self.address, text)
        self.write(error_frame(NO_REQUEST, error, text))
        self.close()

    # What comes.

    def data_received(self, data: bytes) -> None:
        if self.broken:
            return
        self._heard = True
        if self._signs_of_life:
            self._tell_of_life()
        self._reader.feed(data)
        if not self._held:
            self._take()

    def _take(self) -> None:
        """Frames as long as there are whole ones, and nothing keeps this connection from going on."""
        reader, commands = self._reader, self._commands
        begun, taken = self._loop.time(), 0
        try:
            while (parts := reader.next()) is not None:
                command = BaseCommand.FromString(parts[0])
                if command.type == _SEND:
                    self._send(command, parts[1])
                else:
                    self._publish()
                    take = commands.get(command.type)
                    if take is None or not command.IsInitialized():
                        self._refuse(f"command {command.type} is none that a broker takes, or lacks what it needs")
                    elif not self.connected and command.type != BaseCommand.CONNECT:
                        self._refuse("CONNECT comes first")
                    else:
                        take(command)
                if self.broken:
                    return
                taken += 1
                if not taken % _FRAMES_BETWEEN_LOOKS:
                    if self._loop.time() - begun > _LONG_S:
                        self._hold()
                        self._go_on_soon()
                        break
                    if self._too_much:
                        break
            self._publish()
        except BadFrame as error:
            self._publish()
            self._refuse(str(error))
            return
        except DecodeError as error:
            self._publish()
            self._refuse(f"a command can't be read: {error}")
            return
        except Exception:  # noqa: BLE001 (one connection's trouble is not the others')
            _log.exception("the connection of %s is closed", self.address)
            self._refuse("the broker met an error of its own, of which its log tells", ServerError.UNKNOWN_ERROR)
            return
        self._count_kept(reader.kept_bytes)
        if self._too_much:
            self._hold()

    def _count_kept(self, size_bytes: int) -> None:
        door = self.door
        door.unfinished_bytes += size_bytes - self._kept_bytes
        self._kept_bytes = size_bytes
        if size_bytes > _LOW_WATER_BYTES and door.unfinished_bytes > door.options.max_unfinished_frames_bytes:
            self._refuse(
                f"the broker has {door.unfinished_bytes} bytes of frames that have not come whole, and "
                "max_unfinished_frames_bytes is reached: connect again in a moment",
                ServerError.TOO_MANY_REQUESTS,
            )

    @property
    def _too_much(self) -> bool:
        options = self.door.options
        return (
            self._waits_for_room
            or self._undecided_bytes >= options.max_pending_publish_bytes_per_connection
            or self._asked + len(self.tasks) > options.max_waiting_requests_per_connection
            or self.waiting_bytes > options.max_queued_bytes_per_stream + _WAITING_ANSWERS_BYTES
        )

    def _hold(self) -> None:
        if not self._held and self._transport is not None and not self.broken:
            self._held = True
            self._transport.pause_reading()

    async def _until_room(self, producer: ConnectedProducer) -> None:
        try:
            await producer.room()
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
        self._take()  # what came before it was held
        if not self.broken and not self._going_on and not self._too_much:
            assert self._transport is not None
            self._held = False
            self._transport.resume_reading()

    # Publishing.

    def _send(self, command: BaseCommand, entry: bytes) -> None:
        send = command.send
        producer = self.producers.get(send.producer_id)
        if producer is None or not producer.opened:
            return  # it has ended, and the client has been told or is about to be
        if not producer.has_gathered:
            self._gathering.append(producer)
        producer.gather(send.sequence_id, send.highest_sequence_id, entry)

    def _publish(self) -> None:
        if not self._gathering:
            return
        gathering, self._gathering = self._gathering, []
        for producer in gathering:
            producer.publish()
            if producer.must_wait and not self._waits_for_room:
                self._waits_for_room = True
                self.spawn(self._until_room(producer))

    def undecided(self, size_bytes: int) -> None:
        self._undecided_bytes += size_bytes

    def decided(self, size_bytes: int) -> None:
        self._undecided_bytes -= size_bytes
        if self._held:
            self._go_on_soon()

    # Asking and answering.

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a request of %s failed", self.address, exc_info=error)
        if self._held:
            self._go_on_soon()

    def ask(self, request_id: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Has it done, which answers by itself; what it raises is answered as ERROR."""
        return self.spawn(self._ask(request_id, work))

    async def _ask(self, request_id: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BrokerError as error:
            self.write(error_frame(request_id, server_error(error.code), str(error)))
        except InvalidTopicName as error:
            self.write(error_frame(request_id, ServerError.INVALID_TOPIC_NAME, str(error)))
        except Exception:  # noqa: BLE001 (the client waits for an answer)
            _log.exception("request %d of %s failed", request_id, self.address)
            text = "the broker met an error of its own, of which its log tells"
            self.write(error_frame(request_id, ServerError.UNKNOWN_ERROR, text))

    def asked(self) -> None:
        """Something is to be answered, by no task."""
        self._asked += 1

    def answered(self) -> None:
        self._asked -= 1
        if self._held:
            self._go_on_soon()

    def soon(self, do: Callable[[], object]) -> None:
        self._loop.call_soon(do)

    # What goes.

    def write(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if not out or transport is None or transport.is_closing():
            return
        if size > _LARGE_PIECE_BYTES * len(out):
            transport.writelines(out)
        else:
            transport.write(b"".join(out))
        self._written()

    def resume_writing(self) -> None:
        self._written()
        if self._held:
            self._go_on_soon()

    def _written(self) -> None:
        self._count_written(self.waiting_bytes)
        if self._starved and not self.broken:
            self._feed_starved()

    def _count_written(self, size_bytes: int) -> None:
        size_bytes += 0 if self.broken else self._reserved_bytes
        self.door.outboxes.queued_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes

    def room_for(self, consumer: ConnectedConsumer) -> int:
        if self.broken:
            return 0
        most = self.door.options.max_queued_bytes_per_stream
        room = self.door.outboxes.room_bytes(most, self.waiting_bytes + self._reserved_bytes)
        if room <= 0:
            self._starved[consumer] = None
        return room

    def reserve(self, size_bytes: int) -> None:
        self._reserved_bytes += size_bytes
        if size_bytes < 0 and self._starved:
            self._loop.call_soon(self._written)

    def _feed_starved(self) -> None:
        starved, self._starved = self._starved, {}
        for consumer in starved:
            consumer.room_again()  # who finds none yet is starved again

    # Whether anybody is there.

    def _look_for_life(self) -> None:
        options = self.door.options
        silent = not self._heard and not self._held
        if silent and (self._asked_for_life or not self.connected):
            _log.info("the connection of %s is closed: it gave no sign of life", self.address)
            self.abort()
            return
        if silent:
            self.write(_PING)
        self._asked_for_life = silent
        self._heard = False
        self._timer = self._loop.call_later(options.keep_alive_interval_seconds, self._look_for_life)

    async def lives(self) -> bool:
        """Whether the client gives a sign of life now; where it does not, its connection is closed."""
        if self.broken:
            return False
        sign: asyncio.Future[None] = self._loop.create_future()
        self._signs_of_life.append(sign)
        self.write(_PING)
        await asyncio.wait([sign], timeout=self.door.options.connection_liveness_check_timeout_millis / 1000)
        if not sign.done():
            _log.info(
                "the connection of %s is closed: somebody else asks for what it has, and it is silent", self.address
            )
            self.abort()
        return not self.broken

    def _tell_of_life(self) -> None:
        signs, self._signs_of_life = self._signs_of_life, []
        for sign in signs:
            if not sign.done():
                sign.set_result(None)

    # Commands.

    def _connect(self, command: BaseCommand) -> None:
        if self.connected:
            self._refuse("CONNECT comes once")
            return
        self.connected = True
        asked, options = command.connect, self.door.options
        self.client_version = asked.client_version
        self.wants_broker_part = asked.feature_flags.supports_broker_entry_metadata
        told = CommandConnected(
            server_version=f"magnetar-{magnetar_version()}",
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

    def _open_producer(self, command: BaseCommand) -> None:
        asked = command.producer
        there = self.producers.get(asked.producer_id)
        if there is not None:
            if there.opened:
                there.tell_opened(asked.request_id)  # the client had stopped waiting for the answer
                return
            self._not_now(asked.request_id, f"producer {asked.producer_id} is being opened on this connection")
            return
        if len(self.producers) >= self.door.options.max_producers_per_stream:
            text = f"this connection has {len(self.producers)} producers, as many as max_producers_per_stream allows"
            self.write(error_frame(asked.request_id, ServerError.TOO_MANY_REQUESTS, text))
            return
        producer = self.producers[asked.producer_id] = ConnectedProducer(self, asked.producer_id)
        producer.opening = self.ask(asked.request_id, self._opening_producer(producer, command))

    async def _opening_producer(self, producer: ConnectedProducer, command: BaseCommand) -> None:
        try:
            await producer.open(command.producer)
        finally:
            producer.opening = None
            if not producer.opened:
                self.forget_producer(producer)

    def _close_producer(self, command: BaseCommand) -> None:
        asked = command.close_producer
        producer = self.producers.get(asked.producer_id)
        self.ask(asked.request_id, self._closing_producer(producer, asked.request_id))

    async def _closing_producer(self, producer: ConnectedProducer | None, request_id: int) -> None:
        if producer is not None:
            await producer.close()
        self._tell_success(request_id)

    def has_producer(self, producer: ConnectedProducer) -> bool:
        return self.producers.get(producer.producer_id) is producer

    def forget_producer(self, producer: ConnectedProducer) -> None:
        if self.has_producer(producer):
            del self.producers[producer.producer_id]

    def _subscribe(self, command: BaseCommand) -> None:
        asked = command.subscribe
        there = self.consumers.get(asked.consumer_id)
        if there is not None:
            if there.opened_as is not None:
                there.tell_success(asked.request_id)
                return
            self._not_now(asked.request_id, f"consumer {asked.consumer_id} is being opened on this connection")
            return
        if len(self.consumers) >= self.door.options.max_consumers_per_stream:
            text = f"this connection has {len(self.consumers)} consumers, as many as max_consumers_per_stream allows"
            self.write(error_frame(asked.request_id, ServerError.TOO_MANY_REQUESTS, text))
            return
        consumer = self.consumers[asked.consumer_id] = ConnectedConsumer(self, asked.consumer_id)
        consumer.opening = self.ask(asked.request_id, self._opening_consumer(consumer, command))

    async def _opening_consumer(self, consumer: ConnectedConsumer, command: BaseCommand) -> None:
        try:
            await consumer.open(command.subscribe)
        finally:
            consumer.opening = None
            if consumer.opened_as is None:
                self.forget_consumer(consumer)

    def forget_consumer(self, consumer: ConnectedConsumer) -> None:
        self._starved.pop(consumer, None)
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]

    def _acknowledge(self, command: BaseCommand) -> None:
        asked = command.ack
        consumer = self.consumers.get(asked.consumer_id)
        if consumer is not None:
            consumer.acknowledge(asked)
        elif asked.HasField("request_id"):
            text = f"consumer {asked.consumer_id} is not open on this connection: what is not acknowledged comes again"
            self.write(no_consumer_frame(asked.consumer_id, asked.request_id, text))

    def _flow(self, command: BaseCommand) -> None:
        if (consumer := self.consumers.get(command.flow.consumer_id)) is not None:
            consumer.flow(command.flow.message_permits)

    def _redeliver(self, command: BaseCommand) -> None:
        asked = command.redeliver_unacknowledged_messages
        if (consumer := self.consumers.get(asked.consumer_id)) is not None:
            consumer.redeliver(asked)

    def _unsubscribe(self, command: BaseCommand) -> None:
        asked = command.unsubscribe
        if (consumer := self._known_consumer(asked.consumer_id, asked.request_id)) is not None:
            self.ask(asked.request_id, consumer.unsubscribe(asked.request_id, force=asked.force))

    def _seek(self, command: BaseCommand) -> None:
        asked = command.seek
        if (consumer := self._known_consumer(asked.consumer_id, asked.request_id)) is not None:
            self.ask(asked.request_id, consumer.seek(asked))

    def _close_consumer(self, command: BaseCommand) -> None:
        asked = command.close_consumer
        consumer = self.consumers.get(asked.consumer_id)
        if consumer is None:
            self._tell_success(asked.request_id)  # the broker was faster
        else:
            consumer.close(asked.request_id)

    def _known_consumer(self, consumer_id: int, request_id: int) -> ConnectedConsumer | None:
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            text = f"consumer {consumer_id} is not open on this connection"
            self.write(error_frame(request_id, ServerError.CONSUMER_NOT_FOUND, text))
        return consumer

    def _not_now(self, request_id: int, text: str) -> None:
        self.write(error_frame(request_id, server_error(ErrorCode.SERVICE_NOT_READY), f"{text}: wait for the answer"))

    def _tell_success(self, request_id: int) -> None:
        self.write(success_frame(request_id))


_PING: Final = frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
_PONG: Final = frame(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
