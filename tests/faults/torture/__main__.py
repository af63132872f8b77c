"""`magnetar-torture`: inject faults into a whole system under load by seed, and check that nothing is lost.

    python -m tests.faults.torture --minutes 5 --seed 7

Standard output has a line for each thing that happens, and a report. Exit status: 0 clean, 1 not, 2 it could not be
run. The folder with the history and the processes' output stays if anything was wrong. The history can be
judged again: `python -m tests.faults.checker FOLDER/histories`. A run is not replayed exactly by its seed, since
processes are as fast as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from magnetar_cli.local_java import NoJava, find_java
from tests.faults.checker.recorder import Recorder
from tests.faults.torture import faults, workloads
from tests.faults.torture.cluster import Cluster
from tests.faults.torture.fault import Fault
from tests.faults.torture.report import Report
from tests.faults.torture.rig import Plan, Rig
from tests.faults.torture.schedule import SORTS, Sort
from tests.faults.torture.standalone import Standalone
from tests.faults.torture.system import System
from tests.faults.torture.workload import Workload

__all__ = ["main", "torture"]

_Number = TypeVar("_Number", int, float)


def torture(folder: Path, plan: Plan, make: Callable[[Path, Recorder], System]) -> Report:
    async def run() -> Report:
        recorder = Recorder(folder / "histories", "rig")
        return await Rig(folder, plan, make(folder, recorder), recorder, _say).run()

    return asyncio.run(run())


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _arguments(arguments)
    if not chosen.standalone:
        try:
            find_java()
        except NoJava as error:
            sys.stderr.write(f"ZooKeeper needs Java: {error}\n")
            return 2
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix=f"magnetar-torture-{chosen.seed}-"))
    plan = Plan(
        seed=chosen.seed,
        seconds=chosen.minutes * 60,
        workloads=chosen.workloads,
        faults=chosen.faults,
        sorts=chosen.sorts,
        times=chosen.times,
        spark=chosen.spark,
    )
    if folder.exists() and any(folder.iterdir()):
        sys.stderr.write(f"{folder} has something in it: a run needs a folder of its own\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    # Libraries log every connection that breaks, and many are broken here.
    logging.basicConfig(filename=folder / "rig.log")
    _say(f"seed {chosen.seed}, in {folder}")

    def make(folder: Path, recorder: Recorder) -> System:
        if chosen.standalone:
            return Standalone(folder, recorder)
        parts = {name: getattr(chosen, name) for name in ("brokers", "bookies", "zookeepers")}
        return Cluster(folder, recorder, **parts)

    report = torture(folder, plan, make)
    _say(str(report))
    if report.clean and not chosen.keep:
        shutil.rmtree(folder)
    else:
        _say(f"the history is in {folder / 'histories'}")
    _say("CLEAN" if report.clean else "NOT CLEAN")
    return 0 if report.clean else 1


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="magnetar-torture", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--minutes",
        type=_above_zero(float),
        default=1.0,
        help="of rounds and calm, which may take a round longer; the end takes one more or so",
    )
    parser.add_argument("--seed", default=str(time.time_ns() % 1_000_000), help="of all that is drawn; default: any")
    parser.add_argument("--brokers", type=_above_zero(int), default=3, help="as it begins; default: %(default)s")
    parser.add_argument("--bookies", type=_above_zero(int), default=4, help="as it begins; default: %(default)s")
    parser.add_argument("--zookeepers", type=_above_zero(int), default=1, help="servers of it; default: %(default)s")
    parser.add_argument("--standalone", action="store_true", help="one process instead of a cluster")
    parser.add_argument("--workloads", type=_workloads, default=workloads.all(), metavar="NAME,…", help="default: all")
    parser.add_argument(
        "--faults", type=_faults, default=faults.all(), metavar="KIND,…", help="default: all; none: no faults"
    )
    parser.add_argument("--sorts", type=_sorts, default=SORTS, metavar="SORT,…", help="of rounds")
    parser.add_argument("--no-times", dest="times", action="store_false", help="report times without limits")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="don't read the log through Spark")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    parser.add_argument("--folder", type=Path, help="for all that is written; default: a new one")
    return parser.parse_args(arguments)


def _above_zero(kind: Callable[[str], _Number]) -> Callable[[str], _Number]:
    def parse(text: str) -> _Number:
        if (number := kind(text)) <= 0:
            raise argparse.ArgumentTypeError(f"{text} is too few")
        return number

    return parse


def _workloads(names: str) -> tuple[Workload, ...]:
    try:
        return workloads.named(names.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _faults(kinds: str) -> tuple[Fault, ...]:
    wanted, known = kinds.split(","), faults.all()
    if unknown := set(wanted) - {one.kind for one in known} - {"all", "none"}:
        there_are = ", ".join(dict.fromkeys(one.kind for one in known))
        raise argparse.ArgumentTypeError(f"there is no fault {', '.join(sorted(unknown))}: there are {there_are}")
    return known if "all" in wanted else tuple(one for one in known if one.kind in wanted)


def _sorts(names: str) -> tuple[Sort, ...]:
    try:
        return tuple(Sort(name) for name in names.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: there are {', '.join(one.value for one in Sort)}") from None


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
