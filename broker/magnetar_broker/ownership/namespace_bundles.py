"""The bundles of a namespace: its node stores their lower bounds, the starts. A split adds one."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final

from magnetar_wire.bundles import LAST_HASH, MAX_BUNDLES, BundleRange, default_bundles

__all__ = [
    "DEFAULT_BUNDLES",
    "decode_bundle_at",
    "decode_bundles",
    "is_bundle",
    "split_bundle_starts",
    "split_point_by_range",
    "split_point_by_topics",
]

# The number of bundles of a namespace whose node has no starts.
DEFAULT_BUNDLES: Final = 4
_DEFAULT_STARTS: Final = tuple(bundle.lower for bundle in default_bundles(DEFAULT_BUNDLES))


def decode_bundles(starts: Sequence[int]) -> tuple[BundleRange, ...]:
    """Return all bundles in order. Raises ValueError for invalid starts, which no broker has written."""
    starts = starts or _DEFAULT_STARTS
    if starts[0] != 0 or len(starts) > MAX_BUNDLES:
        raise ValueError(f"the bundles do not begin with 0, or are more than {MAX_BUNDLES:,}")
    # BundleRange refuses a range that is empty or reversed.
    return tuple(BundleRange(lower, upper) for lower, upper in zip(starts, [*starts[1:], LAST_HASH], strict=True))


def decode_bundle_at(starts: Sequence[int], topic_hash: int) -> BundleRange:
    """Return the bundle that contains the hash, without building the others. Raises ValueError for invalid starts."""
    starts = starts or _DEFAULT_STARTS
    index = bisect.bisect_right(starts, topic_hash) - 1
    if index < 0:
        raise ValueError("the bundles do not begin with 0")
    return BundleRange(starts[index], starts[index + 1] if index + 1 < len(starts) else LAST_HASH)


def is_bundle(starts: Sequence[int], bundle: BundleRange) -> bool:
    """Return whether the range is one of the bundles. Raises ValueError for invalid starts."""
    return decode_bundle_at(starts, bundle.lower) == bundle


def split_bundle_starts(starts: Sequence[int], bundle: BundleRange, at: int) -> list[int]:
    """Return the starts after a split of the bundle into one up to `at` and one from there. Raises ValueError if there
    is no such bundle, or if it can't be split there."""
    bundles = decode_bundles(starts)
    if bundle not in bundles:
        raise ValueError(f"there is no bundle {bundle}")
    if len(bundles) >= MAX_BUNDLES:
        raise ValueError(f"there are {len(bundles):,} bundles, the maximum")
    return sorted([*(one.lower for one in bundles), _check_split_point(bundle, at)])


def split_point_by_range(bundle: BundleRange) -> int:
    """Return the first hash of the upper half. Raises ValueError if the bundle is too narrow."""
    return _check_split_point(bundle, (bundle.lower + bundle.upper + 1) // 2)


def split_point_by_topics(bundle: BundleRange, topic_hashes: Iterable[int]) -> int | None:
    """Return the hash at which a split gives both parts as many topics; None: all topics have the same hash.

    Of topics at 10, 20 and 90, the lower part gets the first. The split is halfway to the next: at 15.
    """
    hashes = sorted(one for one in topic_hashes if one in bundle)
    # Topics of one hash stay together, so this is the gap that is nearest to the middle.
    for index in sorted(range(1, len(hashes)), key=lambda index: abs(len(hashes) - 2 * index)):
        below, above = hashes[index - 1], hashes[index]
        at = below + (above - below + 1) // 2
        if below < at < bundle.upper:
            return at
    return None


def _check_split_point(bundle: BundleRange, at: int) -> int:
    if not bundle.lower < at < bundle.upper:
        raise ValueError(f"bundle {bundle} can't be split at 0x{at:08x}: choose a hash inside of it")
    return at
