"""Input of a hostile client of Pulsar's protocol: commands with any values in them, false entries, frames that were
changed in flight, and bytes that are no frames at all.

Most of it is nearly right, so that it passes the first checks: likely ids of producers and consumers, positions of
existing messages, names of existing topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandConnect, CommandProducer, CommandSend, CommandSubscribe
from magnetar_wire.entry import encode_entry
from magnetar_wire.errors import WireError
from tests.unit.broker.pulsar.pulsar_client import framed

__all__ = ["TOPICS", "PulsarInput"]

TOPICS: Final = ("a0", "a1", "persistent://public/default/a2", "a3-partition-1", "non-persistent://public/default/a4")
_NAMES: Final = ("", "s", "s2", "p", "x" * 800, "a/b", "é\u2028\x00", "..", "s" * 5_000)
_BAD_TOPICS: Final = (
    "",
    "/",
    "a/b",
    "a\x00b",
    "x" * 5_000,
    "persistent://public/default/",
    "non-persistent://public/default/t-partition-1",
    "persistent://no/such/topic",
    "persistent://public/default/.",
    "__change_events",
    "persistent://magnetar/system/t",
    "t-partition-99999999999",
)
_PATTERNS: Final = ("", "public/default", "public/default/.*", "(((((", "(a*)*b", ".*", "x" * 3_000)
_NUMBERS: Final = (0, 1, 2, 3, 5, 63, 64, 100, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_SIGNED: Final = (0, 1, -1, 2, -2, 3, 63, 64, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**63 - 1)
_INT32: Final = (0, 1, 2, 3, 4, -1, -2, 7, 100, 2**31 - 1, -(2**31))
_IDS: Final = ("producer_id", "consumer_id", "watcher_id")
# What clients send; and the parts of `BaseCommand` that go with it.
_COMMANDS: Final = (
    (BaseCommand.SEND, "send", 30),
    (BaseCommand.ACK, "ack", 14),
    (BaseCommand.FLOW, "flow", 12),
    (BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliver_unacknowledged_messages", 6),
    (BaseCommand.SUBSCRIBE, "subscribe", 8),
    (BaseCommand.PRODUCER, "producer", 6),
    (BaseCommand.CLOSE_PRODUCER, "close_producer", 2),
    (BaseCommand.CLOSE_CONSUMER, "close_consumer", 2),
    (BaseCommand.UNSUBSCRIBE, "unsubscribe", 1),
    (BaseCommand.SEEK, "seek", 3),
    (BaseCommand.GET_LAST_MESSAGE_ID, "get_last_message_id", 3),
    (BaseCommand.LOOKUP, "lookup_topic", 3),
    (BaseCommand.PARTITIONED_METADATA, "partition_metadata", 3),
    (BaseCommand.CONSUMER_STATS, "consumer_stats", 2),
    (BaseCommand.GET_TOPICS_OF_NAMESPACE, "get_topics_of_namespace", 2),
    (BaseCommand.WATCH_TOPIC_LIST, "watch_topic_list", 2),
    (BaseCommand.WATCH_TOPIC_LIST_CLOSE, "watch_topic_list_close", 2),
    (BaseCommand.GET_SCHEMA, "get_schema", 1),
    (BaseCommand.GET_OR_CREATE_SCHEMA, "get_or_create_schema", 1),
    (BaseCommand.NEW_TXN, "new_txn", 1),
    (BaseCommand.END_TXN, "end_txn", 1),
    (BaseCommand.PING, "ping", 2),
    (BaseCommand.PONG, "pong", 1),
    (BaseCommand.AUTH_RESPONSE, "auth_response", 1),
)
_WEIGHTS: Final = [weight for _, _, weight in _COMMANDS]


class PulsarInput:
    """Of one client, whose producers have names of their own, unless they take somebody else's. `entries`: ledgers and
    entries that there are."""

    def __init__(self, random: Random, who: str, entries: list[tuple[int, int]]) -> None:
        self._random = random
        self._entries = entries
        self._names = [f"{who}-{producer_id}" for producer_id in range(4)]
        self._request_id = 0

    def frame(self) -> bytes:
        """One, or what looks like one."""
        chance = self._random.random()
        if chance < 0.85:
            return self._command()
        if chance < 0.99:
            return self._usual()
        if chance < 0.994:
            return self._changed(self._command())
        if chance < 0.996:
            return self._odd_sizes()
        if chance < 0.998:
            return self._random.randbytes(self._random.randrange(1, 200))
        return self._any_command()

    def beginning(self) -> bytes:
        """Of a connection that means to come far."""
        return framed(BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(client_version="f"))) + b"".join(
            self._usual() for _ in range(6)
        )

    # Commands.

    def _usual(self) -> bytes:
        """Opens a producer or a consumer as everybody does, or publishes."""
        random, topic = self._random, self._random.choice((*TOPICS[:3], TOPICS[4]))
        kind = random.randrange(3)
        if kind == 0:
            producer_id = random.randrange(4)
            opened = CommandProducer(
                topic=topic,
                producer_id=producer_id,
                request_id=self._next(),
                producer_name=self._names[producer_id],
                user_provided_producer_name=False,
                epoch=self._request_id,
            )
            return framed(BaseCommand(type=BaseCommand.PRODUCER, producer=opened))
        if kind == 1:
            subscribed = CommandSubscribe(
                topic=topic,
                subscription=random.choice(("s", "s2")),
                sub_type=random.randrange(3),
                consumer_id=random.randrange(4),
                request_id=self._next(),
                initial_position=random.randrange(2),
                durable=random.random() < 0.8,
            )
            return framed(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribed))
        producer_id = random.randrange(4)
        send = CommandSend(producer_id=producer_id, sequence_id=self._next())
        return framed(BaseCommand(type=BaseCommand.SEND, send=send), self._entry(producer_id))

    def _command(self) -> bytes:
        [(kind, part, _)] = self._random.choices(_COMMANDS, _WEIGHTS)
        command = BaseCommand(type=kind)
        message = getattr(command, part)
        message.SetInParent()
        self._fill(message, whole=self._random.random() < 0.999)
        payload = b""
        if kind == BaseCommand.SEND:
            producer_id = command.send.producer_id % 4
            payload = self._entry(producer_id) if self._random.random() < 0.7 else self._bad_entry(producer_id)
        return framed(command, payload)

    def _any_command(self) -> bytes:
        """Of any type, with any part: those that a broker sends, too."""
        command = BaseCommand(type=self._random.randrange(-1, 80))  # type: ignore[arg-type]
        field: Any = self._random.choice(BaseCommand.DESCRIPTOR.fields[1:])
        part = getattr(command, field.name)
        part.SetInParent()
        self._fill(part, whole=True)
        return framed(command)

    def _next(self) -> int:
        self._request_id += 1
        return self._request_id

    def _fill(self, message: Message, *, whole: bool) -> None:
        fields: list[Any] = list(message.DESCRIPTOR.fields)  # of which the stubs know two kinds
        for field in fields:
            needed = field.is_required and whole
            if not needed and self._random.random() < (0.99 if field.name.startswith("txn") else 0.6):
                continue
            if field.is_repeated:
                self._fill_repeated(message, field)
            elif field.message_type is not None:
                part = getattr(message, field.name)
                part.SetInParent()
                self._fill(part, whole=whole)
            else:
                setattr(message, field.name, self._value(field))
        self._set_likely_position(message)

    def _fill_repeated(self, message: Message, field: FieldDescriptor) -> None:
        repeated = getattr(message, field.name)
        count = self._random.choice((1, 1, 1, 2, 3, 5)) if self._random.random() < 0.995 else 3_000
        for _ in range(count):
            if field.message_type is not None:
                self._fill(repeated.add(), whole=True)
            else:
                repeated.append(self._value(field))

    def _set_likely_position(self, message: Message) -> None:
        if message.DESCRIPTOR.name == "MessageIdData" and self._random.random() < 0.7:
            ledger_id, entry_id = self._random.choice(self._entries)
            message.ledgerId = ledger_id  # type: ignore[attr-defined]
            message.entryId = max(0, entry_id + self._random.choice((0, 0, 0, 0, 1, -1, 5)))  # type: ignore[attr-defined]

    def _value(self, field: FieldDescriptor) -> Any:
        random = self._random
        if field.name in _IDS and random.random() < 0.95:
            return random.randrange(4)
        if field.name == "request_id":
            return self._next() if random.random() < 0.9 else random.choice(_NUMBERS)
        if field.name == "message_permits" and random.random() < 0.7:
            return random.randrange(1, 50)
        if field.name in ("sub_type", "producer_access_mode") and random.random() < 0.9:
            return random.randrange(3) if field.name == "sub_type" else 0
        return self._of_type(field)()

    def _of_type(self, field: FieldDescriptor) -> Callable[[], Any]:
        random = self._random
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return lambda: random.randbytes(random.choice((0, 1, 8, 300)))
            case FieldDescriptor.CPPTYPE_STRING:
                return lambda: random.choice(self._texts(field.name))
            case FieldDescriptor.CPPTYPE_BOOL:
                return lambda: random.random() < 0.5
            case FieldDescriptor.CPPTYPE_UINT64:
                return lambda: random.choice(_NUMBERS)
            case FieldDescriptor.CPPTYPE_UINT32:
                return lambda: random.choice([one for one in _NUMBERS if one < 2**32])
            case FieldDescriptor.CPPTYPE_INT64:
                return lambda: random.choice(_SIGNED)
            case FieldDescriptor.CPPTYPE_DOUBLE:
                return random.random
            case _:
                return lambda: random.choice(_INT32)

    def _texts(self, name: str) -> Sequence[str]:
        if name == "topic":
            return TOPICS if self._random.random() < 0.85 else _BAD_TOPICS
        if name in ("namespace", "topics_pattern"):
            return _PATTERNS
        if name == "subscription" and self._random.random() < 0.85:
            return ("s", "s2")
        if name == "producer_name" and self._random.random() < 0.5:
            return self._names
        return _NAMES

    # Entries.

    def _metadata(self, producer_id: int) -> MessageMetadata:
        return MessageMetadata(
            producer_name=self._names[producer_id], sequence_id=self._random.randrange(1000), publish_time=1
        )

    def _entry(self, producer_id: int) -> bytes:
        metadata, messages = self._metadata(producer_id), self._random.choice((0, 0, 1, 3, 70))
        if messages:
            metadata.num_messages_in_batch = messages
        return encode_entry(metadata, b"\0\0\0\2\x18\0" * messages)

    def _bad_entry(self, producer_id: int) -> bytes:
        random, metadata = self._random, self._metadata(producer_id)
        match random.randrange(5):
            case 0:
                self._fill(metadata, whole=True)
            case 1:
                metadata.num_messages_in_batch = random.choice(_INT32)
                metadata.compression = random.choice(_INT32)  # type: ignore[assignment]
                metadata.uncompressed_size = random.choice((0, 1, 2**31, 2**32 - 1))
            case 2:
                return self._changed(encode_entry(metadata, b"payload"))
            case 3:
                return random.randbytes(random.choice((0, 1, 9, 10, 11, 200)))
        try:
            return encode_entry(metadata, b"payload")
        except WireError:  # too large for an honest encoder
            return b"\x0e\x01"

    # Bytes.

    def _changed(self, data: bytes) -> bytes:
        random, changed = self._random, bytearray(data)
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(changed)) if changed else 0
            match random.randrange(4):
                case 0 if changed:
                    changed[at] ^= 1 << random.randrange(8)
                case 1 if changed:
                    changed[at] = random.choice((0, 255, 127, 128))
                case 2:
                    del changed[at : at + random.randrange(1, 9)]
                case _:
                    changed[at:at] = random.randbytes(random.randrange(1, 9))
        return bytes(changed)

    def _odd_sizes(self) -> bytes:
        sizes = (0, 1, 3, 4, 5, 8, 100, 2**20, 2**20 + 4, 2**22, 2**31, 2**32 - 1)
        total, command = self._random.choice(sizes), self._random.choice(sizes)
        return total.to_bytes(4, "big") + command.to_bytes(4, "big") + self._random.randbytes(20)
