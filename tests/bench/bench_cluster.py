"""Brokers and bookies of a cluster in processes of their own, a real ZooKeeper, all on this machine and its disk.

`cluster.publish_e3` holds what one broker takes, three bookies having each entry, against the ledgers below it: the
production client on the same bookies, as in `ledger.add_e3`. `cluster.open_ms` is what a client waits for a topic whose
bundle was unloaded: from its question who serves the topic until its producer is ready, at the other of two brokers.
`cluster.two` holds two brokers with a topic each, and a client process each, against one of each.
`cluster.killed_broker_s` and `cluster.zookeeper_back_s` are how long publishing stops (cluster_outages.py).
`cluster.unload_all_s` is how long publishing stops at most when all bundles are unloaded. `cluster.open_800_s` is how
long it takes, after the broker of 200 topics with four subscriptions each was killed, until each topic takes a message
at the other broker and each subscription delivers it.

`MAGNETAR_BENCH_FOLDER` selects the disk. `MAGNETAR_BENCH_SCALE` shrinks the work, to see that it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import magnetar
from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_cli.cluster import LocalCluster
from magnetar_cli.local_java import NoJava, find_java
from tests.bench.bench_ledger import KIB, OPTIONS, THREE, added, in_thread, log_line
from tests.bench.client_child import MESSAGE_BYTES, ClientChild, batching_producer, client_child, published
from tests.bench.cluster_outages import gaps_of_killed_brokers, seconds_until_zookeeper_is_used
from tests.bench.harness import Result
from tests.bench.moving_topics import all_bundles_at, moving_topics

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TURNS: Final = 7 if SCALE >= 1 else 2
# Of one turn.
MESSAGES: Final = max(2000, int(80_000 * SCALE))
OPENINGS: Final = max(20, int(1000 * SCALE))
TOPICS: Final = max(4, int(100 * SCALE))
KILLS: Final = max(2, int(20 * SCALE))
RESTARTS: Final = max(1, int(5 * SCALE))
UNLOADED: Final = max(4, int(40 * SCALE))
UNLOADS: Final = 3 if SCALE >= 1 else 1
TAKEN_OVER: Final = max(4, int(200 * SCALE))
SUBSCRIPTIONS: Final = 4
# Between a receipt and the next message, of each topic.
PAUSE_S: Final = 0.05
SELDOM_S: Final = 60.0
LARGE: Final = 128 * KIB
NAMESPACE: Final = "public/default"

PUBLISH: Final = Result("cluster.publish_e3", None, "ratio", "ledger.add_e3 on the same bookies, MB/s", floor=0.5)
OPEN: Final = Result("cluster.open_ms", None, "ms", f"p50 of {OPENINGS}, each after an unload", ceiling=50)
UNLOAD_ALL: Final = Result(
    "cluster.unload_all_s", None, "s", f"longest gap between receipts, {UNLOADED} topics, {UNLOADS} unloads", ceiling=1
)
OPEN_800: Final = Result(
    "cluster.open_800_s", None, "s", f"{TAKEN_OVER} topics, {TAKEN_OVER * SUBSCRIPTIONS} subscriptions", ceiling=8
)
TWO: Final = Result("cluster.two", None, "ratio", "one broker and one topic, MB/s", floor=1.0)

KILLED: Final = Result(
    "cluster.killed_broker_s", None, "s", f"p99 of the longest gaps between receipts, {KILLS} kills", ceiling=2
)
ZOOKEEPER: Final = Result(
    "cluster.zookeeper_back_s", None, "s", f"the longest of {RESTARTS}, Java's start included", ceiling=5
)


def benches() -> Iterator[Result]:
    try:
        find_java()
    except NoJava as error:
        for bench in (PUBLISH, OPEN, TWO, UNLOAD_ALL, OPEN_800, KILLED, ZOOKEEPER):
            yield replace(bench, why=str(error))
        return
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name,
        LocalCluster(Path(name) / "cluster", die_with_parent=True) as cluster,
        asyncio.Runner() as loop,
    ):
        cluster.up(bookies=3, brokers=1)
        yield loop.run(publish(cluster))
        cluster.up(brokers=2)
        yield loop.run(openings(cluster))
        yield loop.run(two(cluster))
        yield loop.run(unload_all(cluster))
        yield loop.run(open_800(cluster))
        yield loop.run(killed_broker(cluster))
        yield loop.run(zookeeper_back(cluster))


# ── cluster.publish_e3 ──


async def publish(cluster: LocalCluster) -> Result:
    async with cluster.client(OPTIONS) as ledgers:
        with contextlib.closing(magnetar.Client(cluster.service_url)) as client:
            producer = await in_thread(lambda: batching_producer(client, "publish"))
            return replace(PUBLISH, value=await _published_and_added(ledgers, producer))


async def _published_and_added(ledgers: LedgerClient, producer: magnetar.Producer) -> float:
    _, writer = await ledgers.create(THREE, "bench")
    payload, count = os.urandom(LARGE), max(10, MESSAGES * MESSAGE_BYTES // LARGE)
    await in_thread(lambda: published(producer, MESSAGES // 4))
    await added(writer, payload, count // 4)
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(MESSAGES * MESSAGE_BYTES / await in_thread(lambda: published(producer, MESSAGES)) / 1e6)
        theirs.append(count * LARGE / await added(writer, payload, count) / 1e6)
    await writer.close()
    return _ratio("cluster.publish_e3", ours, theirs, aim=0.8)


def _ratio(name: str, ours: list[float], theirs: list[float], aim: float) -> float:
    """Both in MB/s, turn by turn."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    spread = " … ".join(f"{ratio:.3f}" for ratio in (min(ratios), statistics.median(ratios), max(ratios)))
    rates = f"{statistics.median(ours):.1f} MB/s against {statistics.median(theirs):.1f} MB/s"
    log_line(f"{name}: {rates}; ratios {spread}; the aim is {aim}")
    return statistics.median(ratios)


