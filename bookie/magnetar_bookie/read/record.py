"""The record: an entry as bookies keep it and as it travels to and from them.

    ledger id (8) · entry id (8) · last add confirmed (8, signed) · ledger bytes (8) · crc32c (4) · entry

The writer makes it once, and every bookie holds the same bytes: recovery and re-replication pass records on as they
are. So two bookies that hold different records under one id prove a fault, and the writer's LAC comes with each entry.
`ledger bytes` are those of all the ledger's entries up to and with this one. The checksum covers everything else, the
ids with it, so that a record can't be taken for another ledger's or another entry's. All numbers are big endian.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar_wire.limits import MAX_ENTRY_BYTES

__all__ = [
    "MAX_RECORD_BYTES",
    "NO_ENTRY",
    "RECORD_HEADER_BYTES",
    "BadRecord",
    "Header",
    "are_valid_records",
    "check_record",
    "encode_record",
    "entry_of",
    "find_highest_lac",
]

# Before the first entry: the last entry of an empty ledger, the LAC of one in which nothing is confirmed.
NO_ENTRY: Final = -1
_FIELDS: Final = struct.Struct(">QQqQ")
_CRC: Final = struct.Struct(">I")
_WHOLE_HEADER: Final = struct.Struct(">QQqQI")
_FIELDS_EACH: Final = 5
RECORD_HEADER_BYTES: Final = _WHOLE_HEADER.size
_SMALL: Final = 4096
_fields_in: Final = operator.itemgetter(slice(_FIELDS.size))
_entry_in: Final = operator.itemgetter(slice(_WHOLE_HEADER.size, None))
MAX_RECORD_BYTES: Final = MAX_ENTRY_BYTES + RECORD_HEADER_BYTES


class BadRecord(ValueError):
    """Bytes that are no whole record, or another entry's."""


class Header(NamedTuple):
    """What a record says besides its entry. A tuple: one is made for each record that comes or goes."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    ledger_bytes: int


def encode_record(ledger_id: int, entry_id: int, last_add_confirmed: int, ledger_bytes: int, entry: bytes) -> bytes:
    fields = _FIELDS.pack(ledger_id, entry_id, last_add_confirmed, ledger_bytes)
    return b"".join((fields, _CRC.pack(crc32c(entry, crc32c(fields))), entry))


def check_record(record: bytes, ledger_id: int, entry_id: int) -> Header:
    """The header, if the record is whole and this entry's; raises `BadRecord`."""
    if not RECORD_HEADER_BYTES <= len(record) <= MAX_RECORD_BYTES:
        raise BadRecord(
            f"the record of entry {entry_id} of ledger {ledger_id} has {len(record)} bytes: "
            f"{RECORD_HEADER_BYTES} … {MAX_RECORD_BYTES} are valid"
        )
    says_ledger_id, says_entry_id, confirmed, ledger_bytes, stated = _WHOLE_HEADER.unpack_from(record)
    if crc32c(memoryview(record)[RECORD_HEADER_BYTES:], crc32c(record[: _FIELDS.size])) != stated:
        raise BadRecord(f"the record of entry {entry_id} of ledger {ledger_id} does not match its checksum")
    if says_ledger_id != ledger_id or says_entry_id != entry_id:
        raise BadRecord(
            f"the record of entry {entry_id} of ledger {ledger_id} belongs to entry {says_entry_id} of "
            f"ledger {says_ledger_id}"
        )
    if not NO_ENTRY <= confirmed < entry_id:
        raise BadRecord(
            f"the record of entry {entry_id} of ledger {ledger_id} has the LAC {confirmed}, which is not below "
            "the entry"
        )
    return Header(ledger_id, entry_id, confirmed, ledger_bytes)


def are_valid_records(records: Sequence[bytes], ledger_id: int, entry_ids: Sequence[int]) -> bool:
    """Whether `check_record` would take each for the entry in the same place; who is told no asks it one by one."""
    return not records or find_highest_lac(records, ledger_id, entry_ids) is not None


def find_highest_lac(records: Sequence[bytes], ledger_id: int, entry_ids: Sequence[int]) -> int | None:
    """The highest LAC that one of the records says, if `check_record` would take each for the entry in the same place.

    There is one at least. Done for all at a time, in C as far as it goes: with 1 KiB each it takes 0.57 µs a record,
    and 1.05 µs one by one.
    """
    headers = b"".join([record[:RECORD_HEADER_BYTES] for record in records])
    if len(headers) != len(records) * RECORD_HEADER_BYTES or max(map(len, records)) > MAX_RECORD_BYTES:
        return None
    fields = _headers(len(records)).unpack(headers)
    entries, confirmed = fields[1::_FIELDS_EACH], fields[2::_FIELDS_EACH]
    if fields[::_FIELDS_EACH].count(ledger_id) != len(records) or entries != tuple(entry_ids):
        return None
    if min(confirmed) < NO_ENTRY or not all(map(operator.lt, confirmed, entries)):
        return None
    # A small entry is sooner copied than looked at through a view; one at a time, so that copies take no memory.
    small = max(map(len, records)) < _SMALL
    looked_at: Iterable[bytes | memoryview] = records if small else (memoryview(record) for record in records)
    sums = map(crc32c, map(_entry_in, looked_at), map(crc32c, map(_fields_in, records)))
    return max(confirmed) if tuple(sums) == fields[4::_FIELDS_EACH] else None


@lru_cache(maxsize=32)
def _headers(count: int) -> struct.Struct:
    """So many headers one behind the other."""
    return struct.Struct(">" + _WHOLE_HEADER.format.removeprefix(">") * count)


def entry_of(record: bytes) -> bytes:
    """The entry in a record that was checked."""
    return record[RECORD_HEADER_BYTES:]
