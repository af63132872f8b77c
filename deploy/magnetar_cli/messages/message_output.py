"""Print messages: as lines for people, as JSON objects, in hex, or unchanged.

A message may contain any bytes. In lines for people, characters that a terminal would interpret are escaped, and each
message is one line. In JSON, a value or key that is UTF-8 is text; any other is base64 in a field of another name
(`value_base64`). `magnetar produce --json` reads the same lines.

A consumer with a schema has decoded the values of messages with a schema version: they are printed as JSON
(`json_values.py`). One that can't be decoded is printed as its payload, and
the reason goes to standard error.
"""

from __future__ import annotations

import array
import contextlib
import enum
import fcntl
import itertools
import json
import os
import select
import stat
import sys
import termios
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from magnetar.exceptions import DecodeError, SchemaUnavailable
from magnetar_cli.messages.json_values import value_to_json
from magnetar_cli.messages.positions import format_message_id, format_time, partition_of_topic
from magnetar_cli.output import escape_unprintable
from magnetar_cli.service import print_message
from magnetar_wire.schemas import InvalidSchema, decode_schema_version

if TYPE_CHECKING:
    from magnetar import Message
    from magnetar.admin import PeekedMessage
    from magnetar.schema import Schema

__all__ = [
    "DecodedValue",
    "DisplayedMessage",
    "Format",
    "MessageWriter",
    "choose_schema",
    "display_message",
    "display_peeked_message",
    "message_to_json",
]

_DIM: Final = "\x1b[2m"
_KEY: Final = "\x1b[36m"
_OFF: Final = "\x1b[0m"
# A reader that waits reads at once. The kernel does not report when a slower one has read.
_READ_WAITS_MS: Final = (*(0,) * 100, 1, 2, 5, 10)


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A value of a schema, as the types of the `json` module."""

    json: Any


@dataclass(frozen=True, slots=True)
class DisplayedMessage:
    """The parts of a received or peeked message that are printed."""

    topic: str
    message_id: str
    # None: the message has no value.
    value: bytes | None
    key: bytes | None
    properties: Mapping[str, str]
    producer_name: str
    publish_ms: int
    # 0: it has none.
    event_ms: int
    # None: unknown.
    index: int | None = None
    sequence_id: int | None = None
    redelivery_count: int = 0
    # None: the message has no schema version, or its consumer has no schema.
    decoded: DecodedValue | None = None
    schema_version: int | None = None
    # Why the value can't be decoded.
    decode_error: str = ""


def display_message(message: Message[Any]) -> DisplayedMessage:
    """Raises SchemaUnavailable if no broker returns the schema version of the message at present."""
    decoded, decode_error = _decode_value(message)
    return DisplayedMessage(
        topic=message.topic_name(),
        message_id=format_message_id(message.message_id(), partition_of_topic(message.topic_name())),
        value=None if message.has_null_value() else message.data(),
        key=message.key_bytes() if message.has_key() else None,
        properties=message.properties(),
        producer_name=message.producer_name(),
        publish_ms=message.publish_timestamp(),
        event_ms=message.event_timestamp(),
        index=message.index(),
        sequence_id=message.sequence_id(),
        redelivery_count=message.redelivery_count(),
        decoded=decoded,
        schema_version=_get_schema_version(message),
        decode_error=decode_error,
    )


def _decode_value(message: Message[Any]) -> tuple[DecodedValue | None, str]:
    """Return the value, if a schema has decoded it, and the reason why it can't be decoded. Raises SchemaUnavailable if
    a later call may succeed."""
    if message.schema_version() is None or message.has_null_value():
        return None, ""
    try:
        value = message.value()
        return (None if isinstance(value, bytes) else DecodedValue(value_to_json(value))), ""
    except SchemaUnavailable:
        raise
    except DecodeError as error:
        return None, str(error) or type(error).__name__
    except RecursionError:
        return None, "the value is too deep"


def _get_schema_version(message: Message[Any]) -> int | None:
    try:
        return decode_schema_version(message.schema_version() or b"")
    except InvalidSchema:  # there is none, or it is another server's
        return None


def display_peeked_message(topic: str, message: PeekedMessage) -> DisplayedMessage:
    return DisplayedMessage(
        topic=topic,
        message_id=format_message_id(message.message_id, partition_of_topic(topic)),
        value=message.payload,
        key=message.key.encode() if isinstance(message.key, str) else message.key,
        properties=message.properties,
        producer_name=message.producer_name,
        publish_ms=message.publish_time_ms,
        event_ms=message.event_time_ms,
    )


def choose_schema(output_format: Format, *, decode: bool) -> Schema[Any] | None:
    """Return the schema of the consumer whose messages are printed. None: their payloads are printed."""
    if not decode or output_format in (Format.RAW, Format.HEX):
        return None
    from magnetar.schema import AutoConsumeSchema

    return AutoConsumeSchema()


class MessageWriter:
    """Writes messages to standard output.

    A pipe holds 64 KiB that nobody has read, which are lost when its reader ends: `head -n 2` does so after two lines.
    So `write_each` gives a pipe one message at a time, and waits until it has been read. Elsewhere a message counts as
    shown when it is written.
    """

    def __init__(self, output_format: Format, *, with_topics: bool = False) -> None:
        if sys.stdout is None:  # the parent process has closed it
            raise BrokenPipeError
        # How many messages could not be decoded.
        self.undecodable = 0
        self._out = sys.stdout.buffer
        self._pipe = _Pipe.of(self._out)
        coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        format_value = _format_hex if output_format is Format.HEX else _format_text

        def text_line(message: DisplayedMessage) -> bytes:
            return (
                _format_line(message, format_value, with_topics, coloured).encode("utf-8", "backslashreplace") + b"\n"
            )

        self._encode: Callable[[DisplayedMessage], bytes] = {
            Format.JSON: _encode_json,
            Format.RAW: lambda one: (one.value or b"") + b"\n",
        }.get(output_format, text_line)

    def write(self, messages: Iterable[DisplayedMessage]) -> None:
        """Write and flush messages. Raise BrokenPipeError if the reader has closed the pipe."""
        lines = []
        for message in messages:
            lines.append(self._encode(message))
            if message.decode_error:
                self.undecodable += 1
                print_message(f"message {message.message_id} can't be decoded: {message.decode_error}")
        self._out.write(b"".join(lines))
        self._out.flush()

    def write_each(self, messages: Sequence[Message[Any]]) -> Iterator[Sequence[Message[Any]]]:
        """Write messages, and yield those that were shown, in order, as soon as they were.

        Raise BrokenPipeError if the reader has closed the pipe: messages that were not yielded were not shown.
        """
        size = len(messages) if self._pipe is None else 1
        for begin in range(0, len(messages), max(1, size)):
            part = messages[begin : begin + size]
            self.write(map(display_message, part))
            if self._pipe is not None:
                self._pipe.wait_read()
            yield part


class _Pipe:
    """The writing end of a pipe."""

    @classmethod
    def of(cls, out: BinaryIO) -> _Pipe | None:
        """Return None if it is not a pipe."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if stat.S_ISFIFO(os.fstat(out.fileno()).st_mode):
                return cls(out.fileno())
        return None

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Without requested events, it reports POLLERR only: the pipe has no reader any more.
        self._closed = select.poll()
        self._closed.register(descriptor, 0)

    def wait_read(self) -> None:
        """Wait until the reader has read all bytes. Raise BrokenPipeError if it closes the pipe before."""
        for wait_ms in itertools.chain(_READ_WAITS_MS, itertools.repeat(_READ_WAITS_MS[-1])):
            closed = self._closed.poll(wait_ms)
            if not self._count_unread():
                return
            if closed:
                raise BrokenPipeError
            os.sched_yield()

    def _count_unread(self) -> int:
        unread = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, unread)
        return unread[0]


