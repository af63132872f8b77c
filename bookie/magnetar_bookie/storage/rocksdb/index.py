"""The index, in RocksDB: the locations of all records, and everything that is not a record.

Keys, by their first byte; ids have 8 bytes, big endian, so that keys are sorted by id:

    b                      the bookie's own record
    e ledger entry         location of the record: segment (4 bytes), offset (4), size (4)
    g                      up to where the log is indexed: number of the last group, its segment, its end
    l ledger               data of the ledger
    s ledger segment       bytes of the ledger's live records in the segment
    u segment              bytes of live records in the segment, and the end of its last group

The changes of a group are one batch, so `g` always has the groups that are indexed. RocksDB's own log is disabled:
after a crash, groups that were not flushed are indexed again from our log (`crash_recovery.py`). The index must not be
flushed ahead of our log: a flush is requested when all groups in it are durable, and RocksDB's own threshold is far
above. RocksDB also flushes when the database is closed or garbage-collected, so the object is never collected: without
`close` it stays open until the process ends.

Damage must not look like a missing key: any corruption raises `IndexDamaged`, and so does a sector that can't be read.
The status of iterators is checked at the end, since they end without an error where they can't read on.
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

from magnetar_bookie.storage.interface import LedgerData, StorageFailed
from magnetar_bookie.storage.rocksdb.group_format import decode_ledger_data

__all__ = [
    "Index",
    "IndexBatch",
    "IndexDamaged",
    "IndexedUpTo",
    "Location",
    "entry_key",
    "ledger_key",
    "ledger_usage_key",
    "pack_location",
    "pack_segment_usage",
]

_BOOKIE: Final = b"b"
_INDEXED_KEY: Final = b"g"
_INDEXED: Final = struct.Struct(">QIQ")
_LOCATION: Final = struct.Struct(">III")
_LEDGER_KEY: Final = struct.Struct(">cQ")
_ENTRY_KEY: Final = struct.Struct(">cQQ")
_SEGMENT_USAGE: Final = struct.Struct(">QQ")
_MAX_ID: Final = 2**64 - 1
# The size at which RocksDB would flush by itself. It is far above what is written between two requested flushes, even
# for a huge group of tiny records. It takes no memory in advance.
_MEMTABLE_BYTES: Final = 16 << 30
# The number of unmerged files at which RocksDB slows down writes.
_LEVEL_0_FILES: Final = 64
# If the requested entries are fewer than one in this many of their range, each is looked up by itself.
_SPARSE: Final = 8

# In RocksDB's errors: it was reading.
_READING: Final = re.compile(r"[Ww]hile (pread|reading|prefetching|open(ing)? a? ?file for (random|sequential))")

# Segment, offset, size.
Location = tuple[int, int, int]


class IndexDamaged(StorageFailed):
    """Part of the index can't be read: it has to be rebuilt from the log."""


@dataclass(frozen=True, slots=True)
class IndexedUpTo:
    """All groups up to this one are indexed. It ends at `end` of `segment`."""

    number: int
    segment: int
    end: int


# Bound methods, since a Python function around them would take 0.1 µs more per record.
# (kind, ledger id)
ledger_key: Final[Callable[[bytes, int], bytes]] = _LEDGER_KEY.pack
# (ledger id, entry id)
entry_key: Final[Callable[[int, int], bytes]] = partial(_ENTRY_KEY.pack, b"e")
# (ledger id, segment)
ledger_usage_key: Final[Callable[[int, int], bytes]] = partial(_ENTRY_KEY.pack, b"s")
# (segment, offset, size)
pack_location: Final[Callable[[int, int, int], bytes]] = _LOCATION.pack


def pack_segment_usage(segment: int, live_bytes: int, end: int) -> tuple[bytes, bytes]:
    return ledger_key(b"u", segment), _SEGMENT_USAGE.pack(live_bytes, end)


