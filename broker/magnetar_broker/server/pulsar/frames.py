"""What a connection carries, taken apart into frames, however it was cut into pieces on its way.

    total size (4) · command size (4) · command · payload        all integers big-endian

Whoever reads hands over pieces as they come (`feed`), takes frames as long as there are whole ones (`next`), and says
when the memory of a piece is about to be used for another (`keep`). A frame's two parts are copied out of the piece in
which they lie. Of a frame that is larger than what has come of it, what has come is kept, and put together when the
last of it is there. What a frame says of its size is held against the limits before anything of it is kept, so a
connection never has more than one frame of the largest size and one piece. What was taken is let go of: a connection
that is idle keeps nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from magnetar_wire.limits import MAX_METADATA_BYTES

__all__ = ["MAX_COMMAND_BYTES", "BadFrame", "FrameReader"]

_SIZES: Final = 8
_read_sizes: Final = Struct(">II").unpack_from
_NOTHING: Final = memoryview(b"")
# A command without a payload. The longest that clients send name some thousand messages.
MAX_COMMAND_BYTES: Final = 1_048_576
# Besides the payload of an entry and its metadata: its header, and the command that it comes with.
_AROUND_PAYLOAD_BYTES: Final = 4_096
# How what is meant for other ports begins.
_OTHERS: Final = {
    b"PRI ": "gRPC, as Magnetar's own clients speak it: they have a port of their own",
    b"GET ": "HTTP, which has a port of its own",
    b"POST": "HTTP, which has a port of its own",
    b"PUT ": "HTTP, which has a port of its own",
    b"HEAD": "HTTP, which has a port of its own",
}
_TLS: Final = b"\x16\x03"
# Pieces below are put together as they come: an object for each byte of a frame would take fifty times its size.
_SMALL_PIECE_BYTES: Final = 4_096


class BadFrame(Exception):
    """The connection can't be read on: nobody knows where the next frame would begin."""


class FrameReader:
    __slots__ = ("_at", "_max_frame_bytes", "_missing", "_pieces", "_whole", "left", "unfinished_bytes")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_frame_bytes = max_message_bytes + MAX_METADATA_BYTES + _AROUND_PAYLOAD_BYTES
        # What came, and how far of that is taken; nothing once all is, or belongs to a frame that is unfinished.
        self.left = _NOTHING
        self._at = 0
        # The beginning of a frame that is larger than what has come of it, and how much of it has not.
        self._pieces: list[bytes | bytearray] = []
        self._missing = 0
        # What there is of it.
        self.unfinished_bytes = 0
        # That frame, once it has come: it stands before `left`.
        self._whole: tuple[bytes, bytes] | None = None

    def feed(self, piece: bytes | memoryview) -> None:
        """It may not change before `keep` is called."""
        if self._pieces:
            missing = self._missing
            if len(piece) < missing:
                self._add(piece)
            else:
                piece = memoryview(piece)
                self._complete(piece[:missing])
                self.left, self._at = piece[missing:], 0
        elif not self.left:
            self.left, self._at = memoryview(piece), 0
        else:
            self.left, self._at = memoryview(b"".join((self.left[self._at :], piece))), 0

    def keep(self) -> None:
        """What is left of the pieces is copied: theirs is the memory of others now."""
        if self.left:
            self.left, self._at = memoryview(self.left[self._at :].tobytes()), 0

    def _add(self, piece: bytes | memoryview) -> None:
        self._missing -= len(piece)
        self.unfinished_bytes += len(piece)
        if len(piece) >= _SMALL_PIECE_BYTES:
            self._pieces.append(bytes(piece))
        elif isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def _complete(self, end: memoryview) -> None:
        pieces, self._pieces, self.unfinished_bytes = self._pieces, [], 0
        first = memoryview(pieces[0])
        behind = _SIZES + _read_sizes(first)[1]
        if behind <= len(first):
            payload = b"".join((first[behind:], *pieces[1:], end))
            self._whole = first[_SIZES:behind].tobytes(), payload
        else:
            data = b"".join((*pieces, end))
            self._whole = data[_SIZES:behind], data[behind:]

    def next(self) -> tuple[bytes, bytes] | None:
        """The next frame's command and payload; None: it has not come yet. Raises `BadFrame`."""
        if self._whole is not None:
            whole, self._whole = self._whole, None
            return whole
        data, at = self.left, self._at
        size = len(data)
        if size - at < _SIZES:
            if at:  # copied: a view would keep all that was taken
                self.left, self._at = memoryview(data[at:].tobytes()), 0
            return None
        total, command = _read_sizes(data, at)
        if total > self._max_frame_bytes or command + 4 > total or command > MAX_COMMAND_BYTES:
            raise BadFrame(_other_protocol(data[at : at + 4].tobytes()) or self._what_is_wrong(total, command))
        end = at + 4 + total
        if end > size:
            self._pieces, self.unfinished_bytes = [data[at:].tobytes()], size - at
            self._missing = end - size
            self.left, self._at = _NOTHING, 0
            return None
        if end == size:
            self.left, self._at = _NOTHING, 0
        else:
            self._at = end
        behind = at + _SIZES + command
        return data[at + _SIZES : behind].tobytes(), data[behind:end].tobytes()

    def _what_is_wrong(self, total: int, command: int) -> str:
        if total > self._max_frame_bytes:
            return (
                f"a frame of {total} bytes is too large: one may have {self._max_frame_bytes}, for a message of the "
                "largest size and its metadata"
            )
        if command > MAX_COMMAND_BYTES:
            return f"a command of {command} bytes is too large: one may have {MAX_COMMAND_BYTES}"
        return f"a frame of {total} bytes can't have a command of {command}"


def _other_protocol(begins: bytes) -> str:
    """Empty: it is none that is known here. Of frames that can't be, so nothing else is taken for one."""
    if begins.startswith(_TLS):
        return "it speaks TLS, which there is not here: connect with pulsar://"
    return f"it speaks {_OTHERS[begins]}" if begins in _OTHERS else ""
