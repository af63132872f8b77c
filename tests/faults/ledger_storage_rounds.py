"""A ledger storage killed, torn, damaged and failed, round by round.

    python -m tests.faults.ledger_storage_rounds --rounds 3000 [--kind tear …] [--seed 1]

A round: a process writes groups (`ledger_storage_workload.py`) and prints each that is acknowledged; it is killed -9 at
some moment, while it opens, writes, flushes, frees or reads; then something may happen to the folder, or the power goes
and takes what was not synced (`power_loss.py`); then another process opens it and looks. Either all that was
acknowledged is there, or the storage reports a loss; in either case its state is what the
groups up to some point left, and no record is wrong without being seen to be. Rounds go on with the same folder, until
something is lost. Processes are forked before any storage is open, as starting a new one takes longer than a round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_bookie.storage.rocksdb import RocksStorage, open_rocksdb
from magnetar_bookie.storage.rocksdb.marker_files import LOST
from magnetar_bookie.storage.rocksdb.segments import list_segments, segment_path
from tests.faults.failing_disk import FAILURES, fail_disk, preloaded
from tests.faults.ledger_storage_workload import OPTIONS, Workload, reached, wrong
from tests.faults.power_loss import begin_shadow, lose_power, watch_folder

_LONGEST_RUN_S = 0.25
_DEADLINE_S = 60.0
POWER = "power"
# A sync fails, the process ends, the next one writes on, and then the power goes.
FAILED_SYNC_AND_POWER = "failed_sync_and_power"
LOSE_POWER = (POWER, FAILED_SYNC_AND_POWER)


def _newest(folder: Path) -> Path | None:
    segments = list_segments(folder / "records")
    return segment_path(folder / "records", segments[-1]) if segments else None


def _nothing(folder: Path, random: Random) -> None:
    """The process was killed; that is all."""


def _garbage(folder: Path, random: Random) -> None:
    """The machine died while more was written: part of it is there."""
    newest = _newest(folder)
    if newest is not None:
        with newest.open("ab") as file:
            file.write(random.choice((bytes(random.randint(1, 9000)), random.randbytes(random.randint(1, 9000)))))


def _tear(folder: Path, random: Random) -> None:
    newest = _newest(folder)
    if newest is not None:
        os.truncate(newest, random.randint(0, newest.stat().st_size))


def _remove_log(folder: Path, random: Random) -> None:
    segments = list_segments(folder / "records")
    if segments:
        segment_path(folder / "records", random.choice(segments)).unlink()


def _flip(path: Path, random: Random) -> None:
    size = path.stat().st_size
    if not size:
        return
    with path.open("r+b") as file:
        at = random.randrange(size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << random.randrange(8))]))


def _flip_log(folder: Path, random: Random) -> None:
    segments = list_segments(folder / "records")
    if segments:
        _flip(segment_path(folder / "records", random.choice(segments)), random)


def _flip_index(folder: Path, random: Random) -> None:
    files = sorted((folder / "index").glob("*.sst")) + sorted((folder / "index").glob("MANIFEST-*"))
    if files:
        _flip(random.choice(files), random)


def _remove_from_index(folder: Path, random: Random) -> None:
    files = sorted((folder / "index").glob("*")) if (folder / "index").exists() else []
    if files:
        random.choice(files).unlink()


def _remove_index(folder: Path, random: Random) -> None:
    shutil.rmtree(folder / "index", ignore_errors=True)


def _remove_mark(folder: Path, random: Random) -> None:
    (folder / "durable-mark").unlink(missing_ok=True)


def _flip_mark(folder: Path, random: Random) -> None:
    if (folder / "durable-mark").exists():
        data = bytearray((folder / "durable-mark").read_bytes())
        # In what a slot holds: there is little besides.
        at = random.choice((0, 4096)) + random.randrange(12)
        if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        (folder / "durable-mark").write_bytes(data)


def _old_mark(folder: Path, random: Random) -> None:
    """The power went before the mark was synced, and the end of the log is torn."""
    old = (folder.parent / "old-mark").read_bytes()
    if old:  # it is synced once before anything else is written
        (folder / "durable-mark").write_bytes(old)
    _garbage(folder, random)


# What happens to the folder, and whether it may lose something that was acknowledged or damage records.
KINDS: dict[str, tuple[Callable[[Path, Random], object], bool]] = {
    "kill": (_nothing, False),
    "garbage": (_garbage, False),
    "old_mark": (_old_mark, False),
    # What is left of the folder is in power_loss.py.
    **dict.fromkeys(LOSE_POWER, (_nothing, False)),
    "tear": (_tear, True),
    "remove_log": (_remove_log, True),
    "flip_log": (_flip_log, True),
    "flip_index": (_flip_index, True),
    "remove_from_index": (_remove_from_index, True),
    "remove_index": (_remove_index, True),
    "remove_mark": (_remove_mark, True),
    "flip_mark": (_flip_mark, True),
    # While it is written: see failing_disk.py. None of these loses anything.
    **dict.fromkeys(FAILURES, (_nothing, False)),
}


class RoundFailed(Exception):
    """What must not be, and where it can be looked at."""


class Rounds:
    def __init__(self, folder: Path, seed: int, kinds: list[str]) -> None:
        self._root = folder
        self._kinds = kinds
        self._random = Random(seed)
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self._flag = Path(os.environ.get("FAILING_DISK", folder / "flag"))
        self._folders = 0
        self._begin()

    def _begin(self) -> None:
        self._folders += 1
        self._base = self._root / str(self._folders)
        self._base.mkdir()
        self.folder = self._base / "storage"
        self.saved = self._base / "before"
        self._shadow = self._base / "shadow"
        self._workload_seed = self._random.getrandbits(32)
        self._acknowledged = 0

    def round(self) -> None:
        random = self._random
        kind = random.choice(self._kinds)
        do, may_lose = KINDS[kind]
        self._keep_mark()
        if kind in LOSE_POWER:
            begin_shadow(self.folder, self._shadow)
        if kind == FAILED_SYNC_AND_POWER:
            self._write_until_killed(kind, fails="failed_sync")
        self._write_until_killed(kind, fails=kind if kind in FAILURES else None)
        if kind in LOSE_POWER:
            lose_power(self.folder, self._shadow, random)
        if self.folder.exists():
            do(self.folder, random)
        self._keep_folder()
        found = self._look(may_lose)
        self.counts[kind] += 1
        where = f"{self.folder}, seed {self.seed}, {kind}"
        if found.get("wrong") or "failed" in found:
            raise RoundFailed(f"{where}, {self._acknowledged} acknowledged: {found}")
        if not found["intact"]:
            self.counts[f"{kind}: reported"] += 1
            if not may_lose:
                raise RoundFailed(f"{where}: this loses nothing, and it reports a loss: {found}")
        elif found["reached"] < self._acknowledged:
            raise RoundFailed(f"{where}: {self._acknowledged} was acknowledged, and is not there: {found}")
        self._acknowledged = found["reached"]
        if may_lose or random.random() < 0.25:
            shutil.rmtree(self._base)
            self._begin()

    def _keep_folder(self) -> None:
        """As it is before it is opened and looked at, for who wants to know why it was found wrong."""
        shutil.rmtree(self.saved, ignore_errors=True)
        if self.folder.exists():
            shutil.copytree(self.folder, self.saved)

    def _keep_mark(self) -> None:
        mark = self.folder / "durable-mark"
        if mark.exists():
            shutil.copy(mark, self._base / "old-mark")
        else:
            (self._base / "old-mark").write_bytes(b"")

    def _write_until_killed(self, kind: str, fails: str | None) -> None:
        readable, writable = os.pipe()
        watched = self._shadow if kind in LOSE_POWER else None
        child = _forked(lambda: _write(self.folder, self._workload_seed, writable, watched), readable)
        os.close(writable)
        ends = time.monotonic() + self._random.random() ** 2 * _LONGEST_RUN_S
        fails_at = time.monotonic() + self._random.random() * _LONGEST_RUN_S if fails else None
        output = b""
        try:
            if fails_at is not None:
                ends = fails_at + 0.5
            while (left := ends - time.monotonic()) > 0:
                if fails_at is not None and time.monotonic() >= fails_at:
                    fail_disk(self._flag, fails or "")
                    fails_at = None
                if select.select([readable], [], [], min(left, 0.005))[0]:
                    part = os.read(readable, 1 << 16)
                    if not part:  # it ended by itself: its disk failed
                        break
                    output += part
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        # Output from before its death counts as well.
        while part := os.read(readable, 1 << 16):
            output += part
        os.close(readable)
        self._flag.unlink(missing_ok=True)
        lines = output.split(b"\n")[:-1]
        if any(b"!" in one for one in lines):
            raise RoundFailed(f"{self.folder}, seed {self.seed}, {kind}: the writer wrote {lines[-1]!r}")
        if lines:
            self._acknowledged = max(self._acknowledged, int(lines[-1]))

    def _look(self, may_be_damaged: bool) -> dict[str, Any]:
        readable, writable = os.pipe()
        child = _forked(lambda: _check(self.folder, self._workload_seed, may_be_damaged, writable), readable)
        os.close(writable)
        output = b""
        ends = time.monotonic() + _DEADLINE_S
        while select.select([readable], [], [], max(0.0, ends - time.monotonic()))[0]:
            part = os.read(readable, 1 << 16)
            if not part:
                break
            output += part
        else:
            os.kill(child, signal.SIGKILL)
            output = b'{"failed": "it hangs"}'
        os.waitpid(child, 0)
        os.close(readable)
        return dict(json.loads(output or b'{"failed": "it died"}'))


def _forked(body: Callable[[], Coroutine[Any, Any, None]], other_end: int) -> int:
    """Runs it in a process of its own, which ends with it."""
    child = os.fork()
    if child:
        return child
    try:
        os.close(other_end)
        logging.disable(logging.CRITICAL)
        asyncio.run(body())
    except BaseException:  # noqa: BLE001 (nothing of the parent's may run here)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


async def _write(folder: Path, seed: int, output: int, watched: Path | None) -> None:
    """Writes on from where the storage is, until it is killed or its disk fails."""
    if watched is not None:
        watch_folder(folder, watched)
    workload = Workload(seed)
    try:
        storage = await open_rocksdb(folder, OPTIONS)
        workload.go_to(reached(storage))
        if not storage.is_intact:
            os.write(output, b"! it reports a loss\n")
            return
        while True:
            for _ in range(1 + workload.number % 3):
                storage.write(workload.next_group())
            number, syncing = workload.number, asyncio.ensure_future(storage.sync())
            if number // 20 % 2:  # more is written while it is in flight
                await asyncio.sleep(0)
                storage.write(workload.next_group())
            await syncing
            os.write(output, b"%d\n" % number)
    except StorageFailed:
        # Nothing is on the disk after a failure that succeeds when it is tried again.
        os._exit(0)


async def _check(folder: Path, seed: int, may_be_damaged: bool, output: int) -> None:
    """Opens, and looks; more often where that ends the storage, as what is damaged may be met later."""
    found: dict[str, Any] = {}
    for _ in range(4):
        try:
            storage = await open_rocksdb(folder, OPTIONS)
        except StorageFailed as error:
            found = {"failed": f"it never opens: {error}"}
            continue
        try:
            lost = (folder / LOST).read_text() if not storage.is_intact else ""
            found = await _look_into(storage, seed, may_be_damaged)
            found |= {"intact": storage.is_intact, "lost": lost}
            if not storage.is_intact:
                await _write_down(storage)
            break
        except StorageFailed as error:
            found = {"failed": f"it never works: {error}"}
        finally:
            with contextlib.suppress(StorageFailed):
                await storage.close()
    if found.get("lost"):
        again = await open_rocksdb(folder, OPTIONS)
        if not again.is_intact:
            found["failed"] = f"it reports the loss though that was recorded: {(folder / LOST).read_text()}"
        await again.close()
    os.write(output, json.dumps(found).encode())


async def _look_into(storage: RocksStorage, seed: int, may_be_damaged: bool) -> dict[str, Any]:
    workload = Workload(seed)
    workload.go_to(reached(storage))
    return {
        "reached": workload.number,
        "wrong": await wrong(storage, workload.held, may_be_damaged=may_be_damaged),
    }


async def _write_down(storage: RocksStorage) -> None:
    storage.write(Changes(bookie=storage.get_bookie_record() or b""))
    await storage.sync()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds = chosen.kind or list(KINDS)
        if "LD_PRELOAD" not in os.environ and any(kind in LOSE_POWER or kind in FAILURES for kind in kinds):
            environment = preloaded(Path(folder), Path(folder) / "flag")
            return subprocess.run([sys.executable, *sys.orig_argv[1:]], env={**os.environ, **environment}).returncode
        rounds = Rounds(Path(folder), chosen.seed, kinds)
        began = time.monotonic()
        try:
            for _ in range(chosen.rounds):
                rounds.round()
        except RoundFailed as error:
            saved = Path(tempfile.mkdtemp(prefix="ledger-storage-round-"))
            shutil.copytree(rounds.saved, saved / "storage")
            sys.stderr.write(f"{error}\nThe folder is in {saved}\n")
            return 1
        finally:
            sys.stderr.write(f"{dict(sorted(rounds.counts.items()))} in {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
