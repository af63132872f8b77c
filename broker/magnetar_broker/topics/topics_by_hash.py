"""Names of topics, sorted by their hashes, so that those of a bundle are found without a scan of all."""

from __future__ import annotations

from bisect import bisect_left, insort

from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicsByHash"]

_Namespace = tuple[str, str]


class TopicsByHash:
    def __init__(self) -> None:
        self._sorted: dict[_Namespace, list[tuple[int, str]]] = {}
        self._names: dict[TopicName, tuple[int, str]] = {}

    def add(self, name: TopicName) -> None:
        """Add a name, unless it was added before."""
        if name not in self._names:
            key = self._names[name] = bundle_hash(name), str(name)
            insort(self._sorted.setdefault((name.tenant, name.namespace), []), key)

    def discard(self, name: TopicName) -> None:
        key = self._names.pop(name, None)
        if key is None:
            return
        namespace = name.tenant, name.namespace
        keys = self._sorted[namespace]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._sorted[namespace]

    def find_in_bundle(self, tenant: str, namespace: str, bundle: BundleRange) -> list[TopicName]:
        keys = self._sorted.get((tenant, namespace), [])
        first = bisect_left(keys, (bundle.lower, ""))
        found = []
        for topic_hash, full in keys[first:]:
            if topic_hash not in bundle:
                break
            found.append(TopicName.parse(full))
        return found

    def __len__(self) -> int:
        return len(self._names)
