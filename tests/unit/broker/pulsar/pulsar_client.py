"""A client of Pulsar's protocol that sends any bytes, also invalid ones, and records all answers.

It encodes and decodes by protobuf objects, and shares no code with the broker's own encoding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from magnetar_broker.server.pulsar.connection import PulsarConnection
from magnetar_broker.server.pulsar.consumer import ConnectedConsumer
from magnetar_broker.server.pulsar.producer import ConnectedProducer
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnect,
    CommandFlow,
    CommandLookupTopic,
    CommandPong,
    CommandProducer,
    CommandProducerSuccess,
    CommandSeek,
    CommandSend,
    CommandSendReceipt,
    CommandSubscribe,
    FeatureFlags,
)
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.pulsar.fake_transport import FakeTransport

__all__ = ["Delivered", "PulsarClient", "framed", "sent"]


def framed(command: BaseCommand, payload: bytes = b"") -> bytes:
    """Encode a frame, also of a command that lacks required fields."""
    data = command.SerializePartialToString()
    total = 4 + len(data) + len(payload)
    return total.to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + payload


@dataclass(frozen=True)
class Delivered:
    consumer_id: int
    ledger_id: int
    entry_id: int
    redelivery_count: int
    open_messages: tuple[int, ...]
    entry: bytes
    consumer_epoch: int | None


class PulsarClient:
    def __init__(self, connection: PulsarConnection, transport: FakeTransport) -> None:
        self.connection = connection
        self.transport = transport
        self.answers: list[BaseCommand] = []
        self.delivered: list[Delivered] = []
        # Whether it answers each PING, as real clients do.
        self.answers_pings = False
        self._left = b""
        self._requests = 0
        transport.takes = self._take
        connection.connection_made(transport)

    # The broker's end of the connection.

    @property
    def session(self) -> ClientSession:
        return self.connection.session

    @property
    def producers(self) -> dict[int, ConnectedProducer]:
        return self.connection.handlers.producers.by_id

    @property
    def consumers(self) -> dict[int, ConnectedConsumer]:
        return self.connection.handlers.consumers.by_id

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        return self.session.requests.tasks

    # Bytes.

    def send(self, *commands: BaseCommand) -> None:
        """Send commands in one piece."""
        self.send_bytes(b"".join(map(framed, commands)))

    def send_bytes(self, data: bytes) -> None:
        self.transport.arrives(data)

    def stop_reading(self) -> None:
        self.transport.takes = None

    def read_on(self) -> None:
        self.transport.takes = self._take
        self._take(self.transport.take())

    def cut(self) -> None:
        self.transport.cut()

    @property
    def is_disconnected(self) -> bool:
        """Whether the broker has closed the connection."""
        return self.transport.closing

    async def wait_disconnected(self) -> None:
        await until(lambda: self.transport.lost, "the connection is closed")

    def _take(self, data: bytes) -> None:
        self._left += data
        at = 0
        while len(self._left) - at >= 4:
            end = at + 4 + int.from_bytes(self._left[at : at + 4], "big")
            if end > len(self._left):
                break
            behind = at + 8 + int.from_bytes(self._left[at + 4 : at + 8], "big")
            command = BaseCommand.FromString(self._left[at + 8 : behind])
            self._note(command, self._left[behind:end])
            at = end
        self._left = self._left[at:]

    def _note(self, command: BaseCommand, payload: bytes) -> None:
        assert command.IsInitialized(), f"the broker sent a command that lacks required fields: {command}"
        self.answers.append(command)
        assert bool(payload) == (command.type == BaseCommand.MESSAGE)
        if command.type == BaseCommand.PING and self.answers_pings:
            pong = BaseCommand(type=BaseCommand.PONG, pong=CommandPong())
            asyncio.get_running_loop().call_soon(self.send, pong)
        if command.type == BaseCommand.MESSAGE:
            message = command.message
            position = message.message_id
            self.delivered.append(
                Delivered(
                    message.consumer_id,
                    position.ledgerId,
                    position.entryId,
                    message.redelivery_count,
                    tuple(message.ack_set),
                    payload,
                    message.consumer_epoch if message.HasField("consumer_epoch") else None,
                )
            )

    # Requests.

    def request_id(self) -> int:
        self._requests += 1
        return self._requests

    def answers_of(self, kind: BaseCommand.Type) -> list[BaseCommand]:
        return [one for one in self.answers if one.type == kind]

    async def wait_for_answers(self, kind: BaseCommand.Type, count: int = 1) -> BaseCommand:
        """Return the last of the first `count` commands of this type, once they are received."""
        await until(lambda: len(self.answers_of(kind)) >= count, f"{count} of {BaseCommand.Type.Name(kind)} came")
        return self.answers_of(kind)[count - 1]

    async def answer(self, request_id: int) -> BaseCommand:
        await until(lambda: self._answer(request_id) is not None, f"request {request_id} is answered")
        answer = self._answer(request_id)
        assert answer is not None
        return answer

    def _answer(self, request_id: int) -> BaseCommand | None:
        return next((one for one in self.answers if _request_id_of(one) == request_id), None)

    async def ask(self, kind: int, **part: Message) -> BaseCommand:
        """Send a request that has an id, and return its answer."""
        [command] = part.values()
        self.send(BaseCommand(type=kind, **part))  # type: ignore[arg-type]
        return await self.answer(command.request_id)  # type: ignore[attr-defined]

    # The usual requests of clients.

    async def connect(
        self, *, broker_entry_metadata: bool = False, protocol_version: int = 21, client_version: str = "test"
    ) -> BaseCommand:
        self.send(
            BaseCommand(
                type=BaseCommand.CONNECT,
                connect=CommandConnect(
                    client_version=client_version,
                    protocol_version=protocol_version,
                    feature_flags=FeatureFlags(supports_broker_entry_metadata=broker_entry_metadata),
                ),
            )
        )
        return await self.wait_for_answers(BaseCommand.CONNECTED)

    async def lookup(self, topic: str) -> BaseCommand:
        command = CommandLookupTopic(topic=topic, request_id=self.request_id())
        return await self.ask(BaseCommand.LOOKUP, lookup_topic=command)

    async def open_producer(self, producer_id: int = 1, topic: str = "t", **fields: Any) -> CommandProducerSuccess:
        command = CommandProducer(topic=topic, producer_id=producer_id, request_id=self.request_id(), **fields)
        answer = await self.ask(BaseCommand.PRODUCER, producer=command)
        assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
        return answer.producer_success

    def publish(self, producer_id: int, *sequence_ids: int, name: str, payload: bytes = b"x") -> None:
        """Publish messages in one piece, each as an entry of its own."""
        self.send_bytes(b"".join(sent(producer_id, number, entry(number, payload, name)) for number in sequence_ids))

    async def receipts(self, producer_id: int, count: int) -> list[CommandSendReceipt]:
        def mine() -> list[CommandSendReceipt]:
            receipts = [one.send_receipt for one in self.answers_of(BaseCommand.SEND_RECEIPT)]
            return [one for one in receipts if one.producer_id == producer_id]

        await until(lambda: len(mine()) >= count, f"{count} receipts came")
        return mine()

    async def subscribe(self, consumer_id: int = 1, topic: str = "t", subscription: str = "s", **fields: Any) -> None:
        """Subscribe from the earliest message, and grant permits."""
        permits = fields.pop("permits", 1000)
        answer = await self.try_subscribe(consumer_id, topic, subscription, **fields)
        assert answer.type == BaseCommand.SUCCESS, answer
        if permits:
            self.flow(consumer_id, permits)

    async def try_subscribe(
        self, consumer_id: int = 1, topic: str = "t", subscription: str = "s", **fields: Any
    ) -> BaseCommand:
        parts: dict[str, Any] = {"sub_type": 0, "initial_position": 1, **fields}
        command = CommandSubscribe(
            topic=topic, subscription=subscription, consumer_id=consumer_id, request_id=self.request_id(), **parts
        )
        return await self.ask(BaseCommand.SUBSCRIBE, subscribe=command)

    def flow(self, consumer_id: int, permits: int) -> None:
        flow = CommandFlow(consumer_id=consumer_id, message_permits=permits)
        self.send(BaseCommand(type=BaseCommand.FLOW, flow=flow))

    async def wait_delivered(self, count: int, consumer_id: int = 1) -> list[Delivered]:
        def mine() -> list[Delivered]:
            return [one for one in self.delivered if one.consumer_id == consumer_id]

        await until(lambda: len(mine()) >= count, f"{count} entries came")
        return mine()

    async def acknowledge(
        self, consumer_id: int, ids: Sequence[MessageIdData], *, cumulative: bool = False
    ) -> CommandAckResponse:
        command = CommandAck(
            consumer_id=consumer_id,
            ack_type=CommandAck.CUMULATIVE if cumulative else CommandAck.INDIVIDUAL,
            message_id=ids,
            request_id=self.request_id(),
        )
        return (await self.ask(BaseCommand.ACK, ack=command)).ack_response

    async def seek(self, consumer_id: int, **to: Any) -> BaseCommand:
        command = CommandSeek(consumer_id=consumer_id, request_id=self.request_id(), **to)
        return await self.ask(BaseCommand.SEEK, seek=command)

    async def close_producer(self, producer_id: int = 1) -> BaseCommand:
        command = CommandCloseProducer(producer_id=producer_id, request_id=self.request_id())
        return await self.ask(BaseCommand.CLOSE_PRODUCER, close_producer=command)

    async def close_consumer(self, consumer_id: int = 1) -> BaseCommand:
        command = CommandCloseConsumer(consumer_id=consumer_id, request_id=self.request_id())
        return await self.ask(BaseCommand.CLOSE_CONSUMER, close_consumer=command)


def sent(producer_id: int, sequence_id: int, stored: bytes) -> bytes:
    """Encode a SEND of an entry."""
    send = CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    return framed(BaseCommand(type=BaseCommand.SEND, send=send), stored)


def _request_id_of(command: BaseCommand) -> int | None:
    for _, part in command.ListFields():
        if isinstance(part, Message):
            return getattr(part, "request_id", None)
    return None
