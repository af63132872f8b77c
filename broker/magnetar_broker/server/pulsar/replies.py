"""Encoding of the frames that are sent to clients.

The two kinds that are sent per entry, SEND_RECEIPT and MESSAGE, are assembled from bytes that are prepared once for
each producer and consumer. A protobuf object for each would take three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.position import Position
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandAckResponse, CommandError, CommandSuccess, ServerError

__all__ = [
    "NO_REQUEST",
    "MessageHeads",
    "ReceiptFrames",
    "error_frame",
    "frame",
    "no_consumer_frame",
    "shorten",
    "success_frame",
    "topic_update_frame",
]

_SMALL: Final = [bytes((number,)) for number in range(128)]
_CONTINUED: Final = [bytes((number | 128,)) for number in range(128)]
_UINT64: Final = 2**64 - 1
_MINUS_ONE: Final = b"\xff" * 9 + b"\x01"  # as a uint64
_SEND_RECEIPT: Final = b"\x08\x07\x3a"  # type = SEND_RECEIPT, send_receipt: size follows
_MESSAGE: Final = b"\x08\x09\x4a"  # type = MESSAGE, message: size follows
_TOPIC_UPDATE: Final = b"\x08\x42\x92\x04"  # type = WATCH_TOPIC_UPDATE, watch_topic_update: size follows
# The request id of frames that answer no request.
NO_REQUEST: Final = 2**64 - 1
# Maximum length of an error text, since parts of it may come from a client.
_MAX_TEXT: Final = 1_000


def frame(command: BaseCommand) -> bytes:
    """Encode a command without a payload."""
    data = command.SerializeToString()
    return (len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


def shorten(error: object) -> str:
    """Return the text of an error, cut to the maximum length."""
    text = str(error)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"


def error_frame(request_id: int, error: ServerError, text: str) -> bytes:
    command = CommandError(request_id=request_id, error=error, message=shorten(text))
    return frame(BaseCommand(type=BaseCommand.ERROR, error=command))


def success_frame(request_id: int) -> bytes:
    return frame(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id)))


def no_consumer_frame(consumer_id: int, request_id: int, text: str) -> bytes:
    """Encode the answer to an acknowledgement whose consumer is not open."""
    error = ServerError.CONSUMER_NOT_FOUND
    response = CommandAckResponse(consumer_id=consumer_id, request_id=request_id, error=error, message=text)
    return frame(BaseCommand(type=BaseCommand.ACK_RESPONSE, ack_response=response))


def topic_update_frame(watcher_id: int, update: bytes) -> bytes:
    """Encode WATCH_TOPIC_UPDATE for one watcher. `update`: all fields but the watcher's id, shared by many watchers."""
    inner = b"\x08" + _varint(watcher_id) + update
    command = _TOPIC_UPDATE + _varint(len(inner)) + inner
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def _varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    if value < 16_384:  # most entry ids and sequence ids are below this limit or the next
        return bytes((value & 127 | 128, value >> 7))
    if value < 2_097_152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Block:
    """The encoding of 128 consecutive message ids of a ledger, which differ in the lowest seven bits of the entry id.

    All but one byte of it is the same for them, which halves the time per entry.
    """

    __slots__ = ("after", "before", "block", "ledger_id", "lowest")

    def __init__(self) -> None:
        self.ledger_id = self.block = -2  # no entry's; -1 means that there is none
        # The parts of a message id before and after its lowest byte, and all values of that byte.
        self.before = self.after = b""
        self.lowest = _SMALL

    def begin(self, ledger_id: int, block: int, partition: bytes) -> None:
        self.ledger_id, self.block = ledger_id, block
        self.lowest, rest = _lowest_and_rest(block)
        self.after = rest + partition
        ledger = b"\x08" + _varint(ledger_id & _UINT64) + b"\x10"
        self.before = _SMALL[len(ledger) + 1 + len(self.after)] + ledger


def _lowest_and_rest(block: int) -> tuple[list[bytes], bytes]:
    """Return the encodings of the lowest seven bits, and of the rest, of a number whose other bits are `block`."""
    return (_CONTINUED, _varint(block & _UINT64 >> 7)) if block else (_SMALL, b"")


# By the size of the rest, which is far below 128 bytes: six varints.
_RECEIPT_HEADS: Final = [
    (size + 8).to_bytes(4, "big") + (size + 4).to_bytes(4, "big") + _SEND_RECEIPT + _SMALL[size] for size in range(128)
]


