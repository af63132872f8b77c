"""How messages are shown: a line for people, a JSON object a line, in hex, or as they are.

A message says whatever its producer wanted, so nothing that a terminal would act upon is written to one: what is not
printable is escaped, and in lines for people one message is one line. JSON holds text where a value, or a key, is
UTF-8, and base64 under another name where it is not (`value_base64`), so that nothing is lost: `magnetar produce
--json` reads the same lines.
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

from magnetar_cli.messages.places import id_text, time_text

if TYPE_CHECKING:
    from magnetar import Message
    from magnetar.admin import PeekedMessage

__all__ = ["Format", "MessageWriter", "Shown", "as_shown", "json_of", "peeked_as_shown", "printable"]

_DIM: Final = "\x1b[2m"
_KEY: Final = "\x1b[36m"
_OFF: Final = "\x1b[0m"
# A reader that waits reads at once; the kernel does not report when a slower one does.
_READ_WAITS_MS: Final = (*(0,) * 100, 1, 2, 5, 10)


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class Shown:
    """What can be shown of a message, wherever it came from."""

    topic: str
    message_id: str
    # None: the message has no value.
    value: bytes | None
    key: bytes | None
    properties: Mapping[str, str]
    producer_name: str
    publish_ms: int
    # 0: none.
    event_ms: int
    # None: nobody said.
    index: int | None = None
    sequence_id: int | None = None
    redelivery_count: int = 0


def as_shown(message: Message) -> Shown:
    return Shown(
        topic=message.topic_name(),
        message_id=id_text(message.message_id()),
        value=None if message.has_null_value() else message.data(),
        key=message.key_bytes() if message.has_key() else None,
        properties=message.properties(),
        producer_name=message.producer_name(),
        publish_ms=message.publish_timestamp(),
        event_ms=message.event_timestamp(),
        index=message.index(),
        sequence_id=message.sequence_id(),
        redelivery_count=message.redelivery_count(),
    )


def peeked_as_shown(topic: str, message: PeekedMessage) -> Shown:
    return Shown(
        topic=topic,
        message_id=id_text(message.message_id),
        value=message.payload,
        key=message.key.encode() if isinstance(message.key, str) else message.key,
        properties=message.properties,
        producer_name=message.producer_name,
        publish_ms=message.publish_time_ms,
        event_ms=message.event_time_ms,
    )


class MessageWriter:
    """Writes messages to standard output.

    A pipe holds 64 KiB that nobody has read, which are lost when its reader ends: `head -n 2` does so after two lines.
    So `write_each` gives a pipe one message at a time, and waits until it has been read. Elsewhere a message counts as
    shown when it is written.
    """

    def __init__(self, how: Format, *, with_topics: bool = False) -> None:
        if sys.stdout is None:  # closed by whoever started this process
            raise BrokenPipeError
        self._out = sys.stdout.buffer
        self._pipe = _Pipe.of(self._out)
        coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        value_of = _hex_value if how is Format.HEX else _text_value

        def text_line(message: Shown) -> bytes:
            return _line(message, value_of, with_topics, coloured).encode("utf-8", "backslashreplace") + b"\n"

        self._bytes_of = {Format.JSON: _json_line, Format.RAW: lambda one: (one.value or b"") + b"\n"}.get(
            how, text_line
        )

    def write(self, messages: Iterable[Shown]) -> None:
        """Write and flush messages. Raises BrokenPipeError where nobody reads them."""
        self._out.write(b"".join(map(self._bytes_of, messages)))
        self._out.flush()

    def write_each(self, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
        """Write messages, and yield those that were shown, in order, as soon as they were.

        Raises BrokenPipeError where the reader has ended: messages that were not yielded were not shown.
        """
        size = len(messages) if self._pipe is None else 1
        for begin in range(0, len(messages), max(1, size)):
            part = messages[begin : begin + size]
            self.write(map(as_shown, part))
            if self._pipe is not None:
                self._pipe.wait_read()
            yield part


class _Pipe:
    """The writing end of a pipe."""

    @classmethod
    def of(cls, out: BinaryIO) -> _Pipe | None:
        """None: it is a file, a terminal, or no file of the system's at all."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if stat.S_ISFIFO(os.fstat(out.fileno()).st_mode):
                return cls(out.fileno())
        return None

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # With no events asked for it reports POLLERR alone: there is no reader any more.
        self._closed = select.poll()
        self._closed.register(descriptor, 0)

    def wait_read(self) -> None:
        """Wait until the reader has taken all bytes. Raises BrokenPipeError where it has ended before."""
        for wait_ms in itertools.chain(_READ_WAITS_MS, itertools.repeat(_READ_WAITS_MS[-1])):
            closed = self._closed.poll(wait_ms)
            if not self._unread():
                return
            if closed:
                raise BrokenPipeError
            os.sched_yield()

    def _unread(self) -> int:
        unread = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, unread)
        return unread[0]


def json_of(message: Shown) -> dict[str, Any]:
    told: dict[str, Any] = {"topic": message.topic, "message_id": message.message_id}
    told.update(_json_bytes("value", message.value))
    if message.key is not None:
        told.update(_json_bytes("key", message.key))
    if message.properties:
        told["properties"] = dict(message.properties)
    told["publish_time"] = time_text(message.publish_ms)
    if message.event_ms:
        told["event_time"] = time_text(message.event_ms)
    told["producer_name"] = message.producer_name
    if message.sequence_id is not None:
        told["sequence_id"] = message.sequence_id
    if message.index is not None:
        told["index"] = message.index
    if message.redelivery_count:
        told["redelivery_count"] = message.redelivery_count
    return told


def _json_line(message: Shown) -> bytes:
    return json.dumps(json_of(message), ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode("ascii")}


def _line(message: Shown, value_of: Callable[[bytes], str], with_topic: bool, coloured: bool) -> str:
    about = [time_text(message.publish_ms), message.message_id]
    if with_topic:
        about.append(printable(message.topic.rpartition("/")[2]))
    head = "  ".join(about)
    more = [f"key={_text_value(message.key)}"] if message.key is not None else []
    more += [f"{printable(name)}={printable(value)}" for name, value in message.properties.items()]
    attributes = "  ".join(more)
    if coloured:
        head = f"{_DIM}{head}{_OFF}"
        attributes = f"{_KEY}{attributes}{_OFF}" if attributes else ""
    value = "(no value)" if message.value is None else value_of(message.value)
    return "  ".join(part for part in (head, attributes, value) if part)


def printable(text: str) -> str:
    """One line, and nothing that a terminal acts upon."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _text_value(value: bytes) -> str:
    return printable(value.decode("utf-8", "backslashreplace"))


def _hex_value(value: bytes) -> str:
    return value.hex(" ")
