"""The registration of a broker, by which other brokers know it and its load: an ephemeral node of each session.

If the node vanishes though the session lasts, it is created again. A node of a stale session of this broker is deleted
(dead_owners.py). If another process is registered with the same id, this broker waits until that node vanishes; until
then no other broker assigns bundles to it.

The node has the broker's last load report. It is written again when another report is due (load_rules.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.ownership.dead_owners import StaleSessionDetector
from magnetar_broker.ownership.load_rules import LoadReportRule, ReportedLoad
from magnetar_broker.settings.ownership import OwnershipSettings
from magnetar_metadata.errors import MetadataError, NoNode, Refused, SessionLost, Unavailable
from magnetar_metadata.store import ABSENT, MetadataStore, Node
from magnetar_protos.ownership_pb2 import BrokerRegistration, LoadReport
from magnetar_wire.clock import Clock
from magnetar_wire.process.loop_delay import LoopDelayMonitor

__all__ = ["LoadSampler", "Registration"]

_log = logging.getLogger(__name__)
_RETRY_S: Final = 1.0
# Changes of the number of bundles within this time are reported together.
_BUNDLE_CHANGES_S: Final = 0.2


class LoadSampler:
    """Measures the load of this process."""

    def __init__(
        self, clock: Clock, counters: BrokerCounters, count_topics: Callable[[], int], cpu_seconds: Callable[[], float]
    ) -> None:
        """`cpu_seconds` returns the CPU time that the process has used so far."""
        self._clock = clock
        self._counters = counters
        self._count_topics = count_topics
        self._cpu_seconds = cpu_seconds
        self._loop_delay = LoopDelayMonitor(clock)
        self._sampled_at = clock.monotonic()
        self._cpu_seconds_then = cpu_seconds()
        self._cpu = 0.0

    def sample(self) -> LoadReport:
        """Return the load since the last sample, without the number of bundles."""
        now, cpu_seconds = self._clock.monotonic(), self._cpu_seconds()
        if now > self._sampled_at:
            self._cpu = max(0.0, cpu_seconds - self._cpu_seconds_then) / (now - self._sampled_at)
        self._sampled_at, self._cpu_seconds_then = now, cpu_seconds
        return LoadReport(
            time_ms=self._clock.time_ms(),
            cpu=self._cpu,
            loop_lag_s=self._loop_delay.pop_longest_delay_s(),
            bytes_in_per_s=self._counters.received.bytes_per_s,
            bytes_out_per_s=self._counters.delivered.bytes_per_s,
            topics=self._count_topics(),
        )

    def close(self) -> None:
        self._loop_delay.close()


class Registration:
    """The registration in one metadata session."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: str,
        registration: BrokerRegistration,
        stale_sessions: StaleSessionDetector,
        load: LoadSampler,
        count_bundles: Callable[[], int],
        clock: Clock,
        settings: OwnershipSettings,
    ) -> None:
        """`count_bundles` returns the number of bundles that this broker owns."""
        self._store = store
        self._broker_id = broker_id
        self._path = paths.broker(broker_id)
        # The wanted value of the node.
        self._registration = registration
        self._stale_sessions = stale_sessions
        self._load = load
        self._count_bundles = count_bundles
        self._clock = clock
        self._interval_s = settings.load_balancer_report_update_min_interval_millis / 1000
        self._rule = LoadReportRule(
            settings.load_balancer_report_update_threshold_percentage / 100,
            self._interval_s,
            settings.load_balancer_report_update_max_interval_minutes * 60,
        )
        # The last report, and its time on the monotonic clock.
        self._reported = ReportedLoad(0.0, 0.0, 0)
        self._reported_at = clock.monotonic()
        # Set: the node, or its wanted value, may have changed.
        self._may_have_changed = asyncio.Event()
        # Another process is registered with this broker's id.
        self._is_id_taken = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def waits_for(self) -> str:
        """The reason why the broker can't be registered; empty: there is none."""
        if not self._is_id_taken:
            return ""
        return (
            f"another process is registered as broker {self._broker_id}: its registration ends with its "
            "session if it is a former process of this broker; otherwise set another broker_id for one of "
            "them"
        )

    def on_bundles_changed(self) -> None:
        self._may_have_changed.set()

    async def start(self) -> None:
        """Register the broker. Returns also if that isn't possible yet."""
        self._report_if_due(self._load.sample())
        with contextlib.suppress(Refused, Unavailable, NoNode):
            while not await self._update_node():
                pass
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(work(), name="registration")
            for work in (self._watch_node, self._sample_load, self._keep_registered)
        ]

    async def unregister(self) -> None:
        """Stop, and delete the node, so that no broker assigns bundles to this one any more."""
        await self.close()
        try:
            node = await self._store.get(self._path)
            if node is not None and self._is_ours(node):
                await self._store.delete(self._path, node.version)
        except MetadataError as error:
            _log.info("The registration of broker %s is deleted with its session: %s", self._broker_id, error)

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch_node(self) -> None:
        with contextlib.suppress(SessionLost), contextlib.closing(self._store.watch(self._path)) as watch:
            while True:
                await watch.wait()
                self._may_have_changed.set()

    async def _sample_load(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            self._report_if_due(self._load.sample())
            if self._is_id_taken:
                self._may_have_changed.set()

    def _report_if_due(self, load: LoadReport) -> None:
        load.bundles = self._count_bundles()
        now = ReportedLoad(load.cpu, load.loop_lag_s, load.bundles)
        if self._rule.is_due(self._reported, now, self._clock.monotonic() - self._reported_at):
            self._registration.load.CopyFrom(load)
            self._may_have_changed.set()

    async def _keep_registered(self) -> None:
        while True:
            await self._may_have_changed.wait()
            self._may_have_changed.clear()
            if self._registration.load.bundles != self._count_bundles():
                await self._clock.sleep(_BUNDLE_CHANGES_S)
                self._registration.load.bundles = self._count_bundles()
            try:
                while not await self._update_node():
                    pass
            except SessionLost:
                return
            except MetadataError as error:
                _log.info("Broker %s can't be registered now, and tries again: %s", self._broker_id, error)
                await self._clock.sleep(_RETRY_S)
                self._may_have_changed.set()

    async def _update_node(self) -> bool:
        """Bring the node up to date. Return False if it has to be called again."""
        node = await self._store.get_after_sync(self._path)
        self._registration.load.time_ms = self._clock.time_ms()
        wanted = self._registration.SerializeToString(deterministic=True)
        if node is None:
            await self._store.put(self._path, wanted, ABSENT, ephemeral=True)
        elif self._is_ours(node):
            if not _is_same(node.value, self._registration):
                await self._store.put(self._path, wanted, node.version)
        elif await self._is_stale(node):
            _log.info("Broker %s removes its former registration", self._broker_id)
            with contextlib.suppress(NoNode):
                await self._store.delete(self._path, node.version)
            return False
        else:
            if not self._is_id_taken:
                self._is_id_taken = True
                _log.warning("Waiting: %s", self.waits_for)
            return True
        self._is_id_taken = False
        load = self._registration.load
        self._reported = ReportedLoad(load.cpu, load.loop_lag_s, load.bundles)
        self._reported_at = self._clock.monotonic()
        return True

    def _is_ours(self, node: Node) -> bool:
        return node.stat.ephemeral_owner == self._store.session.id

    async def _is_stale(self, node: Node) -> bool:
        try:
            registered = BrokerRegistration.FromString(node.value)
        except DecodeError:
            return False
        return await self._stale_sessions.is_stale(self._broker_id, registered.instance, registered.listeners)


def _is_same(value: bytes, registration: BrokerRegistration) -> bool:
    """Return whether they are the same but for the time."""
    registered = BrokerRegistration.FromString(value)
    registered.load.time_ms = registration.load.time_ms
    return registered == registration
