"""Bundles: the ranges of hashes by which a namespace's topics are dealt out to brokers.

A topic's hash is the CRC-32 of its full name, 0 … 0xffffffff. A namespace's bundles cut that range up without gap or
overlap, and a topic is in the bundle that its hash falls in.

A range is written as in the paths of Pulsar's REST API: `0x40000000_0x80000000`, eight lower-case digits each. The
upper end belongs to the next bundle, but for the last one's, which is 0xffffffff and in it: 2^32 has no eight digits.
So topics are found by where bundles begin, and the ends are for showing.
"""

from __future__ import annotations

import bisect
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_wire.topic_name import TopicName

LAST_HASH: Final = 0xFFFF_FFFF
# As many as can be told apart by half of the hash; far above what brokers could be given.
MAX_BUNDLES: Final = 65_536

_RANGE: Final = re.compile(r"0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """The hashes from `lower` up to `upper`, which is out of it unless it is the last hash of all."""

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 <= self.lower < self.upper <= LAST_HASH:
            raise ValueError(f"invalid bundle {self.lower:#x} … {self.upper:#x}: use a range within 0 … {LAST_HASH:#x}")

    @classmethod
    def parse(cls, text: str) -> BundleRange:
        """Raises ValueError unless `text` is like 0x00000000_0x40000000."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"invalid bundle {text[:50]!r}: write it like 0x00000000_0x40000000")
        return cls(int(match[1], 16), int(match[2], 16))

    def __contains__(self, topic_hash: int) -> bool:
        return self.lower <= topic_hash < self.upper or topic_hash == self.upper == LAST_HASH

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"


def bundle_hash(topic: TopicName) -> int:
    """The CRC-32 of the full name in UTF-8. Each partition has its own: partitions are dealt out one by one."""
    return zlib.crc32(str(topic).encode())


def default_bundles(count: int) -> tuple[BundleRange, ...]:
    """The hashes cut into `count` ranges of one size; the last one is larger by what does not divide."""
    if not 1 <= count <= MAX_BUNDLES:
        raise ValueError(f"a namespace can't have {count:,} bundles: use 1 … {MAX_BUNDLES:,}")
    size = (LAST_HASH + 1) // count
    ends = [*(size * number for number in range(1, count)), LAST_HASH]
    return tuple(BundleRange(lower, upper) for lower, upper in zip([0, *ends], ends, strict=False))


def find_bundle(topic_hash: int, bundles: Sequence[BundleRange]) -> BundleRange:
    """Which of a namespace's bundles, all of them in order, `topic_hash` falls in."""
    if not 0 <= topic_hash <= LAST_HASH:
        raise ValueError(f"invalid topic hash {topic_hash}: it must be within 0 … {LAST_HASH:#x}")
    return bundles[bisect.bisect_right(bundles, topic_hash, key=lambda bundle: bundle.lower) - 1]
