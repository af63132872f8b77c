"""Ledgers on real bookies: processes of their own on this machine's disk, and the production client over gRPC.

What adds are held against is the least that an acknowledged entry costs on this disk: a plain write and an fdatasync
for each group of 64 entries of 1 KiB, or 2 of 128 KiB, appended to a file beside the bookie's. What reads are held
against is RocksDB's own iterator over the same keys and values, large ones in blob files, as is done with them. Where
they stand among the keys it is three to four times as fast, hardly slower than copying memory: that is reported beside
it. The arms of a ratio take turns of about a second.

`MAGNETAR_BENCH_FOLDER` selects the disk; the system's folder for temporary files by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from rocksdict import Options, Rdict

from magnetar_bookie.errors import AddFailed
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.record import encode_record
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from tests.bench.bookie_processes import BookieChild, bookie_child, client_of
from tests.bench.harness import Result

T = TypeVar("T")

KIB: Final = 1024
TURNS: Final = 7
ALONE: Final = Striping(1, 1, 1)
THREE: Final = Striping(3, 3, 2)
ITERATOR: Final = "RocksDB's iterator over the same keys and values"
BLOBS: Final = f"{ITERATOR}, in blob files"
# Values from this size on.
BLOB_BYTES: Final = 4 * KIB
RESIDENT_ENTRIES: Final = 10_000_000
OPTIONS: Final = LedgerClientSettings(max_pending_entries=1024)

# Seconds for this many entries, or passes.
Arm = Callable[[], Awaitable[float]]


def benches() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name:
        folder = Path(name)
        with contextlib.ExitStack() as stack:
            bookies = [stack.enter_context(bookie_child(folder / f"bookie-{number}")) for number in range(3)]
            yield from asyncio.run(with_bookies(folder, bookies))
        yield memory(folder)


async def with_bookies(folder: Path, bookies: list[BookieChild]) -> list[Result]:
    async with client_of(bookies, OPTIONS) as client:
        return [
            await add(client, bookies, folder, "ledger.add_1k", KIB, 16_000, 64, 0.15),
            await add(client, bookies, folder, "ledger.add_128k", 128 * KIB, 600, 2, 0.25),
            await add_e3(client),
            await read(client, folder, "ledger.read_1k", KIB, 50_000, ITERATOR, 0.3),
            await read(client, folder, "ledger.read_128k", 128 * KIB, 1_000, BLOBS, 0.3),
            await read(client, folder, "ledger.read_128k_keys", 128 * KIB, 1_000, f"{ITERATOR}, among the keys"),
            await latency(client, folder),
        ]


async def add(
    client: LedgerClient,
    bookies: list[BookieChild],
    folder: Path,
    name: str,
    size: int,
    count: int,
    group: int,
    floor: float,
) -> Result:
    """`count` entries a turn, with 1000 KiB or 32 entries outstanding, on one bookie."""
    _, writer = await client.create(ALONE, "bench")
    payload = os.urandom(size)
    with plain_file(folder) as file:
        await added(writer, payload, count // 4)
        for bookie in bookies:
            bookie.ask("stats")
        found = await compared(
            name,
            lambda: added(writer, payload, count),
            lambda: in_thread(lambda: written_plainly(file, payload * group, count // group)),
            size,
            count,
            f"write and fdatasync in groups of {group} x {size // KIB} KiB",
            floor,
        )
    stats = [bookie.ask("stats") for bookie in bookies]
    groups = sum(one["groups"] for one in stats)
    log_line(f"{name}: the bookie's groups have {sum(one['records'] for one in stats) / groups:.1f} entries on average")
    await writer.close()
    return found


async def add_e3(client: LedgerClient) -> Result:
    """Three bookies have each entry, on the same disk, and two of them let it complete."""
    alone, three = (await client.create(ALONE, "bench"))[1], (await client.create(THREE, "bench"))[1]
    payload = os.urandom(128 * KIB)
    found = await compared(
        "ledger.add_e3",
        lambda: added(three, payload, 300),
        lambda: added(alone, payload, 300),
        len(payload),
        300,
        "ledger.add_128k",
        0.18,
    )
    await alone.close()
    await three.close()
    return found


async def added(writer: LedgerWriter, payload: bytes, count: int) -> float:
    """Adds as a writer does that has always more, with 1000 KiB or 32 entries outstanding."""
    outstanding = max(32, 1000 * KIB // len(payload))
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = count
    to_send = count

    def completed(result: int | AddFailed) -> None:
        nonlocal left, to_send
        if isinstance(result, AddFailed):
            if not done.done():
                done.set_exception(result)
            return
        left -= 1
        if to_send:
            to_send -= 1
            writer.append(payload, completed)
        elif not left:
            done.set_result(None)

    began = time.perf_counter()
    to_send -= min(outstanding, count)
    for _ in range(min(outstanding, count)):
        writer.append(payload, completed)
    await done
    return time.perf_counter() - began


async def latency(client: LedgerClient, folder: Path) -> Result:
    """The median of one entry at a time, against the median of one fdatasync."""
    _, writer = await client.create(ALONE, "bench")
    payload = os.urandom(KIB)
    ratios, ours, theirs = [], [], []
    with plain_file(folder) as file:
        for _ in range(TURNS):
            mine, plain = [], []
            for _ in range(150):
                began = time.perf_counter()
                await writer.add(payload)
                mine.append(time.perf_counter() - began)
            for _ in range(150):
                os.write(file, payload)
                began = time.perf_counter()
                os.fdatasync(file)
                plain.append(time.perf_counter() - began)
            ours.append(statistics.median(mine))
            theirs.append(statistics.median(plain))
            ratios.append(ours[-1] / theirs[-1])
    await writer.close()
    median_ms, plain_ms = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
    log_line(f"ledger.add_latency: {median_ms:.3f} ms at p50, one fdatasync {plain_ms:.3f} ms")
    return Result("ledger.add_latency", statistics.median(ratios), "ratio", "one fdatasync, p50", ceiling=6)


async def read(
    client: LedgerClient, folder: Path, name: str, size: int, count: int, against: str, floor: float | None = None
) -> Result:
    made, writer = await client.create(ALONE, "bench")
    await added(writer, os.urandom(size), count)
    await writer.close()
    reader = await client.open(made.ledger_id)

    async def ours() -> float:
        began = time.perf_counter()
        seen = 0
        async for first, entries in reader.batches():
            assert first == seen
            assert {*map(len, entries)} == {size}
            seen += len(entries)
        assert seen == count
        return time.perf_counter() - began

    with rocksdb_of(folder / name, made.ledger_id, size, count, blobs=against is BLOBS) as rocksdb:
        return await compared(
            name, ours, lambda: in_thread(lambda: iterated(rocksdb, count)), size, count, against, floor
        )


@contextlib.contextmanager
def rocksdb_of(folder: Path, ledger_id: int, size: int, count: int, *, blobs: bool) -> Iterator[Rdict]:
    """The records of a ledger under their keys, flushed."""
    options = Options(raw_mode=True)
    options.set_enable_blob_files(blobs)
    options.set_min_blob_size(BLOB_BYTES)
    rocksdb = Rdict(str(folder), options)
    payload = os.urandom(size)
    for entry_id in range(count):
        key = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
        rocksdb[key] = encode_record(ledger_id, entry_id, entry_id - 1, size * (entry_id + 1), payload)
    rocksdb.flush()
    try:
        yield rocksdb
    finally:
        rocksdb.close()


def iterated(rocksdb: Rdict, count: int) -> float:
    began = time.perf_counter()
    seen = 0
    for _key, _value in rocksdb.items():
        seen += 1
    assert seen == count
    return time.perf_counter() - began


def memory(folder: Path) -> Result:
    with bookie_child(folder / "filled") as bookie:
        began = time.perf_counter()
        resident_mb = bookie.ask(f"fill 1 {RESIDENT_ENTRIES} 100")["resident_bytes"] / 1e6
        log_line(f"ledger.memory: {RESIDENT_ENTRIES} entries of 100 B stored in {time.perf_counter() - began:.0f} s")
    return Result("ledger.memory", resident_mb, "MB", "resident, with 10 million entries of 100 B stored", ceiling=500)


async def compared(
    name: str, ours: Arm, theirs: Arm, size: int, count: int, against: str, floor: float | None
) -> Result:
    """How many times as fast ours is; both arms move `count` entries of the same size."""
    ratios, mine, others = [], [], []
    for _ in range(TURNS):
        mine.append(await ours())
        others.append(await theirs())
        ratios.append(others[-1] / mine[-1])
    spread = " … ".join(f"{ratio:.3f}" for ratio in (min(ratios), statistics.median(ratios), max(ratios)))
    log_line(f"{name}: {_rate(mine, size, count)}; {against}: {_rate(others, size, count)}; ratios {spread}")
    return Result(name, statistics.median(ratios), "ratio", against, floor)


def _rate(seconds: list[float], size: int, count: int) -> str:
    per_s = count / statistics.median(seconds)
    return f"{per_s * size / 1e6:.1f} MB/s, {per_s:.0f} entries/s"


@contextlib.contextmanager
def plain_file(folder: Path) -> Iterator[int]:
    path = folder / "plain"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        yield file
    finally:
        os.close(file)
        path.unlink()


def written_plainly(file: int, group: bytes, groups: int) -> float:
    began = time.perf_counter()
    for _ in range(groups):
        os.write(file, group)
        os.fdatasync(file)
    return time.perf_counter() - began


async def in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)


def log_line(line: str) -> None:
    print(line, file=sys.stderr)
