"""A map from bundles to values, searched by a topic's hash.

The ranges of one namespace never overlap here. In the metadata store they may, for a moment: a namespace that was
deleted and created again may be divided otherwise, and a broker may still hold bundles of the old one. So a caller that
adds a bundle removes those that overlap it first.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName

__all__ = ["BundleMap"]

V = TypeVar("V")


class BundleMap(Generic[V]):
    def __init__(self) -> None:
        # The bundles of each namespace that has any, sorted by their lower bound.
        self._bundles: Final[dict[NamespaceName, list[tuple[BundleRange, V]]]] = {}

    def find(self, namespace: NamespaceName, topic_hash: int) -> V | None:
        """Return the value of the bundle that contains the hash."""
        bundles = self._bundles.get(namespace)
        if bundles is None:
            return None
        index = bisect.bisect_right(bundles, topic_hash, key=lambda one: one[0].lower) - 1
        if index < 0 or topic_hash not in bundles[index][0]:
            return None
        return bundles[index][1]

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> V | None:
        """Return the value of exactly this range."""
        for one, value in self._overlapping(namespace, bundle):
            if one == bundle:
                return value
        return None

    def find_overlapping(self, namespace: NamespaceName, bundle: BundleRange) -> list[V]:
        """Return the values of all bundles that have a hash in common with this range."""
        return [value for _, value in self._overlapping(namespace, bundle)]

    def add(self, namespace: NamespaceName, bundle: BundleRange, value: V) -> None:
        """Add a bundle. None overlaps it."""
        assert not self._overlapping(namespace, bundle), f"bundle {bundle} of {namespace} overlaps another one"
        bisect.insort(self._bundles.setdefault(namespace, []), (bundle, value), key=lambda one: one[0].lower)

    def remove(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Remove a bundle that is in the map."""
        bundles = self._bundles[namespace]
        bundles.remove(next(one for one in bundles if one[0] == bundle))
        if not bundles:
            del self._bundles[namespace]

    def __iter__(self) -> Iterator[V]:
        return iter([value for bundles in self._bundles.values() for _, value in bundles])

    def __len__(self) -> int:
        return sum(map(len, self._bundles.values()))

    def _overlapping(self, namespace: NamespaceName, bundle: BundleRange) -> list[tuple[BundleRange, V]]:
        bundles = self._bundles.get(namespace, [])
        # The last bundle includes its upper bound, which is the last hash.
        return [one for one in bundles if one[0].lower < bundle.upper and bundle.lower < one[0].upper]
