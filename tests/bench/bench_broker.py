"""A standalone in a process of its own, reached through the SDK in this one, on this machine's disk.

Publishing and catching up are compared with the ledgers below them, as the group `ledger` measures them: the production
client on one bookie in a process of its own. All messages have 1 KiB, and published ones are durable when they are
counted. The arms of a ratio take turns of about a second.

`MAGNETAR_BENCH_FOLDER` selects the disk. `MAGNETAR_BENCH_SCALE` shrinks the work: 0.01 shows in half a minute that
everything works, and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import magnetar
from magnetar import aio
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_cli.perf.load import Load, SendCallback, publish_load
from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import ALONE, KIB, OPTIONS, added, in_thread, log_line, plain_file
from tests.bench.bookie_processes import BookieChild, bookie_child, client_of
from tests.bench.client_child import MESSAGE_BYTES, batching_producer, client_child, published
from tests.bench.harness import Result

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TURNS: Final = 7 if SCALE >= 1 else 2
# Of one turn.
MESSAGES: Final = max(2000, int(100_000 * SCALE))
BACKLOG: Final = max(4000, int(400_000 * SCALE))
RATE_PER_S: Final = 1000
TOPICS: Final = max(200, int(10_000 * SCALE))
LARGE: Final = 128 * KIB


def benches() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name, asyncio.Runner() as loop:
        folder = Path(name)
        # One loop for all: gRPC's library hands events to closed loops as well, and drops others' with them.
        with bookie_child(folder / "bookie") as bookie, StandaloneProcess(folder / "standalone") as server:
            yield from loop.run(_beside_a_bookie(folder, bookie, server))
        with StandaloneProcess(folder / "many") as server:
            yield loop.run(_topics(server))


async def _beside_a_bookie(folder: Path, bookie: BookieChild, server: StandaloneProcess) -> list[Result]:
    async with client_of([bookie], OPTIONS) as ledgers:
        with contextlib.closing(magnetar.Client(server.service_url)) as client:
            publish, peak_mb_per_s = await _publish(ledgers, client)
            return [
                publish,
                await _fanout(server, client),
                await _catchup(ledgers, server, client, 0.2 * peak_mb_per_s),
                await _latency(folder, client),
            ]


async def _publish(ledgers: LedgerClient, client: magnetar.Client) -> tuple[Result, float]:
    _, writer = await ledgers.create(ALONE, "bench")
    payload, count = os.urandom(LARGE), max(10, MESSAGES * MESSAGE_BYTES // LARGE)
    producer = await in_thread(lambda: batching_producer(client, "publish"))
    await in_thread(lambda: published(producer, MESSAGES // 4))
    await added(writer, payload, count // 4)
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(_mb_per_s(MESSAGES * MESSAGE_BYTES, await in_thread(lambda: published(producer, MESSAGES))))
        theirs.append(_mb_per_s(count * LARGE, await added(writer, payload, count)))
    await writer.close()
    result = _compared("broker.publish", ours, theirs, "ledger.add_128k", 0.5)
    return result, statistics.median(ours)


async def _fanout(server: StandaloneProcess, client: magnetar.Client) -> Result:
    alone = await in_thread(lambda: batching_producer(client, "alone"))
    tailed = await in_thread(lambda: batching_producer(client, "tailed"))
    with_tail, without = [], []
    with client_child("tail", server.service_url, "tailed") as tail:
        sent = 0
        for _ in range(TURNS):
            without.append(_mb_per_s(MESSAGES * MESSAGE_BYTES, await in_thread(lambda: published(alone, MESSAGES))))
            with_tail.append(_mb_per_s(MESSAGES * MESSAGE_BYTES, await in_thread(lambda: published(tailed, MESSAGES))))
            sent += MESSAGES
            behind = sent - tail.received()
            began = time.perf_counter()
            while tail.received() < sent:
                await asyncio.sleep(0.02)
            log_line(f"broker.fanout: the consumer was {behind} messages behind, {time.perf_counter() - began:.2f} s")
    return _compared("broker.fanout", with_tail, without, "broker.publish without a consumer", 0.75)


async def _catchup(
    ledgers: LedgerClient, server: StandaloneProcess, client: magnetar.Client, mb_per_s: float
) -> Result:
    """A backlog that was written before, read by a new consumer; other topics are published to at the same time."""
    producer = await in_thread(lambda: batching_producer(client, "backlog"))
    await in_thread(lambda: published(producer, BACKLOG))
    made, writer = await ledgers.create(ALONE, "bench")
    count = BACKLOG * MESSAGE_BYTES // LARGE
    await added(writer, os.urandom(LARGE), count)
    await writer.close()
    reader = await ledgers.open(made.ledger_id)
    ours, theirs = [], []
    with client_child("publish", server.service_url, "beside", f"{mb_per_s:.1f}"):
        for turn in range(TURNS):
            seconds = await in_thread(lambda turn=turn: _read_backlog(client, f"s{turn}"))  # type: ignore[misc]
            ours.append(_mb_per_s(BACKLOG * MESSAGE_BYTES, seconds))
            began = time.perf_counter()
            read = 0
            async for _, entries in reader.batches():
                read += len(entries)
            assert read == count
            theirs.append(_mb_per_s(count * LARGE, time.perf_counter() - began))
    log_line(f"broker.catchup: {mb_per_s:.0f} MB/s were published at the same time, beside the ledger's reader as well")
    return _compared("broker.catchup", ours, theirs, "ledger.read_128k", 0.3)


def _read_backlog(client: magnetar.Client, subscription: str) -> float:
    policy = magnetar.ConsumerBatchReceivePolicy(5000, 16 << 20, 50)
    began, got = time.perf_counter(), 0
    consumer = client.subscribe(
        "backlog",
        subscription,
        initial_position=magnetar.InitialPosition.Earliest,
        receiver_queue_size=10_000,
        batch_receive_policy=policy,
    )
    while got < BACKLOG:
        messages = consumer.batch_receive()
        got += len(messages)
        if messages:
            consumer.acknowledge_cumulative(messages[-1])
    seconds = time.perf_counter() - began
    consumer.unsubscribe()
    return seconds


async def _latency(folder: Path, client: magnetar.Client) -> Result:
    """Single messages at a fixed rate, each timed from when it was due."""
    producer = await in_thread(lambda: client.create_producer("latency", batching_enabled=False))
    count = int(RATE_PER_S * max(SCALE, 0.2) * 2)
    ours, plain, ratios = [], [], []
    with plain_file(folder) as file:
        for _ in range(TURNS):
            mine = await in_thread(lambda: _paced(producer, count))
            bare = await in_thread(lambda: _synced(file, count // 2))
            ours += mine
            plain += bare
            ratios.append(_latency_ratio(mine, bare))
    log_line(
        f"broker.latency: p50 {_quantile(ours, 0.5) * 1e3:.3f}, p99 {_quantile(ours, 0.99) * 1e3:.3f} ms; one "
        f"fdatasync {_quantile(plain, 0.5) * 1e3:.3f}, {_quantile(plain, 0.99) * 1e3:.3f} ms; "
        f"ratios {' '.join(f'{ratio:.2f}' for ratio in ratios)}"
    )
    return Result(
        "broker.latency", statistics.median(ratios), "ratio", "2 x fdatasync p99 + 3 x publish p50", ceiling=1.0
    )


def _latency_ratio(ours: list[float], plain: list[float]) -> float:
    return _quantile(ours, 0.99) / (2 * _quantile(plain, 0.99) + 3 * _quantile(ours, 0.5))


def _paced(producer: magnetar.Producer, count: int) -> list[float]:
    """Publish at `RATE_PER_S`. Return the seconds from when each message was due until it was persisted."""
    samples, done = list[float](), threading.Event()

    def make_callback(due: float, messages: int) -> SendCallback:
        assert messages == 1, "each message has its own due time"

        def add_sample(result: object, _id: object) -> None:
            assert result == magnetar.Result.Ok
            samples.append(time.perf_counter() - due)
            if len(samples) == count:
                done.set()

        return add_sample

    load = Load(MESSAGE_BYTES, RATE_PER_S, count)
    publish_load([producer], load, make_callback, began=time.perf_counter() + 0.05)
    assert done.wait(60)
    return samples


def _synced(file: int, count: int) -> list[float]:
    payload, samples = os.urandom(MESSAGE_BYTES), []
    for _ in range(count):
        began = time.perf_counter()
        os.write(file, payload)
        os.fdatasync(file)
        samples.append(time.perf_counter() - began)
    return samples


async def _topics(server: StandaloneProcess) -> Result:
    """How much memory each of many open topics takes in the process, with no client connected to them any more.

    Each has a durable subscription and has taken a message, so both its log and its cursor are in use. Topics that a
    producer has opened, and no more, are reported beside it.
    """
    await _open_topics(server.service_url, "warm", 200, used=True)
    before = _resident_bytes(server.pid)
    await _open_topics(server.service_url, "opened", TOPICS, used=False)
    between = _resident_bytes(server.pid)
    await _open_topics(server.service_url, "used", TOPICS, used=True)
    opened_kb, used_kb = (between - before) / TOPICS / 1000, (_resident_bytes(server.pid) - between) / TOPICS / 1000
    log_line(
        f"broker.topics_kb: {used_kb:.1f} KB for each of {TOPICS} with a message and a subscription, "
        f"{opened_kb:.1f} KB for each of as many without; the process had {before / 1e6:.0f} MB before"
    )
    return Result("broker.topics_kb", used_kb, "KB", f"resident, for each of {TOPICS} idle topics", ceiling=60)


async def _open_topics(url: str, name: str, count: int, *, used: bool) -> None:
    async def open_one(client: aio.Client, topic: str) -> None:
        if used:
            await (await client.subscribe(topic, "s")).close()
        async with await client.create_producer(topic) as producer:
            if used:
                await producer.send(b"a message")

    async with aio.Client(url) as client:
        for first in range(0, count, 100):
            numbers = range(first, min(first + 100, count))
            await asyncio.gather(*(open_one(client, f"{name}-{number}") for number in numbers))


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


def _mb_per_s(size: int, seconds: float) -> float:
    return size / seconds / 1e6


def _quantile(samples: list[float], at: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * at))]


def _compared(name: str, ours: list[float], theirs: list[float], against: str, floor: float) -> Result:
    """Both in MB/s, turn by turn."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    spread = " … ".join(f"{ratio:.3f}" for ratio in (min(ratios), statistics.median(ratios), max(ratios)))
    log_line(
        f"{name}: {statistics.median(ours):.1f} MB/s; {against}: {statistics.median(theirs):.1f} MB/s; ratios {spread}"
    )
    return Result(name, statistics.median(ratios), "ratio", against, floor)
