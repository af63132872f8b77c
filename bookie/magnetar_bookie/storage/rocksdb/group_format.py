"""The format of a group of changes in the log.

    header | table | records

The header has the size of the rest. The table has everything but the bytes of the records: their ids and sizes, the
data of ledgers, what is dropped and discarded, and the bookie's own record. So a reader can skip the records. Header
and table have one checksum, the records another: if only the records are damaged, it is still known which ones there
are. Groups are numbered from 1 without gaps, so a missing one is noticed. All numbers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

from crc32c import crc32c

from magnetar_bookie.storage.interface import Changes, LedgerData

__all__ = [
    "HEADER_BYTES",
    "MAGIC_BYTES",
    "MAX_TABLE_BYTES",
    "MIN_GROUP_BYTES",
    "BadGroup",
    "EncodedGroup",
    "GroupHeader",
    "GroupTable",
    "decode_group_header",
    "decode_ledger_data",
    "decode_table",
    "encode_group",
    "encode_ledger_data",
]

_MAGIC: Final = 0x4D474C47
MAGIC_BYTES: Final = _MAGIC.to_bytes(4, "big")
# Magic, checksum of the rest of the header and of the table.
_PREFIX: Final = struct.Struct(">II")
# Number, bytes of the table, bytes of the records, checksum of the records, flags.
_FIELDS: Final = struct.Struct(">QIQIB")
HEADER_BYTES: Final = _PREFIX.size + _FIELDS.size
# Larger than the table of any group that a bookie writes: a damaged length must not take memory.
MAX_TABLE_BYTES: Final = 256 << 20
_COMPACTION_FLAG: Final = 1

_COUNTS: Final = struct.Struct(">IIIIi")
MIN_GROUP_BYTES: Final = HEADER_BYTES + _COUNTS.size
_RECORD: Final = struct.Struct(">QQI")
_LEDGER: Final = struct.Struct(">QH")
_ID: Final = struct.Struct(">Q")
_IDS: Final = struct.Struct(">QQ")

# Data of a ledger: flags, last add confirmed, limbo cleared; the master key follows.
_LEDGER_DATA: Final = struct.Struct(">BqQ")
_FENCED, _DELETED, _SETTLED = 1, 2, 4


class BadGroup(ValueError):
    """Bytes that are not a valid group."""


@dataclass(frozen=True, slots=True)
class GroupHeader:
    number: int
    table_bytes: int
    records_bytes: int
    records_crc: int
    is_compaction: bool
    # The expected checksum of header and table, and the actual one of the header alone.
    crc: int
    header_crc: int

    @property
    def group_bytes(self) -> int:
        return HEADER_BYTES + self.table_bytes + self.records_bytes


@dataclass(slots=True)
class GroupTable:
    """A group without the bytes of its records."""

    # Ledger id, entry id, size, in the order of the records.
    records: list[tuple[int, int, int]] = field(default_factory=list)
    ledgers: dict[int, LedgerData] = field(default_factory=dict)
    dropped: Sequence[int] = ()
    discarded: Sequence[tuple[int, int]] = ()
    bookie: bytes | None = None


@dataclass(slots=True)
class EncodedGroup:
    number: int
    table: GroupTable
    # Header and table, then each record.
    parts: list[bytes]
    # Offset of the first record in the group.
    records_offset: int
    group_bytes: int


def encode_group(number: int, changes: Changes, *, is_compaction: bool = False) -> EncodedGroup:
    """Encode a group. `is_compaction`: its records were in the log before, in a segment that will be deleted."""
    records = [(ledger_id, entry_id, len(record)) for (ledger_id, entry_id), record in changes.records.items()]
    table = GroupTable(records, changes.ledgers, changes.dropped, changes.discarded, changes.bookie)
    encoded = _encode_table(table)
    crc, size = 0, 0
    for record in changes.records.values():
        crc = crc32c(record, crc)
        size += len(record)
    fields = _FIELDS.pack(number, len(encoded), size, crc, _COMPACTION_FLAG if is_compaction else 0)
    first = b"".join((_PREFIX.pack(_MAGIC, crc32c(encoded, crc32c(fields))), fields, encoded))
    return EncodedGroup(number, table, [first, *changes.records.values()], len(first), len(first) + size)


def decode_group_header(data: bytes) -> GroupHeader:
    """Decode a header. Raises `BadGroup`. Its checksum is only checked by `decode_table`."""
    if len(data) < HEADER_BYTES:
        raise BadGroup(f"the head of a group has {len(data)} bytes: {HEADER_BYTES} are needed")
    magic, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise BadGroup(f"a group begins with {magic:08x}, not with the magic number {_MAGIC:08x}")
    number, table_bytes, records_bytes, records_crc, flags = _FIELDS.unpack_from(data, _PREFIX.size)
    if table_bytes > MAX_TABLE_BYTES:
        raise BadGroup(f"the table of a group has {table_bytes} bytes, above the limit of {MAX_TABLE_BYTES}")
    header_crc = crc32c(data[_PREFIX.size : HEADER_BYTES])
    return GroupHeader(number, table_bytes, records_bytes, records_crc, bool(flags & _COMPACTION_FLAG), crc, header_crc)


def decode_table(header: GroupHeader, data: bytes) -> GroupTable:
    """Decode a table. Raises `BadGroup` if the table or the header is damaged."""
    if len(data) != header.table_bytes or crc32c(data, header.header_crc) != header.crc:
        raise BadGroup(f"the head or the table of group {header.number} does not match its checksum")
    table = _decode_table(data)
    if sum(size for _, _, size in table.records) != header.records_bytes:
        raise BadGroup(f"the records of group {header.number} do not add up to the size in its head")
    return table


def encode_ledger_data(ledger: LedgerData) -> bytes:
    flags = _FENCED * ledger.fenced | _DELETED * ledger.deleted | _SETTLED * ledger.settled
    return _LEDGER_DATA.pack(flags, ledger.last_add_confirmed, ledger.limbo_cleared) + ledger.master_key


def decode_ledger_data(data: bytes) -> LedgerData:
    flags, last_add_confirmed, limbo_cleared = _LEDGER_DATA.unpack_from(data)
    return LedgerData(
        master_key=data[_LEDGER_DATA.size :],
        fenced=bool(flags & _FENCED),
        last_add_confirmed=last_add_confirmed,
        deleted=bool(flags & _DELETED),
        limbo_cleared=limbo_cleared,
        settled=bool(flags & _SETTLED),
    )


def _encode_table(table: GroupTable) -> bytes:
    bookie = table.bookie
    parts = [
        _COUNTS.pack(
            len(table.records),
            len(table.ledgers),
            len(table.dropped),
            len(table.discarded),
            -1 if bookie is None else len(bookie),
        )
    ]
    parts += starmap(_RECORD.pack, table.records)
    for ledger_id, ledger in table.ledgers.items():
        encoded = encode_ledger_data(ledger)
        parts += [_LEDGER.pack(ledger_id, len(encoded)), encoded]
    parts += [_ID.pack(ledger_id) for ledger_id in table.dropped]
    parts += [_IDS.pack(*key) for key in table.discarded]
    if bookie is not None:
        parts.append(bookie)
    return b"".join(parts)


def _decode_table(data: bytes) -> GroupTable:
    """Decode a table whose checksum is right."""
    records, ledgers, dropped, discarded, bookie = _COUNTS.unpack_from(data)
    at = _COUNTS.size
    table = GroupTable()
    table.records = list(_RECORD.iter_unpack(data[at : at + records * _RECORD.size]))
    at += records * _RECORD.size
    for _ in range(ledgers):
        ledger_id, size = _LEDGER.unpack_from(data, at)
        at += _LEDGER.size
        table.ledgers[ledger_id] = decode_ledger_data(data[at : at + size])
        at += size
    table.dropped = [ledger_id for (ledger_id,) in _ID.iter_unpack(data[at : at + dropped * _ID.size])]
    at += dropped * _ID.size
    table.discarded = list(_IDS.iter_unpack(data[at : at + discarded * _IDS.size]))
    at += discarded * _IDS.size
    if bookie >= 0:
        table.bookie = data[at : at + bookie]
    return table
