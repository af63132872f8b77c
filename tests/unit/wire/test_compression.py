"""Compression: round trips, and everything that can be wrong with compressed data."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
import zstandard

from magnetar_protos.entry_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType
from magnetar_wire.compression import compress, decompress
from magnetar_wire.errors import MalformedEntry, TooLarge, UnknownCompression
from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES
from tests.property import entry_model as model

ALL = (LZ4, ZLIB, ZSTD, SNAPPY)
TEXT = b"magnetar " * 30 + bytes(range(256))

every_compression = pytest.mark.parametrize("compression", ALL, ids=CompressionType.Name)


@every_compression
@pytest.mark.parametrize("payload", [b"", b"x", TEXT, bytes(100_000)], ids=["empty", "one byte", "text", "zeros"])
def test_round_trips(compression: CompressionType, payload: bytes) -> None:
    compressed = bytes(compress(payload, compression))
    assert decompress(compressed, compression, len(payload)) == payload
    assert bytes(compress(bytearray(payload), compression)) == compressed


@pytest.mark.parametrize("payload", [b"", b"x", TEXT, bytes(1000)])
def test_lz4_and_snappy_are_the_raw_block_formats(payload: bytes) -> None:
    """A decoder written from the formats' descriptions decodes them: neither has a header of a library."""
    assert model.lz4_block(bytes(compress(payload, LZ4))) == payload
    assert model.snappy_block(bytes(compress(payload, SNAPPY))) == payload


def test_none_is_the_payload_itself() -> None:
    assert compress(TEXT, NONE) is TEXT
    assert decompress(TEXT, NONE, 5) is TEXT  # some producers declare a size without compression


@pytest.mark.parametrize("compression", [5, -1, 2**31 - 1])
def test_an_unknown_compression_is_refused(compression: int) -> None:
    with pytest.raises(UnknownCompression, match=str(compression)):
        decompress(TEXT, compression, len(TEXT))
    with pytest.raises(UnknownCompression, match=str(compression)):
        compress(TEXT, compression)


@every_compression
@pytest.mark.parametrize("size", [0, 1, len(TEXT) - 1, len(TEXT) + 1, 10 * len(TEXT), MAX_UNCOMPRESSED_BYTES])
def test_a_wrong_size_is_refused(compression: CompressionType, size: int) -> None:
    with pytest.raises(MalformedEntry, match=str(size)):
        decompress(bytes(compress(TEXT, compression)), compression, size)


@every_compression
def test_cut_off_data_is_malformed(compression: CompressionType) -> None:
    compressed = bytes(compress(TEXT, compression))
    for end in range(len(compressed)):
        with pytest.raises(MalformedEntry):
            decompress(compressed[:end], compression, len(TEXT))


@every_compression
@pytest.mark.parametrize("payload", [b"", TEXT], ids=["empty", "text"])
def test_data_after_the_end_is_malformed(compression: CompressionType, payload: bytes) -> None:
    compressed = bytes(compress(payload, compression))
    for more in (b"\0", b"\xff" * 100, compressed):
        with pytest.raises(MalformedEntry):
            decompress(compressed + more, compression, len(payload))


@every_compression
def test_garbage_is_malformed(compression: CompressionType) -> None:
    for garbage in (b"", b"\xff" * 50, TEXT):
        with pytest.raises(MalformedEntry):
            decompress(garbage, compression, 1000)


@every_compression
def test_a_size_above_the_limit_is_refused_before_anything_else(compression: CompressionType) -> None:
    with pytest.raises(TooLarge, match="2000"):
        decompress(b"garbage", compression, 2001, limit=2000)
    with pytest.raises(TooLarge):
        decompress(b"garbage", compression, MAX_UNCOMPRESSED_BYTES + 1)
    payload = bytes(2000)
    assert decompress(bytes(compress(payload, compression)), compression, 2000, limit=2000) == payload


@every_compression
@pytest.mark.parametrize("stated", [0, 1, 999_999, 1_000_000])
def test_a_bomb_allocates_at_most_its_declared_size(compression: CompressionType, stated: int) -> None:
    """16 MiB that are declared as less."""
    bomb = bytes(compress(bytes(16_777_216), compression))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedEntry):
            decompress(bomb, compression, stated)
        assert tracemalloc.get_traced_memory()[1] < 2 * stated + 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [LZ4, SNAPPY], ids=CompressionType.Name)
def test_no_memory_is_allocated_for_an_impossible_size(compression: CompressionType) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedEntry, match="can't decompress to"):
            decompress(b"\x80\x80\x80\x40" + bytes(100), compression, MAX_UNCOMPRESSED_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def test_zstd_frames_without_a_size_in_their_header() -> None:
    """Streaming compressors write them."""
    for payload in (b"", TEXT, bytes(100_000)):
        stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
        frame = stream.compress(payload) + stream.flush()
        assert zstandard.get_frame_parameters(frame).content_size == zstandard.CONTENTSIZE_UNKNOWN
        assert decompress(frame, ZSTD, len(payload)) == payload
        with pytest.raises(MalformedEntry):
            decompress(frame + b"\0", ZSTD, len(payload))
        with pytest.raises(MalformedEntry):
            decompress(frame, ZSTD, len(payload) + 1)


def test_zstd_with_a_checksum() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    assert decompress(frame, ZSTD, len(TEXT)) == TEXT
    with pytest.raises(MalformedEntry):
        decompress(frame[:-1] + bytes((frame[-1] ^ 1,)), ZSTD, len(TEXT))
    nothing = zstandard.ZstdCompressor(write_checksum=True).compress(b"")
    assert decompress(nothing, ZSTD, 0) == b""
    with pytest.raises(MalformedEntry):
        decompress(nothing[:-1] + b"\0", ZSTD, 0)


def test_zstd_that_is_a_skippable_frame_is_malformed() -> None:
    with pytest.raises(MalformedEntry):
        decompress(b"\x50\x2a\x4d\x18\3\0\0\0abc", ZSTD, 3)


def test_zlib_is_neither_raw_deflate_nor_gzip() -> None:
    for window in (-15, 31):
        deflate = zlib.compressobj(wbits=window)
        with pytest.raises(MalformedEntry):
            decompress(deflate.compress(TEXT) + deflate.flush(), ZLIB, len(TEXT))
