"""Opens the folder of a storage, after a clean end or after any kind of crash.

Theory of operation
-------------------
The folder has the log (`records/`), the index (`index/`, RocksDB) and the durable mark (`durable-mark`): the number of
the last acknowledged group. A group is in the index's memory when it was appended; it is durable, and acknowledged,
when the log was synced; and it is in the index's files after some later flush. So an opening takes the index as it was
last flushed, and replays the log from there on. The replayed groups become durable before anything is answered from
them. Those above the mark are rewritten for that (`tail_rewrite.py`), since a sync does not write what an earlier sync
failed to write.

The end of the log may be cut off in the middle of a group. Whether that is a loss follows from the mark and the kind
of crash:

- The process is killed. The mark was written after each sync and before the results were sent, and the kernel retains
  what is written, so the mark is exact. A group above it was not acknowledged, and may be there as a whole or in part.
- The machine crashes. The mark is synced by itself every second or so; with each group it would cost a second fsync. So
  it can be too low, but never too high, as it is written after the log is synced. What was synced is in the log however
  low the mark is, if the disk does what it promises. So a group that is cut off above the mark was being written.
- The disk loses synced data. If the log ends before the mark, that is certain. If only the last second before a power
  failure is lost, that looks like a group that was being written. No storage without a second fsync can notice it.

All bookies of a cluster may lose power at once, and none of them must take that for a loss.

If something is missing, a marker file (`marker_files.py`) is created before anything is changed. Then the log is cut
off where it can't be read on, so that no group is there without those before it, the mark starts again from there, and
`is_intact` is False until the bookie has stored its own record.

If the index can't be read, it is deleted and rebuilt from the whole log, which has all records, the data of ledgers and
the bookie's own record, since compaction repeats them. Nothing should be missing then, but that can't be proved:
`is_intact` is False.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.interface import Changes, StorageFailed, StorageInUse
from magnetar_bookie.storage.rocksdb.disk_space import create_ballast, release_ballast
from magnetar_bookie.storage.rocksdb.group_format import encode_group
from magnetar_bookie.storage.rocksdb.index import Index, IndexBatch, IndexDamaged, IndexedUpTo, pack_segment_usage
from magnetar_bookie.storage.rocksdb.index_updates import LoggedGroup, LogUsage, apply_groups
from magnetar_bookie.storage.rocksdb.indexed_log import OpenedFolder
from magnetar_bookie.storage.rocksdb.marker_files import INDEX_DAMAGED, LOST, has_marker, remove_marker, write_marker
from magnetar_bookie.storage.rocksdb.replay import FoundGroup, LogReplay, salvage_segment
from magnetar_bookie.storage.rocksdb.segments import Segments, list_segments, segment_path
from magnetar_bookie.storage.rocksdb.storage import RocksStorage
from magnetar_bookie.storage.rocksdb.tail_rewrite import TailRewrite
from magnetar_metadata.locked_folder import DurableMark, FolderInUse, sync_folder

__all__ = ["FORMAT", "open_rocksdb"]

_log = logging.getLogger(__name__)

# The format of the folder. A folder of any other format is refused.
FORMAT: Final = 1
_FORMAT_NAME: Final = "format"
# During a replay, the index is flushed after this many changed keys.
_FLUSH_CHANGES: Final = 200_000


async def open_rocksdb(folder: Path, settings: StorageSettings | None = None) -> RocksStorage:
    """Open the folder, or create it. Raises `StorageFailed`."""
    settings = settings or StorageSettings()
    opening = asyncio.ensure_future(asyncio.to_thread(_open, folder, settings))
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The thread can't be cancelled. What it opens is closed, so that the folder can be opened again.
        opening.add_done_callback(_close_unused)
        raise
    return RocksStorage(opened, settings)


def _open(folder: Path, settings: StorageSettings) -> OpenedFolder:
    """Open the folder, in a thread."""
    try:
        return _lock_and_open(folder, settings)
    except OSError as error:
        raise StorageFailed(f"the storage folder {folder} can't be opened: {error}") from error


def _lock_and_open(folder: Path, settings: StorageSettings) -> OpenedFolder:
    records = folder / "records"
    if not records.exists():
        records.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    try:
        mark = DurableMark.open(folder)
    except FolderInUse as error:
        raise StorageInUse(f"the bookie's storage can't be opened: {error}") from None
    try:
        release_ballast(folder, settings)
        _check_format(folder)
        if mark.number is None and (list_segments(records) or (folder / "index").exists()):
            write_marker(folder, LOST, f"the durable mark of {folder} is damaged or missing")
        if not (folder / "index").exists() and (list_segments(records) or mark.number):
            write_marker(folder, INDEX_DAMAGED, "the index is missing")
        if mark.number is None:
            mark.begin(folder, 0)
        try:
            return _open_index(folder, settings, mark)
        except IndexDamaged as error:
            write_marker(folder, INDEX_DAMAGED, str(error))
        # Outside of the `except`: the error has a reference to the open index.
        return _open_index(folder, settings, mark)
    except BaseException:
        mark.close()
        raise


def _open_index(folder: Path, settings: StorageSettings, mark: DurableMark) -> OpenedFolder:
    is_rebuilt = has_marker(folder, INDEX_DAMAGED)
    if is_rebuilt:
        write_marker(folder, LOST, "the index was damaged, and was rebuilt from the log")
        _log.error("The index of %s is damaged: it is rebuilt from the log, which takes a while.", folder)
        if (folder / "index").exists():
            shutil.rmtree(folder / "index")
    index = Index(folder / "index", settings.block_cache_bytes)
    try:
        # RocksDB syncs the files in its folder, but not the folder's name.
        sync_folder(folder)
        end = _rebuild_index(folder, index, mark) if is_rebuilt else _replay_log(folder, index, mark)
        if is_rebuilt:
            index.flush()
            remove_marker(folder, INDEX_DAMAGED)
        if end.number != mark.number:
            mark.begin(folder, end.number)
        segments = Segments(
            folder / "records", settings.segment_bytes, settings.max_open_segments, end.segment, end.offset
        )
        create_ballast(folder, settings)
        return OpenedFolder(folder, mark, index, end.usage, segments, end.number, not has_marker(folder, LOST))
    except BaseException:
        with contextlib.suppress(StorageFailed):
            index.close()
        raise


@dataclass(frozen=True, slots=True)
class _LogEnd:
    """The number of the last group, and where the next one is appended."""

    number: int
    segment: int
    offset: int
    usage: LogUsage


def _replay_log(folder: Path, index: Index, mark: DurableMark) -> _LogEnd:
    """Index the groups after those that are in the index. Cut off the log where it can't be read on."""
    records = folder / "records"
    acknowledged = mark.number or 0
    indexed = index.get_indexed_up_to() or IndexedUpTo(0, min(list_segments(records), default=1), 0)
    usage = LogUsage(index)
    # The log must be durable before it gets into the index, which may be flushed.
    for segment in list_segments(records):
        if segment >= indexed.segment:
            _sync(segment_path(records, segment))
    tail = TailRewrite(records, acknowledged)
    for group in LogReplay(records, indexed.number, indexed.segment, indexed.end, acknowledged):
        tail.add_group(group)
    tail.rewrite()
    replay = LogReplay(records, indexed.number, indexed.segment, indexed.end, acknowledged)
    unflushed_changes = 0
    for group in replay:
        unflushed_changes = _apply(index, usage, group, unflushed_changes)
    missing = _find_missing_segments(records, index, usage)
    if replay.number < acknowledged:
        missing.append(f"the log ends with group {replay.number}, but groups up to {acknowledged} were acknowledged")
    path = segment_path(records, indexed.segment)
    if indexed.end and (not path.exists() or path.stat().st_size < indexed.end):
        missing.append(f"{path} ends before byte {indexed.end}")
    if missing:
        reasons = "; ".join([*missing[:10], *([replay.damage] if replay.damage else [])])
        _log.error("The storage folder %s lacks acknowledged data: %s", folder, reasons)
        write_marker(folder, LOST, reasons)
    elif replay.damage:
        _log.warning("The last write to the log was truncated; it was not acknowledged. (%s)", replay.damage)
    _cut_off(records, replay)
    if missing:
        # The next group starts a new segment, as the last one may end before the offset in the index.
        segment = max([*usage.segments, *list_segments(records), replay.segment, indexed.segment]) + 1
        batch = IndexBatch()
        batch.put_indexed_up_to(replay.number, segment, 0)
        index.write(batch.batch)
        index.flush()
        return _LogEnd(replay.number, segment, 0, usage)
    return _LogEnd(replay.number, replay.segment, replay.end, usage)


