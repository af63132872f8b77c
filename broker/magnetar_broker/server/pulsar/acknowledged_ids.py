"""The message ids of ACK and of redelivery requests: whole entries as ranges, and partial batches.

Clients collect acknowledgements for a moment and send them in the order of the messages. So consecutive ids become one
range, and a thousand of them cost the cursor as much as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magnetar_broker.position import Position
from magnetar_broker.server.pulsar.message_ids import MAX_WORDS, to_position
from magnetar_protos.broker_pb2 import EntryRange
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import CommandAck, CommandRedeliverUnacknowledgedMessages

__all__ = ["UnackedBatch", "entry_ranges", "split_ack", "split_redelivery", "whole_and_partial"]

# A batch and its unacknowledged messages, as words of the protocol's bit set.
UnackedBatch = tuple[Position, Sequence[int]]


def whole_and_partial(message_ids: Iterable[MessageIdData]) -> tuple[list[EntryRange], list[UnackedBatch]]:
    """Return the whole entries as ranges, and the partial batches.

    Ids below 0, which are `earliest` or of an empty topic, are skipped.
    """
    whole: list[MessageIdData] = []
    partial: list[UnackedBatch] = []
    for one in message_ids:
        if one.ack_set and any(words := one.ack_set[:MAX_WORDS]):
            partial.append((to_position(one), words))
        else:
            whole.append(one)
    return entry_ranges(whole), partial


def entry_ranges(message_ids: Iterable[MessageIdData]) -> list[EntryRange]:
    """Return the entries as ranges, without regard to messages of batches."""
    ranges: list[EntryRange] = []
    ledger_id, first, last = -1, 0, -2
    for one in message_ids:
        entry_id = one.entryId
        if entry_id == last + 1 and one.ledgerId == ledger_id:
            last = entry_id
            continue
        if ledger_id >= 0:
            ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last))
        position = to_position(one)
        if position.ledger_id < 0 or position.entry_id < 0:
            ledger_id, first, last = -1, 0, -2
        else:
            ledger_id, first, last = position.ledger_id, entry_id, entry_id
    if ledger_id >= 0:
        ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last))
    return ranges


def split_ack(request: CommandAck, max_ids: int) -> Iterator[CommandAck]:
    """Split an acknowledgement into parts of at most `max_ids` ids. Only the last is answered.

    A cumulative one has a single id, and is not split.
    """
    ids, last = request.message_id, max(0, len(request.message_id) - 1) // max_ids * max_ids
    if request.ack_type == CommandAck.CUMULATIVE:
        yield request
        return
    for begin in range(0, last, max_ids):
        yield CommandAck(
            consumer_id=request.consumer_id,
            ack_type=request.ack_type,
            message_id=ids[begin : begin + max_ids],
            txnid_least_bits=request.txnid_least_bits,
            txnid_most_bits=request.txnid_most_bits,
        )
    del ids[:last]
    yield request


def split_redelivery(
    request: CommandRedeliverUnacknowledgedMessages, max_ids: int
) -> Iterator[CommandRedeliverUnacknowledgedMessages]:
    """Split a redelivery request into parts of at most `max_ids` ids."""
    ids, last = request.message_ids, max(0, len(request.message_ids) - 1) // max_ids * max_ids
    for begin in range(0, last, max_ids):
        part = CommandRedeliverUnacknowledgedMessages(
            consumer_id=request.consumer_id, message_ids=ids[begin : begin + max_ids]
        )
        if request.HasField("consumer_epoch"):
            part.consumer_epoch = request.consumer_epoch
        yield part
    del ids[:last]
    yield request
