"""Opening a folder: what was acknowledged is there, or the storage says that it is not (`intact`).

Theory of operation
-------------------
The folder holds the log (`records/`), the index (`index/`, RocksDB), and how far the log was acknowledged
(`durable-mark`). A group is in the index's memory when it is written; it is durable, and acknowledged, when the log is
synced; and it is in the index's files at some time later. So an opening takes the index as it was flushed last, and
reads the log from there on. What it finds becomes durable before anything is answered from it: above the mark it is
written anew for that (`tail.py`), as a sync alone does not write what an earlier one failed to.

The end of the log may be torn. Whether that is a loss, the mark tells; what each kind of death leaves is this:

- The process dies (kill -9). The mark was written after the sync and before the answers, and the kernel keeps what is
  written: the mark is exact. A group behind it was not acknowledged and may be there, whole or in part.
- The machine dies. The mark is synced by itself every second or so, not with each group, as that would be a second
  fsync. So it may be too low, never too high: the log was synced before the mark was written. What was synced is in
  the log, if the disk keeps its word, however low the mark; so a torn end behind the mark is what was being written.
- The disk loses what it had synced. Where the log ends before the mark, that is seen for certain. A loss of only the
  last second before a power cut can't be told from a torn end; no storage without a second fsync sees it.

All of a cluster's bookies may lose power at once, and none of them must believe to have lost something for it.

Where something is missing, a note says so (`marker_files.py`) before anything is changed: the log is cut where it can't
be read on, so that no group is there without those before it, the mark begins anew, and `intact` is False until the
bookie has written its own record.

An index that can't be read is thrown away and made anew from the whole log: records, what is remembered of ledgers and
the bookie's own record are all in it, as what frees log files carries them on (`compaction.py`). Nothing should be
missing then, but who can't prove it does not say so: `intact` is False.
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
from magnetar_bookie.storage.rocksdb.index import Index, IndexBatch, IndexDamaged, IndexedUpTo, pack_use
from magnetar_bookie.storage.rocksdb.index_updates import LoggedGroup, SegmentUsage, apply_groups
from magnetar_bookie.storage.rocksdb.marker_files import INDEX_DAMAGED, LOST, has_marker, remove_marker, write_marker
from magnetar_bookie.storage.rocksdb.replay import FoundGroup, LogReplay, salvage_segment
from magnetar_bookie.storage.rocksdb.segments import Segments, segment_path, segments_in
from magnetar_bookie.storage.rocksdb.storage import OpenedFolder, RocksStorage
from magnetar_bookie.storage.rocksdb.tail_rewrite import TailRewrite
from magnetar_metadata.locked_folder import DurableMark, FolderInUse, sync_folder

__all__ = ["FORMAT", "open_rocksdb"]

_log = logging.getLogger(__name__)

# Of the folder. A higher one is refused: what it means is unknown here.
FORMAT: Final = 1
_FORMAT_NAME: Final = "format"
# The index is flushed after so many changes while a log is read again.
_FLUSH_AFTER: Final = 200_000


async def open_rocksdb(folder: Path, settings: StorageSettings | None = None) -> RocksStorage:
    """Opens the folder, or makes it. Raises `StorageFailed`."""
    settings = settings or StorageSettings()
    opening = asyncio.ensure_future(asyncio.to_thread(_open, folder, settings))
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The thread goes on, and what it opens must be closed again for the next one.
        opening.add_done_callback(_close_unused)
        raise
    return RocksStorage(opened, settings)


def _open(folder: Path, settings: StorageSettings) -> OpenedFolder:
    """In a thread."""
    try:
        return _open_locked(folder, settings)
    except OSError as error:
        raise StorageFailed(f"the storage folder {folder} can't be opened: {error}") from error


def _open_locked(folder: Path, settings: StorageSettings) -> OpenedFolder:
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
        if mark.number is None and (segments_in(records) or (folder / "index").exists()):
            write_marker(folder, LOST, f"the durable mark of {folder} is damaged or missing")
        if not (folder / "index").exists() and (segments_in(records) or mark.number):
            write_marker(folder, INDEX_DAMAGED, "the index is missing")
        if mark.number is None:
            mark.begin(folder, 0)
        try:
            return _open_index(folder, settings, mark)
        except IndexDamaged as error:
            write_marker(folder, INDEX_DAMAGED, str(error))
        # Not before the error is forgotten, and with it what still holds the index open.
        return _open_index(folder, settings, mark)
    except BaseException:
        mark.close()
        raise


def _open_index(folder: Path, settings: StorageSettings, mark: DurableMark) -> OpenedFolder:
    made_anew = has_marker(folder, INDEX_DAMAGED)
    if made_anew:
        write_marker(folder, LOST, "the index was damaged, and was rebuilt from the log")
        _log.error("The index of %s is damaged: it is rebuilt from the log, which takes a while.", folder)
        if (folder / "index").exists():
            shutil.rmtree(folder / "index")
    index = Index(folder / "index", settings.block_cache_bytes)
    try:
        # RocksDB syncs what is in its folder, not that there is one.
        sync_folder(folder)
        reading = _make_anew if made_anew else _read_on
        reached = reading(folder, index, mark)
        if made_anew:
            index.flush()
            remove_marker(folder, INDEX_DAMAGED)
        if reached.number != mark.number:
            mark.begin(folder, reached.number)
        segments = Segments(
            folder / "records", settings.segment_bytes, settings.max_open_segments, reached.segment, reached.end
        )
        create_ballast(folder, settings)
        return OpenedFolder(folder, mark, index, reached.usage, segments, reached.number, not has_marker(folder, LOST))
    except BaseException:
        with contextlib.suppress(StorageFailed):
            index.close()
        raise


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far the log goes, and where the next group comes."""

    number: int
    segment: int
    end: int
    usage: SegmentUsage


