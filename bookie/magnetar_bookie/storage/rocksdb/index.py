"""What is known of the log, in RocksDB: where each record lies, and all that is not a record.

Keys, by their first byte; ids are 8 bytes, big endian, so that the order of keys is that of ids:

    b                      the bookie's own record
    e ledger entry         where the record is: segment (4 bytes), offset (4), size (4)
    g                      how far the log is known: number of the last group, its segment, where it ends
    l ledger               what is remembered of the ledger
    s ledger segment       how many bytes of the ledger's records are in the segment
    u segment              how many bytes of records in use are in the segment, and where the segment ends

One group's changes are one batch, so `g` always says which groups the rest tells of. RocksDB's own log is off: what is
not flushed when the process dies is read from ours again (`opening.py`). Nothing may be flushed that our log does not
hold durably: RocksDB is told when to flush, and its own limit is far above. It also flushes when it is closed or
dropped, so it is never dropped: who does not call `close` keeps it open until the process ends.

What can't be read here can't be told from what is not there: any corruption raises `IndexDamaged`, and so does a sector
that the disk does not read. Iterators are asked
for their status at the end, as they end in silence where they can't read on.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from magnetar_bookie.storage.interface import LedgerRecord, StorageFailed
from magnetar_bookie.storage.rocksdb.group_format import decode_ledger

__all__ = [
    "Index",
    "IndexBatch",
    "IndexDamaged",
    "IndexedUpTo",
    "Location",
    "entry_key",
    "ledger_key",
    "pack_location",
    "pack_use",
    "use_key",
]

_BOOKIE: Final = b"b"
_KNOWN_KEY: Final = b"g"
_KNOWN: Final = struct.Struct(">QIQ")
_LOCATION: Final = struct.Struct(">III")
_LEDGER_KEY: Final = struct.Struct(">cQ")
_ENTRY_KEY: Final = struct.Struct(">cQQ")
_USE: Final = struct.Struct(">QQ")
_MAX_ID: Final = 2**64 - 1
# Where RocksDB would flush by itself. Far above what it is ever given before it is told to, one huge group of tiny
# records included. It takes no memory in advance.
_MEMTABLE_BYTES: Final = 16 << 30
# RocksDB makes who writes wait when so many files have not been merged.
_LEVEL_0_FILES: Final = 64
# Where the entries asked for are so thinly sown in their range, each is looked up by itself.
_THINLY: Final = 8

# What RocksDB says that it was doing.
_READING: Final = re.compile(r"[Ww]hile (pread|reading|prefetching|open(ing)? a? ?file for (random|sequential))")

# Segment, offset, size.
Location = tuple[int, int, int]


class IndexDamaged(StorageFailed):
    """Part of the index can't be read: it has to be made anew from the log."""


@dataclass(frozen=True, slots=True)
class IndexedUpTo:
    """The index tells of all groups up to this one, which ends there."""

    number: int
    segment: int
    end: int


# Without a function of ours around them: each takes 0.1 µs of a record.
# (kind, ledger id)
ledger_key: Final[Callable[[bytes, int], bytes]] = _LEDGER_KEY.pack
# (ledger id, entry id)
entry_key: Final[Callable[[int, int], bytes]] = partial(_ENTRY_KEY.pack, b"e")
# (ledger id, segment)
use_key: Final[Callable[[int, int], bytes]] = partial(_ENTRY_KEY.pack, b"s")
# (segment, offset, size)
pack_location: Final[Callable[[int, int, int], bytes]] = _LOCATION.pack


def pack_use(segment: int, used: int, end: int) -> tuple[bytes, bytes]:
    return ledger_key(b"u", segment), _USE.pack(used, end)


