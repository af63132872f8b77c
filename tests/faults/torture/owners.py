"""Record the owners of partitions, as the metadata store has them, by a session of its own, a few times a second.

The session is reopened when it was lost. Partitions of a bundle have one owner; a broker's session is over when neither
its registration nor any of the partitions' bundles has it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Self

from magnetar_broker import paths
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.location import open_metadata
from magnetar_metadata.store import MetadataStore
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.ownership_pb2 import BundleOwner
from magnetar_wire.bundles import LAST_HASH, BundleRange, bundle_hash, default_bundles
from magnetar_wire.clock import SystemClock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.topic_name import TopicName
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.beside import OnFailure, going_on

__all__ = ["Owner", "Owners"]

_LOOK_S: Final = 0.2
_AGAIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Owner:
    broker: str
    # That it holds the partition by.
    session: int


class Owners:
    """Records the owners all the time within `async with`."""

    def __init__(
        self, location: str, recorder: Recorder, partition_names: Callable[[], Sequence[str]], failed: OnFailure
    ) -> None:
        self._location = location
        self._recorder = recorder
        self._partition_names = partition_names
        self._store: MetadataStore | None = None
        self._failed = failed
        self._exits = AsyncExitStack()
        # As they were seen last.
        self.now: dict[str, Owner] = {}
        self._living: set[Owner] = set()
        # By session, when it was seen to be over.
        self._over: dict[Owner, float] = {}

    async def __aenter__(self) -> Self:
        await self.look()
        self._exits.push_async_callback(self._close)
        await self._exits.enter_async_context(going_on("owners are looked at", self._look_on, self._failed))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    async def look(self) -> dict[str, Owner]:
        """Return the owners of the partitions that have one. Raises `MetadataError`."""
        since = time.monotonic()
        store = await self._session()
        registered = await _registered(store)
        found = await _owners(store, self._partition_names())
        self.now = found
        recorded = {partition: [owner.broker, owner.session] for partition, owner in found.items()}
        self._recorder.say("owners", since=since, owners=recorded)
        living = registered | set(found.values())
        for ended in self._living - living:
            self._over[ended] = time.monotonic()
            self._recorder.say("session_over", broker=ended.broker, session=ended.session)
        self._living = living
        return found

    async def wait_over(self, owner: Owner) -> float:
        """Wait until the owner's session is over; return that time of the machine's monotonic clock."""
        while owner not in self._over:
            await asyncio.sleep(_AGAIN_S)
        return self._over[owner]

    async def _look_on(self) -> None:
        while True:
            try:
                await self.look()
            except MetadataError:  # unavailable: this moment is not recorded
                await asyncio.sleep(_AGAIN_S)
            await asyncio.sleep(_LOOK_S)

    async def _session(self) -> MetadataStore:
        if self._store is not None and self._store.session.state.value == "lost":
            await self._close()
        if self._store is None:
            self._store = await open_metadata(self._location, SystemClock())
        return self._store

    async def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(MetadataError):
                await store.close()


async def _registered(store: MetadataStore) -> set[Owner]:
    found = set()
    for name in await store.children(paths.BROKERS):
        stat = await store.exists(f"{paths.BROKERS}/{name}")
        if stat is not None:
            found.add(Owner(decode_path_component(name), stat.ephemeral_owner))
    return found


async def _owners(store: MetadataStore, partition_names: Sequence[str]) -> dict[str, Owner]:
    bundles: dict[str, tuple[BundleRange, ...]] = {}
    owners: dict[str, Owner | None] = {}
    found = {}
    for partition in partition_names:
        name = TopicName.parse(partition)
        namespace = str(name.namespace_name)
        if namespace not in bundles:
            bundles[namespace] = await _bundles(store, name)
        bundle = next(one for one in bundles[namespace] if bundle_hash(name) in one)
        path = paths.owner(name.namespace_name, bundle)
        if path not in owners:
            node = await store.get(path)
            owners[path] = None if node is None else Owner(_broker_of(node.value), node.stat.ephemeral_owner)
        owner = owners[path]
        if owner is not None:
            found[partition] = owner
    return found


def _broker_of(value: bytes) -> str:
    return BundleOwner.FromString(value).broker_id


async def _bundles(store: MetadataStore, name: TopicName) -> tuple[BundleRange, ...]:
    stored = await compare_and_set.read(store, paths.namespace(name.namespace_name))
    starts = list(NamespaceNode.FromString(stored.payload).bundle_starts) if stored is not None else []
    if not starts:
        return default_bundles(4)
    ends = [*starts[1:], LAST_HASH]
    return tuple(BundleRange(lower, upper) for lower, upper in zip(starts, ends, strict=True))