def _rebuild_index(folder: Path, index: Index, mark: DurableMark) -> _LogEnd:
    """Index the whole log. Damaged groups are skipped, and the log is not changed."""
    records = folder / "records"
    usage = LogUsage(index)
    number, unflushed_changes = 0, 0
    # Without a mark the whole log would be rewritten: rewrite nothing then.
    tail = TailRewrite(records, mark.number or 2**64)
    segments = list_segments(records)
    for segment in segments:
        _sync(segment_path(records, segment))
        for group in salvage_segment(records, segment, number, mark.number or 0):
            tail.add_group(group)
            unflushed_changes = _apply(index, usage, group, unflushed_changes, is_rebuild=True)
            number = group.header.number
    tail.rewrite()
    sync_folder(records)
    last = max(segments, default=0)
    deleted = _list_deleted_with_entries(index)
    # Old segments may have records of deleted ledgers, while the group that dropped the ledger was compacted away.
    for begin in range(0, len(deleted), 1000):
        table = encode_group(number, Changes(dropped=deleted[begin : begin + 1000])).table
        apply_groups(index, usage, [LoggedGroup(table, number, last, records_at=0, end=0)])
    batch = IndexBatch()
    end = segment_path(records, last).stat().st_size if segments else 0
    batch.put_indexed_up_to(number, last, end)
    index.write(batch.batch)
    return _LogEnd(number, last + 1, 0, usage)


