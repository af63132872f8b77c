"""What a connection carries, taken apart however it was cut; and what a reader may keep of it."""

from __future__ import annotations

import tracemalloc

import pytest

from magnetar_broker.server.pulsar.frames import MAX_COMMAND_BYTES, FrameReader, ProtocolViolation

MAX_MESSAGE = 100_000
FRAMES = [(b"c" * 3, b""), (b"", b""), (b"d", b"payload"), (b"c" * 1000, b"p" * 90_000), (b"last", b"x")]


def framed(command: bytes, payload: bytes = b"") -> bytes:
    total = 4 + len(command) + len(payload)
    return total.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + payload


WHOLE = b"".join(framed(*parts) for parts in FRAMES)


def taken(reader: FrameReader) -> list[tuple[bytes, bytes]]:
    parts = []
    while (one := reader.next_frame()) is not None:
        assert all(type(part) is bytes for part in one)
        parts.append(one)
    return parts


def test_frames_in_one_piece() -> None:
    reader = FrameReader(MAX_MESSAGE)
    reader.feed(WHOLE)
    assert taken(reader) == FRAMES


def test_frames_byte_by_byte() -> None:
    reader, found = FrameReader(MAX_MESSAGE), []
    for at in range(len(WHOLE)):
        reader.feed(WHOLE[at : at + 1])
        found += taken(reader)
    assert found == FRAMES
    assert len(reader.unparsed) + reader.incomplete_bytes == 0


def test_frames_cut_anywhere() -> None:
    ends = list(range(0, len(WHOLE), 997)) + list(range(60)) + list(range(len(WHOLE) - 60, len(WHOLE)))
    for cut in ends:
        reader = FrameReader(MAX_MESSAGE)
        reader.feed(WHOLE[:cut])
        found = taken(reader)
        reader.feed(WHOLE[cut:])
        assert found + taken(reader) == FRAMES


def test_frames_are_parsed_in_order_from_buffered_pieces() -> None:
    reader = FrameReader(MAX_MESSAGE)
    for at in range(0, len(WHOLE), 50_000):
        reader.feed(WHOLE[at : at + 50_000])  # nothing is taken in between
        if at == 0:
            assert reader.next_frame() == FRAMES[0]
    assert taken(reader) == FRAMES[1:]


@pytest.mark.parametrize("size", [1, 7, 50, 5_000, 60_000, 200_000])
@pytest.mark.parametrize("takes_at_once", [True, False])
def test_frames_are_parsed_from_a_reused_read_buffer(size: int, takes_at_once: bool) -> None:
    """The rest of a piece that was not parsed is retained in front of the next one."""
    reader, memory, found = FrameReader(MAX_MESSAGE), bytearray(size), []
    for at in range(0, len(WHOLE), size):
        piece = WHOLE[at : at + size]
        memory[: len(piece)] = piece
        reader.feed(memoryview(memory)[: len(piece)])
        if takes_at_once:
            found += taken(reader)
        elif (one := reader.next_frame()) is not None:
            found.append(one)
        reader.copy_rest()
        memory[:] = b"\xff" * size
    assert found + taken(reader) == FRAMES
    assert len(reader.unparsed) + reader.incomplete_bytes == 0


@pytest.mark.parametrize(
    ("total", "command", "error"),
    [
        (0, 0, "can't contain"),
        (3, 0, "can't contain"),
        (4, 1, "can't contain"),
        (100, 97, "can't contain"),
        (2**31, 4, "the maximum is"),
        (2**32 - 1, 2**32 - 1, "the maximum is"),
        (MAX_COMMAND_BYTES + 5, MAX_COMMAND_BYTES + 1, "the maximum is"),
    ],
)
def test_invalid_frame_sizes_are_refused_from_the_header_alone(total: int, command: int, error: str) -> None:
    reader = FrameReader(5_242_880)
    reader.feed(framed(b"good") + total.to_bytes(4, "big") + command.to_bytes(4, "big"))
    assert reader.next_frame() == (b"good", b"")
    with pytest.raises(ProtocolViolation, match=error):
        reader.next_frame()


@pytest.mark.parametrize(
    ("begins", "error"),
    [
        (b"GET / HTTP/1.1", "HTTP"),
        (b"PRI * HTTP/2.0", "gRPC"),
        (bytes((0x16, 3, 1, 2, 0, 1, 0, 1)), "TLS"),
        (b"\x7f\0\0\0\0\0\0\0", "the maximum is"),
    ],
)
def test_error_names_the_protocol_sent_to_the_wrong_port(begins: bytes, error: str) -> None:
    """WIRE-1"""
    reader = FrameReader(MAX_MESSAGE)
    reader.feed(begins)
    with pytest.raises(ProtocolViolation, match=error):
        reader.next_frame()


def test_the_largest_message_and_its_metadata_fit_and_no_more() -> None:
    reader = FrameReader(MAX_MESSAGE)
    largest = MAX_MESSAGE + 10_240 + 4_096
    reader.feed(framed(b"c", b"p" * (largest - 5)))
    assert reader.next_frame() is not None
    reader.feed((largest + 1).to_bytes(4, "big") + b"\0\0\0\1")
    with pytest.raises(ProtocolViolation, match=f"the maximum is {largest}"):
        reader.next_frame()


def test_idle_reader_holds_no_bytes_of_parsed_frames() -> None:
    reader = FrameReader(5_242_880)
    data = framed(b"c", b"p" * 5_000_000)
    for piece in (data[:2_000_000], data[2_000_000:] + b"\0\0"):
        reader.feed(piece)
        assert len(taken(reader)) == (piece[-1:] == b"\0")
    assert len(reader.unparsed) + reader.incomplete_bytes == 2


def test_frame_fed_byte_by_byte_uses_about_its_size() -> None:
    reader = FrameReader(5_242_880)
    size = 30_000
    data = framed(b"c", b"p" * size)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for at in range(len(data) - 1):
            reader.feed(bytes(bytearray(data[at : at + 1])))
            assert reader.next_frame() is None
        assert tracemalloc.get_traced_memory()[0] - before < 2 * size
    finally:
        tracemalloc.stop()
    assert (len(reader.unparsed), reader.incomplete_bytes) == (0, len(data) - 1)
    reader.feed(data[-1:])
    assert taken(reader) == [(b"c", b"p" * size)]


def test_incomplete_frame_holds_no_memory_of_earlier_frames() -> None:
    """Also if the memory is not reused: a retained frame has memory of its own."""
    reader = FrameReader(MAX_MESSAGE)
    reader.feed(framed(b"c", b"p" * 50_000) + b"\0\0")
    assert len(taken(reader)) == 1
    assert len(reader.unparsed.obj) == len(reader.unparsed) == 2  # type: ignore[arg-type]
    assert not reader.incomplete_bytes
