"""The embedded store killed, damaged, and on a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from magnetar_metadata.embedded import EmbeddedDatabase, group_commit, open_embedded
from magnetar_metadata.errors import (
    NodeExists,
    OutcomeUnknown,
    Refused,
    SessionLost,
    StoreDamaged,
    StoreFull,
    StoreInUse,
)
from magnetar_metadata.locked_folder import DurableMark
from magnetar_metadata.store import ABSENT, ChangeResult, MetadataStore, Node, Put, SessionState, Stat
from magnetar_metadata.watch_flags import WatchFlags
from magnetar_wire.clock import SystemClock
from tests.child_process import ChildProcess
from tests.faults.failing_disk import preloaded
from tests.running import run, until, within

_CHILD = [sys.executable, str(Path(__file__).with_name("embedded_child.py"))]
_REPOSITORY = Path(__file__).parents[2]
_KILLS = 12


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(str(_REPOSITORY / root) for root in ("protos", "metadata", "deploy"))
    return {**os.environ, "PYTHONPATH": path, **more}


def _opened(folder: Path) -> MetadataStore:
    return run(open_embedded(folder, SystemClock()))


@pytest.mark.slow
def test_committed_transactions_survive_kill_9_atomically(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for kill in range(_KILLS):
        first = 10_000 * kill
        command = [*_CHILD, str(tmp_path), str(first)]
        with ChildProcess[bytes](command, stdout=subprocess.PIPE, env=_environment()) as child:
            assert child.stdout is not None
            # Each run ends at another point of the stream of transactions.
            acknowledged += [int(child.stdout.readline()) for _ in range(1 + 7 * kill)]
            child.kill()
            # Output from before its death counts as well.
            acknowledged += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        run(_check_after_kill(tmp_path, acknowledged))


async def _check_after_kill(folder: Path, acknowledged: list[int]) -> None:
    async with await open_embedded(folder, SystemClock()) as store:
        assert not await store.exists("/ephemeral")
        left, right = await store.children("/left"), await store.children("/right")
        assert left == right
        assert {str(number) for number in acknowledged} <= set(left)
        for number in acknowledged[-40:]:
            node = await store.get(f"/right/{number}")
            assert node is not None
            assert node.value == (b"%d" % number if number % 5 else b"%d" % number * 40_000)


@pytest.mark.slow
def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with ChildProcess[bytes]([*_CHILD, str(tmp_path), "0"], stdout=subprocess.PIPE, env=_environment()) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StoreInUse, match=str(tmp_path)):
            _opened(tmp_path)
        child.kill()
    run(_open_and_close(tmp_path))


def test_a_second_store_of_the_same_process_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await open_embedded(tmp_path, SystemClock()):
            with pytest.raises(StoreInUse, match=str(tmp_path)):
                await open_embedded(tmp_path, SystemClock())

    run(scenario())
    run(_open_and_close(tmp_path))


@pytest.mark.slow
def test_forked_process_neither_uses_nor_locks_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("forking_child.py")), str(tmp_path)]
    pipe = subprocess.PIPE
    with ChildProcess[bytes](command, stdin=pipe, stdout=pipe, env=_environment()) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            # A session that was there when it was forked, and one that came after.
            assert parent.stdout.readline() == b"SessionLost SessionLost SessionLost SessionLost lost\n"
            with pytest.raises(StoreInUse):
                _opened(tmp_path)
            assert parent.stdout.readline() == b"done done NodeExists done\n"
        finally:
            parent.kill()
            parent.wait()
        # The forked process is alive.
        run(_check_after_fork(tmp_path))
        parent.stdin.close()
        # It ends, too: closing what it inherited would have it wait for threads that it has not.
        assert parent.stdout.read() == b""


async def _check_after_fork(folder: Path) -> None:
    async with await open_embedded(folder, SystemClock()) as store:
        assert await store.children("/") == ["after"]


def test_a_closed_folder_is_forgotten_when_it_is_collected(tmp_path: Path) -> None:
    known = _count_open_folders()
    run(_open_and_close(tmp_path))
    assert _count_open_folders() == known


def _count_open_folders() -> int:
    """Count the databases and marks in memory, open or closed: those that a forked process would notify."""
    gc.collect()
    return sum(isinstance(one, EmbeddedDatabase | DurableMark) for one in gc.get_objects())


def _flip(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)


def _cut_in_half(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def _cut_last_record(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-3])


def _empty(log: Path) -> None:
    log.write_bytes(b"")


@pytest.mark.parametrize("damage", [_flip, _cut_in_half, _cut_last_record, _empty, Path.unlink])
def test_a_damaged_log_is_refused_again_and_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """RocksDB itself opens the last two without a word, and with its default settings all of them."""
    copy = tmp_path / "copy"
    run(_write_and_copy(tmp_path / "original", copy))
    damage(_log(copy))
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"acknowledged"):
            _opened(copy)


def test_a_write_that_was_cut_off_and_never_acknowledged_is_no_damage(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    run(_write_and_copy(tmp_path / "original", copy))
    log = _log(copy)
    whole = log.read_bytes()
    # Half of another record: its checksum, its length (1000), its type, and too few bytes.
    log.write_bytes(whole + b"\x01\x02\x03\x04" + (1000).to_bytes(2, "little") + b"\x01" + b"x" * 500)
    run(_check_numbers(copy))


def test_a_lost_mark_is_damage(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    run(_write_and_copy(tmp_path / "original", copy))
    (copy / "durable-mark").unlink()
    with pytest.raises(StoreDamaged, match="durable-mark"):
        _opened(copy)


def test_half_a_mark_is_no_damage(tmp_path: Path) -> None:
    """A slot that was being written when the power went: the other one stands."""
    copy = tmp_path / "copy"
    run(_write_and_copy(tmp_path / "original", copy))
    mark = copy / "durable-mark"
    data = mark.read_bytes()
    for slot in (0, 4096):
        mark.write_bytes(data[:slot] + b"\xff" * 6 + data[slot + 6 :])
        other = tmp_path / f"slot-{slot}"
        shutil.copytree(copy, other)
        run(_check_numbers(other))


async def test_full_disk_refuses_put_and_store_stays_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await open_embedded(tmp_path, SystemClock()) as store:
        await store.put("/a", b"1", ABSENT)
        with monkeypatch.context() as patch:
            patch.setattr(group_commit, "RESERVE_BYTES", 1 << 62)
            for _ in range(2):
                with pytest.raises(StoreFull, match=str(tmp_path)):
                    await store.put("/b", b"2", ABSENT)
            assert await store.children("/") == ["a"]
        await store.put("/b", b"2", ABSENT)
        assert await store.children("/") == ["a", "b"]


async def test_closing_on_a_full_disk_closes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's ephemeral nodes go when it is opened again."""
    store = await open_embedded(tmp_path, SystemClock())
    await store.put("/ephemeral", b"", ABSENT, ephemeral=True)
    with monkeypatch.context() as patch:
        patch.setattr(group_commit, "RESERVE_BYTES", 1 << 62)
        await store.close()
    async with await open_embedded(tmp_path, SystemClock()) as store:
        assert await store.children("/") == []


