"""A share of `ledger_storage_rounds.py`, and a storage's behaviour on folders that were changed behind its back."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar_bookie.storage.interface import DAMAGED, Changes, LedgerData, StorageFailed, StorageFull
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, disk_space, open_rocksdb
from magnetar_bookie.storage.rocksdb import segments as segments_module
from magnetar_bookie.storage.rocksdb.segments import list_segments, segment_path
from magnetar_metadata.locked_folder import sync_folder
from tests.child_process import ChildProcess
from tests.faults.failing_disk import preloaded
from tests.running import run, until

_REPOSITORY = Path(__file__).parents[2]
_RECORD = b"r" * 1000
_SMALL = StorageSettings(segment_bytes=16 << 10, index_flush_bytes=16 << 10)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(str(_REPOSITORY / root) for root in ("protos", "metadata", "bookie", "deploy", "."))
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "rounds"),
    [
        ("kill garbage old_mark", 16),
        ("tear remove_log flip_log", 16),
        ("flip_index remove_from_index remove_index remove_mark flip_mark", 16),
        ("failed_sync full_disk slow_sync", 6),
        ("power failed_sync_and_power", 8),
    ],
)
def test_synced_records_survive_or_their_loss_is_reported(kinds: str, rounds: int) -> None:
    """CHK-21, CHK-24, CHK-25, CHK-15 (the storage's part). More: python -m tests.faults.ledger_storage_rounds."""
    if ("sync" in kinds or "power" in kinds) and not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler for the shim that makes the disk fail")
    command = [sys.executable, "-m", "tests.faults.ledger_storage_rounds", "--rounds", str(rounds)]
    for kind in kinds.split():
        command += ["--kind", kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_REPOSITORY, env=_environment(), timeout=110)
    assert done.returncode == 0, done.stderr


def _on(folder: Path, body: Callable[[RocksStorage], Awaitable[None]], options: StorageSettings | None = None) -> None:
    async def scenario() -> None:
        storage = await open_rocksdb(folder, options)
        try:
            await body(storage)
        finally:
            await storage.close()

    run(scenario())


async def _fill(storage: RocksStorage, ledger_id: int = 1, groups: int = 40) -> None:
    for entry_id in range(groups):
        storage.write(Changes({(ledger_id, entry_id): _RECORD}, {ledger_id: LedgerData(last_add_confirmed=entry_id)}))
        await storage.sync()


async def _copied(folder: Path, copy: Path, options: StorageSettings | None = None) -> None:
    """A folder as kill -9 leaves it."""
    storage = await open_rocksdb(folder, options)
    await _fill(storage)
    shutil.copytree(folder, copy)
    await storage.close()


def test_second_storage_on_the_folder_is_refused(tmp_path: Path) -> None:
    async def body(storage: RocksStorage) -> None:
        with pytest.raises(StorageFailed, match=f"{tmp_path} is in use by another process"):
            await open_rocksdb(tmp_path)

    _on(tmp_path, body)
    _on(tmp_path, _fill)


@pytest.mark.slow
def test_forked_process_neither_uses_nor_locks_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.forking_storage_child", str(tmp_path)]
    pipe = subprocess.PIPE
    with ChildProcess[bytes](command, stdin=pipe, stdout=pipe, cwd=_REPOSITORY, env=_environment()) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline() == b"StorageFailed\n"
            with pytest.raises(StorageFailed, match="is in use by another process"):
                run(open_rocksdb(tmp_path))
            assert parent.stdout.readline() == b"written\n"
        finally:
            parent.kill()
            parent.wait()

        async def body(storage: RocksStorage) -> None:
            assert storage.is_intact
            assert storage.list_entry_ids(1, 0, 10, 10) == [0, 2]

        # The forked process still runs.
        _on(tmp_path, body)
        parent.stdin.close()
        # It ends, too: closing what it inherited would have it wait for threads that it has not.
        assert parent.stdout.read() == b""


def test_newer_format_is_refused(tmp_path: Path) -> None:
    _on(tmp_path, _fill)
    (tmp_path / "format").write_text("2\n")
    for _ in range(2):
        with pytest.raises(StorageFailed, match="has format 2, but this version of Magnetar reads format 1"):
            run(open_rocksdb(tmp_path))


def test_loss_of_power_with_an_old_mark_and_a_torn_end_is_no_loss(tmp_path: Path) -> None:
    """CHK-25: all of a cluster's bookies may lose power at once, and none must be in limbo for it."""
    copy = tmp_path / "copy"
    run(_copied(tmp_path / "original", copy))
    _on(tmp_path / "fresh", lambda _: asyncio.sleep(0))
    shutil.copy(tmp_path / "fresh" / "durable-mark", copy / "durable-mark")
    (log,) = (copy / "records").glob("*.log")
    with log.open("ab") as file:
        file.write(log.read_bytes()[:700])

    async def body(storage: RocksStorage) -> None:
        assert storage.is_intact
        assert storage.get_last_entry_id(1) == 39

    _on(copy, body)


@pytest.mark.parametrize("segment", [0, 1, -1])
def test_missing_log_file_is_reported_as_loss_once(tmp_path: Path, segment: int) -> None:
    """CHK-25, CHK-15: what was in it and is known of is damaged, not absent."""
    copy = tmp_path / "copy"
    run(_copied(tmp_path / "original", copy, _SMALL))
    segments = list_segments(copy / "records")
    assert len(segments) > 2
    segment_path(copy / "records", segments[segment]).unlink()

    async def reports_loss(storage: RocksStorage) -> None:
        assert not storage.is_intact
        last = storage.get_last_entry_id(1)
        assert storage.list_entry_ids(1, 0, 100, 100) == list(range(last + 1))
        records = await storage.read(1, range(last + 1), 1 << 30)
        assert set(records) <= {_RECORD, DAMAGED}
        assert last < 39 or DAMAGED in records
        storage.write(Changes(bookie=b"I have lost something"))
        await storage.sync()

    async def once(storage: RocksStorage) -> None:
        assert storage.is_intact

    _on(copy, reports_loss, _SMALL)
    _on(copy, once, _SMALL)


def test_damaged_index_stops_storage_and_is_rebuilt(tmp_path: Path) -> None:
    """CHK-15: what can't be enumerated is never absent. And it does not end each process: nothing is missing after."""

    entries = 5000  # several blocks of keys

    async def flushed(storage: RocksStorage) -> None:
        records = {(1, entry_id): _RECORD for entry_id in range(entries)}
        storage.write(Changes(records, {1: LedgerData()}, bookie=b"me"))

    _on(tmp_path, flushed)
    (table,) = (tmp_path / "index").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[100] ^= 0xFF  # in the first block of keys
    table.write_bytes(data)

    async def ends(storage: RocksStorage) -> None:
        with pytest.raises(StorageFailed, match="Corruption"):
            storage.list_entry_ids(1, 0, entries, entries)
        for call in (
            lambda: storage.get_last_entry_id(1),
            lambda: storage.write(Changes(bookie=b"x")),
            storage.get_bookie_record,
        ):
            with pytest.raises(StorageFailed):
                call()

    async def whole(storage: RocksStorage) -> None:
        assert not storage.is_intact
        assert storage.get_bookie_record() == b"me"
        assert await storage.read(1, range(entries + 1), 1 << 30) == [_RECORD] * entries + [None]

    _on(tmp_path, ends)
    assert (tmp_path / "index-damaged").exists()
    _on(tmp_path, whole)
    _on(tmp_path, whole)


_READS = """
import asyncio, sys
from pathlib import Path
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_bookie.storage.rocksdb import open_rocksdb
from tests.faults.failing_disk import fail_disk

async def scenario():
    storage = await open_rocksdb(Path(sys.argv[1]))
    fail_disk(Path(sys.argv[2]), "unreadable_index")
    try:
        storage.list_entry_ids(1, 0, 5000, 5000)
    except StorageFailed as error:
        print(error)

asyncio.run(scenario())
"""


@pytest.mark.slow
def test_unreadable_index_is_rebuilt(tmp_path: Path) -> None:
    """CHK-15: the like of a damaged one, or each process would meet it and end."""
    folder, flag = tmp_path / "storage", tmp_path / "flag"
    environment = {**_environment(), **preloaded(tmp_path, flag)}

    async def flushed(storage: RocksStorage) -> None:
        storage.write(Changes({(1, entry_id): _RECORD for entry_id in range(5000)}, {1: LedgerData()}))

    async def whole(storage: RocksStorage) -> None:
        assert not storage.is_intact
        assert await storage.read(1, range(5000), 1 << 30) == [_RECORD] * 5000

    _on(folder, flushed)
    command = [sys.executable, "-c", _READS, str(folder), str(flag)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_REPOSITORY, env=environment, timeout=60)
    assert "Input/output error" in done.stdout, done.stderr
    assert (folder / "index-damaged").exists()
    _on(folder, whole)


def test_unreadable_sector_damages_only_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-15: the disk's error is neither "no such entry" nor the end of the process; and what is mended is read."""
    pread = os.pread
    bad: list[int] = []

    def failing(file: int, size: int, offset: int) -> bytes:
        for sector in bad:
            if offset <= sector < offset + size:
                if offset == sector:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                size = sector - offset
        return pread(file, size, offset)

    monkeypatch.setattr(os, "pread", failing)

    async def body(storage: RocksStorage) -> None:
        records = {(1, entry_id): bytes([entry_id]) * 1000 for entry_id in range(8)}
        storage.write(Changes(records=records, ledgers={1: LedgerData(b"key")}))
        await storage.sync()
        location = storage.log.index.locate(1, [3])[0]
        assert location is not None
        bad.append(location[1] + 512)
        found = await storage.read(1, range(8), 1 << 20)
        assert found == [DAMAGED if entry_id == 3 else records[1, entry_id] for entry_id in range(8)]
        assert storage.has_entry(1, 3)
        storage.write(Changes(records={(1, 3): records[1, 3]}, discarded=[(1, 3)]))
        await storage.sync()
        assert await storage.read(1, [3], 1 << 20) == [records[1, 3]]

    _on(tmp_path, body)


def test_sync_after_a_failed_one_does_not_succeed_with_an_empty_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-21: two syncs wait at once, and the first has taken all that the second would vouch for."""

    async def body(storage: RocksStorage) -> None:
        fdatasync = os.fdatasync

        def fail(_: int) -> None:
            monkeypatch.setattr(os, "fdatasync", fdatasync)
            raise OSError(5, "Input/output error")

        storage.write(Changes({(1, 0): _RECORD}))
        monkeypatch.setattr(os, "fdatasync", fail)
        ended = await asyncio.gather(storage.sync(), storage.sync(), return_exceptions=True)
        assert [type(one) for one in ended] == [StorageFailed, StorageFailed]

    _on(tmp_path, body)


def test_full_disk_accepts_writes_again_only_above_resume_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StorageSettings(reserve_disk_bytes=1 << 20, resume_disk_bytes=1 << 20)

    async def body(storage: RocksStorage) -> None:
        def free(size: int) -> None:
            monkeypatch.setattr(disk_space, "get_free_bytes", lambda _: size)

        free((1 << 20) + 500)
        with pytest.raises(StorageFull, match="reserve_disk_bytes"):
            storage.write(Changes({(1, 0): _RECORD}))
        free((1 << 20) + 2000)
        assert not storage.has_free_space()
        free(2 << 20)
        assert storage.has_free_space()
        storage.write(Changes({(1, 0): _RECORD}))

    _on(tmp_path, body, options)


def test_quota_refuses_entries_until_ledgers_are_dropped(tmp_path: Path) -> None:
    options = StorageSettings(segment_bytes=16 << 10, max_disk_bytes=200 << 10)

    async def body(storage: RocksStorage) -> None:
        with pytest.raises(StorageFull, match="max_disk_bytes"):
            await _fill(storage, groups=400)
        assert not storage.has_free_space()
        storage.write(Changes(ledgers={1: LedgerData(deleted=True)}, dropped=[1]))
        await storage.sync()
        await until(storage.has_free_space, "space was freed")

    _on(tmp_path, body, options)


def test_segment_file_is_durably_deleted_before_index_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-26: after a loss of power its file would be back, and nobody would know that it can go."""
    records, options = tmp_path / "records", StorageSettings(segment_bytes=16 << 10)

    async def body(storage: RocksStorage) -> None:
        deleted: dict[int, None] = {}

        def noting(folder: Path) -> None:
            sync_folder(folder)
            known = [segment for segment, _, _ in storage.log.index.list_segment_usage()]
            deleted.update((segment, None) for segment in known if not segment_path(records, segment).exists())

        await _fill(storage)
        old = [segment for segment in storage.log.usage.segments if segment < storage.log.segments.current]
        assert len(old) > 1
        monkeypatch.setattr(segments_module, "sync_folder", noting)
        storage.write(Changes(ledgers={1: LedgerData(deleted=True)}, dropped=[1]))
        await storage.sync()
        await until(lambda: not set(old) & set(storage.log.usage.segments), "the segments go")
        assert sorted(deleted) == old

    _on(tmp_path, body, options)


@pytest.mark.slow
def test_dropped_ledgers_give_their_bytes_back_though_they_lay_among_others(tmp_path: Path) -> None:
    """Ten ledgers side by side, 200 MB; nine are deleted. The last one reads as before, also from the log alone."""
    ledgers, rounds, record = range(1, 11), 160, b"x" * (128 << 10)
    options = StorageSettings(segment_bytes=16 << 20, ballast_disk_bytes=0)

    def held() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    async def body(storage: RocksStorage) -> None:
        for entry_id in range(rounds):
            remembered = {one: LedgerData(last_add_confirmed=entry_id, fenced=True) for one in ledgers}
            storage.write(Changes({(one, entry_id): record for one in ledgers}, remembered))
            await storage.sync()
        assert held() > 200_000_000
        deleted = [one for one in ledgers if one != 5]
        storage.write(Changes(ledgers={one: LedgerData(deleted=True) for one in deleted}, dropped=deleted))
        await storage.sync()
        live = rounds * len(record)
        await until(lambda: held() < 2.5 * live, "the disk is freed")
        await whole(storage)

    async def whole(storage: RocksStorage) -> None:
        assert await storage.read(5, range(rounds), 1 << 40) == [record] * rounds
        assert [storage.get_last_entry_id(one) for one in ledgers] == [
            rounds - 1 if one == 5 else -1 for one in ledgers
        ]
        assert storage.get_ledger(5) == LedgerData(last_add_confirmed=rounds - 1, fenced=True)
        assert storage.get_ledger(4) == LedgerData(deleted=True)

    _on(tmp_path, body, options)
    _on(tmp_path, whole, options)
    shutil.rmtree(tmp_path / "index")
    _on(tmp_path, whole, options)
