"""Who owns topics' bundles, as the metadata store says, looked at from outside: by a session of its own, which is
opened anew when it was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_broker import paths
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.location import open_metadata
from magnetar_metadata.store import MetadataStore
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.ownership_pb2 import BundleOwner
from magnetar_wire.bundles import LAST_HASH, BundleRange, bundle_hash, bundle_of, default_bundles
from magnetar_wire.clock import SystemClock
from magnetar_wire.topic_name import TopicName

__all__ = ["Owner", "Owners"]

_LOOK_S = 0.03


@dataclass(frozen=True, slots=True)
class Owner:
    broker_id: str
    # The node's, and the session's that it goes with.
    path: str
    session: int


class Owners:
    def __init__(self, location: str) -> None:
        self._location = location
        self._store: MetadataStore | None = None

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(MetadataError):
                await store.close()

    async def of(self, topics: Iterable[str]) -> dict[str, Owner]:
        """Of those that have one. Raises `MetadataError`."""
        store = await self._session()
        found = {}
        for topic in topics:
            name = TopicName.parse(topic)
            bundle = bundle_of(bundle_hash(name), await _bundles(store, name))
            node = await store.get(path := paths.owner(name.namespace_name, bundle))
            if node is not None:
                owner = BundleOwner.FromString(node.value)
                found[topic] = Owner(owner.broker_id, path, node.stat.ephemeral_owner)
        return found

    async def wait_gone(self, owner: Owner) -> float:
        """When the node was gone, or another session's, by the machine's monotonic clock."""
        while True:
            try:
                stat = await (await self._session()).exists(owner.path)
            except MetadataError:
                await asyncio.sleep(_LOOK_S)
                continue
            if stat is None or stat.ephemeral_owner != owner.session:
                return time.monotonic()
            await asyncio.sleep(_LOOK_S)

    async def _session(self) -> MetadataStore:
        if self._store is not None and self._store.session.state.value == "lost":
            await self.close()
        if self._store is None:
            self._store = await open_metadata(self._location, SystemClock())
        return self._store


async def _bundles(store: MetadataStore, name: TopicName) -> tuple[BundleRange, ...]:
    stored = await compare_and_set.read(store, paths.namespace(name.namespace_name))
    starts = list(NamespaceNode.FromString(stored.payload).bundle_starts) if stored is not None else []
    if not starts:
        return default_bundles(4)
    ends = [*starts[1:], LAST_HASH]
    return tuple(BundleRange(lower, upper) for lower, upper in zip(starts, ends, strict=True))