def _list_deleted_with_entries(index: Index) -> list[int]:
    found, first = [], 0
    while ledger_ids := index.list_ledger_ids(first, 10_000):
        for ledger_id in ledger_ids:
            ledger = index.get_ledger(ledger_id)
            if ledger is not None and ledger.deleted and index.list_ledger_usage(ledger_id):
                found.append(ledger_id)
        first = ledger_ids[-1] + 1
    return found


def _apply(
    index: Index, usage: LogUsage, group: FoundGroup, unflushed_changes: int, *, is_rebuild: bool = False
) -> int:
    """Apply a group to the index, and flush the index now and then. Return the number of unflushed changes."""
    # In a rebuild, each record replaces an older copy of itself: the group that removed the copy may have been deleted.
    is_compaction = group.header.is_compaction or is_rebuild
    logged = LoggedGroup(group.table, group.header.number, group.segment, group.records_at, group.end, is_compaction)
    unflushed_changes += apply_groups(index, usage, [logged])
    if unflushed_changes < _FLUSH_CHANGES:
        return unflushed_changes
    index.flush()
    return 0


def _find_missing_segments(records: Path, index: Index, usage: LogUsage) -> list[str]:
    """Describe segments with live bytes that are missing or too short, once: the index then has their real end."""
    missing = []
    batch = IndexBatch()
    for segment, segment_usage in usage.segments.items():
        if segment_usage.live_bytes:
            path = segment_path(records, segment)
            size = path.stat().st_size if path.exists() else -1
            if max(size, 0) < segment_usage.end:
                missing.append(
                    f"{path} is missing" if size < 0 else f"{path} has {size} bytes, not {segment_usage.end}"
                )
                segment_usage.end = max(size, 0)
                batch.put(*pack_segment_usage(segment, segment_usage.live_bytes, segment_usage.end))
    if missing:
        index.write(batch.batch)
    return missing


def _cut_off(records: Path, replay: LogReplay) -> None:
    """Remove everything after the last group: the next one is appended there."""
    for segment in list_segments(records):
        path = segment_path(records, segment)
        if segment > replay.segment:
            path.unlink()
        elif segment == replay.segment and path.stat().st_size > replay.end:
            os.truncate(path, replay.end)
            _sync(path)
    sync_folder(records)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_format(folder: Path) -> None:
    path = folder / _FORMAT_NAME
    if not path.exists():
        write_marker(folder, _FORMAT_NAME, str(FORMAT))
        return
    found = path.read_bytes().strip()
    if not re.fullmatch(rb"\d{1,9}", found):
        raise StorageFailed(f"{path} has {found[:40]!r}, not the number of a format such as {FORMAT}")
    if int(found) != FORMAT:
        raise StorageFailed(
            f"{folder} has format {int(found)}, but this version of Magnetar reads format {FORMAT}: use the "
            "version that wrote it"
        )


def _close_unused(opening: asyncio.Future[OpenedFolder]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opened = opening.result()
        opened.index.close()
        opened.mark.close()
