"""One run: inject faults by seed into a system under load, heal and read everything, and check the history.

    prepare      topics and subscriptions, clients, and each partition has taken a message
    rounds       of faults (schedule.py, fault_injector.py), and calm between them, a quarter of the time
    the end      (ending.py)
    the verdict  of the checker (checker/), from the history

What the rig itself sees to be wrong, such as that something is stuck, is reported as a problem. While all goes on
it writes down who owns which partition, a few times a second (owners.py), if there is a store.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from magnetar_testing.randomness import SeededRandomness
from tests.faults import checker
from tests.faults.checker.recorder import Recorder
from tests.faults.mistakes import mistakes_in
from tests.faults.torture.addresses import recording_addresses
from tests.faults.torture.alone import Alone
from tests.faults.torture.client_processes import Processes
from tests.faults.torture.ending import Ending
from tests.faults.torture.fault import Fault
from tests.faults.torture.fault_injector import STUCK_S, FaultInjector
from tests.faults.torture.owners import Owners
from tests.faults.torture.preparation import prepare
from tests.faults.torture.progress import Progress
from tests.faults.torture.report import Report
from tests.faults.torture.schedule import SORTS, Balance, Round, Schedule, Sort
from tests.faults.torture.system import System
from tests.faults.torture.workload import Workload
from tests.running import until

__all__ = ["Plan", "Rig"]


@dataclass(frozen=True)
class Plan:
    seed: str
    seconds: float
    workloads: Sequence[Workload]
    faults: Sequence[Fault]
    sorts: Sequence[Sort] = SORTS
    # Whether long waits are findings, or are only reported.
    times: bool = True
    spark: bool = True


class Rig:
    """Runs a torture in a folder of its own. `system` is not open yet, and uses the same recorder."""

    def __init__(
        self, folder: Path, plan: Plan, system: System, recorder: Recorder, say: Callable[[str], None]
    ) -> None:
        self._folder, self._plan, self._system, self._recorder = folder, plan, system, recorder
        self.report = Report(plan.seed, type(system).__name__.lower())
        histories = folder / "histories"
        self._clients = Processes(folder, histories, plan.seed, recorder, plan.workloads)
        self._injector = FaultInjector(system, recorder, SeededRandomness(f"strikes {plan.seed}"))
        self._schedule = Schedule(SeededRandomness(f"schedule {plan.seed}"), plan.faults, plan.sorts)
        self._balance = Balance(plan.seconds)
        # What they get shows that messages flow again: they never have a backlog.
        self._not_durable = [
            one.full_name for workload in plan.workloads for one in workload.subscriptions if not one.is_durable
        ]
        # Partitions that producers publish to.
        self._published = [
            partition
            for workload in plan.workloads
            for topic in workload.topics
            for partition in topic.partition_names
            if not (topic.has_letters or topic.appears)
        ]
        self._progress = Progress(histories, self._not_durable)
        self._alone = Alone(
            system, self._injector, self._progress, self._published, SeededRandomness(f"alone {plan.seed}")
        )
        self._began = time.monotonic()
        self._say_line = say

    async def run(self) -> Report:
        report = self.report
        try:
            async with AsyncExitStack() as exits:
                await exits.enter_async_context(self._system)
                exits.callback(self._clients.close)
                await self._prepare(exits)
                ending = Ending(
                    self._system,
                    self._clients,
                    self._plan.workloads,
                    self._recorder,
                    report,
                    self._folder,
                    spark=self._plan.spark,
                    say=self._say,
                )
                exits.callback(ending.close)
                ending.begin()
                await self._rounds()
                await ending.run(self._all_go_on)
                report.said = mistakes_in([*self._system.logs(), *sorted(self._folder.glob("*.err"))])
        except Exception as error:  # noqa: BLE001 (what there is of the history is judged all the same)
            self._failed("the run", error)
        self._recorder.close()
        self._count()
        self._say("the judge reads what was written down")
        try:
            report.verdict = await asyncio.to_thread(checker.judge, self._folder / "histories", times=self._plan.times)
        except checker.BrokenHistory as error:
            report.problems.append(f"the history is broken: {error}")
        report.write(self._folder / "report.json")
        return report

    # ── the beginning ──

    async def _prepare(self, exits: AsyncExitStack) -> None:
        system, workloads = self._system, self._plan.workloads
        self._say(f"{len(system.names)} processes are ready")
        await asyncio.to_thread(prepare, system.direct_url, workloads, self._recorder)
        system.partition_names = [
            partition
            for workload in workloads
            for topic in workload.topics
            for partition in topic.partition_names
            if not topic.appears
        ]
        system.clients = self._clients
        await exits.enter_async_context(recording_addresses(system, self._failed))
        if system.metadata.startswith("zookeeper:"):
            owners = Owners(system.metadata, self._recorder, lambda: system.partition_names, self._failed)
            self._alone.owners = await exits.enter_async_context(owners)
        self._clients.url, self._clients.pulsar_url = system.service_url, system.pulsar_url
        self._clients.listener_name = system.listener_name
        for role in self._clients.roles:
            await self._clients.begin(role)
        await self._all_go_on("before the first fault")
        self._say("each partition takes messages")

    # ── the rounds ──

    async def _rounds(self) -> None:
        balance = self._balance
        while (left_s := balance.left_s) and not self._problems():
            began = time.monotonic()
            await self._round(self._schedule.next_round(left_s, self._injector.possible))
            balance.faulty_s += time.monotonic() - began
            if rest_s := balance.rest_s:
                self._say(f"calm for {rest_s:.0f} s")
                began = time.monotonic()
                await asyncio.sleep(rest_s)
                balance.calm.append(time.monotonic() - began)

    def _problems(self) -> list[str]:
        return [*self.report.problems, *self._injector.problems, *self._alone.problems]

    async def _round(self, one: Round) -> None:
        self.report.rounds[one.sort.value] += 1
        self._say(f"round {self.report.rounds.total()}, {one}")
        if not one.injections:
            await asyncio.sleep(1.0)
        async with asyncio.TaskGroup() as tasks:
            for injection in one.injections:
                act = self._alone.inject if one.sort is Sort.ALONE else self._injector.inject
                tasks.create_task(act(injection))
        self._say_resumptions()
        for name in self._system.names:
            await self._injector.wait_ready(name)
        for role in self._clients.roles:
            if not self._clients.running(role):
                self.report.problems.append(f"the client {role} has ended by itself: see its *.err")
                await self._clients.kill(role)
            await self._clients.begin(role)

    def _say_resumptions(self) -> None:
        for one in self._alone.resumptions[len(self.report.resumptions) :]:
            self.report.resumptions.append(one)
            self._say(f"    {one}")

    async def _all_go_on(self, when: str) -> None:
        began = time.monotonic()
        silent, waiting = list(self._published), list(self._not_durable)

        def all_go_on() -> bool:
            self._progress.read_on()
            silent[:] = [one for one in silent if self._progress.first_receipt_after(one, began) is None]
            waiting[:] = [one for one in waiting if not self._progress.got_after(one, began)]
            return not silent and not waiting

        try:
            await until(all_go_on, "each partition takes messages", STUCK_S)
        except AssertionError:
            text = f"{STUCK_S:.0f} s {when} these took no messages: {silent}, and these got none: {waiting}"
            raise AssertionError(text) from None

    # ── the report ──

    def _count(self) -> None:
        report, balance, injector = self.report, self._balance, self._injector
        report.seconds = balance.faulty_s + balance.calm_s
        report.whole_s = time.monotonic() - self._began
        report.calm_share, report.calm_stretches_s = balance.share, list(balance.calm)
        report.faults, report.nobody = injector.done, injector.nobody
        report.problems = self._problems()
        names = dict.fromkeys(f"{one.kind} {one.group}" for one in self._plan.faults)
        report.not_struck = [name for name in names if name not in report.faults]
        report.ended_by_themselves = self._system.ended_by_themselves
        report.problems += [
            f"{name} ended by itself, and none of its faults explains it: "
            + self._system.known_of_ends.get(name, "see its log")
            for name in report.ended_by_themselves
            if name not in injector.may_have_ended
        ]

    def _failed(self, what: str, error: Exception) -> None:
        """Report that a background task failed."""
        self.report.problems.append(f"{what} broke off: {type(error).__name__}: {error}")
        self._say(f"PROBLEM: {self.report.problems[-1]}")
        with (self._folder / "rig.err").open("a") as log:
            traceback.print_exception(error, file=log)

    def _say(self, line: str) -> None:
        self._say_line(f"{time.monotonic() - self._began:6.1f} s  {line}")
