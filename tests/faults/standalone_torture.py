"""A standalone under load, killed with -9 again and again, its clients' connections cut; and then all is checked.

    python -m tests.faults.standalone_torture --seconds 600 --seed 7

The server is started anew on the same folder and ports each time. Its clients (standalone_workload.py) reach it through
a proxy that breaks connections off in the middle. At the end the clients read all that there is, no subscription may
have a backlog, no ledger may be left that nobody knows of (standalone_orphans.py), and what was written down is held
against what must be (standalone_checker.py). The exit status is 1 if anything was wrong, and then the folder stays that
is named.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.admin import Admin
from tests.faults.client_work import PARTITIONED, PLAIN, SHARED
from tests.faults.proxy import Proxy
from tests.faults.standalone_checker import Verdict, check
from tests.faults.standalone_history import Histories
from tests.faults.standalone_orphans import ledgers_of
from tests.running import GENEROUS_S, until
from tests.running_standalone import StandaloneProcess

__all__ = ["Outcome", "torture"]

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_DRAIN_S: Final = 120.0


@dataclass
class Outcome:
    verdict: Verdict = field(default_factory=Verdict)
    kills: int = 0
    cuts: int = 0
    ends: int = 0
    ledgers_made: int = 0
    ledgers_left: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.problems and not self.verdict.problems

    def __str__(self) -> str:
        struck = f"{self.kills} kills, {self.ends} ends in peace, {self.cuts} cuts"
        ledgers = f"{self.ledgers_left} of {self.ledgers_made} ledgers are left"
        lines = [f"{struck}; {ledgers}; {self.verdict}"]
        lines += [f"  {count} x {why}" for why, count in sorted(self.verdict.errors.items())]
        return "\n".join([*lines, *self.problems, *self.verdict.problems])


class Rig:
    def __init__(self, folder: Path, seed: str) -> None:
        self.folder = folder
        self.seed = seed
        self.chance = random.Random(seed)
        self.outcome = Outcome()
        self.histories = Histories(folder / "histories")
        # The server has to tell clients of the proxy, and the proxy goes to the server: so both ports are fixed first.
        self._port = free_port()
        self.proxy = Proxy("127.0.0.1", self._port)
        self.server = StandaloneProcess(folder / "data")

    async def run(self, seconds: float) -> Outcome:
        async with self.proxy:
            self.server.settings = {
                "advertised_address": self.proxy.address,
                # So that ledgers roll, and are trimmed, within the minute.
                "managed_ledger_max_entries_per_ledger": 400,
                "managed_ledger_min_ledger_rollover_time_minutes": 0,
                "managed_ledger_cursor_max_entries_per_ledger": 200,
            }
            try:
                await self._start()
                await self._prepare()
                await self._under_load(seconds)
                await asyncio.to_thread(self.server.stop)
            finally:
                self.server.close()
        ledgers = await ledgers_of(self.server.folder)
        self.outcome.ledgers_made, self.outcome.ledgers_left = ledgers.made, len(ledgers.living)
        self.outcome.problems += [f"nobody knows of ledger {one}" for one in ledgers.orphans]
        self.outcome.verdict = check(self.histories)
        return self.outcome

    @property
    def _direct(self) -> str:
        return f"magnetar://127.0.0.1:{self._port}"

    async def _start(self) -> None:
        self.server.grpc = self._direct
        await asyncio.to_thread(self.server.start)

    async def _prepare(self) -> None:
        def made() -> None:
            with Admin(self._direct) as admin:
                admin.topics.create_partitioned(PARTITIONED, 3)

        await asyncio.to_thread(made)

    async def _under_load(self, seconds: float) -> None:
        workload = await self._spawn_workload()
        try:
            await self._say(workload, None, "begun")
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                await self._strike()
            await self._say(workload, "stop", "drained")
            await until(self._nothing_left, "no subscription has a backlog", GENEROUS_S)
            await self._say(workload, "quit", "ended")
        except Exception as error:  # noqa: BLE001 (the verdict of the rest is wanted all the same)
            self.outcome.problems.append(f"{type(error).__name__}: {error}")
            self.outcome.problems += await self._backlogs()
        finally:
            if workload.returncode is None:
                workload.kill()
            await workload.wait()

    async def _spawn_workload(self) -> asyncio.subprocess.Process:
        with (self.folder / "workload.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.faults.standalone_workload",
                f"magnetar://{self.proxy.address}",
                str(self.histories.folder),
                self.seed,
                cwd=_REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(["protos", "client", "."])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    async def _say(self, workload: asyncio.subprocess.Process, command: str | None, answer: str) -> None:
        assert workload.stdin is not None
        assert workload.stdout is not None
        if command is not None:
            workload.stdin.write(f"{command}\n".encode())
            await workload.stdin.drain()
        async with asyncio.timeout(_DRAIN_S):
            said = (await workload.stdout.readline()).decode().strip()
        assert said == answer, f"the clients said {said!r}, and not {answer!r}: see {self.folder / 'workload.log'}"

    async def _strike(self) -> None:
        chance = self.chance
        await asyncio.sleep(chance.random() * 2.5)  # it works
        match chance.randrange(10):
            case 0:
                await asyncio.to_thread(self.server.stop)
                self.outcome.ends += 1
                await self._start()
            case 1 | 2 | 3:
                self.proxy.cut_after = chance.randrange(200_000)
                self.outcome.cuts += 1
            case 4:
                await self._kill_while_it_starts()
                await self._start()
            case _:
                await asyncio.to_thread(self.server.kill)
                self.outcome.kills += 1
                await self._start()

    async def _kill_while_it_starts(self) -> None:
        await asyncio.to_thread(self.server.kill)
        self.server.grpc = self._direct
        process = self.server.spawn()
        await asyncio.sleep(self.chance.random() * 1.5)
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.server.wait)
        self.outcome.kills += 2

    async def _nothing_left(self) -> bool:
        return not await self._backlogs()

    async def _backlogs(self) -> list[str]:
        return await asyncio.to_thread(self._ask_backlogs)

    def _ask_backlogs(self) -> list[str]:
        topics = [PLAIN, SHARED, *(f"{PARTITIONED}-partition-{number}" for number in range(3))]
        with Admin(self._direct) as admin:
            return [
                f"{one.subscription} of {topic} has a backlog of {one.backlog_entries} entries"
                for topic in topics
                for one in admin.topics.stats(topic).subscriptions
                if one.durable and one.backlog_entries
            ]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def torture(folder: Path, seed: str, seconds: float) -> Outcome:
    """Returns what came of it."""
    return asyncio.run(Rig(folder, seed).run(seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", default=str(time.time_ns() % 1_000_000))
    parser.add_argument("--keep", action="store_true", help="Keep the folder in any case.")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"magnetar-torture-{chosen.seed}-"))
    _say(f"seed {chosen.seed}, in {folder}")
    outcome = torture(folder, chosen.seed, chosen.seconds)
    _say(str(outcome))
    if outcome.good and not chosen.keep:
        shutil.rmtree(folder)
    return 0 if outcome.good else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
