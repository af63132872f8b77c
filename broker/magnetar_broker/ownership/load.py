"""What a broker says of how loaded it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from magnetar_broker.core.counters import BrokerCounters
from magnetar_protos.ownership_pb2 import LoadReport
from magnetar_wire.clock import Clock
from magnetar_wire.process.loop_delay import LoopDelayMonitor

__all__ = ["BrokerLoad", "LoadSource"]


class LoadSource(Protocol):
    def sample(self) -> LoadReport:
        """Of the time since the last sample. The number of bundles is somebody else's to know."""


class BrokerLoad:
    """Of this process."""

    def __init__(
        self, clock: Clock, counters: BrokerCounters, topics: Callable[[], int], cpu_seconds: Callable[[], float]
    ) -> None:
        """`cpu_seconds`: what the process has used so far."""
        self._clock = clock
        self._counters = counters
        self._topics = topics
        self._cpu_seconds = cpu_seconds
        self._loop_watch = LoopDelayMonitor(clock)
        self._sampled_at = clock.monotonic()
        self._cpu_then = cpu_seconds()
        self._cpu = 0.0

    def sample(self) -> LoadReport:
        now, cpu = self._clock.monotonic(), self._cpu_seconds()
        if now > self._sampled_at:
            self._cpu = max(0.0, cpu - self._cpu_then) / (now - self._sampled_at)
        self._sampled_at, self._cpu_then = now, cpu
        return LoadReport(
            time_ms=self._clock.time_ms(),
            cpu=self._cpu,
            loop_lag_s=self._loop_watch.pop_longest_delay_s(),
            bytes_in_per_s=self._counters.received.bytes_per_s,
            bytes_out_per_s=self._counters.delivered.bytes_per_s,
            topics=self._topics(),
        )

    def close(self) -> None:
        self._loop_watch.close()
