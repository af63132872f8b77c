"""The calls of clients about a topic, `lookup`, `partitions` and `last_message` (broker.proto), and the call of other
brokers that assign a bundle to this one, `claim` (ownership.proto).

Errors are part of the answer, with their code. Only a request that can't be decoded is refused by the transport.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.concurrency_limit import ConcurrencyLimit
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.context import ServerContext
from magnetar_protos.broker_pb2 import (
    ErrorCode,
    FirstChunk,
    LastMessage,
    LastMessageAnswer,
    LastMessageRequest,
    LookupAnswer,
    LookupRequest,
    PartitionsAnswer,
    PartitionsRequest,
)
from magnetar_protos.ownership_pb2 import ClaimAnswer, ClaimRequest
from magnetar_wire.bundles import BundleRange
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName, TopicName
from magnetar_wire.transport import Code, Refusal

__all__ = ["claim_bundle", "decode_request", "get_last_message", "get_partitions", "look_up", "parse_topic_name"]

M = TypeVar("M", bound=Message)


async def look_up(server: ServerContext, session: BrokerSession, data: bytes) -> bytes:
    """Answer with the address of the topic's owner."""
    request, answer = decode_request(LookupRequest, data), LookupAnswer()
    server.counters.lookups += 1
    try:
        with server.lookup_limit.hold():
            owner = await session.ownership.find_owner(parse_topic_name(request.topic))
        server.counters.lookups_elsewhere += not owner.is_local
        answer.address = owner.addresses.find(request.listener_name)
    except BrokerError as error:
        server.counters.lookups_failed += 1
        answer.problem.CopyFrom(error.problem)
    return answer.SerializeToString()


async def get_partitions(server: ServerContext, session: BrokerSession, data: bytes) -> bytes:
    """Answer with the topic's number of partitions; 0: it has none."""
    request, answer = decode_request(PartitionsRequest, data), PartitionsAnswer()
    try:
        with server.lookup_limit.hold():
            name = parse_topic_name(request.topic)
            answer.partitions = await session.catalog.resolve_partitions(name, request.create)
    except BrokerError as error:
        answer.problem.CopyFrom(error.problem)
    return answer.SerializeToString()


async def get_last_message(server: ServerContext, session: BrokerSession, data: bytes) -> bytes:
    """Answer with the topic's incarnation and its last readable message, if it has one."""
    request, answer = decode_request(LastMessageRequest, data), LastMessageAnswer()
    try:
        with server.lookup_limit.hold():
            log = (await session.topics.get(parse_topic_name(request.topic), create=False)).log
            answer.incarnation = log.incarnation
            if (last := await log.read_last_readable()) is not None:
                ends = None
                if request.find_first_chunk and last.chunk is not None:
                    ends = await log.find_ends(last)
                ledger_id, entry_id = last.position if ends is None else ends.last
                answer.last.CopyFrom(LastMessage(ledger_id=ledger_id, entry_id=entry_id, batch_size=last.batch_size))
                if ends is not None:
                    answer.last.first_chunk.CopyFrom(FirstChunk(ledger_id=ends.first[0], entry_id=ends.first[1]))
    except BrokerError as error:
        answer.problem.CopyFrom(error.problem)
    return answer.SerializeToString()


async def claim_bundle(limit: ConcurrencyLimit, session: BrokerSession, data: bytes) -> bytes:
    """Claim the bundle for this broker, unless it has an owner. Answer with its owner."""
    request, answer = decode_request(ClaimRequest, data), ClaimAnswer()
    with limit.hold():
        try:
            owner = await session.ownership.claim_bundle(*_parse_bundle(request))
            answer.owner.CopyFrom(owner)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
    return answer.SerializeToString()


def decode_request(kind: type[M], data: bytes) -> M:
    """Raises `Refusal`."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"the request can't be decoded: {error}") from None


def parse_topic_name(text: str) -> TopicName:
    """Raises `BrokerError`."""
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)) from None


def _parse_bundle(request: ClaimRequest) -> tuple[NamespaceName, BundleRange]:
    try:
        return NamespaceName.parse(request.namespace), BundleRange.parse(request.bundle)
    except (InvalidTopicName, ValueError) as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None