@pytest.mark.parametrize("method", ["end_session", "close"])
async def test_closing_that_fails_closes_the_folder_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    database = await EmbeddedDatabase.open(tmp_path, SystemClock())
    store = database.connect(owns_database=True)
    await store.put("/a", b"", ABSENT)
    monkeypatch.setattr(database.commit, method, lambda *_: _fail(_))
    with pytest.raises(OSError, match="Input/output error"):
        await store.close()
    async with await open_embedded(tmp_path, SystemClock()) as store:
        assert await store.children("/") == ["a"]


async def test_unwritable_value_fails_its_group_and_store_stays_usable(tmp_path: Path) -> None:
    """It fails its own group, which gets an error; no other group, and not the sessions."""
    database = await EmbeddedDatabase.open(tmp_path, SystemClock())
    async with database.connect(owns_database=True) as store:
        await store.put("/a", b"1", ABSENT)
        # As from a caller whose types nobody checked.
        commit, spoilt = database.commit, Put("/b", cast(bytes, "text"), ABSENT)
        pending = [commit.transaction([each], store.session.id) for each in (spoilt, Put("/c", b"", ABSENT))]
        for answer in await asyncio.gather(*pending, return_exceptions=True):
            assert type(answer) is Refused
            assert "nothing was written" in str(answer)
        assert await store.children("/") == ["a"]
        await store.put("/c", b"", ABSENT)
        assert await store.children("/") == ["a", "c"]


async def test_unknown_free_space_refuses_put_and_store_stays_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_embedded(tmp_path, SystemClock()) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", _fail)
            with pytest.raises(Refused, match="Input/output error"):
                await within(store.put("/a", b"", ABSENT), "the answer")
        await store.put("/a", b"", ABSENT)


