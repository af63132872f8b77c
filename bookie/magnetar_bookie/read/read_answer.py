"""Parses a bookie's answer to a `read`.

Each requested entry below the answer's `next_entry_id` must be in exactly one of its four lists. `absent`, `unknown`
and `damaged` contain entry ids. `records` has no ids: its records belong, in order, to the entries that the other lists
leave over. Each record is checked against its checksum and its id; an invalid one counts as damaged. An answer that
breaks these rules, e.g. one with an entry that was not requested, is a `BadAnswer`, and nothing of it is used.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_bookie.read.record import BadRecord, are_valid_records, check_record
from magnetar_protos import ledger_pb2
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest

__all__ = ["BadAnswer", "LedgerDeletedAnswer", "MissingReason", "ReadEntries", "format_status", "parse_read_answer"]


class MissingReason(enum.Enum):
    """Why a bookie returned no record of an entry."""

    ABSENT = "it never stored the entry"
    UNKNOWN = "it may have lost the entry"
    DAMAGED = "its copy of the entry is damaged"


class BadAnswer(ValueError):
    """An answer that does not match its request, or a refusal."""


class LedgerDeletedAnswer(BadAnswer):
    """The answer of a bookie that knows that the ledger was deleted."""


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The entries of an answer, in order: the record of each, or why it is missing."""

    entries: dict[int, bytes | MissingReason]
    # All records, in order; None: some entry is missing.
    records: list[bytes] | None
    # The answer covers the requested entries below this one.
    next_entry_id: int
    last_add_confirmed: int


def format_status(status: int) -> str:
    """Return the status' name, or its number if a newer version sent it."""
    try:
        return ledger_pb2.Status.Name(status)
    except ValueError:
        return f"status {status}"


def parse_read_answer(request: ReadRequest, answer: ReadAnswer) -> ReadEntries:
    """Check the answer and return its entries. Raises `BadAnswer`."""
    if answer.status == ledger_pb2.DELETED:
        raise LedgerDeletedAnswer("the ledger was deleted")
    if answer.status != ledger_pb2.OK:
        raise BadAnswer(f"it answered {format_status(answer.status)}")
    if answer.next_entry_id <= request.first_entry_id:
        raise BadAnswer(
            f"its answer ends at entry {answer.next_entry_id}, not after {request.first_entry_id}, the first "
            "one requested"
        )
    requested = range(request.first_entry_id, min(answer.next_entry_id, request.last_entry_id + 1), request.step or 1)
    missing: dict[int, MissingReason] = {}
    for reason, entry_ids in _missing_lists(answer):
        for entry_id in entry_ids:
            if entry_id not in requested or entry_id in missing:
                raise BadAnswer(f"its answer lists entry {entry_id}, which was not requested, or lists it twice")
            missing[entry_id] = reason
    if len(missing) + len(answer.records) != len(requested):
        raise BadAnswer(f"its answer has {len(answer.records)} records, but {len(requested) - len(missing)} are needed")
    ledger_id, records = request.ledger_id, list(answer.records)
    entries: dict[int, bytes | MissingReason]
    is_complete = not missing and are_valid_records(records, ledger_id, requested)
    if is_complete:  # nearly always
        entries = dict(zip(requested, records, strict=True))
    else:
        left = iter(records)
        entries = {
            entry_id: missing.get(entry_id) or _check_or_damaged(next(left), ledger_id, entry_id)
            for entry_id in requested
        }
    return ReadEntries(
        entries,
        records if is_complete else None,
        min(answer.next_entry_id, request.last_entry_id + 1),
        answer.last_add_confirmed,
    )


def _missing_lists(answer: ReadAnswer) -> Iterable[tuple[MissingReason, Iterable[int]]]:
    return (
        (MissingReason.ABSENT, answer.absent),
        (MissingReason.UNKNOWN, answer.unknown),
        (MissingReason.DAMAGED, answer.damaged),
    )


def _check_or_damaged(record: bytes, ledger_id: int, entry_id: int) -> bytes | MissingReason:
    try:
        check_record(record, ledger_id, entry_id)
    except BadRecord:
        return MissingReason.DAMAGED
    return record
