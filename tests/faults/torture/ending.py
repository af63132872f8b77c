"""The end of a run: all that it takes to know what became of every message.

    each partition takes messages again
    producers end: what was pending has its receipt
    consumers acknowledge all that there is, until no subscription has a backlog
    the whole log is read again through Spark, by another path than consumers
    readers that begin at ids end, since messages are deleted from now on
    the subscriptions `keep`, which nobody has read so far, are read, and drained
    topics that need not retain all have deleted all of their messages, when no policy retains them any more
    brokers stop, and each ledger that is left has an owner, and all of its replicas

Each is waited for until a generous bound, and what is not done by then is a problem by itself. What comes behind it is
tried all the same. Spark takes its time to load, so it is started during the rounds.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from magnetar.admin import Admin
from magnetar.exceptions import MagnetarException
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.client_process import KEEP
from tests.faults.torture.client_processes import Processes
from tests.faults.torture.fault_injector import STUCK_S
from tests.faults.torture.inspection import inspect
from tests.faults.torture.preparation import backlogs, current_partition_names, subscriptions_of
from tests.faults.torture.report import Report
from tests.faults.torture.spark_process import SparkProcess, WithoutSpark
from tests.faults.torture.system import System
from tests.faults.torture.workload import Subscription, Topic, Workload
from tests.running import until

__all__ = ["Ending"]

_LONGEST_DRAIN_S: Final = 900.0


class Ending:
    def __init__(
        self,
        system: System,
        clients: Processes,
        workloads: Sequence[Workload],
        recorder: Recorder,
        report: Report,
        folder: Path,
        *,
        spark: bool,
        say: Callable[[str], None],
    ) -> None:
        """`folder` has the histories, and gets the output of processes."""
        self._system, self._clients, self._workloads = system, clients, workloads
        self._recorder, self._report, self._say = recorder, report, say
        self._folder = folder
        self._spark_wanted = spark
        self._spark: SparkProcess | None = None
        # By topic.
        self._partition_names: dict[str, tuple[str, ...]] = {}

    def begin(self) -> None:
        """Start Spark's process, long before `run`."""
        if self._spark_wanted:
            self._spark = SparkProcess(self._folder / "histories", self._folder / "spark.err")

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()

    async def run(self, all_go_on: Callable[[str], Awaitable[None]]) -> None:
        await self._step("each partition takes messages", all_go_on("after all has healed"))
        await self._step("producers have ended", self._clients.stop())
        self._partition_names = await asyncio.to_thread(self._list_partition_names)
        subscriptions = subscriptions_of(self._workloads)
        worked = [one for one in subscriptions if one.name != KEEP and one.is_durable]
        await self._step("no subscription has a backlog", self._drain(worked))
        if self._spark is not None:
            await self._step("all was read through Spark", self._read_through(self._spark))
        else:
            self._report.not_done.append("nothing was read through Spark: it was not to be")
        await self._step("positioned readers have ended", self._clients.end_readers())
        await self._step("all was read from the beginning", self._keep(subscriptions))
        await self._step("nothing is stored that no policy retains", self._wait_until_deleted())
        await self._step("clients have ended", self._clients.quit())
        self._recorder.say("ended")
        await self._step("each ledger has an owner and its replicas", self._ledgers())

    async def _step(self, what: str, act: Awaitable[None]) -> None:
        began = time.monotonic()
        try:
            await act
        except Exception as error:  # noqa: BLE001 (what comes behind is wanted all the same)
            self._report.problems.append(f"not reached: {what}: {type(error).__name__}: {error}")
            with (self._folder / "rig.err").open("a") as log:
                traceback.print_exception(error, file=log)
        else:
            self._say(what)
        self._report.ending_s[what] = time.monotonic() - began

    async def _drain(self, subscriptions: Sequence[Subscription]) -> None:
        """Wait until no subscription has a backlog, and note those that have none. A backlog that has not shrunk for
        `STUCK_S` is a problem; how long the whole takes depends on the machine."""
        left: dict[str, int] = {one.full_name: 1 for one in subscriptions}
        smallest: dict[str, int] = {}
        shrank_at: dict[str, float] = {}

        async def drained() -> bool:
            nonlocal left
            answered = await asyncio.to_thread(self._ask_backlogs, subscriptions)
            if answered is None:
                return False
            left, now = answered, time.monotonic()
            for name, backlog in left.items():
                if backlog < smallest.get(name, backlog + 1):
                    smallest[name], shrank_at[name] = backlog, now
            stuck = {name: backlog for name, backlog in left.items() if now - shrank_at[name] >= STUCK_S}
            assert not stuck, f"for {STUCK_S:.0f} s these backlogs have not shrunk: {stuck}"
            return not left

        try:
            await until(drained, "they are drained", _LONGEST_DRAIN_S)
        finally:
            for one in subscriptions:
                if one.full_name not in left:
                    self._recorder.say("drained", subscription=one.full_name)

    async def _keep(self, subscriptions: Sequence[Subscription]) -> None:
        await self._clients.begin(KEEP)
        await self._drain([one for one in subscriptions if one.name == KEEP])

    async def _wait_until_deleted(self) -> None:
        """Wait until topics that need not retain all are empty. Their subscriptions have no backlog."""
        topics = [
            topic
            for workload in self._workloads
            for topic in workload.topics
            if not topic.retains_all and topic.is_persistent
        ]
        left: dict[str, int] = {}

        async def deleted() -> bool:
            nonlocal left
            answered = await asyncio.to_thread(self._ask_stored_entries, topics)
            if answered is not None:
                left = {partition: entries for partition, entries in answered.items() if entries}
            return answered is not None and not left

        within_s = STUCK_S + max((topic.retention_s for topic in topics), default=0)
        try:
            await until(deleted, "they are deleted", within_s)
        except AssertionError:
            raise AssertionError(f"{within_s:.0f} s later these entries are still stored: {left}") from None

    def _ask_stored_entries(self, topics: Sequence[Topic]) -> dict[str, int] | None:
        """Return the number of stored entries of each partition; None: no broker answers now."""
        partition_names = [name for topic in topics for name in self._partition_names.get(topic.name, ())]
        try:
            with Admin(self._system.direct_url) as admin:
                return {name: admin.topics.internal_stats(name).stored_entries for name in partition_names}
        except MagnetarException:
            return None

    async def _read_through(self, spark: SparkProcess) -> None:
        try:
            # Others have lost messages by their policies, and a reader of the whole log fails then. Letters are read by
            # their consumers, since the judge knows no producers of them.
            topics = [
                topic
                for workload in self._workloads
                for topic in workload.topics
                if topic.retains_all and not topic.has_letters
            ]
            await spark.read(
                self._system.direct_url,
                [partition for topic in topics for partition in self._partition_names[topic.name]],
            )
        except WithoutSpark as why:
            self._report.not_done.append(f"nothing was read through Spark: {why}")

    async def _ledgers(self) -> None:
        for broker in list(self._system.brokers):
            await self._system.stop(broker)
        ledgers, left = await inspect(self._system.metadata, self._system.bookies, STUCK_S)
        if left:
            raise AssertionError(f"{STUCK_S:.0f} s after the brokers have ended {left}")
        self._report.ledgers = ledgers

    def _list_partition_names(self) -> dict[str, tuple[str, ...]]:
        with Admin(self._system.direct_url) as admin:
            return current_partition_names(admin, self._workloads)

    def _ask_backlogs(self, subscriptions: Sequence[Subscription]) -> dict[str, int] | None:
        """Return the subscriptions with a backlog, and its number of messages; None: no broker answers now."""
        try:
            with Admin(self._system.direct_url) as admin:
                return backlogs(admin, self._partition_names, subscriptions)
        except MagnetarException:
            return None
