"""Stock clients on our listener for Pulsar's protocol, and on a Pulsar: the benches of these names in
tests/peers/clients.py with `pulsar-client`, the same code on both, ours on a standalone in a process of its own.

The arms take turns, each after a small run that counts for nothing: the other server's code is compiled while it runs.
Each figure is ours over Pulsar's of the same turn, and the median of the turns is reported. `wire.server_cpu` is what
the two server processes take, all threads counted, from the first to the last of a turn's benches.
`MAGNETAR_BENCH_FOLDER` selects our disk, and `MAGNETAR_BENCH_SCALE` shrinks the work.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import log_line
from tests.bench.client_runs import Figures, run_client
from tests.bench.harness import Result, beside_peer
from tests.peers import pid

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TURNS: Final = 3 if SCALE >= 1 else 1
WARM_UP: Final = min(SCALE, 0.05)
AGAINST: Final = "pulsar-client on Pulsar"


class Measured(NamedTuple):
    # As clients.py calls it.
    bench: str
    message_bytes: int
    # Of its figures.
    figure: str
    result: Result


def _rate(name: str, bench: str, message_bytes: int, floor: float, aim: float) -> Measured:
    result = Result(f"wire.{name}", None, "ratio", f"{AGAINST}, messages/s", floor=floor, aim=aim)
    return Measured(bench, message_bytes, "messages_per_s", result)


def _time(name: str, bench: str, figure: str, ceiling: float, aim: float) -> Measured:
    return Measured(
        bench, 1024, figure, Result(f"wire.{name}", None, "ratio", f"{AGAINST}, ms", ceiling=ceiling, aim=aim)
    )


MEASURED: Final = [
    _rate("publish_flushed_100", "publish_flushed", 100, 1.0, 1.2),
    _rate("publish_flushed_1024", "publish_flushed", 1024, 1.0, 1.2),
    _rate("publish_acked_100", "publish_acked", 100, 0.9, 1.0),  # the client is the limit
    _rate("publish_acked_1024", "publish_acked", 1024, 0.9, 1.0),
    _rate("publish_unbatched_1024", "publish_unbatched", 1024, 1.0, 1.4),
    _rate("consume_100", "consume", 100, 1.0, 1.4),
    _rate("consume_batch_100", "consume_batch", 100, 1.0, 1.4),
    _rate("consume_batch_1024", "consume_batch", 1024, 1.5, 2.5),
    _time("send_one_at_a_time_p50", "send_one_at_a_time", "p50_ms", 0.4, 0.15),
    _time("publish_latency_1000_p99", "publish_latency_1000_per_s", "p99_ms", 0.4, 0.15),
    _time("end_to_end_1000_p50", "end_to_end_1000_per_s", "p50_ms", 0.25, 0.1),
]
SERVER_CPU: Final = Result("wire.server_cpu", None, "ratio", f"{AGAINST}, server CPU s", ceiling=1.0, aim=0.5)
_BENCHES: Final = [(one.bench, one.message_bytes) for one in MEASURED]


class Arm:
    """One server, and the client on it."""

    def __init__(self, url: str, process_id: int, label: str) -> None:
        self._client = ["--url", url, "--label", label]
        self._process_id = process_id
        run_client(self._client, _BENCHES, WARM_UP)
        # One each turn.
        self.results: list[Figures] = []
        self.cpu_s: list[float] = []

    def turn(self) -> None:
        before = _cpu_seconds(self._process_id)
        self.results.append(run_client(self._client, _BENCHES, SCALE))
        self.cpu_s.append(_cpu_seconds(self._process_id) - before)

    def errors(self, one: Measured) -> list[str]:
        figures = [turn[one.bench, one.message_bytes] for turn in self.results]
        return [turn["error"] for turn in figures if "error" in turn]

    def figures(self, one: Measured) -> list[float]:
        return [float(turn[one.bench, one.message_bytes][one.figure]) for turn in self.results]


def benches() -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as name,
        StandaloneProcess(Path(name) / "standalone") as server,
    ):
        yield from beside_peer(
            "pulsar",
            [*(one.result for one in MEASURED), SERVER_CPU],
            lambda url: _compared(Arm(server.pulsar_url, server.pid, "ours"), Arm(url, pid("pulsar"), "pulsar")),
        )


def _compared(ours: Arm, theirs: Arm) -> Iterator[Result]:
    for turn in range(TURNS):
        for arm in (ours, theirs) if turn % 2 == 0 else (theirs, ours):
            arm.turn()
    for one in MEASURED:
        errors = ours.errors(one) + theirs.errors(one)
        if errors:
            yield replace(one.result, why=errors[0])
        else:
            yield _ratio(one.result, ours.figures(one), theirs.figures(one))
    yield _ratio(SERVER_CPU, ours.cpu_s, theirs.cpu_s)


def _ratio(result: Result, ours: list[float], theirs: list[float]) -> Result:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    shown = ", ".join(f"{one:.4g}/{other:.4g}" for one, other in zip(ours, theirs, strict=True))
    log_line(f"{result.bench}: {shown}")
    return replace(result, value=statistics.median(ratios))


def _cpu_seconds(process_id: int) -> float:
    """Of a process and all its threads so far: its own, and the kernel's for it."""
    behind_the_name = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(behind_the_name[11]) + int(behind_the_name[12])) / os.sysconf("SC_CLK_TCK")
