"""A topic's nodes as they were read ahead, beside whatever else has to be asked before the topic may be opened.

What was read may be stale by the time that it is used, as any read may be: a claim on top of it is refused then, and
reads afresh.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_metadata.compare_and_set import Stored, read
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["SeenTopic", "see_topic"]


@dataclass(frozen=True, slots=True)
class SeenTopic:
    log: Stored | None = None
    cursors: Stored | None = None


async def see_topic(store: MetadataStore, name: TopicName) -> SeenTopic:
    """Raises `BrokerError`."""
    try:
        return SeenTopic(*await asyncio.gather(read(store, paths.topic(name)), read(store, paths.cursors(name))))
    except MetadataError as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be opened now: {error}") from error
