"""Ids that a client names, to acknowledge them or to have them again: whole entries as ranges, and parts of batches.

Clients gather acknowledgements for a moment and send them in the order of the messages, so ids that follow each other
become one range, and a thousand of them cost the cursor as much as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magnetar_broker.core.position import Position
from magnetar_broker.server.pulsar.message_ids import MOST_WORDS, position_of
from magnetar_protos.broker_pb2 import EntryRange
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import CommandAck, CommandRedeliverUnacknowledgedMessages

__all__ = ["OpenMessages", "ack_in_parts", "ranges_of", "redelivery_in_parts", "whole_and_partial"]

# A batch of which some messages are still open, as words of the protocol's bit set.
OpenMessages = tuple[Position, Sequence[int]]


def whole_and_partial(message_ids: Iterable[MessageIdData]) -> tuple[list[EntryRange], list[OpenMessages]]:
    """Ids of no entry are passed over: an id in the range below 0 is `earliest`, or of an empty topic."""
    whole: list[MessageIdData] = []
    partial: list[OpenMessages] = []
    for one in message_ids:
        if one.ack_set and any(words := one.ack_set[:MOST_WORDS]):
            partial.append((position_of(one), words))
        else:
            whole.append(one)
    return ranges_of(whole), partial


def ranges_of(message_ids: Iterable[MessageIdData]) -> list[EntryRange]:
    """Entries, whatever is said of their messages."""
    ranges: list[EntryRange] = []
    ledger_id, first, last = -1, 0, -2
    for one in message_ids:
        entry_id = one.entryId
        if entry_id == last + 1 and one.ledgerId == ledger_id:
            last = entry_id
            continue
        if ledger_id >= 0:
            ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last))
        position = position_of(one)
        if position.ledger_id < 0 or position.entry_id < 0:
            ledger_id, first, last = -1, 0, -2
        else:
            ledger_id, first, last = position.ledger_id, entry_id, entry_id
    if ledger_id >= 0:
        ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last))
    return ranges


def ack_in_parts(asked: CommandAck, most: int) -> Iterator[CommandAck]:
    """The same, of at most so many ids each; a receipt is for the last. A cumulative one stays whole: it names one."""
    ids, last = asked.message_id, max(0, len(asked.message_id) - 1) // most * most
    if asked.ack_type == CommandAck.CUMULATIVE:
        yield asked
        return
    for begin in range(0, last, most):
        yield CommandAck(
            consumer_id=asked.consumer_id,
            ack_type=asked.ack_type,
            message_id=ids[begin : begin + most],
            txnid_least_bits=asked.txnid_least_bits,
            txnid_most_bits=asked.txnid_most_bits,
        )
    del ids[:last]
    yield asked


def redelivery_in_parts(
    asked: CommandRedeliverUnacknowledgedMessages, most: int
) -> Iterator[CommandRedeliverUnacknowledgedMessages]:
    """The same, of at most so many ids each."""
    ids, last = asked.message_ids, max(0, len(asked.message_ids) - 1) // most * most
    for begin in range(0, last, most):
        part = CommandRedeliverUnacknowledgedMessages(
            consumer_id=asked.consumer_id, message_ids=ids[begin : begin + most]
        )
        if asked.HasField("consumer_epoch"):
            part.consumer_epoch = asked.consumer_epoch
        yield part
    del ids[:last]
    yield asked