# ── cluster.open_ms ──


async def openings(cluster: LocalCluster) -> Result:
    """Topics that hold a message each; a topic's bundle goes from one broker to the other before each opening."""
    topics = [f"persistent://{NAMESPACE}/opened-{number}" for number in range(TOPICS)]
    async with AsyncAdmin(cluster.service_url) as admin, aio.Client(cluster.service_url) as client:
        for topic in topics:
            async with await client.create_producer(topic) as producer:
                await producer.send(b"a message")
        moved, stayed = [], []
        for turn in range(OPENINGS):
            topic = topics[turn % TOPICS]
            await _move(admin, topic)
            moved.append(await _opened(client, topic))
            # Another topic of a bundle that has its owner already: no more than the opening itself.
            await admin.topics.unload(topic)
            stayed.append(await _opened(client, topic))
    p50_ms, p99_ms = (_quantile(moved, at) * 1e3 for at in (0.5, 0.99))
    log_line(
        f"cluster.open_ms: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms; at a broker that has the bundle "
        f"{_quantile(stayed, 0.5) * 1e3:.1f} and {_quantile(stayed, 0.99) * 1e3:.1f} ms; the aim is 15 ms"
    )
    return replace(OPEN, value=p50_ms)


async def _opened(client: aio.Client, topic: str) -> float:
    """Seconds from the lookup until a producer is ready."""
    began = time.perf_counter()
    producer = await client.create_producer(topic)
    seconds = time.perf_counter() - began
    await producer.close()
    return seconds


async def _move(admin: AsyncAdmin, topic: str) -> None:
    """To another broker than the one that has its bundle."""
    owner = await admin.topics.lookup(topic)
    other = next(broker.broker_id for broker in await admin.brokers.list() if broker.broker_id != owner.broker_id)
    await admin.namespaces.unload(NAMESPACE, owner.bundle, destination=other)


# ── cluster.two ──


