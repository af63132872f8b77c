"""How a namespace is cut into bundles: by where they begin, which its node holds, and what a split makes of that."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final

from magnetar_wire.bundles import LAST_HASH, MAX_BUNDLES, BundleRange, default_bundles

__all__ = ["DEFAULT_BUNDLES", "bundle_at", "bundles_of", "is_bundle", "middle_of", "starts_after_split", "starts_of"]

# Of a namespace whose node names none.
DEFAULT_BUNDLES: Final = 4
_DEFAULT_STARTS: Final = tuple(bundle.lower for bundle in default_bundles(DEFAULT_BUNDLES))


def bundles_of(starts: Sequence[int]) -> tuple[BundleRange, ...]:
    """All of them, in order. Raises ValueError where `starts` cut nothing up: another writer's."""
    starts = starts or _DEFAULT_STARTS
    if starts[0] != 0 or len(starts) > MAX_BUNDLES:
        raise ValueError(f"the bundles do not begin with 0, or are more than {MAX_BUNDLES:,}")
    # A range that is empty or turned round is refused by BundleRange.
    return tuple(BundleRange(lower, upper) for lower, upper in zip(starts, [*starts[1:], LAST_HASH], strict=True))


def bundle_at(starts: Sequence[int], topic_hash: int) -> BundleRange:
    """The bundle that the topic is in: looked for without making all the others. Raises ValueError likewise."""
    starts = starts or _DEFAULT_STARTS
    place = bisect.bisect_right(starts, topic_hash) - 1
    if place < 0:
        raise ValueError("the bundles do not begin with 0")
    return BundleRange(starts[place], starts[place + 1] if place + 1 < len(starts) else LAST_HASH)


def is_bundle(starts: Sequence[int], bundle: BundleRange) -> bool:
    """Whether it is one of them. Raises ValueError likewise."""
    return bundle_at(starts, bundle.lower) == bundle


def starts_of(bundles: Sequence[BundleRange]) -> list[int]:
    return [bundle.lower for bundle in bundles]


def middle_of(bundle: BundleRange) -> int:
    """Where it is cut into halves. Raises ValueError where it is too narrow."""
    return _checked(bundle, (bundle.lower + bundle.upper + 1) // 2)


def starts_after_split(starts: Sequence[int], bundle: BundleRange, at: int) -> list[int]:
    """Where the bundles begin when `bundle` has become one up to `at` and one from there. Raises ValueError where it is
    none of those that there are, or can't be cut there."""
    bundles = bundles_of(starts)
    if bundle not in bundles:
        raise ValueError(f"there is no bundle {bundle}")
    if len(bundles) >= MAX_BUNDLES:
        raise ValueError(f"there are {len(bundles):,} bundles, the maximum")
    return sorted([*starts_of(bundles), _checked(bundle, at)])


def _checked(bundle: BundleRange, at: int) -> int:
    if not bundle.lower < at < bundle.upper:
        raise ValueError(f"bundle {bundle} can't be split at 0x{at:08x}: choose a hash inside of it")
    return at