def _read_on(folder: Path, index: Index, mark: DurableMark) -> _Reached:
    """From where the index ends."""
    records = folder / "records"
    acknowledged = mark.number or 0
    known = index.known() or IndexedUpTo(0, min(segments_in(records), default=1), 0)
    usage = SegmentUsage(index)
    # What is there becomes durable: before it gets into the index, which may be flushed.
    for segment in segments_in(records):
        if segment >= known.segment:
            _sync(segment_path(records, segment))
    tail = TailRewrite(records, acknowledged)
    for group in LogReplay(records, known.number, known.segment, known.end, acknowledged):
        tail.add(group)
    tail.write_anew()
    walk = LogReplay(records, known.number, known.segment, known.end, acknowledged)
    todo = 0
    for group in walk:
        todo = _apply(index, usage, group, todo)
    missing = _missing_segments(records, index, usage)
    if walk.number < acknowledged:
        missing.append(f"the log ends with group {walk.number}, but groups up to {acknowledged} were acknowledged")
    path = segment_path(records, known.segment)
    if known.end and (not path.exists() or path.stat().st_size < known.end):
        missing.append(f"{path} ends before byte {known.end}")
    if missing:
        because = "; ".join([*missing[:10], *([walk.broken] if walk.broken else [])])
        _log.error("The storage folder %s lacks acknowledged data: %s", folder, because)
        write_marker(folder, LOST, because)
    elif walk.broken:
        _log.warning("The last write to the log was truncated; it was not acknowledged. (%s)", walk.broken)
    _cut(records, walk)
    if missing:
        # The next one comes in a new segment, as the last may end before the index thinks.
        segment = max([*usage.segments, *segments_in(records), walk.segment, known.segment]) + 1
        batch = IndexBatch()
        batch.put_known(walk.number, segment, 0)
        index.write(batch.batch)
        index.flush()
        return _Reached(walk.number, segment, 0, usage)
    return _Reached(walk.number, walk.segment, walk.end, usage)


def _make_anew(folder: Path, index: Index, mark: DurableMark) -> _Reached:
    """From the whole log. What can't be read of a segment is passed over; nothing of the log is changed."""
    records = folder / "records"
    usage = SegmentUsage(index)
    number, todo = 0, 0
    # A mark that is lost tells nothing; then all of the log would be written anew.
    tail = TailRewrite(records, mark.number or 2**64)
    segments = segments_in(records)
    for segment in segments:
        _sync(segment_path(records, segment))
        for group in salvage_segment(records, segment, number, mark.number or 0):
            tail.add(group)
            todo = _apply(index, usage, group, todo, anew=True)
            number = group.head.number
    tail.write_anew()
    sync_folder(records)
    last = max(segments, default=0)
    deleted = _deleted_with_entries(index)
    # Their records may be left in segments from before, while the group that dropped them went with its own.
    for begin in range(0, len(deleted), 1000):
        table = encode_group(number, Changes(dropped=deleted[begin : begin + 1000])).table
        apply_groups(index, usage, [LoggedGroup(table, number, last, records_at=0, end=0)])
    batch = IndexBatch()
    end = segment_path(records, last).stat().st_size if segments else 0
    batch.put_known(number, last, end)
    index.write(batch.batch)
    return _Reached(number, last + 1, 0, usage)


def _deleted_with_entries(index: Index) -> list[int]:
    found, first = [], 0
    while ledger_ids := index.ledger_ids(first, 10_000):
        for ledger_id in ledger_ids:
            remembered = index.ledger(ledger_id)
            if remembered is not None and remembered.deleted and index.uses_of(ledger_id):
                found.append(ledger_id)
        first = ledger_ids[-1] + 1
    return found


def _apply(index: Index, usage: SegmentUsage, group: FoundGroup, todo: int, *, anew: bool = False) -> int:
    # What took a record's older copy away may be gone with its segment, when the index is made anew.
    moves = group.head.moves or anew
    placed = LoggedGroup(group.table, group.head.number, group.segment, group.records_at, group.end, moves)
    todo += apply_groups(index, usage, [placed])
    if todo < _FLUSH_AFTER:
        return todo
    index.flush()
    return 0


def _missing_segments(records: Path, index: Index, usage: SegmentUsage) -> list[str]:
    """What is missing of segments in use. It is told once: the index takes them as they are then."""
    missing = []
    batch = IndexBatch()
    for segment, use in usage.segments.items():
        if use.used:
            path = segment_path(records, segment)
            size = path.stat().st_size if path.exists() else -1
            if max(size, 0) < use.end:
                missing.append(f"{path} is missing" if size < 0 else f"{path} has {size} bytes, not {use.end}")
                use.end = max(size, 0)
                batch.put(*pack_use(segment, use.used, use.end))
    if missing:
        index.write(batch.batch)
    return missing


def _cut(records: Path, walk: LogReplay) -> None:
    """Takes away what comes behind the last group: it would stand between that and the next."""
    for segment in segments_in(records):
        path = segment_path(records, segment)
        if segment > walk.segment:
            path.unlink()
        elif segment == walk.segment and path.stat().st_size > walk.end:
            os.truncate(path, walk.end)
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
