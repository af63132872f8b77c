"""Brokers, bookies, ZooKeeper's servers and clients are killed, hang and end under load; and then all is checked.

    python -m tests.faults.cluster_torture --seconds 600 --seed 7 [--brokers 3] [--zookeepers 3]

Rounds of strikes (cluster_nemesis.py) on real processes, while producers and consumers in several processes
(cluster_workload.py) write down what they are told. At the end everything heals: the clients read all that there is, no
subscription may have a backlog, what was written down is held against what must be (standalone_checker.py), and every
ledger that is left has an owner and all of its replicas (cluster_inspection.py).

Where nothing but one broker is struck it is told how long its topics were silent: from when its session is over, as the
metadata store sees it, until the first new receipt.

Standard output has a line for each round and a report; the exit status is 1 if anything was wrong, and then the folder
stays that is named. A run is not replayed exactly by its seed, since processes are as fast as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import magnetar
from magnetar.admin import Admin
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.location import open_metadata
from magnetar_protos.ledger_pb2 import LedgerMetadata
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SeededRandomness, SystemRandomness
from tests.faults import cluster_inspection
from tests.faults.client_work import PARTITIONED, PLAIN, SHARED, options
from tests.faults.cluster_clients import Clients, Progress
from tests.faults.cluster_nemesis import SORTS, Parts, Round, Sort, Strike, next_round
from tests.faults.cluster_processes import ClusterProcesses
from tests.faults.cluster_strikes import Strikes
from tests.faults.cluster_workload import KEEP, ROLES, SUBSCRIPTIONS
from tests.faults.ledger_workload import QUICK
from tests.faults.mistakes import mistakes_in
from tests.faults.owners import Owner, Owners
from tests.faults.standalone_checker import Verdict, check
from tests.faults.standalone_history import Histories
from tests.running import until

__all__ = ["ClusterTorture", "Report", "Resumption"]

_PARTITIONS: Final = 3
PLACES: Final = (PLAIN, SHARED, *(f"{PARTITIONED}-partition-{number}" for number in range(_PARTITIONS)))
# While a round is borne, a topic may be silent for so long; and so long everything may take in the end.
_SILENCE_S: Final = 60.0
_HEALED_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Resumption:
    """Of one broker that was struck alone: seconds from the strike until its session was over, and from then until the
    last of its topics had a new receipt."""

    strike: str
    topics: int
    expired_s: float
    resumed_s: float

    def __str__(self) -> str:
        return (
            f"{self.strike}: its {self.topics} topics were free after {self.expired_s:.1f} s, and "
            f"{self.resumed_s:.1f} s later the last had a receipt"
        )


@dataclass
class Report:
    seed: str
    seconds: float = 0.0
    rounds: dict[str, int] = field(default_factory=dict)
    struck: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    resumptions: list[Resumption] = field(default_factory=list)
    # While everybody could go on: the longest that one topic was silent.
    longest_silence_s: float = 0.0
    healed_after_s: float = 0.0
    ledgers: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    said: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.problems and not self.verdict.problems

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s, rounds {self.rounds}, struck {self.struck}; {self.verdict}",
            f"longest silence while all could go on {self.longest_silence_s:.1f} s; all was healed and read after "
            f"{self.healed_after_s:.1f} s; {self.ledgers} ledgers are left, all whole",
        ]
        lines += [f"  {one}" for one in self.resumptions]
        errors: Counter[str] = Counter()
        for why, count in (*self.verdict.errors.items(), *self.refused.items()):
            errors[re.sub(r"\d+", "N", why)] += count
        lines += [f"  {count} x {why}" for why, count in sorted(errors.items())]
        lines += [f"  {count} x {what}" for what, count in self.said.items()]
        return "\n".join([*lines, *self.problems, *self.verdict.problems])


class ClusterTorture:
    def __init__(self, folder: Path, seed: str, brokers: int = 3, zookeepers: int = 3) -> None:
        self.folder = folder
        self.report = Report(seed)
        self.cluster = ClusterProcesses(folder / "cluster", brokers=brokers, zookeepers=zookeepers)
        self.histories = Histories(folder / "histories")
        self.clients = Clients(folder, self.histories.folder, seed)
        names = [f"{topic}.{name}" for topic, kinds in SUBSCRIPTIONS.items() for name in kinds]
        self.progress = Progress(self.histories.folder, [*names, f"{PLAIN}.reader"])
        self._chance = SeededRandomness(f"torture {seed}")
        self.strikes = Strikes(self.cluster, self.clients, self._chance)
        self._began = time.monotonic()

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        try:
            self.owners = Owners(self.cluster.metadata)
            self.clients.url = self.cluster.url
            await asyncio.to_thread(self._prepare)
            for role in ROLES:
                await self.clients.begin(role)
            await self.all_go_on("before anything is struck")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.clients.close()
        await self.owners.close()
        await self.cluster.close()
        self.histories.close()

    def _prepare(self) -> None:
        with Admin(self.cluster.direct_url) as admin:
            admin.topics.create_partitioned(PARTITIONED, _PARTITIONS)
        client = magnetar.Client(self.cluster.direct_url)
        for topic, subscriptions in SUBSCRIPTIONS.items():
            for name, kind in subscriptions.items():
                client.subscribe(topic, name, **options(kind)).close()
        client.close()

    # ── the rounds ──

    async def run(self, seconds: float, sorts: Sequence[Sort] = SORTS) -> Report:
        """Rounds for so long, then the end."""
        parts = Parts(self.cluster.brokers, self.cluster.bookies, self.cluster.zookeepers, ROLES, PLACES)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.report.problems:
            await self.round(next_round(self._chance, parts, sorts))
        await self.end()
        return self.report

    async def round(self, one: Round) -> None:
        rounds = self.report.rounds
        rounds[one.sort.value] = rounds.get(one.sort.value, 0) + 1
        self._say(f"round {sum(rounds.values())}, {one.sort.value}: {', '.join(map(str, one.strikes))}")
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            struck = [
                tasks.create_task(self._alone(strike) if one.sort is Sort.ALONE else self.strikes.strike(strike))
                for strike in one.strikes
            ]
            while not all(task.done() for task in struck):
                await self._look(began if one.sort is not Sort.WILD else None)
                await asyncio.sleep(0.5)
        for role in ROLES:
            await self.clients.begin(role)
        if one.sort is Sort.WILD:
            await self._heal()
        began = time.monotonic() if one.sort is Sort.WILD else began
        rested = time.monotonic() + one.rest_s
        while time.monotonic() < rested:
            await self._look(began)
            await asyncio.sleep(0.5)

    async def _alone(self, strike: Strike) -> None:
        """Tells how long the broker's topics were silent."""
        await asyncio.sleep(strike.at_s)
        try:
            owners = await self.owners.of(PLACES)
        except MetadataError as error:
            self.report.problems.append(f"nobody can be asked who owns the topics: {error}")
            return
        if owners and strike.target not in [owner.broker_id for owner in owners.values()]:
            strike = replace(strike, target=next(iter(owners.values())).broker_id)  # another would not be missed
        owned = {topic: owner for topic, owner in owners.items() if owner.broker_id == strike.target}
        await self.strikes.begin(strike)
        struck = time.monotonic()

        async def back() -> None:
            await asyncio.sleep(strike.for_s)
            await self.strikes.end(strike)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(back())
            told = [tasks.create_task(self._resumed(topic, owner, strike)) for topic, owner in owned.items()]
        times = [task.result() for task in told]
        if times:
            expired = max(expired for expired, _ in times)
            resumed = max(resumed - expired for expired, resumed in times)
            one = Resumption(str(strike), len(times), expired - struck, resumed)
            self.report.resumptions.append(one)
            self._say(f"    {one}")

    async def _resumed(self, topic: str, owner: Owner, strike: Strike) -> tuple[float, float]:
        """When its owner's session was over, and when its first receipt after that came."""
        expired = await self.owners.wait_gone(owner)
        while (resumed := self._first_receipt(topic, expired)) is None:
            if time.monotonic() > expired + _SILENCE_S:
                self.report.problems.append(f"{topic} takes nothing {_SILENCE_S:.0f} s after {strike}")
                return expired, time.monotonic()
            await asyncio.sleep(0.1)
        return expired, resumed

    def _first_receipt(self, topic: str, after: float) -> float | None:
        self.progress.read_on()
        return self.progress.first_receipt_after(topic, after)

    async def _look(self, since: float | None) -> None:
        """Topics that can go on do. `since`: so long all of them could; None: they can't."""
        self.progress.read_on()
        if since is None:
            return
        now, report = time.monotonic(), self.report
        for topic in PLACES:
            silent_s = now - max(since, self.progress.last_receipt(topic))
            report.longest_silence_s = max(report.longest_silence_s, silent_s)
            if silent_s > _SILENCE_S:
                report.problems.append(f"stuck: {topic} has taken nothing for {silent_s:.0f} s")

    async def _heal(self) -> None:
        """All processes are ready again."""
        if why := await self.cluster.start(*self.cluster.names, timeout_s=_HEALED_S):
            self.report.problems.append(f"healed: {why}")

    # ── the end ──

    async def end(self) -> None:
        healing = time.monotonic()
        self._say("all heals")
        try:
            await self._heal()
            for role in ROLES:
                await self.clients.begin(role)
            await self.all_go_on("after all has healed")
            await self._drain()
            self._say("no subscription has a backlog")
            for broker in self.cluster.brokers:
                await self.cluster.stop(broker)
            await self._ledgers()
        except Exception as error:  # noqa: BLE001 (the verdict of the rest is wanted all the same)
            self.report.problems.append(f"{type(error).__name__}: {error}")
        report = self.report
        report.healed_after_s = time.monotonic() - healing
        report.seconds = time.monotonic() - self._began
        report.struck = dict(sorted(self.strikes.done.items()))
        report.refused = dict(self.strikes.refused)
        report.said = mistakes_in([*self.cluster.logs(), *self.folder.glob("*.err")])
        report.verdict = check(self.histories)

    async def all_go_on(self, when: str) -> None:
        began = time.monotonic()
        await until(
            lambda: all(self._first_receipt(topic, began) is not None for topic in PLACES),
            f"every topic takes messages {when}",
            _HEALED_S,
        )

    async def _drain(self) -> None:
        await self.clients.tell(ROLES, "stop", "stopped")
        self._say("producers have ended")
        await self._nothing_left(kept=False)
        self._say("consumers have seen all")
        await self.clients.begin(KEEP)
        await self.clients.tell([KEEP], "stop", "stopped")
        await self._nothing_left(kept=True)
        self._say("all was read from the logs")
        await until(lambda: asyncio.to_thread(self._no_backlog), "no subscription has a backlog", _HEALED_S)
        await self.clients.tell([*ROLES, KEEP], "quit", "ended")

    async def _nothing_left(self, *, kept: bool) -> None:
        deadline = time.monotonic() + _HEALED_S
        while True:
            self.progress.read_on()
            left = self.progress.left(kept=kept)
            if not left:
                return
            assert time.monotonic() < deadline, f"{_HEALED_S:.0f} s after all has healed these are missing: {left}"
            await asyncio.sleep(0.1)

    def _no_backlog(self) -> bool:
        with Admin(self.cluster.direct_url) as admin:
            return not any(
                one.durable and one.backlog_entries
                for topic in PLACES
                for one in admin.topics.stats(topic).subscriptions
            )

    async def _ledgers(self) -> None:
        clock, transport = SystemClock(), GrpcTransport()
        store = await open_metadata(self.cluster.metadata, clock)
        client = LedgerClient(store, transport, clock, SystemRandomness(), QUICK)
        whole: dict[int, LedgerMetadata] = {}
        try:
            await client.start()
            deadline = time.monotonic() + _HEALED_S
            while left := await cluster_inspection.unrest(client, self.cluster.bookies, whole):
                if time.monotonic() > deadline:
                    self.report.problems.append(f"healed: {_HEALED_S:.0f} s after the end {left}")
                    break
                await asyncio.sleep(0.2)
            self.report.ledgers = len(whole)
        finally:
            await client.close()
            await store.close()
            await transport.close()

    def _say(self, line: str) -> None:
        say(f"{time.monotonic() - self._began:6.1f} s  {line}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _run(folder: Path, chosen: argparse.Namespace) -> Report:
    async with ClusterTorture(folder, chosen.seed, chosen.brokers, chosen.zookeepers) as torture:
        sorts = [Sort(name) for name in chosen.sorts.split(",")] if chosen.sorts else SORTS
        return await torture.run(chosen.seconds, sorts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.cluster_torture", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", default=str(time.time_ns() % 1_000_000))
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--zookeepers", type=int, default=3)
    parser.add_argument("--sorts", default="", help="of rounds, as borne,borne,wild; each as often as it is named")
    parser.add_argument("--keep", action="store_true", help="Keep the folder in any case.")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"magnetar-torture-{chosen.seed}-"))
    say(f"seed {chosen.seed}, in {folder}")
    report = asyncio.run(_run(folder, chosen))
    say(str(report))
    if report.good and not chosen.keep:
        shutil.rmtree(folder)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
