"""What an option can be one of, under the names of the command line."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar import CompressionType

__all__ = ["Compression", "Kind", "Start", "compression_type"]


class Compression(enum.StrEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"
    ZSTD = "zstd"
    SNAPPY = "snappy"


class Kind(enum.StrEnum):
    """How a subscription's consumers share it."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"


class Start(enum.StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


def compression_type(compression: Compression) -> CompressionType:
    from magnetar import CompressionType

    return next(one for one in CompressionType if one.name.lower() == compression)
