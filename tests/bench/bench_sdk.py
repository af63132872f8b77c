"""The SDK beside the peers' own clients: the benches of these names in tests/peers/clients.py, each in a process of its
own, ours on a standalone and the peer's on the peer, messages of 100 bytes.

Where CPU seconds are compared it is the client process' own, all threads counted: what is left to an application. The
arms take turns. `MAGNETAR_BENCH_FOLDER` selects our disk, and `MAGNETAR_BENCH_SCALE` shrinks the work.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import log_line
from tests.bench.client_runs import run_client
from tests.bench.harness import Result, beside_peer

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TURNS: Final = 3 if SCALE >= 1 else 1
MESSAGE_BYTES: Final = 100
# What clients.py publishes or receives in each bench, before it is scaled.
COUNTS: Final = {
    "publish_acked": 200_000,
    "publish_flushed": 1_000_000,
    "consume": 1_000_000,
    "consume_batch": 1_000_000,
}
PULSAR: Final = "pulsar-client on Pulsar, messages a client CPU second"
PER_CPU: Final = [
    Result("sdk.publish_acked", None, "ratio", PULSAR, 5),
    Result("sdk.consume", None, "ratio", PULSAR, 2),
    Result("sdk.consume_batch", None, "ratio", PULSAR, 1.3),
]
FLUSHED: Final = Result("sdk.publish_flushed", None, "ratio", "confluent-kafka on Kafka, with fsync, messages/s", 0.7)

# By bench: the figures of clients.py.
Figures = dict[str, dict[str, Any]]


def benches() -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name,
        StandaloneProcess(Path(name) / "standalone") as server,
    ):
        ours = ["--url", server.service_url, "--module", "magnetar", "--label", "ours"]
        yield from beside_peer(
            "pulsar",
            PER_CPU,
            lambda url: _compared(PER_CPU, ours, ["--url", url, "--label", "pulsar"], _per_cpu_second),
        )
        yield from beside_peer(
            "kafka",
            [FLUSHED],
            lambda url: _compared(
                [FLUSHED],
                ours,
                ["--url", url, "--kind", "kafka", "--label", "kafka"],
                lambda _, figures: figures["messages_per_s"],
            ),
            fsync=True,
        )


def _compared(
    wanted: list[Result], ours: list[str], theirs: list[str], measure: Callable[[str, dict[str, Any]], float]
) -> Iterator[Result]:
    names = [result.bench.removeprefix("sdk.") for result in wanted]
    turns = [(_run(ours, names), _run(theirs, names)) for _ in range(TURNS)]
    for result, name in zip(wanted, names, strict=True):
        errors = [figures[name]["error"] for turn in turns for figures in turn if "error" in figures[name]]
        if errors:
            yield Result(result.bench, None, result.unit, result.against, result.floor, why=errors[0])
            continue
        mine = [measure(name, turn[0][name]) for turn in turns]
        other = [measure(name, turn[1][name]) for turn in turns]
        log_line(f"{result.bench}: {statistics.median(mine):.0f} and {statistics.median(other):.0f} a second")
        value = statistics.median(one / beside for one, beside in zip(mine, other, strict=True))
        yield Result(result.bench, value, result.unit, result.against, result.floor)


def _per_cpu_second(name: str, figures: dict[str, Any]) -> float:
    return max(1000, int(COUNTS[name] * SCALE)) / max(float(figures["client_cpu_s"]), 0.005)


def _run(client: list[str], names: list[str]) -> Figures:
    """The figures of one client process for these benches, with messages of 100 bytes."""
    benches = [(name, MESSAGE_BYTES) for name in names]
    figures = run_client(client, benches, SCALE)
    return {name: figures[name, MESSAGE_BYTES] for name in names}
