"""The tree in RocksDB: keys, values, and the check, when a folder is opened, that all acknowledged changes exist.

Keys, by their first byte:

- "/" or "\\0": a node: its parent's path, a zero byte, its name. No path contains a zero byte, so the direct children
  of a node, and nothing else, start with its path and a zero byte, in the order of their names. "/" itself is "\\0".
- 1: an ephemeral node: its owner (8 bytes), its path. The value is empty. These keys are an index, to find a session's
  nodes when it ends.
- 2: how often the folder was opened. Session ids are made of it.

A node's value: format (1), version, owner, next sequence number (8 each), then the node's own value.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict, ReadOptions, WriteBatch

from magnetar_metadata.errors import MetadataError, StoreDamaged
from magnetar_metadata.node_table import Record
from magnetar_metadata.paths import ROOT, parent_of

log = logging.getLogger(__name__)

_RECORD: Final = struct.Struct(">BQQQ")
_FORMAT: Final = 1
_OWNED: Final = b"\x01"
_OPENED: Final = b"\x02"


def open_database(folder: Path, acknowledged: int) -> Any:
    """Open the folder's database. `acknowledged` is the sequence number that its log must reach."""
    try:
        database = Rdict(str(folder), _options(DBRecoveryMode.absolute_consistency()))
    except Exception as error:
        if "Corruption" not in str(error):
            raise MetadataError(f"the metadata folder {folder} can't be opened: {error}") from error
        database = _open_cut_off(folder, acknowledged, error)
    if database.latest_sequence_number() < acknowledged:
        reached = database.latest_sequence_number()
        database.close()
        raise _damaged(folder, reached, acknowledged, "part of the log is missing")
    return database


def _open_cut_off(folder: Path, acknowledged: int, error: Exception) -> Any:
    """Open a log with a damaged record, if all acknowledged changes are before it.

    A process or machine that dies during a write leaves half a record, which was not acknowledged. The log is checked
    without write access, so a folder that is refused is not changed.
    """
    try:
        looked_at = Rdict(
            str(folder),
            _options(DBRecoveryMode.point_in_time()),
            access_type=AccessType.read_only(error_if_log_file_exist=False),
        )
    except Exception as second:
        raise _damaged(folder, None, acknowledged, str(error)) from second
    reached = looked_at.latest_sequence_number()
    looked_at.close()
    if reached < acknowledged:
        raise _damaged(folder, reached, acknowledged, str(error)) from error
    log.warning("The last write to %s was truncated; it was not acknowledged. (%s)", folder, error)
    return Rdict(str(folder), _options(DBRecoveryMode.point_in_time()))


def _damaged(folder: Path, reached: int | None, acknowledged: int, why: str) -> StoreDamaged:
    found = "can't be read" if reached is None else f"ends at change {reached}"
    return StoreDamaged(
        f"the metadata folder {folder} is damaged: {why}; its log {found}, but changes up to {acknowledged} "
        "were acknowledged. Restore a copy of the folder, or start with an empty one"
    )


def _options(recovery: Any) -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_recovery_mode(recovery)
    options.set_paranoid_checks(True)
    options.set_write_buffer_size(16 << 20)
    options.set_max_total_wal_size(64 << 20)
    options.set_keep_log_file_num(4)
    return options


class RocksTable:
    """A `NodeTable`. Changes are put into a batch (`fill`), so that they are written together."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def get(self, path: str) -> Record | None:
        value: bytes | None = self._database.get(_node_key(path))
        if value is None:
            return Record() if path == ROOT else None
        format_, version, owner, next_sequence = _RECORD.unpack_from(value)
        if format_ != _FORMAT:
            raise StoreDamaged(f"{path!r} is stored in format {format_}, but this version reads format {_FORMAT}")
        return Record(value[_RECORD.size :], version, owner, next_sequence)

    def child_names(self, path: str) -> Iterator[str]:
        prefix = path.encode() + b"\0"
        for key in self._keys(prefix):
            yield key[len(prefix) :].decode()

    def fill(self, batch: Any, changed: dict[str, Record | None], before: dict[str, Record | None]) -> None:
        """Put the changes into a batch. `before` has the records that they replace."""
        for path, record in changed.items():
            old = before[path]
            # Within one group, a node may be deleted and created again by another session, or as a permanent node. With
            # the old index key, it would be deleted with the first session.
            if old is not None and old.ephemeral_owner:
                batch.delete(_owned_key(old.ephemeral_owner, path))
            if record is None:
                batch.delete(_node_key(path))
            else:
                head = _RECORD.pack(_FORMAT, record.version, record.ephemeral_owner, record.next_sequence)
                batch.put(_node_key(path), head + record.value)
                if record.ephemeral_owner:
                    batch.put(_owned_key(record.ephemeral_owner, path), b"")

    def owned(self, owner: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes."""
        return [path for _, path in self._indexed(_owned_key(owner, "")) if self._is_owner(owner, path)]

    def sweep(self, batch: Any) -> None:
        """Delete the ephemeral nodes of all sessions, and the whole index."""
        for owner, path in list(self._indexed(_OWNED)):
            batch.delete(_owned_key(owner, path))
            if self._is_owner(owner, path):
                batch.delete(_node_key(path))

    def _indexed(self, prefix: bytes) -> Iterator[tuple[int, str]]:
        for key in self._keys(prefix):
            yield int.from_bytes(key[1:9], "big"), key[9:].decode()

    def _is_owner(self, owner: int, path: str) -> bool:
        """Return whether the node has this owner. The index alone is not trusted: a superfluous node can be deleted
        later, a lost one can't be restored."""
        record = self.get(path)
        return record is not None and record.ephemeral_owner == owner

    def count_opening(self, batch: Any) -> int:
        """Increment and return the number of openings. It is stored when `batch` is written."""
        opened = int.from_bytes(self._database.get(_OPENED) or b"", "big") + 1
        batch.put(_OPENED, opened.to_bytes(8, "big"))
        return opened

    def _keys(self, prefix: bytes) -> Iterator[bytes]:
        # The bound ends the scan before the tombstones of later keys. RocksDB has a pointer to `bounds`, and
        # rocksdict 0.3.29 holds no reference: `bounds` must live as long as the iterator.
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix[-1] < 255 else b"\xff" * 4200)
        iterator = self._database.iter(bounds)
        iterator.seek(prefix)
        while iterator.valid():
            key: bytes = iterator.key()
            if not key.startswith(prefix):
                break
            yield key
            iterator.next()
        iterator.status()


def new_batch() -> Any:
    return WriteBatch(raw_mode=True)


def _node_key(path: str) -> bytes:
    return b"\0" if path == ROOT else parent_of(path).encode() + b"\0" + path[path.rindex("/") + 1 :].encode()


def _owned_key(owner: int, path: str) -> bytes:
    return _OWNED + owner.to_bytes(8, "big") + path.encode()
