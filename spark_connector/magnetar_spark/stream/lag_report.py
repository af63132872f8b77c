"""How far a stream is behind its topics, as the query's progress shows it.

PySpark 4.3 lets a Python source report one thing: `reportLatestOffset`, a JSON object that is shown as `latestOffset`
of `query.lastProgress["sources"]`, and is not stored in the checkpoint. (The `metrics` of a source in the progress are
`ReportsSourceMetrics` of the JVM, which Spark's adapter for Python sources does not implement.) So this object has the
end of each partition, the number of messages after the micro-batch that was planned last, and under `total` the sums
and the metrics of the micro-batch.

A micro-batch with a limit plans some of the partitions. The lag of the others is requested by a plan of an empty range,
which takes no lease and reads no entry: at first for all of them, then again after a second or `_PAUSE_FACTOR` times as
long as the requests took, whichever is longer. A partition that does not answer in time has its last known lag, and
delays the micro-batch by at most `_TIMEOUT_S`. A partition that was deleted has no lag, and is not shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.admin.reading import MessagePosition
from magnetar.exceptions import MagnetarException, TopicNotFound
from magnetar_spark.broker_requests import gather_bounded
from magnetar_spark.options.offset_option import encode_position
from magnetar_spark.planning.log_plan import LogPlan
from magnetar_spark.stream.offsets import LogOffset

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["BatchMetrics", "LagReport"]

_MIN_PAUSE_S: Final = 1.0
_PAUSE_FACTOR: Final = 10.0
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """What the progress shows of the micro-batch itself, besides Spark's own metrics."""

    messages: int = 0
    bytes: int = 0
    # How long brokers took to plan it.
    planning_ms: int = 0
    # How long its first message waited for more messages (`minMessagesPerTrigger`).
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class _LogLag:
    incarnation: str
    end: MessagePosition
    end_index: int
    messages_behind: int


class LagReport:
    def __init__(self, admin: AsyncAdmin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._logs: dict[str, _LogLag] = {}
        # Logs that did not exist at the last request.
        self._deleted: set[str] = set()
        self._metrics = BatchMetrics()
        self._next_request_at = 0.0
        # When the rate was measured last, and the end index of each log and incarnation then.
        self._measured_at: float | None = None
        self._end_indexes: dict[tuple[str, str], int] = {}
        self._rate = 0.0

    async def update(
        self, offsets: Mapping[str, LogOffset], plans: Mapping[str, LogPlan], metrics: BatchMetrics
    ) -> None:
        """Take the lag from the plans of a micro-batch, and request that of the other logs. `offsets`: the end of the
        micro-batch in each log that exists; `plans`: the plans of some of these logs, up to there."""
        self._metrics = metrics
        self._logs = {log: lag for log, lag in self._logs.items() if log in offsets}
        self._deleted &= offsets.keys() - plans.keys()
        for log, plan in plans.items():
            self._logs[log] = _LogLag(plan.incarnation, plan.end, plan.end_index, plan.messages_behind)
        others = {log: offset for log, offset in offsets.items() if log not in plans}
        if others and (self._clock() >= self._next_request_at or not self._knows_all(others)):
            await self._request_lags(others)
        self._measure_rate()

    async def count_messages_behind(self, offsets: Mapping[str, LogOffset]) -> int | None:
        """Count the messages after these offsets. A log that is deleted has none. None: one of the logs was recreated,
        or does not answer."""
        self._logs = {}
        await self._request_lags(offsets)
        if not self._knows_all(offsets):
            return None
        self._metrics = BatchMetrics()
        self._measure_rate()
        return sum(lag.messages_behind for lag in self._logs.values())

    def format(self) -> dict[str, Any] | None:
        """Return the JSON for the query's progress; None before the first micro-batch was planned."""
        if not self._logs:
            return None
        formatted: dict[str, Any] = {
            log: {"incarnation": lag.incarnation, **encode_position(lag.end), "messages_behind": lag.messages_behind}
            for log, lag in sorted(self._logs.items())
        }
        formatted["total"] = {
            "messages_behind": sum(lag.messages_behind for lag in self._logs.values()),
            "published_per_second": round(self._rate, 3),
            "batch_messages": self._metrics.messages,
            "batch_bytes": self._metrics.bytes,
            "planning_ms": self._metrics.planning_ms,
            "waited_ms": self._metrics.waited_ms,
        }
        return formatted

    def _knows_all(self, offsets: Mapping[str, LogOffset]) -> bool:
        return self._logs.keys() | self._deleted >= offsets.keys()

    async def _request_lags(self, offsets: Mapping[str, LogOffset]) -> None:
        started = self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                await gather_bounded(lambda one: self._request_lag(*one), list(offsets.items()))
        ended = self._clock()
        self._next_request_at = ended + max(_MIN_PAUSE_S, _PAUSE_FACTOR * (ended - started))

    async def _request_lag(self, log: str, offset: LogOffset) -> None:
        self._deleted.discard(log)
        try:
            answer = await self._admin.reading.plan(
                log, incarnation=offset.incarnation, start=offset.position, stop=offset.position
            )
        except TopicNotFound:
            self._logs.pop(log, None)
            self._deleted.add(log)
        except MagnetarException:
            # The last known lag stays.
            pass
        else:
            if not answer.other_incarnation:
                self._logs[log] = _LogLag(answer.incarnation, answer.end, answer.end_index, answer.messages_behind)

    def _measure_rate(self) -> None:
        """Measure how many messages were published per second since the last measurement."""
        now = self._clock()
        ends = {(log, lag.incarnation): lag.end_index for log, lag in self._logs.items()}
        if self._measured_at is not None:
            elapsed = now - self._measured_at
            if elapsed < _MIN_PAUSE_S:
                return
            published = sum(max(0, end - self._end_indexes.get(key, end)) for key, end in ends.items())
            self._rate = published / elapsed
        self._measured_at, self._end_indexes = now, ends