class Index:
    """Methods raise `IndexDamaged` and `StorageFailed`."""

    def __init__(self, folder: Path, block_cache_bytes: int) -> None:
        try:
            self._database: Any = Rdict(str(folder), _options(block_cache_bytes))
        except Exception as error:  # RocksDB's errors have no type of their own
            raise _told(error, f"the index {folder} can't be opened") from error
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))
        without_log: Any = WriteOptions()
        without_log.disable_wal = True
        self._without_log = without_log

    def known(self) -> IndexedUpTo | None:
        value = self.get(_KNOWN_KEY)
        return None if value is None else IndexedUpTo(*_KNOWN.unpack(value))

    def bookie(self) -> bytes | None:
        return self.get(_BOOKIE)

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        value = self.get(ledger_key(b"l", ledger_id))
        return None if value is None else decode_ledger(value)

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        if first > _MAX_ID:
            return []
        begin, end = ledger_key(b"l", first), b"m"
        return [int.from_bytes(key[1:], "big") for key, _ in self.scan(begin, end, limit)]

    def last_entry(self, ledger_id: int) -> int:
        begin = entry_key(ledger_id, 0)
        bounds = _bounds(begin, _after(b"e", ledger_id))
        iterator = self._database.iter(bounds)
        try:
            iterator.seek_to_last()
            key = iterator.key() if iterator.valid() else b""
            iterator.status()
        except Exception as error:
            raise _told(error, "the index can't be read") from error
        # Looking back, RocksDB does not always stop at the lower bound.
        return int.from_bytes(key[9:], "big") if key >= begin else -1

    def has(self, ledger_id: int, entry_id: int) -> bool:
        return self.get(entry_key(ledger_id, entry_id)) is not None

    def entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        if first > last:
            return []
        begin, end = entry_key(ledger_id, first), entry_key(ledger_id, last) + b"\0"
        return [int.from_bytes(key[9:], "big") for key, _ in self.scan(begin, end, limit)]

    def locate(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Location | None]:
        """Where the entries are; None: not held."""
        low, high = min(entry_ids), max(entry_ids)
        if len(entry_ids) == 1 or high - low > _THINLY * len(entry_ids):
            return self.locate_each([entry_key(ledger_id, entry_id) for entry_id in entry_ids])
        scanned = self.scan(entry_key(ledger_id, low), entry_key(ledger_id, high) + b"\0", high - low + 1)
        if len(scanned) == len(entry_ids) and list(entry_ids) == list(range(low, high + 1)):
            return [_LOCATION.unpack(value) for _, value in scanned]
        found = dict(scanned)
        values = [found.get(entry_key(ledger_id, entry_id)) for entry_id in entry_ids]
        return [None if value is None else _LOCATION.unpack(value) for value in values]

    def locate_each(self, keys: list[bytes]) -> list[Location | None]:
        try:
            values = self._database.get(keys)
        except Exception as error:
            raise _told(error, "the index can't be read") from error
        return [None if value is None else _LOCATION.unpack(value) for value in values]

    def uses(self) -> Iterator[tuple[int, int, int]]:
        """Of each segment: its number, the bytes in use, where it ends."""
        for key, value in self.scan(b"u", b"v", None):
            yield int.from_bytes(key[1:], "big"), *_USE.unpack(value)

    def uses_of(self, ledger_id: int) -> list[tuple[int, int]]:
        """In which segments the ledger has records, and how many bytes."""
        scanned = self.scan(use_key(ledger_id, 0), _after(b"s", ledger_id), None)
        return [(int.from_bytes(key[9:], "big"), int.from_bytes(value, "big")) for key, value in scanned]

    def ledgers_in(self, segment: int, portion: int) -> Iterator[int]:
        """Which ledgers have records in the segment. All ledgers are looked through, so many at a time."""
        begin = b"s"
        while found := self.scan(begin, b"t", portion):
            yield from (
                int.from_bytes(key[1:9], "big") for key, _ in found if int.from_bytes(key[9:], "big") == segment
            )
            begin = found[-1][0] + b"\0"

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise _told(error, "the index can't be read") from error
        return value

    def scan(self, begin: bytes, end: bytes, limit: int | None) -> list[tuple[bytes, bytes]]:
        """Keys from `begin` to before `end`, and what they hold: the first `limit`."""
        bounds = _bounds(begin, end)
        try:
            found = list(islice(self._database.items(from_key=begin, read_opt=bounds), limit))
            if limit is not None and len(found) >= limit:
                return found
            # It ends in silence where it can't read on, too: whether that was the end, another kind of iterator says.
            iterator = self._database.iter(bounds)
            iterator.seek(found[-1][0] + b"\0" if found else begin)
            while iterator.valid() and (limit is None or len(found) < limit):
                found.append((iterator.key(), iterator.value()))
                iterator.next()
            iterator.status()
        except Exception as error:
            raise _told(error, "the index can't be read") from error
        return found

    def write(self, batch: Any) -> None:
        """Readable at once, and durable after a `flush`."""
        try:
            self._database.write(batch, self._without_log)
        except Exception as error:
            raise _told(error, "the index can't be written") from error

    def flush(self) -> None:
        """In a thread: what was written before is durable when it returns."""
        try:
            self._database.flush(True)
        except Exception as error:
            raise _told(error, "the index can't be flushed") from error

    def begin_flush(self) -> bool:
        """Begins to flush what was written before, and does not wait. False: it would have to, and nothing was done."""
        if self.flushing() or self._number("rocksdb.num-files-at-level0") >= _LEVEL_0_FILES // 2:
            return False
        try:
            self._database.flush(False)
        except Exception as error:
            raise _told(error, "the index can't be flushed") from error
        return True

    def flushing(self) -> bool:
        """Whether something that `begin_flush` began is not done."""
        return self._number("rocksdb.num-immutable-mem-table") > 0

    def disk_bytes(self) -> int:
        return self._number("rocksdb.total-sst-files-size")

    def _number(self, name: str) -> int:
        try:
            return int(self._database.property_value(name) or 0)
        except Exception as error:
            raise _told(error, "the index can't be read") from error

    def close(self) -> None:
        """Flushes, too."""
        database, self._database = self._database, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:
            raise _told(error, "the index can't be closed") from error
        finally:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(database))


