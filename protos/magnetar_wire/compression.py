"""Compression of payloads: LZ4 (raw block), ZLIB, ZSTD, SNAPPY (raw block), as stock clients write and read them.

The entry states the size after decompression. It may be wrong, or forged, so it is compared with the reader's limit
first, and then with the maximum that this many compressed bytes can decompress to, because LZ4 and SNAPPY allocate all
memory at the start. The result must have exactly the stated size and use up all the input.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import Final, cast

import cramjam
import lz4.block
import zstandard

from magnetar_protos import entry_pb2
from magnetar_wire.errors import MalformedEntry, UncompressedTooLarge, UnknownCompression
from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES

NONE, LZ4, ZLIB, ZSTD, SNAPPY = (
    entry_pb2.NONE,
    entry_pb2.LZ4,
    entry_pb2.ZLIB,
    entry_pb2.ZSTD,
    entry_pb2.SNAPPY,
)

# One byte of an LZ4 block adds at most 255 bytes. Three bytes of a SNAPPY block make at most 64.
_LZ4_AT_MOST: Final = 255
_SNAPPY_AT_MOST: Final = 64

# A deflate block makes 258 bytes of two bits. A ZSTD frame has a block of 128 KiB in four bytes.
_ZLIB_AT_MOST: Final = 1032
_ZSTD_AT_MOST: Final = 32_768
# The ZSTD standard asks every reader to support windows up to 8 MiB.
_ZSTD_MAX_WINDOW: Final = 8_388_608
# A frame's magic, the longest header, the header of an empty block, and the checksum.
_ZSTD_EMPTY_AT_MOST: Final = 4 + 14 + 3 + 4


class _Zstd(threading.local):
    """zstandard's contexts. They are expensive to create, and belong to one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor()
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)


_zstd = _Zstd()


def compress(payload: bytes | bytearray, compression: int) -> bytes | bytearray:
    """Compress the payload with the entry's `compression`."""
    if compression == entry_pb2.NONE:
        return payload
    try:
        encode = _COMPRESS[compression]
    except KeyError:
        raise UnknownCompression(f"compression {compression} is unknown: use one of {_known()}") from None
    return encode(payload)


def decompress(payload: bytes, compression: int, size: int, limit: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """Decompress a payload that is declared to have `size` bytes."""
    if compression == entry_pb2.NONE:
        return payload
    try:
        name, decode = _DECOMPRESS[compression]
    except KeyError:
        raise UnknownCompression(f"the payload's compression {compression} is unknown: known are {_known()}") from None
    if size > limit:
        raise UncompressedTooLarge(f"the payload has {size} bytes uncompressed, above the reader's limit of {limit}")
    try:
        decoded = decode(payload, size)
    except _BROKEN as error:
        raise MalformedEntry(f"the payload is not a valid {name} of {size} bytes: {error}") from None
    if len(decoded) != size:
        raise MalformedEntry(f"the payload declares {size} bytes uncompressed, but has {len(decoded)}")
    return decoded


def uncompressed_at_most(payload_bytes: int, compression: int) -> int:
    """Return the maximum size of a payload before its compression to `payload_bytes`. Raises `UnknownCompression`."""
    try:
        return payload_bytes * _AT_MOST[compression]
    except KeyError:
        raise UnknownCompression(f"the payload's compression {compression} is unknown: known are {_known()}") from None


# The errors of the libraries for invalid input.
_BROKEN: Final = (ValueError, zlib.error, lz4.block.LZ4BlockError, zstandard.ZstdError, cramjam.DecompressionError)


def _known() -> str:
    return ", ".join(entry_pb2.CompressionType.keys())


def _compress_lz4(payload: bytes | bytearray) -> bytes:
    return cast(bytes, lz4.block.compress(payload, store_size=False))


def _decompress_lz4(payload: bytes, size: int) -> bytes:
    if size > len(payload) * _LZ4_AT_MOST:
        raise ValueError(f"{len(payload)} bytes can't decompress to {size}")
    return cast(bytes, lz4.block.decompress(payload, uncompressed_size=size))


def _decompress_zlib(payload: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    decoded = stream.decompress(payload, size + 1)  # one byte more than declared, to detect a longer stream
    if not stream.eof or stream.unused_data:
        raise ValueError("it is truncated, or followed by other bytes")
    return decoded


def _compress_zstd(payload: bytes | bytearray) -> bytes:
    return _zstd.compressor.compress(payload)


def _decompress_zstd(payload: bytes, size: int) -> bytes:
    stated = zstandard.get_frame_parameters(payload).content_size
    if stated not in (size, zstandard.CONTENTSIZE_UNKNOWN):  # the library would allocate this size at once
        raise ValueError(f"its header declares {stated} bytes")
    if not size:  # the library would not check for data after the frame
        return _decompress_empty_zstd(payload)
    return _zstd.decompressor.decompress(payload, max_output_size=size, allow_extra_data=False)


def _decompress_empty_zstd(payload: bytes) -> bytes:
    if len(payload) > _ZSTD_EMPTY_AT_MOST:
        raise ValueError("it is too long for an empty frame")
    stream = _zstd.decompressor.decompressobj()
    decoded = stream.decompress(payload)
    if not stream.eof or stream.unused_data:
        raise ValueError("it is truncated, or followed by other bytes")
    return decoded


def _compress_snappy(payload: bytes | bytearray) -> bytes:
    return bytes(cramjam.snappy.compress_raw(payload))


def _decompress_snappy(payload: bytes, size: int) -> bytes:
    if size > len(payload) * _SNAPPY_AT_MOST:
        raise ValueError(f"{len(payload)} bytes can't decompress to {size}")
    stated = shift = 0
    for byte in payload[:5]:
        stated |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if stated != size:
        raise ValueError(f"its header declares {stated} bytes")
    return bytes(cramjam.snappy.decompress_raw(payload))


_COMPRESS: Final[dict[int, Callable[[bytes | bytearray], bytes]]] = {
    entry_pb2.LZ4: _compress_lz4,
    entry_pb2.ZLIB: zlib.compress,
    entry_pb2.ZSTD: _compress_zstd,
    entry_pb2.SNAPPY: _compress_snappy,
}
_DECOMPRESS: Final[dict[int, tuple[str, Callable[[bytes, int], bytes]]]] = {
    entry_pb2.LZ4: ("LZ4 block", _decompress_lz4),
    entry_pb2.ZLIB: ("ZLIB stream", _decompress_zlib),
    entry_pb2.ZSTD: ("ZSTD frame", _decompress_zstd),
    entry_pb2.SNAPPY: ("SNAPPY block", _decompress_snappy),
}
_AT_MOST: Final[dict[int, int]] = {
    entry_pb2.NONE: 1,
    entry_pb2.LZ4: _LZ4_AT_MOST,
    entry_pb2.ZLIB: _ZLIB_AT_MOST,
    entry_pb2.ZSTD: _ZSTD_AT_MOST,
    entry_pb2.SNAPPY: _SNAPPY_AT_MOST,
}
