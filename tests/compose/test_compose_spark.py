"""Spark over the cluster of containers: from this machine, and as a service beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import magnetar
from magnetar_cli.local_java import NoJava, java_home_for_spark
from tests.compose.compose_project import ComposeProject

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_MESSAGES: Final = 1000
_JOB_S: Final = 300.0
_LONGEST_S: Final = 300.0
_LOOK_S: Final = 1.0
_DRIVER: Final = Path(__file__).with_name("spark_on_host.py")
# A row of the job's: the window's beginning and end, and how many messages are in it.
_WINDOW: Final = re.compile(r"\|(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\|[^|]+\|(\d+) *\|")


@pytest.mark.parametrize("options", [(), ("listenerName=external",)])
def test_spark_on_this_machine_reads_past_the_brokers(
    project: ComposeProject, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """By the bookies' addresses outside, whether the listener is named or only come to."""
    pytest.importorskip("pyspark")
    try:
        java_home = java_home_for_spark(tmp_path / "java")
    except NoJava as error:
        pytest.skip(str(error))
    topic = f"read-by-spark-{len(options)}"
    with magnetar.Client(project.url) as client:
        client.subscribe(topic, "keeps").close()
        _publish(client, topic, range(_MESSAGES))
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, str(_DRIVER), project.url, topic, str(tmp_path / "checkpoint"), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr
    counts = f"{_MESSAGES} {sum(range(_MESSAGES))}"
    assert done.stdout.splitlines() == [f"batch {counts}", f"stream {counts}"]


@pytest.fixture
def job(project: ComposeProject) -> Iterator[ComposeProject]:
    project.compose("--profile", "spark", "build", "spark-job")
    project.compose("--profile", "spark", "up", "--detach")
    try:
        yield project
    finally:
        project.compose("--profile", "spark", "rm", "--stop", "--force", "spark-job")


def test_the_job_counts_each_message_once_over_its_own_death(job: ComposeProject) -> None:
    """It goes on from its checkpoint after kill -9, and after `down` and `up`."""
    with magnetar.Client(job.url) as client:
        _publish(client, "events", range(_MESSAGES))
        _wait_counted(job, _MESSAGES)
        job.kill("spark-job")
        _publish(client, "events", range(_MESSAGES))
        _wait_counted(job, 2 * _MESSAGES)
    before = _windows(job)
    job.down()
    job.up("--profile", "spark")
    with magnetar.Client(job.url) as client:
        _publish(client, "events", range(_MESSAGES))
    _wait_counted(job, 3 * _MESSAGES, before)


def _publish(client: magnetar.Client, topic: str, numbers: range) -> None:
    producer = client.create_producer(topic)
    for number in numbers:
        producer.send_async(b"%d" % number, lambda result, message_id: None)
    producer.flush()
    producer.close()


def _windows(project: ComposeProject) -> dict[str, int]:
    """What the job has printed last of each window; its logs end with its container."""
    return {begin: int(messages) for begin, messages in _WINDOW.findall(project.logs("spark-job"))}


def _wait_counted(project: ComposeProject, messages: int, before: dict[str, int] | None = None) -> None:
    deadline = time.monotonic() + _JOB_S
    while sum((windows := {**(before or {}), **_windows(project)}).values()) != messages:
        assert sum(windows.values()) <= messages, f"counted more than once: {windows}"
        assert time.monotonic() < deadline, f"{messages} messages were sent: {windows}\n{project.logs('spark-job')}"
        time.sleep(_LOOK_S)
