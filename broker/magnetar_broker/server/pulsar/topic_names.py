"""The names of a namespace's topics, as clients see them.

A partitioned topic is seen by its partitions, all of them: those that nobody has used yet are stored nowhere, and a
client that watches for topics must find them before anybody publishes there. The system's own topics are not shown,
and a namespace that is not there has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_protos.catalog_pb2 import Deletion
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["CountPartitions", "partitions_of", "those_meant", "topic_names"]

# Of a partitioned topic, by its full name.
CountPartitions = Callable[[str], Awaitable[int]]
# Without a turn for others.
_LONG_S: Final = 0.005


async def topic_names(
    catalog: Catalog, namespace: NamespaceName, count: CountPartitions, means: Callable[[str], bool] | None = None
) -> set[str]:
    """Those that `means` is true of, as they are now. Raises `BrokerError`."""
    await catalog.sync()
    names = set(await those_meant(await catalog.topics(namespace), means))
    partitioned = await those_meant(await catalog.partitioned_topics(namespace), means)
    counts = await map_bounded(partitioned, count)
    for topic, partitions in zip(partitioned, counts, strict=True):
        names.update(f"{topic}-partition-{index}" for index in range(partitions))
    return names


async def partitions_of(catalog: Catalog, topic: str) -> int:
    found = await catalog.partitioned.find(TopicName.parse(topic))
    return found.node.partitions if found is not None and found.node.deletion == Deletion.DELETION_NONE else 0


async def those_meant(names: Iterable[str], means: Callable[[str], bool] | None) -> list[str]:
    """In their order. There may be very many, so others have their turns meanwhile."""
    if means is None:
        return list(names)
    meant = []
    began = time.monotonic()
    for name in names:
        if means(name):
            meant.append(name)
        if time.monotonic() - began > _LONG_S:
            await asyncio.sleep(0)
            began = time.monotonic()
    return meant
