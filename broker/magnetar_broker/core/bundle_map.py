"""What a broker has of namespaces' bundles, found by a topic's hash.

The ranges of one namespace never overlap here. They could at the store, for a moment: a namespace that was deleted and
made again may be cut up otherwise, and a broker may not have noticed yet that what it has is of the old one. So whoever
adds one asks for those that lie across it first.
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
        # Of each namespace that has any: by where they begin.
        self._of: Final[dict[NamespaceName, list[tuple[BundleRange, V]]]] = {}

    def find(self, namespace: NamespaceName, topic_hash: int) -> V | None:
        """That of the bundle which the topic is in."""
        bundles = self._of.get(namespace)
        if bundles is None:
            return None
        place = bisect.bisect_right(bundles, topic_hash, key=lambda one: one[0].lower) - 1
        if place < 0 or topic_hash not in bundles[place][0]:
            return None
        return bundles[place][1]

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> V | None:
        """That of exactly this range."""
        for one, value in self._across(namespace, bundle):
            if one == bundle:
                return value
        return None

    def across(self, namespace: NamespaceName, bundle: BundleRange) -> list[V]:
        """Of those that have a hash in common with it."""
        return [value for _, value in self._across(namespace, bundle)]

    def add(self, namespace: NamespaceName, bundle: BundleRange, value: V) -> None:
        """None lies across it."""
        assert not self._across(namespace, bundle), f"bundle {bundle} of {namespace} overlaps another one"
        bisect.insort(self._of.setdefault(namespace, []), (bundle, value), key=lambda one: one[0].lower)

    def remove(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """It is there."""
        bundles = self._of[namespace]
        bundles.remove(next(one for one in bundles if one[0] == bundle))
        if not bundles:
            del self._of[namespace]

    def namespaces(self) -> list[NamespaceName]:
        return list(self._of)

    def within(self, namespace: NamespaceName) -> list[V]:
        return [value for _, value in self._of.get(namespace, ())]

    def __iter__(self) -> Iterator[V]:
        return iter([value for bundles in self._of.values() for _, value in bundles])

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def _across(self, namespace: NamespaceName, bundle: BundleRange) -> list[tuple[BundleRange, V]]:
        bundles = self._of.get(namespace, [])
        # The last hash belongs to the last bundle, whose upper end it is.
        return [one for one in bundles if one[0].lower < bundle.upper and bundle.lower < one[0].upper]
