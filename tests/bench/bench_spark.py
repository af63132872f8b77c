"""Reading topics from Spark, beside Spark's own Kafka connector and beside no reading at all.

A standalone holds messages of 100 bytes, uncompressed, in batches of 1,000: one topic without partitions, and one with
as many as there are cores, each partition in eight ledgers that are closed (rolled by the option for that). Spark reads
all columns to its `noop` sink, in a process of its own (spark_child.py), and Kafka's connector the same number of rows
(tests/peers/spark_kafka.py), before and after: the mean of the two is what counts. The peer brings a PySpark of
its own, 4.0.0; ours runs on the one that is installed.

`MAGNETAR_BENCH_FOLDER` selects the disk, and `MAGNETAR_BENCH_SCALE` shrinks the work, Kafka's too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import magnetar
from magnetar.admin import Admin
from magnetar_cli.local_java import java_home_for_spark
from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import log_line
from tests.bench.harness import Result
from tests.peers import PeerUnavailable, running, spark_kafka_rates

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
CORES: Final = len(os.sched_getaffinity(0))
LEDGERS: Final = 8
BATCH: Final = 1000
MESSAGE_BYTES: Final = 100
ROWS: Final = int(3_000_000 * SCALE)
ONE: Final = Result("spark.read_one", None, "ratio", "Spark's Kafka connector, from one partition", 1.5)
MANY: Final = Result("spark.read_many", None, "ratio", "Spark's Kafka connector, as many partitions as cores", 1.3)
STREAM: Final = Result("spark.stream", None, "ratio", "Spark's Kafka connector, AvailableNow", 1.3)
CEILING: Final = Result("spark.ceiling", None, "ratio", "a data source of ready-made Arrow batches", 0.4)
# By what spark_child.py calls it: the connector's bench, and whether from one partition.
BESIDE: Final = {
    "read_one": (ONE, "spark-kafka.batch-read", 1),
    "read_many": (MANY, "spark-kafka.batch-read", CORES),
    "stream": (STREAM, "spark-kafka.stream-read", CORES),
}
_CHILD: Final = Path(__file__).with_name("spark_child.py")
_TIMEOUT_S: Final = 900

# Rows a second by bench: ours; and the connector's by its bench's name and the number of partitions.
Ours = dict[str, list[float]]
Theirs = dict[tuple[str, int], float]


def benches() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name:
        before, why = _connector()
        ours = _ours(Path(name))
        after, explain_unavailable = _connector() if before else ({}, why)
    for bench, (result, theirs, partitions) in BESIDE.items():
        mine = statistics.median(ours[bench])
        log_line(f"{result.bench}: {mine:.0f} rows/s, {_spread(ours[bench])}")
        beside = [figures[theirs, partitions] for figures in (before, after) if (theirs, partitions) in figures]
        if len(beside) < 2:
            yield replace(result, why=why or explain_unavailable)
            continue
        log_line(f"{result.bench}: the connector's {beside[0]:.0f} before and {beside[1]:.0f} after")
        yield replace(result, value=mine / statistics.mean(beside))
    turns = zip(ours["read_many"], ours["ready_made"], strict=True)
    log_line(f"{CEILING.bench}: ready-made {_spread(ours['ready_made'])} rows/s")
    yield replace(CEILING, value=statistics.median(one / other for one, other in turns))


def _connector() -> tuple[Theirs, str]:
    """What the peer's connector does; else why it can't."""
    try:
        with running("kafka"):
            return {
                (figures["bench"], figures.get("partitions", 0)): figures["value"]
                for figures in spark_kafka_rates(ROWS)
            }, ""
    except PeerUnavailable as error:
        return {}, str(error)


def _ours(folder: Path) -> Ours:
    """Two standalones, one after the other on the same folder: a ledger of either topic is full at another position."""
    one = _batches(1)
    many = _batches(CORES)
    with StandaloneProcess(folder / "standalone", **_rolled(one)) as server:
        _produce(server.service_url, "one", one, 0)
        server.stop()
        server.settings |= _rolled(many)
        server.start()
        _produce(server.service_url, "many", many, CORES)
        return _spark(server, folder, ("one", one * BATCH), ("many", many * CORES * BATCH))


def _batches(partitions: int) -> int:
    """The messages of a partition, so that they fill this many ledgers."""
    return max(1, round(ROWS / BATCH / partitions / LEDGERS)) * LEDGERS


def _rolled(batches: int) -> dict[str, Any]:
    return {
        "managed_ledger_max_entries_per_ledger": batches // LEDGERS,
        "managed_ledger_min_ledger_rollover_time_minutes": 0,
    }


def _produce(url: str, topic: str, batches: int, partitions: int) -> None:
    names = [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]
    with magnetar.Client(url) as client:
        if partitions:
            with Admin(url) as admin:
                admin.topics.create_partitioned(topic, partitions)
        for name in names:
            # Nothing is deleted while it has messages to come.
            client.subscribe(name, "keeps", initial_position=magnetar.InitialPosition.Earliest).close()
            producer = client.create_producer(
                name,
                batching_max_messages=BATCH,
                batching_max_allowed_size_in_bytes=1 << 20,
                batching_max_publish_delay_ms=10_000,
                max_pending_messages=20 * BATCH,
                block_if_queue_full=True,
            )
            body = os.urandom(MESSAGE_BYTES)
            for _ in range(batches * BATCH):
                producer.send_async(body, None)
            producer.flush()
            producer.close()
            with Admin(url) as admin:
                # The last ledger is closed, too.
                admin.topics.unload(name)
                ledgers = admin.topics.internal_stats(name).ledgers
            assert len(ledgers) == LEDGERS, ledgers
            assert all(ledger.closed for ledger in ledgers), ledgers


def _spark(server: StandaloneProcess, folder: Path, *topics: tuple[str, int]) -> Ours:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        # Modules are compiled once, as an installation has them.
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "JAVA_HOME": str(java_home_for_spark(folder / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = folder / "spark.log"
    with log.open("wb") as to:
        ended = subprocess.run(
            [sys.executable, str(_CHILD), server.service_url, *(str(word) for topic in topics for word in topic)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=to,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if ended.returncode:
        raise RuntimeError(f"Spark ended with status {ended.returncode}:\n{log.read_text()[-5000:]}")
    figures = map(json.loads, ended.stdout.splitlines())
    return {line["bench"]: line["rows_per_s"] for line in figures}


def _spread(rates: list[float]) -> str:
    return " … ".join(f"{rate:.0f}" for rate in sorted(rates))
