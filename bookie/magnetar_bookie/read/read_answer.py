"""What a bookie's answer to a `read` says of each entry that it was asked for.

The entries asked for and below the answer's `next_entry_id` are each in one of its four lists. The records come without
ids beside them, in order: so they belong to the ids that the other three lists leave over, one by one, and each is held
against its checksum and the id that it stands for. One that is not good is as good as damaged on the disk. What can't
be read that way, such as an id that was not asked for or an answer that does not advance, is a `BadAnswer`: the bookie
is wrong in a way that nothing else in the answer can be believed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_bookie.read.record import BadRecord, are_valid_records, check_record
from magnetar_protos import ledger_pb2
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest

__all__ = ["BadAnswer", "LedgerGone", "MissingReason", "ReadEntries", "read_entries", "status_name"]


class MissingReason(enum.Enum):
    """Why a bookie gave no record."""

    ABSENT = "it never stored the entry"
    UNKNOWN = "it may have lost the entry"
    DAMAGED = "its copy of the entry is damaged"


class BadAnswer(ValueError):
    """An answer that does not fit what was asked, or a refusal."""


class LedgerGone(BadAnswer):
    """The bookie knows that the ledger was deleted."""


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The records and what is lacking, by entry id and in order."""

    entries: dict[int, bytes | MissingReason]
    # All of them, in order, where nothing is lacking; else None.
    records: list[bytes] | None
    # Where the answer ends: entries below this that were asked for are in `entries`.
    next_entry_id: int
    last_add_confirmed: int


def status_name(status: int) -> str:
    """For people to read; a bookie may be newer than this and know more of them."""
    try:
        return ledger_pb2.Status.Name(status)
    except ValueError:
        return f"status {status}"


def read_entries(request: ReadRequest, answer: ReadAnswer) -> ReadEntries:
    """Raises `BadAnswer`."""
    if answer.status == ledger_pb2.DELETED:
        raise LedgerGone("the ledger was deleted")
    if answer.status != ledger_pb2.OK:
        raise BadAnswer(f"it answered {status_name(answer.status)}")
    if answer.next_entry_id <= request.first_entry_id:
        raise BadAnswer(
            f"its answer ends at entry {answer.next_entry_id}, not after {request.first_entry_id}, the first "
            "one requested"
        )
    asked = range(request.first_entry_id, min(answer.next_entry_id, request.last_entry_id + 1), request.step or 1)
    lacking: dict[int, MissingReason] = {}
    for lack, listed in _lists(answer):
        for entry_id in listed:
            if entry_id not in asked or entry_id in lacking:
                raise BadAnswer(f"its answer lists entry {entry_id}, which was not requested, or lists it twice")
            lacking[entry_id] = lack
    if len(lacking) + len(answer.records) != len(asked):
        raise BadAnswer(f"its answer has {len(answer.records)} records, but {len(asked) - len(lacking)} are needed")
    ledger_id, records = request.ledger_id, list(answer.records)
    entries: dict[int, bytes | MissingReason]
    all_there = not lacking and are_valid_records(records, ledger_id, asked)
    if all_there:  # nearly always
        entries = dict(zip(asked, records, strict=True))
    else:
        given = iter(records)
        entries = {entry_id: lacking.get(entry_id) or _checked(next(given), ledger_id, entry_id) for entry_id in asked}
    return ReadEntries(
        entries,
        records if all_there else None,
        min(answer.next_entry_id, request.last_entry_id + 1),
        answer.last_add_confirmed,
    )


def _lists(answer: ReadAnswer) -> Iterable[tuple[MissingReason, Iterable[int]]]:
    return (
        (MissingReason.ABSENT, answer.absent),
        (MissingReason.UNKNOWN, answer.unknown),
        (MissingReason.DAMAGED, answer.damaged),
    )


def _checked(record: bytes, ledger_id: int, entry_id: int) -> bytes | MissingReason:
    try:
        check_record(record, ledger_id, entry_id)
    except BadRecord:
        return MissingReason.DAMAGED
    return record