class Index:
    """The open index. Methods raise `IndexDamaged` and `StorageFailed`."""

    def __init__(self, folder: Path, block_cache_bytes: int) -> None:
        try:
            self._database: Any = Rdict(str(folder), _options(block_cache_bytes))
        except Exception as error:  # RocksDB's errors have no type of their own
            raise _wrap_error(error, f"the index {folder} can't be opened") from error
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))
        without_log: Any = WriteOptions()
        without_log.disable_wal = True
        self._without_log = without_log

    def get_indexed_up_to(self) -> IndexedUpTo | None:
        value = self.get(_INDEXED_KEY)
        return None if value is None else IndexedUpTo(*_INDEXED.unpack(value))

    def get_bookie_record(self) -> bytes | None:
        return self.get(_BOOKIE)

    def get_ledger(self, ledger_id: int) -> LedgerData | None:
        value = self.get(ledger_key(b"l", ledger_id))
        return None if value is None else decode_ledger_data(value)

    def list_ledger_ids(self, first: int, limit: int) -> list[int]:
        if first > _MAX_ID:
            return []
        begin, end = ledger_key(b"l", first), b"m"
        return [int.from_bytes(key[1:], "big") for key, _ in self.scan(begin, end, limit)]

    def get_last_entry_id(self, ledger_id: int) -> int:
        begin = entry_key(ledger_id, 0)
        bounds = _make_bounds(begin, _end_key(b"e", ledger_id))
        iterator = self._database.iter(bounds)
        try:
            iterator.seek_to_last()
            key = iterator.key() if iterator.valid() else b""
            iterator.status()
        except Exception as error:
            raise _wrap_error(error, "the index can't be read") from error
        # A backward seek of RocksDB does not always stop at the lower bound.
        return int.from_bytes(key[9:], "big") if key >= begin else -1

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        return self.get(entry_key(ledger_id, entry_id)) is not None

    def list_entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        if first > last:
            return []
        begin, end = entry_key(ledger_id, first), entry_key(ledger_id, last) + b"\0"
        return [int.from_bytes(key[9:], "big") for key, _ in self.scan(begin, end, limit)]

    def locate(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Location | None]:
        """Return the locations of records. None: no record is stored."""
        if isinstance(entry_ids, range) and entry_ids.step > 0:  # nearly always
            low, high = entry_ids[0], entry_ids[-1]
        else:
            low, high = min(entry_ids), max(entry_ids)
        if len(entry_ids) == 1 or high - low > _SPARSE * len(entry_ids):
            return self.locate_keys([entry_key(ledger_id, entry_id) for entry_id in entry_ids])
        scanned = self.scan(entry_key(ledger_id, low), entry_key(ledger_id, high) + b"\0", high - low + 1)
        if len(scanned) == len(entry_ids) and _are_consecutive(entry_ids, low, high):
            return list(_LOCATION.iter_unpack(b"".join([value for _, value in scanned])))
        found = dict(scanned)
        values = [found.get(entry_key(ledger_id, entry_id)) for entry_id in entry_ids]
        return [None if value is None else _LOCATION.unpack(value) for value in values]

    def locate_keys(self, keys: list[bytes]) -> list[Location | None]:
        try:
            values = self._database.get(keys)
        except Exception as error:
            raise _wrap_error(error, "the index can't be read") from error
        return [None if value is None else _LOCATION.unpack(value) for value in values]

    def list_segment_usage(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number, live bytes and end of each segment."""
        for key, value in self.scan(b"u", b"v", None):
            yield int.from_bytes(key[1:], "big"), *_SEGMENT_USAGE.unpack(value)

    def list_ledger_usage(self, ledger_id: int) -> list[tuple[int, int]]:
        """Return the segments in which the ledger has live records, and their bytes there."""
        scanned = self.scan(ledger_usage_key(ledger_id, 0), _end_key(b"s", ledger_id), None)
        return [(int.from_bytes(key[9:], "big"), int.from_bytes(value, "big")) for key, value in scanned]

    def find_ledgers_in_segment(self, segment: int, scan_limit: int) -> Iterator[int]:
        """Yield the ledgers with live records in the segment. Scans the keys of all ledgers, some at a time."""
        begin = b"s"
        while found := self.scan(begin, b"t", scan_limit):
            yield from (
                int.from_bytes(key[1:9], "big") for key, _ in found if int.from_bytes(key[9:], "big") == segment
            )
            begin = found[-1][0] + b"\0"

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise _wrap_error(error, "the index can't be read") from error
        return value

    def scan(self, begin: bytes, end: bytes, limit: int | None) -> list[tuple[bytes, bytes]]:
        """Return the first `limit` keys and values from `begin` to before `end`."""
        bounds = _make_bounds(begin, end)
        try:
            found = list(islice(self._database.items(from_key=begin, read_opt=bounds), limit))
            if limit is not None and len(found) >= limit:
                return found
            # This iterator also ends where it can't read on. Another kind, which has a status, reads the rest.
            iterator = self._database.iter(bounds)
            iterator.seek(found[-1][0] + b"\0" if found else begin)
            while iterator.valid() and (limit is None or len(found) < limit):
                found.append((iterator.key(), iterator.value()))
                iterator.next()
            iterator.status()
        except Exception as error:
            raise _wrap_error(error, "the index can't be read") from error
        return found

    def write(self, batch: Any) -> None:
        """Write a batch. It is readable at once, and durable after a flush."""
        try:
            self._database.write(batch, self._without_log)
        except Exception as error:
            raise _wrap_error(error, "the index can't be written") from error

    def flush(self) -> None:
        """Return when all earlier writes are durable. Runs in a thread."""
        try:
            self._database.flush(True)
        except Exception as error:
            raise _wrap_error(error, "the index can't be flushed") from error

    def start_flush(self) -> bool:
        """Start to flush all earlier writes. Return False, and do nothing, if that would have to wait."""
        if self.is_flushing() or self._get_number("rocksdb.num-files-at-level0") >= _LEVEL_0_FILES // 2:
            return False
        try:
            self._database.flush(False)
        except Exception as error:
            raise _wrap_error(error, "the index can't be flushed") from error
        return True

    def is_flushing(self) -> bool:
        """Return whether a flush that `start_flush` started is not done."""
        return self._get_number("rocksdb.num-immutable-mem-table") > 0

    def get_file_bytes(self) -> int:
        return self._get_number("rocksdb.total-sst-files-size")

    def _get_number(self, name: str) -> int:
        try:
            return int(self._database.property_value(name) or 0)
        except Exception as error:
            raise _wrap_error(error, "the index can't be read") from error

    def close(self) -> None:
        """Flush and close."""
        database, self._database = self._database, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:
            raise _wrap_error(error, "the index can't be closed") from error
        finally:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(database))


def _are_consecutive(entry_ids: Sequence[int], low: int, high: int) -> bool:
    """Return whether these are all ids from `low` to `high`, in order. Ranges are compared at once."""
    consecutive = range(low, high + 1)
    return entry_ids == consecutive or (not isinstance(entry_ids, range) and list(entry_ids) == list(consecutive))


def _make_bounds(begin: bytes, end: bytes) -> Any:
    """Return the options of an iterator. Keep them for as long as the iterator.

    RocksDB points into them, and rocksdict 0.3.29 doesn't keep them alive. With freed bounds an iterator sometimes
    found no entry, and the recovery of a ledger with acknowledged entries closed it as an empty one.
    """
    bounds = ReadOptions()
    bounds.set_iterate_lower_bound(begin)
    bounds.set_iterate_upper_bound(end)
    return bounds


def _end_key(kind: bytes, ledger_id: int) -> bytes:
    """Return a key after all keys of the ledger."""
    return _ENTRY_KEY.pack(kind, ledger_id, _MAX_ID) + b"\0"


class IndexBatch:
    """Changes that become readable together."""

    def __init__(self) -> None:
        self.batch: Any = WriteBatch(raw_mode=True)
        self.put = self.batch.put
        self.delete = self.batch.delete

    def put_indexed_up_to(self, number: int, segment: int, end: int) -> None:
        self.put(_INDEXED_KEY, _INDEXED.pack(number, segment, end))

    def put_bookie_record(self, record: bytes) -> None:
        self.put(_BOOKIE, record)

    def drop_ledger(self, ledger_id: int) -> None:
        """Delete the ledger's entries and usage, but not its data."""
        for kind in (b"e", b"s"):
            self.batch.delete_range(_ENTRY_KEY.pack(kind, ledger_id, 0), _end_key(kind, ledger_id))


def _wrap_error(error: Exception, message: str) -> StorageFailed:
    text = str(error)
    damaged = "Corruption" in text or "No such file" in text or "does not exist" in text
    # The next process can't read a bad sector either, so it is damage. A failed write is not.
    damaged = damaged or ("Input/output error" in text and _READING.search(text) is not None)
    return (IndexDamaged if damaged else StorageFailed)(f"{message}: {text}")


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
    # Otherwise they are in memory for each open file, in addition to the cache.
    table.set_cache_index_and_filter_blocks(True)
    table.set_bloom_filter(10, False)
    table.set_block_size(16 << 10)
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    return options
