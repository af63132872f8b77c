"""What a client's acknowledgement names, checked: it may name anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import EntriesOf, MessagesOf
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, EntryRange, ErrorCode
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["Acknowledged", "check_ranges", "read_acknowledge"]

_MOST_ID: Final = 2**63 - 1


@dataclass(slots=True)
class Acknowledged:
    entries: list[EntriesOf] = field(default_factory=list)
    messages: list[MessagesOf] = field(default_factory=list)


def read_acknowledge(request: Acknowledge) -> Acknowledged:
    """Raises `BrokerError`. Of a cumulative one: the one place that it names."""
    places = len(request.entries) + len(request.messages)
    if request.cumulative and places != 1:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"a cumulative acknowledgement names one place, and this one {places}"
        )
    return Acknowledged(check_ranges(request.entries), [_messages(one) for one in request.messages])


def check_ranges(ranges: Iterable[EntryRange]) -> list[EntriesOf]:
    checked = [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in ranges]
    for ledger_id, first, last in checked:
        if ledger_id > _MOST_ID or last > _MOST_ID or first > last:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"entries {first} … {last} of ledger {ledger_id} are no range: ids are below 2^63, the first one first",
            )
    return checked


def _messages(one: BatchMessages) -> MessagesOf:
    if one.ledger_id > _MOST_ID or one.entry_id > _MOST_ID:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{one.ledger_id}:{one.entry_id} is no entry: ids are below 2^63")
    if not 0 < one.batch_size <= MAX_BATCH_MESSAGES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"entry {one.ledger_id}:{one.entry_id} is said to be a batch of {one.batch_size} messages: a batch has "
            f"1 … {MAX_BATCH_MESSAGES}",
        )
    bits = int.from_bytes(one.messages, "little") if len(one.messages) <= one.batch_size // 8 + 1 else -1
    if bits <= 0 or bits >> one.batch_size:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"{len(one.messages)} bytes name messages of entry {one.ledger_id}:{one.entry_id}, a batch of "
            f"{one.batch_size}: name one at least, and none that it has not",
        )
    return Position(one.ledger_id, one.entry_id), bits, one.batch_size
