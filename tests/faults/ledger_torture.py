"""Kill, pause and disconnect bookies and fail their disks while real writers append; check that nothing acknowledged is
lost, and that all replicas are repaired at the end.

    python -m tests.faults.ledger_torture --seconds 600 --seed 7 [--bookies 5] [--only KIND,KIND] [--wild 0.4]

Standard output has one line for each round and one JSON object at the end; the exit status is 1 if anything was wrong.
Everything is in a folder, which stays if something was wrong: the logs of writes and reads, and the output of each
process. A seed does not replay a run exactly, since the timing of processes differs: it determines the faults and their
times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import psutil

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.location import open_metadata
from magnetar_protos.ledger_pb2 import LedgerMetadata
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SystemRandomness
from tests.faults.ledger_checker import LedgerChecker
from tests.faults.ledger_fault_injector import FaultInjector
from tests.faults.ledger_history import read_logs
from tests.faults.ledger_inspection import close_chains, inspect_chains, unrest
from tests.faults.ledger_workload import QUICK
from tests.faults.mistakes import mistakes_in
from tests.faults.nemesis import Kind, Round, next_round
from tests.faults.proxy import Proxy
from tests.faults.torture_cluster import TortureCluster
from tests.faults.workload_processes import AckWatch, ChainRun

__all__ = ["Report", "Torture", "chains_for"]

# By how many bookies there are: the ensembles, write quorums and ack quorums of the chains.
_CHAINS: Final = {
    3: ("3/3/2", "3/3/2", "3/2/2", "1/1/1"),
    4: ("3/3/2", "4/3/2", "3/2/2", "1/1/1"),
    5: ("3/3/2", "4/3/2", "5/3/2", "3/2/2", "1/1/1"),
}
# Longer than it takes another to take a chain over: a writer that hung goes on then, as if nothing had happened.
_WRITERS_SESSION_S: Final = 12.0
# While a round is borne, a chain may be silent for so long; and so long everything may take in the end.
_SILENCE_S: Final = 60.0
_HEALED_S: Final = 120.0
_PLAN: Final = {"keep_ledgers": 30, "roll_entries": 400}


def chains_for(bookies: int) -> Sequence[str]:
    return _CHAINS[min(max(bookies, 3), 5)]


@dataclass(slots=True)
class Report:
    """What a run came to."""

    seed: int
    bookies: int
    seconds: float = 0.0
    rounds: int = 0
    borne: int = 0
    injected: dict[str, int] = field(default_factory=dict)
    # Distinct entries: those acknowledged to writers, and those of them that were read back with the right bytes.
    acknowledged: int = 0
    verified: int = 0
    # There in the end, and deleted before, when they had been read back.
    ledgers: int = 0
    deleted: int = 0
    entries_read: int = 0
    writer_runs: int = 0
    # While every chain could go on: the longest that one was silent.
    longest_silence_s: float = 0.0
    healed_after_s: float = 0.0
    largest_bookie_mb: int = 0
    largest_client_mb: int = 0
    # Mistakes in the processes' output: one line of each, and how often.
    mistakes: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Torture:
    def __init__(
        self,
        folder: Path,
        seed: int,
        bookies: int,
        stripings: Sequence[str] | None = None,
        allowed: frozenset[Kind] = frozenset(Kind),
        wild: float = 0.4,
        plan: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are options of the bookies, `plan` is the writers'."""
        self.folder = folder
        self.logs = folder / "logs"
        self.report = Report(seed, bookies)
        self._stripings = stripings or chains_for(bookies)
        # A flipped byte is made good from another bookie.
        alone = any(striping.split("/")[1] == "1" for striping in self._stripings)
        self._allowed = allowed - {Kind.ROT} if alone else allowed
        self._wild = wild
        self._chance = SeededRandomness(f"torture {seed}")
        self._cluster = TortureCluster(folder, bookies, **settings)
        self._plan = _PLAN if plan is None else plan
        self._chains: dict[str, ChainRun] = {}
        self._writers_metadata: dict[str, Proxy] = {}
        self._exits = AsyncExitStack()
        # How many entries of each chain were acknowledged when that was last looked at, and since when.
        self._progress: dict[str, tuple[int, float]] = {}
        self._watch = AckWatch(self.logs)
        self._began = time.monotonic()

    async def __aenter__(self) -> Self:
        self.logs.mkdir(parents=True)
        await self._exits.enter_async_context(self._cluster)
        try:
            for number, striping in enumerate(self._stripings, 1):
                await self._start_chain(f"c{number}", striping)
            self._exits.callback(self._end_processes)
            self._injector = FaultInjector(self._cluster, self._chains, self._writers_metadata, self._chance)
        except BaseException:
            self._end_processes()
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    async def _start_chain(self, name: str, striping: str) -> None:
        location, self._writers_metadata[name] = await self._cluster.metadata_by_proxy(_WRITERS_SESSION_S)
        logs = ("--logs", str(self.logs))
        run = self._chains[name] = ChainRun(
            name,
            striping,
            ["--metadata", location, *logs, "--striping", striping, "--plan", json.dumps(self._plan)],
            ["--metadata", self._cluster.metadata(), *logs, "--plan", json.dumps(self._plan)],
            self.folder,
        )
        run.start_writer()
        run.start_tail()

    def _end_processes(self) -> None:
        for run in self._chains.values():
            for process in run.processes():
                process.kill()

    # ── the rounds ──

    async def run(self, seconds: float) -> Report:
        """Rounds for so long, then the end."""
        await self.wait_running()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.report.violations:
            await self.round(
                next_round(self._chance, self._cluster.names, list(self._chains), self._allowed, self._wild)
            )
        await self.end()
        return self.report

    async def wait_running(self) -> None:
        """Every chain is being written."""
        await self._all_go_on("before the first fault", 5)

    async def round(self, one: Round) -> None:
        """Run one round, whether or not it fails."""
        report = self.report
        report.rounds += 1
        report.borne += one.borne
        began = time.monotonic()
        say(f"{began - self._began:6.1f} s  round {report.rounds}, {'borne' if one.borne else 'wild'}")
        for injection in one.injections:
            say(f"          {injection}")
            report.injected[injection.kind.name] = report.injected.get(injection.kind.name, 0) + 1
        async with asyncio.TaskGroup() as tasks:
            injected = [tasks.create_task(self._injector.inject(injection)) for injection in one.injections]
            rest = tasks.create_task(asyncio.sleep(one.rest_s))
            while not all(task.done() for task in (*injected, rest)):
                self._look(one.borne)
                await asyncio.sleep(0.5)
        for name in self._cluster.names:
            if not self._cluster.running(name):
                await self._cluster.start(name)
        self._look(one.borne)
        report.violations += self._injector.violations
        self._injector.violations.clear()

    def _look(self, borne: bool) -> None:
        """Chains that can go on do."""
        now, report = time.monotonic(), self.report
        self._look_at_memory()
        for name, run in self._chains.items():
            count, since = self._watch.count(name), now
            before = self._progress.get(name)
            if before is not None and before[0] == count and borne and run.ack_quorum > 1:
                since = before[1]
                report.longest_silence_s = max(report.longest_silence_s, round(now - since, 1))
                if now - since > _SILENCE_S:
                    report.violations.append(
                        f"stuck: nothing was acknowledged in {name} ({run.striping}) for {now - since:.0f} s"
                    )
                    since = now
            self._progress[name] = count, since

    def _look_at_memory(self) -> None:
        report = self.report
        pids = [pid for name in self._cluster.names if (pid := self._cluster.pid(name))]
        report.largest_bookie_mb = max([report.largest_bookie_mb, *map(_resident_mb, pids)])
        clients = [process.pid for run in self._chains.values() for process in run.processes()]
        report.largest_client_mb = max([report.largest_client_mb, *map(_resident_mb, clients)])

    # ── the end ──

    async def end(self) -> None:
        """All heals; every chain goes on; writers end; repairs finish; everything is read."""
        report = self.report
        healed = time.monotonic()
        say(f"{healed - self._began:6.1f} s  all heals")
        for name in self._cluster.names:
            if why := await self._cluster.start(name, 60.0):
                report.violations.append(f"healed: {name} does not get ready: {why}")
        for run in self._chains.values():
            for zombie in run.zombies:
                if zombie.running:
                    zombie.kill()
            if run.writer is None or not run.writer.running:
                run.start_writer()
            if run.tailer is None or not run.tailer.running:
                run.start_tail()
        await self._all_go_on("after all has healed", 20)
        say(f"{time.monotonic() - self._began:6.1f} s  all chains go on")
        for run in self._chains.values():
            if run.writer is not None:
                run.writer.terminate()
        await self._patiently(
            lambda: [name for name, run in self._chains.items() if run.writer is not None and run.writer.running],
            "writers end on SIGTERM: {} do not",
        )
        await self._read_all()
        report.healed_after_s = round(time.monotonic() - healed, 1)
        report.seconds = round(time.monotonic() - self._began, 1)
        logs = [*self.folder.glob("*.err"), *(self._cluster.log(name) for name in self._cluster.names)]
        report.mistakes = mistakes_in(logs)

    async def _all_go_on(self, when: str, entries: int) -> None:
        before = {name: self._watch.count(name) for name in self._chains}
        await self._patiently(
            lambda: [name for name in self._chains if self._watch.count(name) < before[name] + entries],
            f"every chain goes on {when}: {{}} do not",
        )

    async def _patiently(self, left: Any, what: str) -> None:
        """Until nothing is left, or it takes too long."""
        deadline = time.monotonic() + _HEALED_S
        while names := left():
            if time.monotonic() > deadline:
                self.report.violations.append("stuck: " + what.format(names))
                return
            await asyncio.sleep(0.2)

    async def _read_all(self) -> None:
        report, clock, chains = self.report, SystemClock(), list(self._chains)
        store = await open_metadata(self._cluster.metadata(), clock)
        transport = GrpcTransport()
        client = LedgerClient(store, transport, clock, SystemRandomness(), QUICK)
        try:
            await client.start()
            await close_chains(client, chains)
            deadline, left = time.monotonic() + _HEALED_S, "nothing was looked at"
            whole: dict[int, LedgerMetadata] = {}
            while left and time.monotonic() < deadline:
                try:
                    left = await unrest(client, chains, self._cluster.names, whole)
                except MetadataError as error:
                    left = f"of the metadata store: {error}"
                await asyncio.sleep(0.2)
            if left:
                report.violations.append(f"healed: {_HEALED_S:.0f} s after the end {left}")
            say(f"{time.monotonic() - self._began:6.1f} s  all is whole")
            await self._tails_end()
            say(f"{time.monotonic() - self._began:6.1f} s  tails have seen all of it")
            checker = LedgerChecker(*(found := read_logs(self.logs)))
            report.ledgers = await inspect_chains(client, checker, chains)
            report.violations += checker.finish()
            report.acknowledged, report.verified = checker.acknowledged, checker.verified
            report.deleted = checker.deleted
            if report.verified != report.acknowledged and not report.violations:
                report.violations.append(f"acknowledged: {report.acknowledged}, and {report.verified} verified")
            report.entries_read = checker.entries_read
            report.writer_runs = len(found[0])
        finally:
            await client.close()
            await store.close()
            await transport.close()

    async def _tails_end(self) -> None:
        """When they have seen what was acknowledged last."""

        def behind() -> list[str]:
            found = []
            for name, run in self._chains.items():
                last, seen = self._watch.latest(name, "w", "acked"), self._watch.latest(name, "t", "saw")
                if run.tailer is not None and run.tailer.running and seen < last:
                    found.append(f"{name} has seen {seen} of {last}")
            return found

        await self._patiently(behind, "tails see what is confirmed: {}")
        for run in self._chains.values():
            if run.tailer is not None and run.tailer.running:
                run.tailer.terminate()


def _resident_mb(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss // 1_048_576)
    except psutil.Error:
        return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _run(arguments: argparse.Namespace, folder: Path) -> Report:
    allowed = frozenset(Kind[name] for name in arguments.only.split(",")) if arguments.only else frozenset(Kind)
    stripings = arguments.stripings.split(",") if arguments.stripings else None
    async with Torture(folder, arguments.seed, arguments.bookies, stripings, allowed, arguments.wild) as torture:
        return await torture.run(arguments.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.ledger_torture", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bookies", type=int, default=4, choices=(3, 4, 5))
    parser.add_argument("--stripings", default="", help="of the chains, as 3/3/2,4/3/2")
    parser.add_argument("--only", default="", help="faults of these kinds alone")
    parser.add_argument("--wild", type=float, default=0.4, help="the share of the rounds that nobody need survive")
    parser.add_argument("--folder", default="", help="a new folder, which stays; default: a temporary one")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix=f"torture-{arguments.seed}-"))
    report = asyncio.run(_run(arguments, folder))
    say(json.dumps(asdict(report)))
    if report.violations:
        say(f"something was wrong; all there is to see is in {folder}")
        return 1
    if not arguments.folder:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
