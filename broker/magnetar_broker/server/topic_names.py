"""The names of a namespace's topics, as clients see them.

A partitioned topic is listed as all its partitions. A partition that was never used is stored nowhere, but a client
that subscribes by a pattern must find it before the first message is published. So a few nodes may stand for millions
of names, and the partitions in a list are bounded. System topics are not listed. A missing namespace has no topics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Deletion
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = [
    "MAX_LISTED_PARTITIONS",
    "CountPartitions",
    "TooManyPartitions",
    "count_partitions",
    "filter_names",
    "list_topic_names",
]

# Returns the number of partitions of a partitioned topic, by its full name.
CountPartitions = Callable[[str], Awaitable[int]]
# Partitions in one list. A million names take 140 MB.
MAX_LISTED_PARTITIONS: Final = 1_000_000
# The longest turn without a turn for other tasks.
_MAX_TURN_S: Final = 0.005


class TooManyPartitions(BrokerError):
    """The list would be too long. The code is one that clients do not retry."""

    def __init__(self, namespace: NamespaceName, partitions: int) -> None:
        super().__init__(
            ErrorCode.NOT_ALLOWED,
            f"the list of the topics of {namespace} would have {partitions:,} partitions, more than the maximum of "
            f"{MAX_LISTED_PARTITIONS:,}: name the topics instead",
        )


async def list_topic_names(
    catalog: Catalog, namespace: NamespaceName, count: CountPartitions, matches: Callable[[str], bool] | None = None
) -> set[str]:
    """Return the current names that match. Raises `BrokerError`."""
    await catalog.sync()
    names = set(await filter_names(await catalog.list_topics(namespace), matches))
    partitioned = await filter_names(await catalog.list_partitioned_topics(namespace), matches)
    counts = await map_bounded(partitioned, count)
    if (total := sum(counts)) > MAX_LISTED_PARTITIONS:
        raise TooManyPartitions(namespace, total)
    for topic, partitions in zip(partitioned, counts, strict=True):
        names.update(f"{topic}-partition-{index}" for index in range(partitions))
        await asyncio.sleep(0)  # other tasks get their turns
    return names


async def count_partitions(catalog: Catalog, topic: str) -> int:
    """Return how many partitions a partitioned topic has; 0 if it is missing or being deleted."""
    found = await catalog.partitioned.find(TopicName.parse(topic))
    return found.node.partitions if found is not None and found.node.deletion == Deletion.DELETION_NONE else 0


async def filter_names(names: Iterable[str], matches: Callable[[str], bool] | None) -> list[str]:
    """Return the names that match, in their order. Other tasks get their turns, since there may be very many names."""
    if matches is None:
        return list(names)
    matching = []
    began_at = time.monotonic()
    for name in names:
        if matches(name):
            matching.append(name)
        if time.monotonic() - began_at > _MAX_TURN_S:
            await asyncio.sleep(0)
            began_at = time.monotonic()
    return matching
