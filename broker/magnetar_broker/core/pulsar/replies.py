"""What goes out to a client of the public protocol, as frames.

The two that come per entry, receipts and messages, are put together from bytes that are made once for each producer and
consumer: a protobuf object for each would take three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.core.position import Position
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandAckResponse, CommandError, CommandSuccess, ServerError

__all__ = [
    "OWN_ERROR",
    "MessageHeads",
    "ReceiptFrames",
    "error_frame",
    "frame",
    "no_consumer_frame",
    "success_frame",
    "told_text",
    "topic_update_frame",
]

_SMALL: Final = [bytes((number,)) for number in range(128)]
_UINT64: Final = 2**64 - 1
_SEND_RECEIPT: Final = b"\x08\x07\x3a"  # type = SEND_RECEIPT, send_receipt: size follows
_MESSAGE: Final = b"\x08\x09\x4a"  # type = MESSAGE, message: size follows
_TOPIC_UPDATE: Final = b"\x08\x42\x92\x04"  # type = WATCH_TOPIC_UPDATE, watch_topic_update: size follows
# What a client is told where the broker has met a bug.
OWN_ERROR: Final = "the broker met an error of its own, of which its log tells"
# Part of it may be what a client sent.
_MAX_TEXT: Final = 1_000


def frame(command: BaseCommand) -> bytes:
    """Of a command without a payload."""
    data = command.SerializeToString()
    return (len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


def told_text(what: object) -> str:
    """What went wrong, as long as a client may be told."""
    text = str(what)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"


def error_frame(request_id: int, error: ServerError, text: str) -> bytes:
    told = CommandError(request_id=request_id, error=error, message=told_text(text))
    return frame(BaseCommand(type=BaseCommand.ERROR, error=told))


def success_frame(request_id: int) -> bytes:
    return frame(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id)))


def no_consumer_frame(consumer_id: int, request_id: int, text: str) -> bytes:
    """Of an acknowledgement whose consumer is not there (any more)."""
    error = ServerError.CONSUMER_NOT_FOUND
    told = CommandAckResponse(consumer_id=consumer_id, request_id=request_id, error=error, message=text)
    return frame(BaseCommand(type=BaseCommand.ACK_RESPONSE, ack_response=told))


def topic_update_frame(watcher_id: int, update: bytes) -> bytes:
    """A WATCH_TOPIC_UPDATE for one watcher; `update` is all but the watcher's number, and the same for many."""
    inner = b"\x08" + _varint(watcher_id) + update
    command = _TOPIC_UPDATE + _varint(len(inner)) + inner
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def _varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    if value < 16_384:  # most entries of a ledger, and numbers of messages, are below one of these
        return bytes((value & 127 | 128, value >> 7))
    if value < 2_097_152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# By the size of what follows.
_RECEIPT_HEADS: Final = [
    (size + 8).to_bytes(4, "big") + (size + 4).to_bytes(4, "big") + _SEND_RECEIPT + _SMALL[size] for size in range(128)
]


class ReceiptFrames:
    """Of one producer."""

    __slots__ = ("_ledger", "_ledger_id", "_partition", "_producer")

    def __init__(self, producer_id: int, partition: int) -> None:
        self._producer = b"\x08" + _varint(producer_id) + b"\x10"
        self._partition = b"" if partition < 0 else b"\x18" + _varint(partition)
        # Of the last receipt: entries of one ledger follow each other.
        self._ledger_id = -1
        self._ledger = b""

    def receipt(self, sequence_id: int, highest_sequence_id: int, position: Position) -> bytes:
        ledger_id, entry_id = position
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._ledger = b"\x08" + _varint(ledger_id & _UINT64) + b"\x10"
        message_id = self._ledger + _varint(entry_id & _UINT64) + self._partition
        inner = self._producer + _varint(sequence_id) + b"\x1a" + _SMALL[len(message_id)] + message_id
        if highest_sequence_id:
            inner += b"\x20" + _varint(highest_sequence_id)
        return _RECEIPT_HEADS[len(inner)] + inner  # far below 128: six varints


class MessageHeads:
    """What stands in front of the entries that one consumer gets: sizes and commands."""

    __slots__ = ("_consumer", "_ledger", "_ledger_id", "_partition")

    def __init__(self, consumer_id: int, partition: int) -> None:
        self._consumer = b"\x08" + _varint(consumer_id) + b"\x12"
        self._partition = b"" if partition < 0 else b"\x18" + _varint(partition)
        self._ledger_id = -1
        self._ledger = b""

    @staticmethod
    def tail(redelivery_count: int, unacknowledged: Sequence[int], consumer_epoch: int | None) -> bytes:
        """What is said of all entries of a run, besides where each is."""
        tail = b"" if not redelivery_count else b"\x18" + _varint(redelivery_count)
        for word in unacknowledged:
            tail += b"\x20" + _varint(word & _UINT64)
        return tail if consumer_epoch is None else tail + b"\x28" + _varint(consumer_epoch)

    def head(self, position: Position, tail: bytes, entry_bytes: int) -> bytes:
        ledger_id, entry_id = position
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._ledger = b"\x08" + _varint(ledger_id) + b"\x10"
        message_id = self._ledger + _varint(entry_id) + self._partition
        inner = self._consumer + _SMALL[len(message_id)] + message_id + tail
        command = _MESSAGE + _varint(len(inner)) + inner
        return (len(command) + 4 + entry_bytes).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
