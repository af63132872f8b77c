"""Admin calls on the stored messages of a topic without partitions, or of a partition, at its owner."""

from __future__ import annotations

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.readable_entries import read_if_readable
from magnetar_broker.position import Position
from magnetar_broker.topics.topic import Topic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.entry import decode_entry_metadata

__all__ = ["MessageCalls"]


class MessageCalls:
    async def last_message_id(self, topic: Topic, request: pb.TopicRequest) -> pb.MessageIdAnswer:
        entry = await topic.log.read_last_readable()
        if entry is None:
            return _id_answer(topic, Position(topic.log.last.ledger_id, -1))
        _, metadata = decode_entry_metadata(entry.stored)
        is_batch = metadata.HasField("num_messages_in_batch")
        return _id_answer(topic, entry.position, metadata.num_messages_in_batch - 1 if is_batch else -1)

    async def find_message_id(self, topic: Topic, request: pb.FindMessageIdRequest) -> pb.MessageIdAnswer:
        return _id_answer(topic, await topic.log.find_first_at_time(request.time_ms))

    async def message_at(self, topic: Topic, request: pb.MessageAtRequest) -> pb.MessageAnswer:
        return await _read_entry(topic, Position(request.ledger_id, request.entry_id))

    async def examine_message(self, topic: Topic, request: pb.ExamineMessageRequest) -> pb.MessageAnswer:
        if request.start not in ("", "earliest", "latest"):
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, f"unknown start {request.start!r:.100}: use earliest or latest"
            )
        ledger_list = topic.managed_ledger.ledger_list
        if not ledger_list.entries:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{topic.name} stores no messages")
        number = min(max(request.number, 1), ledger_list.entries)
        rank = number - 1 if request.start == "earliest" else ledger_list.entries - number
        return await _read_entry(topic, _find_entry(ledger_list, rank))


async def _read_entry(topic: Topic, position: Position) -> pb.MessageAnswer:
    entry: LogEntry | None = None
    if topic.managed_ledger.ledger_list.holds(position):
        entry = await read_if_readable(topic.log, position)
    if entry is None:
        raise BrokerError(
            ErrorCode.NOT_FOUND, f"{topic.name} has no entry {position.ledger_id}:{position.entry_id}, or it is lost"
        )
    return pb.MessageAnswer(
        entry=pb.PeekedEntry(ledger_id=position.ledger_id, entry_id=position.entry_id, stored=entry.stored)
    )


def _id_answer(topic: Topic, position: Position, batch_index: int = -1) -> pb.MessageIdAnswer:
    return pb.MessageIdAnswer(
        message_id=pb.MessagePositionInTopic(
            ledger_id=position.ledger_id,
            entry_id=position.entry_id,
            partition=topic.name.partition_index,
            batch_index=batch_index,
        )
    )


def _find_entry(ledger_list: LedgerList, rank: int) -> Position:
    """Return the entry that has `rank` entries before it in the list, which has more entries."""
    for ledger in ledger_list.ledgers:
        if rank < ledger.entries:
            return Position(ledger.ledger_id, rank)
        rank -= ledger.entries
    raise AssertionError("the list has fewer entries")