def _bounds(begin: bytes, end: bytes) -> Any:
    """The caller must keep these bounds for as long as it uses the iterator: RocksDB points into them, and rocksdict
    0.3.29 does not hold them. With bounds that were freed an iterator now and then found no entry, and the recovery of
    a ledger with acknowledged entries closed it as an empty one.
    """
    bounds = ReadOptions()
    bounds.set_iterate_lower_bound(begin)
    bounds.set_iterate_upper_bound(end)
    return bounds


def _after(kind: bytes, ledger_id: int) -> bytes:
    """Behind all keys of the ledger."""
    return _ENTRY_KEY.pack(kind, ledger_id, _MAX_ID) + b"\0"


class IndexBatch:
    """Changes of the index that become visible together."""

    def __init__(self) -> None:
        self.batch: Any = WriteBatch(raw_mode=True)
        self.put = self.batch.put
        self.delete = self.batch.delete

    def put_known(self, number: int, segment: int, end: int) -> None:
        """See `IndexedUpTo`."""
        self.put(_KNOWN_KEY, _KNOWN.pack(number, segment, end))

    def put_bookie(self, record: bytes) -> None:
        self.put(_BOOKIE, record)

    def drop_ledger(self, ledger_id: int) -> None:
        """All its entries, and what it uses."""
        for kind in (b"e", b"s"):
            self.batch.delete_range(_ENTRY_KEY.pack(kind, ledger_id, 0), _after(kind, ledger_id))


def _told(error: Exception, what: str) -> StorageFailed:
    text = str(error)
    damaged = "Corruption" in text or "No such file" in text or "does not exist" in text
    # A sector that can't be read will not be read by the next process either. One that can't be written is no damage.
    damaged = damaged or ("Input/output error" in text and _READING.search(text) is not None)
    return (IndexDamaged if damaged else StorageFailed)(f"{what}: {text}")


def _options(block_cache_bytes: int) -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(2)
    options.set_level_zero_slowdown_writes_trigger(_LEVEL_0_FILES)
    options.set_level_zero_stop_writes_trigger(2 * _LEVEL_0_FILES)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(4 << 20)
    options.set_max_manifest_file_size(16 << 20)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_target_file_size_base(16 << 20)
    options.set_max_bytes_for_level_base(64 << 20)
    options.set_stats_dump_period_sec(0)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(block_cache_bytes))
    # Otherwise they stay in memory for each open file, whatever the cache's size.
    table.set_cache_index_and_filter_blocks(True)
    table.set_bloom_filter(10, False)
    table.set_block_size(16 << 10)
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    return options
