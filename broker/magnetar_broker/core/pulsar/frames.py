"""What a connection carries, taken apart into frames, however it was cut into pieces on its way.

    total size (4) · command size (4) · command · payload        all integers big-endian

Whoever reads hands over pieces as they come (`feed`) and takes frames as long as there are whole ones (`next`). Nothing
is copied but a frame's two parts, once: a piece that holds whole frames is cut where it lies, and pieces of a large
frame are put together when the last one has come. What a frame says of its size is held against the limits before
anything of it is kept, so a connection never has more than one frame of the largest size and one piece. What was taken
is let go of: a connection that is idle keeps nothing.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.limits import MAX_METADATA_BYTES

__all__ = ["MAX_COMMAND_BYTES", "BadFrame", "FrameReader"]

_SIZES: Final = 8
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
    __slots__ = ("_at", "_data", "_max_frame_bytes", "_missing", "_pieces", "unfinished_bytes")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_frame_bytes = max_message_bytes + MAX_METADATA_BYTES + _AROUND_PAYLOAD_BYTES
        # What came, and how far of that is taken.
        self._data = b""
        self._at = 0
        # The beginning of a frame that is larger than what has come of it, and how much of it has not.
        self._pieces: list[bytes | bytearray] = []
        self._missing = 0
        # What there is of it.
        self.unfinished_bytes = 0

    @property
    def kept_bytes(self) -> int:
        return len(self._data) + self.unfinished_bytes

    def feed(self, piece: bytes) -> None:
        if self._pieces:
            self._add(piece)
            if self._missing <= 0:
                self._data, self._at = b"".join(self._pieces), 0
                self._pieces, self.unfinished_bytes = [], 0
        elif not self._data:
            self._data = piece
        else:
            self._data, self._at = self._data[self._at :] + piece, 0

    def _add(self, piece: bytes) -> None:
        self._missing -= len(piece)
        self.unfinished_bytes += len(piece)
        if len(piece) >= _SMALL_PIECE_BYTES:
            self._pieces.append(piece)
        elif isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def next(self) -> tuple[bytes, bytes] | None:
        """The next frame's command and payload; None: it has not come yet. Raises `BadFrame`."""
        data, at = self._data, self._at
        have = len(data) - at
        if have < _SIZES:
            if at:
                self._data, self._at = data[at:], 0
            return None
        total = int.from_bytes(data[at : at + 4], "big")
        command = int.from_bytes(data[at + 4 : at + 8], "big")
        if total > self._max_frame_bytes or command + 4 > total or command > MAX_COMMAND_BYTES:
            raise BadFrame(_other_protocol(data[at : at + 4]) or self._what_is_wrong(total, command))
        end = at + 4 + total
        if end > len(data):
            self._pieces, self.unfinished_bytes = [data[at:]], have
            self._missing = end - len(data)
            self._data, self._at = b"", 0
            return None
        self._at = end
        behind = at + _SIZES + command
        return data[at + _SIZES : behind], data[behind:end]

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