async def two(cluster: LocalCluster) -> Result:
    first, second = "two-a", "two-b"
    await _apart(cluster, first, second)
    with (
        client_child("burst", cluster.service_url, first) as one,
        client_child("burst", cluster.service_url, second) as other,
    ):
        await _bursts([one, other], MESSAGES // 4)
        both, alone = [], []
        for _ in range(TURNS):
            both.append(await _bursts([one, other], MESSAGES))
            alone.append(await _bursts([one], MESSAGES))
    return replace(TWO, value=_ratio("cluster.two", both, alone, aim=1.3))


async def _apart(cluster: LocalCluster, first: str, second: str) -> None:
    """Each has a broker of its own."""
    async with AsyncAdmin(cluster.service_url) as admin:
        for topic in (first, second):
            await admin.topics.create(topic)
        owners = [await admin.topics.lookup(topic) for topic in (first, second)]
        assert owners[0].bundle != owners[1].bundle
        if owners[0].broker_id == owners[1].broker_id:
            await _move(admin, second)


# ── cluster.killed_broker_s, cluster.zookeeper_back_s ──


async def killed_broker(cluster: LocalCluster) -> Result:
    gaps = await gaps_of_killed_brokers(cluster, KILLS)
    p50, p99 = _quantile(gaps, 0.5), _quantile(gaps, 0.99)
    log_line(f"cluster.killed_broker_s: p50 {p50:.2f} s, p99 {p99:.2f} s of {len(gaps)} gaps")
    return replace(KILLED, value=p99)


async def zookeeper_back(cluster: LocalCluster) -> Result:
    seconds = await seconds_until_zookeeper_is_used(cluster, RESTARTS)
    shown = ", ".join(f"{used:.2f} ({answers:.2f} until it answers)" for answers, used in seconds)
    log_line(f"cluster.zookeeper_back_s: {shown}")
    return replace(ZOOKEEPER, value=max(used for _, used in seconds))


async def _bursts(children: list[ClientChild], messages: int) -> float:
    """MB/s of all of them together, each with this many messages."""
    seconds = await asyncio.gather(*(in_thread(partial(child.burst, messages)) for child in children))
    return len(children) * messages * MESSAGE_BYTES / max(seconds) / 1e6


# ── cluster.unload_all_s, cluster.open_800_s ──


async def unload_all(cluster: LocalCluster) -> Result:
    """Measure topics in use at both brokers: the longest gap of all unloads."""
    gaps = []
    async with AsyncAdmin(cluster.service_url) as admin, aio.Client(cluster.service_url) as client:
        names = await _namespace(admin, "unloaded", UNLOADED)
        async with moving_topics(client, names, SUBSCRIPTIONS, PAUSE_S) as moving:
            for _ in range(UNLOADS):
                began = time.perf_counter()
                await admin.namespaces.unload("public/unloaded")
                await moving.wait_used(time.perf_counter())
                gaps.append(moving.longest_gap_s(began))
    log_line(f"cluster.unload_all_s: {', '.join(f'{gap:.2f}' for gap in gaps)} s")
    return replace(UNLOAD_ALL, value=max(gaps))


async def open_800(cluster: LocalCluster) -> Result:
    """All at one broker, which is killed; the other one opens them."""
    victim = cluster.broker_names()[0]
    async with AsyncAdmin(cluster.service_url) as admin, aio.Client(cluster.service_url) as client:
        names = await _namespace(admin, "taken-over", TAKEN_OVER)
        async with moving_topics(client, names, SUBSCRIPTIONS, SELDOM_S) as moving:
            await all_bundles_at(admin, "public/taken-over", victim)
            moved_at = time.perf_counter()
            moving.send_now()
            await moving.wait_used(moved_at)
            killed_at = time.perf_counter()
            await in_thread(lambda: cluster.broker(victim).kill())
            moving.send_now()
            await moving.wait_used(killed_at)
            seconds = time.perf_counter() - killed_at
    await in_thread(lambda: cluster.start(victim))
    return replace(OPEN_800, value=seconds)


async def _namespace(admin: AsyncAdmin, name: str, topics: int) -> list[str]:
    """A namespace of its own for topics of these names."""
    await admin.namespaces.create(f"public/{name}")
    return [f"persistent://public/{name}/t{number}" for number in range(topics)]


def _quantile(samples: list[float], at: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * at))]