def message_to_json(message: DisplayedMessage) -> dict[str, Any]:
    """Return the message as an object for JSON."""
    fields: dict[str, Any] = {"topic": message.topic, "message_id": message.message_id}
    fields.update(_json_bytes("value", message.value) if message.decoded is None else {"value": message.decoded.json})
    if message.key is not None:
        fields.update(_json_bytes("key", message.key))
    if message.properties:
        fields["properties"] = dict(message.properties)
    fields["publish_time"] = format_time(message.publish_ms)
    if message.event_ms:
        fields["event_time"] = format_time(message.event_ms)
    fields["producer_name"] = message.producer_name
    if message.sequence_id is not None:
        fields["sequence_id"] = message.sequence_id
    if message.index is not None:
        fields["index"] = message.index
    if message.redelivery_count:
        fields["redelivery_count"] = message.redelivery_count
    if message.decoded is not None and message.schema_version is not None:
        fields["schema_version"] = message.schema_version
    if message.decode_error:
        fields["decode_error"] = message.decode_error
    return fields


def _encode_json(message: DisplayedMessage) -> bytes:
    return json.dumps(message_to_json(message), ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode("ascii")}


def _format_line(
    message: DisplayedMessage, format_value: Callable[[bytes], str], with_topic: bool, coloured: bool
) -> str:
    about = [format_time(message.publish_ms), message.message_id]
    if with_topic:
        about.append(escape_unprintable(message.topic.rpartition("/")[2]))
    head = "  ".join(about)
    more = [f"key={_format_text(message.key)}"] if message.key is not None else []
    more += [f"{escape_unprintable(name)}={escape_unprintable(value)}" for name, value in message.properties.items()]
    attributes = "  ".join(more)
    if coloured:
        head = f"{_DIM}{head}{_OFF}"
        attributes = f"{_KEY}{attributes}{_OFF}" if attributes else ""
    value = _format_decoded(message.decoded) if message.decoded is not None else None
    if value is None:
        value = "(no value)" if message.value is None else format_value(message.value)
    return "  ".join(part for part in (head, attributes, value) if part)


def _format_decoded(decoded: DecodedValue) -> str:
    value = decoded.json
    return escape_unprintable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _format_text(value: bytes) -> str:
    return escape_unprintable(value.decode("utf-8", "backslashreplace"))


def _format_hex(value: bytes) -> str:
    return value.hex(" ")
