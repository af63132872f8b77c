"""A topic's nodes, read ahead, at the same time as the policies which must be known before the topic may be opened.

A node may have changed by the time that it is used, as after any read: a claim on top of it is refused then, and reads
it again. A node of the cursor table that can't be decoded counts as not read: the claim of the cursors deals with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_metadata.compare_and_set import StoredValue, read
from magnetar_metadata.errors import ForeignValue, MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["PrefetchedTopic", "prefetch_topic"]


@dataclass(frozen=True, slots=True)
class PrefetchedTopic:
    log: StoredValue | None = None
    cursors: StoredValue | None = None


async def prefetch_topic(store: MetadataStore, name: TopicName) -> PrefetchedTopic:
    """Raises `BrokerError`."""
    try:
        return PrefetchedTopic(*await asyncio.gather(read(store, paths.topic(name)), _read_cursors(store, name)))
    except MetadataError as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be opened now: {error}") from error


async def _read_cursors(store: MetadataStore, name: TopicName) -> StoredValue | None:
    try:
        return await read(store, paths.cursors(name))
    except ForeignValue:
        return None
