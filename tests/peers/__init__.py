"""Real servers to measure against: Pulsar, Kafka and NATS, started here on loopback by the script `peer`.

    with running("pulsar") as url: ...

`clients.py` does the same work on each of them, and on ours, with its own client; `peer` lists what each needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = [
    "PULSAR_HTTP_URL",
    "PeerUnavailable",
    "java_admin_jars",
    "java_client_jars",
    "pid",
    "running",
    "spark_kafka_rates",
]

# Of the REST API of the peer `pulsar`.
PULSAR_HTTP_URL: Final = "http://127.0.0.1:18080"
_SCRIPT = Path(__file__).with_name("peer")


class PeerUnavailable(Exception):
    """A peer can't be started here, and why."""


@contextmanager
def running(name: str, *, fsync: bool = False, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a peer that is started for the block, or was running before and then goes on after it."""
    variables = dict(os.environ if environment is None else environment) | {"FSYNC": "1" if fsync else "0"}
    was_running = _run("status", name, variables).returncode == 0
    started = _run("up", name, variables)
    if started.returncode:
        raise PeerUnavailable(f"{name} can't be started here: {_last_line(started.stderr)}")
    try:
        yield started.stdout.strip()
    finally:
        if not was_running:
            stopped = _run("down", name, variables)
            sys.stderr.write(stopped.stderr)


def pid(name: str) -> int:
    """The process id of a peer that runs."""
    return int(_run("pid", name, os.environ).stdout)


def spark_kafka_rates(rows: int) -> list[dict[str, Any]]:
    """The results of Spark's own Kafka connector with this many rows, a bench each. Raises `PeerUnavailable`."""
    ended = _run("spark-kafka", "", {**os.environ, "ROWS": str(rows)})
    if ended.returncode:
        raise PeerUnavailable(f"Spark's Kafka connector can't be run here: {_last_line(ended.stderr)}")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def java_client_jars() -> Path:
    """The folder of Pulsar's client of Java, which is fetched once. Raises `PeerUnavailable`."""
    ended = _run("java-client", "", os.environ)
    if ended.returncode:
        raise PeerUnavailable(f"Pulsar's client of Java is not here: {_last_line(ended.stderr)}")
    return Path(ended.stdout.strip())


def java_admin_jars() -> Path:
    """The folder of Pulsar's admin client for Java and its client, which is fetched once. Raises `PeerUnavailable`."""
    ended = _run("java-admin", "", os.environ)
    if ended.returncode:
        raise PeerUnavailable(f"Pulsar's admin client for Java is not available: {_last_line(ended.stderr)}")
    return Path(ended.stdout.strip())


def _run(act: str, name: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    if bash is None:
        raise PeerUnavailable(f"{name} can't be started here: it needs bash, which is not on the PATH")
    return subprocess.run(
        [bash, str(_SCRIPT), act, *([name] if name else [])],
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it does not say why"
