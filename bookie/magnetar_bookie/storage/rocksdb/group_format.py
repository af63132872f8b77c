"""A group of changes as it stands in the log.

    head | table | records

The head says what follows and how long it is. The table holds everything but the bytes of the records: their ids and
sizes, what is remembered of ledgers, what is dropped and discarded, the bookie's own record. So a reader can pass over
the records. One checksum covers head and table, another the records: where the second alone fails, it is still known
which records there are. Groups count from 1 and follow each other without a gap, so that none is missed in silence.

A group that `moves` holds records that were in the log already, at a place that goes away. All numbers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

from crc32c import crc32c

from magnetar_bookie.storage.interface import Changes, LedgerRecord

__all__ = [
    "HEADER_BYTES",
    "LEAST_GROUP_BYTES",
    "MAGIC_BYTES",
    "MAX_TABLE_BYTES",
    "BadGroup",
    "EncodedGroup",
    "GroupHeader",
    "GroupTable",
    "decode_group_header",
    "decode_ledger",
    "decode_table",
    "encode_group",
    "encode_ledger",
]

_MAGIC: Final = 0x4D474C47
MAGIC_BYTES: Final = _MAGIC.to_bytes(4, "big")
# After the magic and the checksum: number, bytes of the table, bytes of the records, their checksum, flags.
_PREFIX: Final = struct.Struct(">II")
_FIELDS: Final = struct.Struct(">QIQIB")
HEADER_BYTES: Final = _PREFIX.size + _FIELDS.size
# More than the table of any group that a bookie makes: a damaged length must not take memory.
MAX_TABLE_BYTES: Final = 256 << 20
_MOVES: Final = 1

_COUNTS: Final = struct.Struct(">IIIIi")
LEAST_GROUP_BYTES: Final = HEADER_BYTES + _COUNTS.size
_RECORD: Final = struct.Struct(">QQI")
_LEDGER: Final = struct.Struct(">QH")
_ID: Final = struct.Struct(">Q")
_IDS: Final = struct.Struct(">QQ")

# A ledger's record: flags, last add confirmed, limbo cleared, then the master key.
_REMEMBERED: Final = struct.Struct(">BqQ")
_FENCED, _DELETED, _SETTLED = 1, 2, 4


class BadGroup(ValueError):
    """Bytes that are no group."""


@dataclass(frozen=True, slots=True)
class GroupHeader:
    number: int
    table_bytes: int
    records_bytes: int
    records_crc: int
    moves: bool
    # What the checksum of head and table must be, and what it is of the head alone.
    crc: int
    crc_so_far: int

    @property
    def size(self) -> int:
        return HEADER_BYTES + self.table_bytes + self.records_bytes


@dataclass(slots=True)
class GroupTable:
    """A group without the bytes of its records."""

    # Ledger id, entry id, size; they stand one after the other.
    records: list[tuple[int, int, int]] = field(default_factory=list)
    ledgers: dict[int, LedgerRecord] = field(default_factory=dict)
    dropped: Sequence[int] = ()
    discarded: Sequence[tuple[int, int]] = ()
    bookie: bytes | None = None


@dataclass(slots=True)
class EncodedGroup:
    number: int
    table: GroupTable
    moves: bool
    # What is written, one after the other: head and table, then each record.
    parts: list[bytes]
    # Where in it the first record begins.
    records_at: int
    size: int


def encode_group(number: int, changes: Changes, *, moves: bool = False) -> EncodedGroup:
    records = [(ledger_id, entry_id, len(record)) for (ledger_id, entry_id), record in changes.records.items()]
    table = GroupTable(records, changes.ledgers, changes.dropped, changes.discarded, changes.bookie)
    encoded = _encode_table(table)
    crc, size = 0, 0
    for record in changes.records.values():
        crc = crc32c(record, crc)
        size += len(record)
    fields = _FIELDS.pack(number, len(encoded), size, crc, _MOVES if moves else 0)
    first = b"".join((_PREFIX.pack(_MAGIC, crc32c(encoded, crc32c(fields))), fields, encoded))
    return EncodedGroup(number, table, moves, [first, *changes.records.values()], len(first), len(first) + size)


def decode_group_header(data: bytes) -> GroupHeader:
    """Raises `BadGroup` where no group can begin so. Only `decode_table` knows whether the head is whole."""
    if len(data) < HEADER_BYTES:
        raise BadGroup(f"the head of a group has {len(data)} bytes: {HEADER_BYTES} are needed")
    magic, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise BadGroup(f"a group begins with {magic:08x}, not with the magic number {_MAGIC:08x}")
    number, table_bytes, records_bytes, records_crc, flags = _FIELDS.unpack_from(data, _PREFIX.size)
    if table_bytes > MAX_TABLE_BYTES:
        raise BadGroup(f"the table of a group has {table_bytes} bytes, above the limit of {MAX_TABLE_BYTES}")
    so_far = crc32c(data[_PREFIX.size : HEADER_BYTES])
    return GroupHeader(number, table_bytes, records_bytes, records_crc, bool(flags & _MOVES), crc, so_far)


def decode_table(head: GroupHeader, data: bytes) -> GroupTable:
    """Raises `BadGroup` unless head and table are whole."""
    if len(data) != head.table_bytes or crc32c(data, head.crc_so_far) != head.crc:
        raise BadGroup(f"the head or the table of group {head.number} does not match its checksum")
    table = _decode_table(data)
    if sum(size for _, _, size in table.records) != head.records_bytes:
        raise BadGroup(f"the records of group {head.number} do not add up to the size in its head")
    return table


def encode_ledger(record: LedgerRecord) -> bytes:
    flags = _FENCED * record.fenced | _DELETED * record.deleted | _SETTLED * record.settled
    return _REMEMBERED.pack(flags, record.last_add_confirmed, record.limbo_cleared) + record.master_key


def decode_ledger(data: bytes) -> LedgerRecord:
    flags, last_add_confirmed, limbo_cleared = _REMEMBERED.unpack_from(data)
    return LedgerRecord(
        master_key=data[_REMEMBERED.size :],
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
    for ledger_id, remembered in table.ledgers.items():
        encoded = encode_ledger(remembered)
        parts += [_LEDGER.pack(ledger_id, len(encoded)), encoded]
    parts += [_ID.pack(ledger_id) for ledger_id in table.dropped]
    parts += [_IDS.pack(*key) for key in table.discarded]
    if bookie is not None:
        parts.append(bookie)
    return b"".join(parts)


def _decode_table(data: bytes) -> GroupTable:
    """The checksum was right: what it says is what was written."""
    records, ledgers, dropped, discarded, bookie = _COUNTS.unpack_from(data)
    at = _COUNTS.size
    table = GroupTable()
    table.records = list(_RECORD.iter_unpack(data[at : at + records * _RECORD.size]))
    at += records * _RECORD.size
    for _ in range(ledgers):
        ledger_id, size = _LEDGER.unpack_from(data, at)
        at += _LEDGER.size
        table.ledgers[ledger_id] = decode_ledger(data[at : at + size])
        at += size
    table.dropped = [one for (one,) in _ID.iter_unpack(data[at : at + dropped * _ID.size])]
    at += dropped * _ID.size
    table.discarded = list(_IDS.iter_unpack(data[at : at + discarded * _IDS.size]))
    at += discarded * _IDS.size
    if bookie >= 0:
        table.bookie = data[at : at + bookie]
    return table
