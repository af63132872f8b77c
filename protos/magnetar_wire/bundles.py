"""Bundles: ranges of hashes that divide a namespace's topics among brokers.

A topic's hash is the CRC-32 of its full name, 0 … 0xffffffff. The bundles of a namespace cover that range without gaps
or overlap. A topic belongs to the bundle that contains its hash.

A range is written as in the paths of Pulsar's REST API: `0x40000000_0x80000000`, eight lower-case digits each. The
upper bound is exclusive, except in the last bundle, where it is 0xffffffff and inclusive: 2^32 doesn't have eight
digits. So lookups use the lower bounds only.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from magnetar_wire.topic_name import TopicName

LAST_HASH: Final = 0xFFFF_FFFF
# The number that half of the hash can distinguish; far more than brokers can own.
MAX_BUNDLES: Final = 65_536

_RANGE: Final = re.compile(r"0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """The hashes from `lower` to `upper`, which is exclusive unless it is the last hash of all."""

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 <= self.lower < self.upper <= LAST_HASH:
            raise ValueError(f"invalid bundle {self.lower:#x} … {self.upper:#x}: use a range within 0 … {LAST_HASH:#x}")

    @classmethod
    def parse(cls, text: str) -> BundleRange:
        """Parse a range like 0x00000000_0x40000000. Raises ValueError."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"invalid bundle {text[:50]!r}: write it like 0x00000000_0x40000000")
        return cls(int(match[1], 16), int(match[2], 16))

    def __contains__(self, topic_hash: int) -> bool:
        return self.lower <= topic_hash < self.upper or topic_hash == self.upper == LAST_HASH

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"


def bundle_hash(topic: TopicName) -> int:
    """Return the CRC-32 of the topic's full name in UTF-8. Each partition has its own hash, and so its own bundle."""
    return zlib.crc32(str(topic).encode())


def default_bundles(count: int) -> tuple[BundleRange, ...]:
    """Divide the hashes into `count` ranges of one size. The last one is larger by the remainder."""
    if not 1 <= count <= MAX_BUNDLES:
        raise ValueError(f"a namespace can't have {count:,} bundles: use 1 … {MAX_BUNDLES:,}")
    size = (LAST_HASH + 1) // count
    ends = [*(size * number for number in range(1, count)), LAST_HASH]
    return tuple(BundleRange(lower, upper) for lower, upper in zip([0, *ends], ends, strict=False))
