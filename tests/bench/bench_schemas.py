"""Typed messages: our client with a pydantic model of eight fields, beside `pulsar-client` with its own `Record`.

Both use the same standalone, each in a process of its own (typed_client.py), ours by gRPC and the stock one by Pulsar's
protocol. Compared are messages a CPU second of the client process, all threads counted. The arms take turns.
`MAGNETAR_BENCH_FOLDER` selects the disk, and `MAGNETAR_BENCH_SCALE` shrinks the work.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import log_line
from tests.bench.client_runs import run_program
from tests.bench.harness import Result
from tests.bench.typed_client import BENCHES

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TURNS: Final = 5 if SCALE >= 1 else 1
COUNT: Final = max(1000, int(200_000 * SCALE))
AGAINST: Final = "pulsar-client with its Record on the same broker, messages a client CPU second"
FLOOR: Final = 2


def benches() -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name,
        StandaloneProcess(Path(name) / "standalone") as server,
    ):
        arms = (("magnetar", server.service_url), ("pulsar", server.pulsar_url))
        turns = [tuple(_run(*arm) for arm in arms) for _ in range(TURNS)]
    for bench in BENCHES:
        yield _compared(bench, [(ours[bench], stock[bench]) for ours, stock in turns])


def _run(module: str, url: str) -> dict[str, dict[str, Any]]:
    """Run one client. Return its figures, or an error, by bench."""
    command = [sys.executable, "-m", "tests.bench.typed_client", module, url, str(COUNT)]
    figures, failure = run_program(command, module)
    return {bench: {"error": failure} for bench in BENCHES} | {one["bench"]: one for one in figures}


def _compared(bench: str, turns: list[tuple[dict[str, Any], dict[str, Any]]]) -> Result:
    name = f"schemas.{bench}"
    errors = [figures["error"] for turn in turns for figures in turn if "error" in figures]
    if errors:
        return Result(name, None, "ratio", AGAINST, FLOOR, why=errors[0])
    seconds = [(ours["client_cpu_s"], stock["client_cpu_s"]) for ours, stock in turns]
    mine, theirs = (statistics.median(arm) / COUNT * 1e6 for arm in zip(*seconds, strict=True))
    ratios = [stock / ours for ours, stock in seconds]
    shown = ", ".join(f"{one:.2f}" for one in ratios)
    log_line(f"{name}: {mine:.2f} and {theirs:.2f} µs of CPU a message; ratios {shown}")
    return Result(name, statistics.median(ratios), "ratio", AGAINST, FLOOR)
