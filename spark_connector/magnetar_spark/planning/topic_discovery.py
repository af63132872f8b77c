"""Which partitions there are to be read now.

Partitions are added to topics, and topics that match a pattern are made, while a stream runs. They are looked for
before each micro-batch, but not more often than costs little: after a look that took t there is none for `_REST` x t,
and none for a second at least.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import NotFound, TopicNotFound
from magnetar_spark.options.topic_selection import TopicChoice
from magnetar_spark.some_at_a_time import some_at_a_time
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["ReadLog", "Topics"]

_LEAST_REST_S: Final = 1.0
_REST: Final = 10.0


@dataclass(frozen=True, slots=True)
class ReadLog:
    # As the column `topic` shows it, and the number of the partition: -1 where the topic has none.
    topic: str
    partition: int
    # The partition's name, or the topic's.
    log: str

    @classmethod
    def of(cls, log: str) -> ReadLog:
        name = TopicName.parse(log)
        return cls(str(name.base), name.partition_index, str(name))


class Topics:
    def __init__(self, admin: AsyncAdmin, choice: TopicChoice) -> None:
        self._admin = admin
        self._choice = choice
        self._found: list[ReadLog] = []
        self._not_before = 0.0

    async def find(self, *, now: bool = False) -> Sequence[ReadLog]:
        """In the order of their names; `now`: as they are now, and not as they were a moment ago."""
        started = time.monotonic()
        if now or started >= self._not_before:
            logs = await self._look()
            self._found = sorted(logs, key=lambda log: (log.topic, log.partition))
            ended = time.monotonic()
            self._not_before = ended + max(_LEAST_REST_S, _REST * (ended - started))
        return self._found

    async def _look(self) -> list[ReadLog]:
        if self._choice.namespace is None:
            found = await some_at_a_time(self._partitions, self._choice.names)
            return [log for logs in found for log in logs]
        namespace = str(self._choice.namespace)
        names, partitioned_names = await asyncio.gather(
            self._admin.topics.list(namespace), self._admin.topics.list_partitioned(namespace)
        )
        partitioned = dict.fromkeys(TopicName.parse(name) for name in partitioned_names)
        alone = dict.fromkeys(TopicName.parse(name) for name in names)
        found = await some_at_a_time(self._partitions, [topic for topic in partitioned if self._choice.matches(topic)])
        logs = [log for logs in found for log in logs]
        others = [topic for topic in alone if topic.base not in partitioned and self._choice.matches(topic)]
        return logs + [ReadLog.of(str(topic)) for topic in others]

    async def _partitions(self, topic: TopicName) -> list[ReadLog]:
        if topic.is_partition:
            return [ReadLog.of(str(topic))]
        try:
            partitions = (await self._admin.topics.get_partitioned(str(topic))).partitions
        except (NotFound, TopicNotFound):
            # One without partitions, or none at all: whoever asks for its log is told.
            return [ReadLog(str(topic), -1, str(topic))]
        return [ReadLog(str(topic), index, str(topic.partition(index))) for index in range(partitions)]
