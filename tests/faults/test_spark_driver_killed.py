"""Spark drivers killed with -9 in the middle of micro-batches, and started again on their checkpoints.

Where a kill met a driver is read from what it left. A driver takes seconds to start, so each moment is met once here;
`MAGNETAR_SPARK_KILLS=30` kills more often, and tests/unit/spark/test_topic_stream.py crashes without Spark, and often.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import magnetar
from magnetar.admin import Admin
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running_spark import SPARK_ENVIRONMENT, java_home, read_rows

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PER_BATCH: Final = 20
# Maximum number of drivers to kill; fewer once each moment was met.
KILLS: Final = int(os.environ.get("MAGNETAR_SPARK_KILLS", "0"))
MOST_KILLS: Final = 12
# A driver that is killed behind the sink's log has done its batch.
MESSAGES: Final = PER_BATCH * max(4, KILLS)
BETWEEN_BATCHES: Final = "between batches"
PLANNED: Final = "in the offset log, and no task has begun"
AMONG_TASKS: Final = "tasks write"
WRITTEN: Final = "in the sink's log, and not in that of commits"
MOMENTS: Final = (PLANNED, AMONG_TASKS, WRITTEN)
SEED: Final = int(os.environ.get("MAGNETAR_SPARK_SEED", "7"))
GENEROUS_S: Final = 240.0


def numbers_in(folder: Path) -> set[int]:
    """The batches of one of Spark's logs."""
    names = [path.name.removesuffix(".compact") for path in folder.iterdir()] if folder.exists() else []
    return {int(name) for name in names if name.isdigit()}


def parts_in(folder: Path) -> set[str]:
    """Files that tasks began to write, whether their batch is in the sink's log or not."""
    rows = folder / "rows"
    return {path.name for path in rows.rglob("*part-*")} if rows.exists() else set()


def state_of(folder: Path, before: set[str]) -> str:
    """Which moment of its micro-batch a query is in, or was killed in; `before`: parts that earlier runs left."""
    planned = numbers_in(folder / "checkpoint" / "offsets")
    committed = numbers_in(folder / "checkpoint" / "commits")
    written = numbers_in(folder / "rows" / "_spark_metadata")
    batch = max(planned, default=-1)
    if batch < 0 or batch in committed:
        return BETWEEN_BATCHES
    if batch in written:
        return WRITTEN
    return AMONG_TASKS if parts_in(folder) - before else PLANNED


def test_every_message_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    """SPK-1: between offset log, tasks and commit; every message once in the end, none skipped"""
    pytest.importorskip("pyspark")
    chance = random.Random(SEED)
    environment = {**os.environ, **SPARK_ENVIRONMENT, "JAVA_HOME": str(java_home())}
    folder = tmp_path / "query"
    with StandaloneProcess(
        tmp_path / "data", managed_ledger_max_entries_per_ledger=3, managed_ledger_min_ledger_rollover_time_minutes=0
    ) as server:
        with Admin(server.service_url) as admin:
            admin.topics.create_partitioned("killed", 2)
            # A progress subscription that is there before its query retains what is published until then.
            properties = {"magnetar.progress-owner": ""}
            admin.subscriptions.create("killed", "spark", magnetar.MessageId.earliest, properties=properties)
        with magnetar.Client(server.service_url) as client:
            producer = client.create_producer("killed", batching_max_messages=15)
            for number in range(MESSAGES):
                producer.send_async(b"%d" % number, None, partition_key=str(number))
            producer.flush()
        arguments = [server.service_url, "killed", str(folder), str(PER_BATCH)]
        command = [sys.executable, "-m", "tests.faults.spark_driver", *arguments]
        met: list[str] = []
        while not met or any(moment not in met for moment in MOMENTS) or len(met) < KILLS:
            assert len(met) < max(MOST_KILLS, KILLS), f"each of the moments was to be met, and met were {met}"
            wanted = next((moment for moment in MOMENTS if moment not in met), chance.choice(MOMENTS))
            if numbers_in(folder / "checkpoint" / "commits") >= set(range(MESSAGES // PER_BATCH)):
                break
            met.append(kill_at(wanted, command, environment, folder))
        ended = subprocess.run(
            command, env=environment, timeout=GENEROUS_S, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
    assert read_rows(folder) == [b"%d" % number for number in range(MESSAGES)], f"seed {SEED}"
    assert set(MOMENTS) <= set(met), f"drivers were killed at other moments: {met}"


def kill_at(wanted: str, command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Kill a driver and all that it started as soon as it runs, and return the moment that was met."""
    parts = parts_in(folder)
    planned = numbers_in(folder / "checkpoint" / "offsets")
    driver = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + GENEROUS_S
        while driver.poll() is None:
            # What stood there before this driver is no moment of its own.
            began = wanted != PLANNED or numbers_in(folder / "checkpoint" / "offsets") > planned
            if began and state_of(folder, parts) == wanted:
                break
            assert time.monotonic() < deadline, f"waited {GENEROUS_S} s in vain for a driver to be met where {wanted}"
            time.sleep(0.001)
        alive = driver.poll() is None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return state_of(folder, parts) if alive else BETWEEN_BATCHES
