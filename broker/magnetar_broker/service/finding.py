"""The calls by which a client finds a topic: `partitions`, `lookup`, `last_message`. See broker.proto.

What goes wrong is told in the answer, with its code; only a request that can't be read is refused by the transport.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.service.ownership import Ownership
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
        self, topics: Topics, catalog: PartitionCounts, ownership: Ownership, counters: BrokerCounters
    ) -> None:
        self._topics = topics
        self._catalog = catalog
        self._ownership = ownership
        self._counters = counters

    async def partitions(self, request: bytes) -> bytes:
        asked = read_request(PartitionsRequest, request)
        answer = PartitionsAnswer()
        try:
            answer.partitions = await self._catalog.partitions(_topic_name(asked.topic), asked.create)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()

    async def lookup(self, request: bytes) -> bytes:
        asked = read_request(LookupRequest, request)
        answer = LookupAnswer()
        self._counters.lookups += 1
        try:
            answer.address = await self._ownership.owner(_topic_name(asked.topic))
        except BrokerError as error:
            self._counters.lookups_failed += 1
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()

    async def last_message(self, request: bytes) -> bytes:
        asked = read_request(LastMessageRequest, request)
        answer = LastMessageAnswer()
        try:
            topic = await self._topics.get(_topic_name(asked.topic), create=False)
            log = topic.log
            answer.incarnation = log.incarnation
            last = log.last
            if last > log.before_first:
                (entry,) = await log.read_at([last])
                if entry is not None:
                    answer.last.CopyFrom(
                        LastMessage(ledger_id=last.ledger_id, entry_id=last.entry_id, batch_size=entry.batch_size)
                    )
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()


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
