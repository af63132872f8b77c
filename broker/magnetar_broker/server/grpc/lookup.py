"""The calls by which a client finds a topic: `partitions`, `lookup`, `last_message`. See broker.proto.

What goes wrong is told in the answer, with its code; only a request that can't be read is refused by the transport.

Each may wait for the metadata store, or for a bundle that changes hands, as long as the bounds of those allow: so there
are so many at a time, and further ones are told to come again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.topic.topics import Topics
from magnetar_protos.broker_pb2 import (
    ErrorCode,
    LastMessage,
    LastMessageAnswer,
    LastMessageRequest,
    LookupAnswer,
    LookupRequest,
    PartitionsAnswer,
    PartitionsRequest,
)
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Refusal

__all__ = ["Finding", "PartitionCounts", "read_request"]

M = TypeVar("M", bound=Message)


class PartitionCounts(Protocol):
    async def partitions(self, name: TopicName, create: bool) -> int:
        """How many the topic has; 0: it has none. Raises `BrokerError`."""


class Finding:
    def __init__(
        self,
        topics: Topics,
        catalog: PartitionCounts,
        ownership: Ownership,
        counters: BrokerCounters,
        max_under_way: int,
    ) -> None:
        self._topics = topics
        self._catalog = catalog
        self._ownership = ownership
        self._counters = counters
        self._max_under_way = max_under_way
        self._under_way = 0

    async def partitions(self, request: bytes) -> bytes:
        asked = read_request(PartitionsRequest, request)
        answer = PartitionsAnswer()
        try:
            with self.counted():
                answer.partitions = await self._catalog.partitions(_topic_name(asked.topic), asked.create)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()

    async def lookup(self, request: bytes) -> bytes:
        asked = read_request(LookupRequest, request)
        answer = LookupAnswer()
        self._counters.lookups += 1
        try:
            with self.counted():
                home = await self._ownership.home(_topic_name(asked.topic))
            self._counters.lookups_elsewhere += not home.here
            answer.address = home.advertised.at(asked.listener_name)
        except BrokerError as error:
            self._counters.lookups_failed += 1
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()

    async def last_message(self, request: bytes) -> bytes:
        asked = read_request(LastMessageRequest, request)
        answer = LastMessageAnswer()
        try:
            with self.counted():
                await self._tell_last(_topic_name(asked.topic), answer)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()

    async def _tell_last(self, name: TopicName, answer: LastMessageAnswer) -> None:
        log = (await self._topics.get(name, create=False)).log
        answer.incarnation = log.incarnation
        if (last := await log.last_readable()) is not None:
            ledger_id, entry_id = last.position
            answer.last.CopyFrom(LastMessage(ledger_id=ledger_id, entry_id=entry_id, batch_size=last.batch_size))

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Raises `BrokerError` where too many are under way."""
        if self._under_way >= self._max_under_way:
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"{self._under_way} lookups are under way at this broker, which is max_concurrent_lookup_request: come "
                "again in a moment",
            )
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1


def read_request(kind: type[M], request: bytes) -> M:
    """Raises `Refusal`."""
    try:
        return kind.FromString(request)
    except DecodeError as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"the request can't be read: {error}") from None


def _topic_name(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)) from None