class ReceiptFrames:
    """Encodes the SEND_RECEIPTs of one producer."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_entries",
        "_partition",
        "_producer",
        "_sequence_block",
        "_sequences",
    )

    def __init__(self, producer_id: int, partition: int) -> None:
        self._producer = b"\x08" + _varint(producer_id) + b"\x10"
        self._partition = b"" if partition < 0 else b"\x18" + _varint(partition)
        # From the last SEND_RECEIPT. The next one usually differs in the lowest bits of two numbers only.
        self._entries = _Block()
        self._sequence_block = -1
        self._sequences = _SMALL
        self._before = self._between = self._after = b""

    def receipt(self, sequence_id: int, highest_sequence_id: int, position: Position) -> bytes:
        ledger_id, entry_id = position
        if ledger_id < 0:
            return self._encode_duplicate(sequence_id, highest_sequence_id)
        entries = self._entries
        if entry_id >> 7 != entries.block or sequence_id >> 7 != self._sequence_block or ledger_id != entries.ledger_id:
            self._begin(sequence_id, ledger_id, entry_id)
        sequence, entry = self._sequences[sequence_id & 127], entries.lowest[entry_id & 127]
        if not highest_sequence_id:
            return self._before + sequence + self._between + entry + self._after
        inner = self._producer + sequence + self._between + entry + self._after + b"\x20" + _varint(highest_sequence_id)
        return _RECEIPT_HEADS[len(inner)] + inner

    def _encode_duplicate(self, sequence_id: int, highest_sequence_id: int) -> bytes:
        """Encode the SEND_RECEIPT of an entry that was a duplicate. Its message id is (-1,-1)."""
        message_id = b"\x08" + _MINUS_ONE + b"\x10" + _MINUS_ONE + self._partition
        inner = self._producer + _varint(sequence_id) + b"\x1a" + _varint(len(message_id)) + message_id
        if highest_sequence_id:
            inner += b"\x20" + _varint(highest_sequence_id)
        return _RECEIPT_HEADS[len(inner)] + inner

    def _begin(self, sequence_id: int, ledger_id: int, entry_id: int) -> None:
        entries = self._entries
        entries.begin(ledger_id, entry_id >> 7, self._partition)
        self._sequence_block = sequence_id >> 7
        self._sequences, rest = _lowest_and_rest(self._sequence_block)
        self._between = rest + b"\x1a" + entries.before
        self._after = entries.after
        inner_bytes = len(self._producer) + 1 + len(self._between) + 1 + len(self._after)
        self._before = _RECEIPT_HEADS[inner_bytes] + self._producer


class MessageHeads:
    """Encodes what precedes the entries of one consumer: sizes and MESSAGE commands."""

    __slots__ = ("_after", "_before", "_bytes", "_consumer", "_entries", "_partition", "_tail")

    def __init__(self, consumer_id: int, partition: int) -> None:
        self._consumer = b"\x08" + _varint(consumer_id) + b"\x12"
        self._partition = b"" if partition < 0 else b"\x18" + _varint(partition)
        # From the last entry. The next one usually differs in the lowest bits of one number only.
        self._entries = _Block()
        self._tail = b""
        self._before = self._after = b""
        self._bytes = 0

    @staticmethod
    def tail(redelivery_count: int, unacknowledged: Sequence[int], consumer_epoch: int | None) -> bytes:
        """Encode the fields that are the same for all entries of a run."""
        tail = b"" if not redelivery_count else b"\x18" + _varint(redelivery_count)
        for word in unacknowledged:
            tail += b"\x20" + _varint(word & _UINT64)
        return tail if consumer_epoch is None else tail + b"\x28" + _varint(consumer_epoch)

    def head(self, position: Position, tail: bytes, entry_bytes: int) -> bytes:
        ledger_id, entry_id = position
        entries = self._entries
        if entry_id >> 7 != entries.block or ledger_id != entries.ledger_id or tail != self._tail:
            self._begin(ledger_id, entry_id, tail)
        size = (self._bytes + entry_bytes).to_bytes(4, "big")
        return size + self._before + entries.lowest[entry_id & 127] + self._after

    def _begin(self, ledger_id: int, entry_id: int, tail: bytes) -> None:
        entries = self._entries
        entries.begin(ledger_id, entry_id >> 7, self._partition)
        self._tail, self._after = tail, entries.after + tail
        inner = self._consumer + entries.before
        command = _MESSAGE + _varint(len(inner) + 1 + len(self._after)) + inner
        command_bytes = len(command) + 1 + len(self._after)
        self._before = command_bytes.to_bytes(4, "big") + command
        # Size of the frame without the entry and the field of its total size.
        self._bytes = 4 + command_bytes
