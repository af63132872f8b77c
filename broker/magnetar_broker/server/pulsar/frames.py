"""Parse the bytes of a connection into frames.

    total size (4) · command size (4) · command · payload        all integers big-endian

The connection passes bytes as they are received (`feed`), takes frames while there are complete ones (`next_frame`),
and calls `copy_rest` before the memory of the received bytes is reused. The two parts of a frame are copied out of that
memory. The beginning of a frame that is larger than the bytes received is buffered until the rest of it arrives. The
sizes in a frame's header are checked against the limits before anything is buffered, so a connection buffers at most
one frame of the largest size and one read. An idle connection buffers nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from magnetar_wire.limits import MAX_METADATA_BYTES
from magnetar_wire.schemas import MAX_DEFINITION_BYTES

__all__ = ["MAX_COMMAND_BYTES", "FrameReader", "ProtocolViolation"]

_SIZES: Final = 8
_read_sizes: Final = Struct(">II").unpack_from
_EMPTY: Final = memoryview(b"")
# Maximum size of a command. The longest commands of client libraries have a schema, or list some thousand message ids.
MAX_COMMAND_BYTES: Final = MAX_DEFINITION_BYTES + 1_048_576
# Added to the maximum size of a payload and its metadata: for the header of the entry and the command.
_AROUND_PAYLOAD_BYTES: Final = 4_096
_HTTP: Final = "HTTP: connect to the HTTP port, with http://"
# The first bytes of other protocols.
_OTHER_PROTOCOLS: Final = {
    b"PRI ": "gRPC, the protocol of Magnetar's own clients: connect them to the gRPC port, with magnetar://",
    b"GET ": _HTTP,
    b"POST": _HTTP,
    b"PUT ": _HTTP,
    b"HEAD": _HTTP,
}
_TLS: Final = b"\x16\x03"
# Smaller reads are joined at once: an object for each byte of a frame would take fifty times its size.
_SMALL_READ_BYTES: Final = 4_096


class ProtocolViolation(Exception):
    """The client has broken the protocol. The rest of the stream has no known meaning: the connection is closed."""


class FrameReader:
    __slots__ = ("_at", "_completed", "_max_frame_bytes", "_missing", "_pieces", "incomplete_bytes", "unparsed")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_frame_bytes = max_message_bytes + MAX_METADATA_BYTES + _AROUND_PAYLOAD_BYTES
        # Received bytes, of which those before `_at` are parsed. Empty when all are, or belong to an incomplete frame.
        self.unparsed = _EMPTY
        self._at = 0
        # The beginning of an incomplete frame, and how many of its bytes are missing.
        self._pieces: list[bytes | bytearray] = []
        self._missing = 0
        # Bytes of it that were received.
        self.incomplete_bytes = 0
        # That frame once it is complete. It comes before `unparsed`.
        self._completed: tuple[bytes, bytes] | None = None

    def feed(self, piece: bytes | memoryview) -> None:
        """Add received bytes. Their memory must not change before `copy_rest` is called."""
        if self._pieces:
            missing = self._missing
            if len(piece) < missing:
                self._add(piece)
            else:
                piece = memoryview(piece)
                self._complete(piece[:missing])
                self.unparsed, self._at = piece[missing:], 0
        elif not self.unparsed:
            self.unparsed, self._at = memoryview(piece), 0
        else:
            self.unparsed, self._at = memoryview(b"".join((self.unparsed[self._at :], piece))), 0

    def copy_rest(self) -> None:
        """Copy the unparsed bytes, because their memory is about to be reused."""
        if self.unparsed:
            self.unparsed, self._at = memoryview(self.unparsed[self._at :].tobytes()), 0

    def _add(self, piece: bytes | memoryview) -> None:
        self._missing -= len(piece)
        self.incomplete_bytes += len(piece)
        if len(piece) >= _SMALL_READ_BYTES:
            self._pieces.append(bytes(piece))
        elif isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def _complete(self, end: memoryview) -> None:
        pieces, self._pieces, self.incomplete_bytes = self._pieces, [], 0
        first = memoryview(pieces[0])
        behind = _SIZES + _read_sizes(first)[1]
        if behind <= len(first):
            payload = b"".join((first[behind:], *pieces[1:], end))
            self._completed = first[_SIZES:behind].tobytes(), payload
        else:
            data = b"".join((*pieces, end))
            self._completed = data[_SIZES:behind], data[behind:]

    def next_frame(self) -> tuple[bytes, bytes] | None:
        """Return the command and the payload of the next frame, or None if it is incomplete.

        Raises `ProtocolViolation` if its sizes are invalid.
        """
        if self._completed is not None:
            completed, self._completed = self._completed, None
            return completed
        data, at = self.unparsed, self._at
        size = len(data)
        if size - at < _SIZES:
            if at:  # copied, because a view would keep the parsed bytes in memory
                self.unparsed, self._at = memoryview(data[at:].tobytes()), 0
            return None
        total, command = _read_sizes(data, at)
        if total > self._max_frame_bytes or command + 4 > total or command > MAX_COMMAND_BYTES:
            raise ProtocolViolation(
                _name_other_protocol(data[at : at + 4].tobytes()) or self._describe_bad_sizes(total, command)
            )
        end = at + 4 + total
        if end > size:
            self._pieces, self.incomplete_bytes = [data[at:].tobytes()], size - at
            self._missing = end - size
            self.unparsed, self._at = _EMPTY, 0
            return None
        if end == size:
            self.unparsed, self._at = _EMPTY, 0
        else:
            self._at = end
        behind = at + _SIZES + command
        return data[at + _SIZES : behind].tobytes(), data[behind:end].tobytes()

    def _describe_bad_sizes(self, total: int, command: int) -> str:
        if total > self._max_frame_bytes:
            return (
                f"a frame has {total} bytes, and the maximum is {self._max_frame_bytes}: max_message_size and its "
                "metadata"
            )
        if command > MAX_COMMAND_BYTES:
            return f"a command has {command} bytes, and the maximum is {MAX_COMMAND_BYTES}"
        return f"a frame of {total} bytes can't contain a command of {command} bytes"


def _name_other_protocol(begins: bytes) -> str:
    """Return which other protocol the client uses; empty: unknown. Call this for invalid frames only."""
    if begins.startswith(_TLS):
        return "the client uses TLS, which this listener does not support: connect with pulsar://"
    return f"the client uses {_OTHER_PROTOCOLS[begins]}" if begins in _OTHER_PROTOCOLS else ""
