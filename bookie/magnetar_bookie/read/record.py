"""The record: an entry with a header, as bookies store it and as clients send and receive it.

    ledger id (8) · entry id (8) · last add confirmed (8, signed) · ledger bytes (8) · crc32c (4) · entry

The writer encodes it once, and every bookie stores the same bytes: recovery and re-replication copy records unchanged.
Two bookies with different records of one entry therefore prove a fault. Each record carries the LAC that its writer had
when it was encoded. `ledger bytes` is the size of all entries of the ledger up to and including this one. The checksum
covers all other fields, ids included, so that a record can't be mistaken for that of another ledger or entry. All
numbers are big endian.
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
    "RecordHeader",
    "are_valid_records",
    "check_record",
    "encode_record",
    "extract_entries",
    "extract_entry",
    "find_highest_lac",
]

# The last entry of an empty ledger, and the LAC of a ledger without confirmed entries.
NO_ENTRY: Final = -1
_FIELDS: Final = struct.Struct(">QQqQ")
_CRC: Final = struct.Struct(">I")
_WHOLE_HEADER: Final = struct.Struct(">QQqQI")
# Of many headers at once: without the ledger bytes.
_CHECKED_FIELDS: Final = "QQq8xI"
_FIELDS_EACH: Final = 4
RECORD_HEADER_BYTES: Final = _WHOLE_HEADER.size
_SMALL: Final = 4096
# These three run in C for each record.
_get_fields: Final = operator.itemgetter(slice(_FIELDS.size))
_get_header: Final = operator.itemgetter(slice(_WHOLE_HEADER.size))
_get_entry: Final = operator.itemgetter(slice(_WHOLE_HEADER.size, None))
MAX_RECORD_BYTES: Final = MAX_ENTRY_BYTES + RECORD_HEADER_BYTES


class BadRecord(ValueError):
    """A record that is truncated, too long or damaged, or belongs to another entry."""


class RecordHeader(NamedTuple):
    """The fields in front of a record's entry, without the checksum. A tuple, since one is made per record."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    ledger_bytes: int


def encode_record(ledger_id: int, entry_id: int, last_add_confirmed: int, ledger_bytes: int, entry: bytes) -> bytes:
    """Return the record of an entry."""
    fields = _FIELDS.pack(ledger_id, entry_id, last_add_confirmed, ledger_bytes)
    return b"".join((fields, _CRC.pack(crc32c(entry, crc32c(fields))), entry))


def check_record(record: bytes, ledger_id: int, entry_id: int) -> RecordHeader:
    """Return the header of a valid record of this entry. Raises `BadRecord`."""
    if not RECORD_HEADER_BYTES <= len(record) <= MAX_RECORD_BYTES:
        raise BadRecord(
            f"the record of entry {entry_id} of ledger {ledger_id} has {len(record)} bytes: "
            f"{RECORD_HEADER_BYTES} … {MAX_RECORD_BYTES} are valid"
        )
    actual_ledger_id, actual_entry_id, confirmed, ledger_bytes, checksum = _WHOLE_HEADER.unpack_from(record)
    if crc32c(memoryview(record)[RECORD_HEADER_BYTES:], crc32c(record[: _FIELDS.size])) != checksum:
        raise BadRecord(f"the record of entry {entry_id} of ledger {ledger_id} does not match its checksum")
    if actual_ledger_id != ledger_id or actual_entry_id != entry_id:
        raise BadRecord(
            f"the record of entry {entry_id} of ledger {ledger_id} belongs to entry {actual_entry_id} of "
            f"ledger {actual_ledger_id}"
        )
    if not NO_ENTRY <= confirmed < entry_id:
        raise BadRecord(
            f"the record of entry {entry_id} of ledger {ledger_id} has the LAC {confirmed}, which is not below "
            "the entry"
        )
    return RecordHeader(ledger_id, entry_id, confirmed, ledger_bytes)


def are_valid_records(records: Sequence[bytes], ledger_id: int, entry_ids: Sequence[int]) -> bool:
    """Return whether `check_record` accepts each record for the entry id at the same index."""
    return not records or find_highest_lac(records, ledger_id, entry_ids) is not None


def find_highest_lac(records: Sequence[bytes], ledger_id: int, entry_ids: Sequence[int]) -> int | None:
    """Return the highest LAC of these records if `check_record` accepts each for the entry id at the same index.

    Return None if it doesn't. `records` is not empty. All records are checked together, mostly in C: a record of 1 KiB
    takes 0.57 µs, and 1.05 µs with `check_record`.
    """
    count, largest = len(records), max(map(len, records))
    headers = b"".join(map(_get_header, records))
    if len(headers) != count * RECORD_HEADER_BYTES or largest > MAX_RECORD_BYTES:
        return None
    fields = _headers(count).unpack(headers)
    entries, confirmed = fields[1::_FIELDS_EACH], fields[2::_FIELDS_EACH]
    if fields[::_FIELDS_EACH].count(ledger_id) != count or entries != tuple(entry_ids):
        return None
    if min(confirmed) < NO_ENTRY or not all(map(operator.lt, confirmed, entries)):
        return None
    # Copying a small entry is faster than making a view of it. `map` copies one at a time, so that memory stays small.
    readable: Iterable[bytes | memoryview] = records if largest < _SMALL else map(memoryview, records)
    checksums = map(crc32c, map(_get_entry, readable), map(crc32c, map(_get_fields, records)))
    return max(confirmed) if tuple(checksums) == fields[3::_FIELDS_EACH] else None


@lru_cache(maxsize=32)
def _headers(count: int) -> struct.Struct:
    """Return the layout of `count` consecutive headers."""
    return struct.Struct(">" + _CHECKED_FIELDS * count)


def extract_entry(record: bytes) -> bytes:
    """Return the entry of a valid record."""
    return record[RECORD_HEADER_BYTES:]


def extract_entries(records: Iterable[bytes]) -> list[bytes]:
    """Return the entries of valid records."""
    return list(map(_get_entry, records))