@pytest.mark.parametrize("cancelled", [True, False])
def test_end_of_writer_ends_all_pending_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Those of the group in flight, those of the next, a refusal that depends on the first; then the store is dead."""

    async def scenario() -> None:
        async with await open_embedded(tmp_path, SystemClock()) as store:
            syncing, go_on = _sync_slowly(monkeypatch)
            pending = [asyncio.create_task(store.put("/a", b"", ABSENT))]
            await until(syncing.is_set, "the group is written and being synced")
            pending += [asyncio.create_task(store.put(path, b"", ABSENT)) for path in ("/a", "/b")]
            await asyncio.sleep(0)
            (writer,) = [task for task in asyncio.all_tasks() if task.get_name() == "metadata-group-commit"]
            # Where the writer is not cancelled, it ends as it notifies watches of what was stored.
            monkeypatch.setattr(WatchFlags, "set_flags", _fail)
            if cancelled:
                writer.cancel()
            go_on.set()
            first, refused, next_one = await asyncio.gather(*pending, return_exceptions=True)
            assert isinstance(first, OutcomeUnknown)
            assert isinstance(refused, NodeExists)
            assert isinstance(next_one, OutcomeUnknown)
            assert store.session.state is SessionState.LOST
            with pytest.raises(SessionLost):
                await store.get("/a")
            await asyncio.wait([writer])
            assert writer.cancelled() or isinstance(writer.exception(), OSError)

    run(scenario())
    monkeypatch.undo()
    run(_open_and_close(tmp_path))


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _sync_slowly(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Have syncs of the mark wait for the second event. The first event is set when one has begun."""
    syncing, go_on, sync = threading.Event(), threading.Event(), DurableMark.sync

    def sync_slowly(mark: DurableMark) -> None:
        syncing.set()
        # A failing test must not leave the thread waiting.
        go_on.wait(5)
        sync(mark)

    monkeypatch.setattr(DurableMark, "sync", sync_slowly)
    return syncing, go_on


async def test_nothing_is_seen_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by reads nor by what a refusal gives away; watches are notified afterwards."""
    async with await open_embedded(tmp_path, SystemClock()) as store:
        await store.put("/a", b"old", ABSENT)
        watch = store.watch("/a")
        await watch.wait()
        syncing, go_on = _sync_slowly(monkeypatch)
        changes = [Put("/a", b"new", 0), Put("/b/c", b"", ABSENT)]
        pending = [asyncio.create_task(store.transaction(changes))]
        await until(syncing.is_set, "the group is written and being synced")
        pending.append(asyncio.create_task(store.transaction([Put("/b/c", b"", ABSENT)])))
        pending.append(asyncio.create_task(store.transaction([Put("/b/c", b"", 0)])))
        waiting = asyncio.create_task(watch.wait())
        await asyncio.sleep(0)
        assert await store.get("/a") == Node(b"old", Stat(0))
        assert await store.children("/") == ["a"]
        assert await store.children("/b") == []
        assert not any(each.done() for each in [*pending, waiting])
        go_on.set()
        ended = await asyncio.gather(*pending, return_exceptions=True)
        assert isinstance(ended[1], NodeExists)
        assert ended[2] == [ChangeResult("/b/c", 1)]
        await waiting
        assert await store.get("/a") == Node(b"new", Stat(1))
        assert await store.children("/b") == ["c"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "full"])
async def test_a_failed_write_or_fsync_ends_the_store_for_good(tmp_path: Path, kind: str) -> None:
    """A failed fsync is not repeated, though it would succeed; the folder has to be reopened."""
    folder, flag = tmp_path / "folder", tmp_path / "flag"
    shim = preloaded(tmp_path, flag)
    done = subprocess.run(
        [*_CHILD, str(folder), str(flag), kind],
        env=_environment(**shim),
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    # Whether the change that failed is there is unknown: one node or two.
    assert re.fullmatch("OutcomeUnknown SessionLost lost [12] nodes", done.stdout)

    async with await open_embedded(folder, SystemClock()) as store:
        assert await store.exists("/before") is not None
        assert await store.exists("/after") is None
        await store.put("/again", b"", ABSENT)


async def _write_and_copy(folder: Path, copy: Path) -> None:
    """Writes some nodes, and copies the folder as a crash would leave it."""
    async with await open_embedded(folder, SystemClock()) as store:
        for number in range(50):
            await store.put(f"/n/{number:03}", b"v" * 200, ABSENT)
        shutil.copytree(folder, copy)


async def _check_numbers(folder: Path) -> None:
    async with await open_embedded(folder, SystemClock()) as store:
        assert len(await store.children("/n")) == 50


async def _open_and_close(folder: Path) -> None:
    async with await open_embedded(folder, SystemClock()) as store:
        await store.put("/after", b"", ABSENT)


def _log(folder: Path) -> Path:
    """The log that holds the changes: the largest."""
    return max(folder.glob("*.log"), key=lambda path: path.stat().st_size)
