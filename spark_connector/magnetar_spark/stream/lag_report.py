"""How far a stream is behind its topics, as the query's progress shows it.

PySpark 4.3 gives a Python source one thing to report: `reportLatestOffset`, a JSON object that is shown as
`latestOffset` of `query.lastProgress["sources"]`, and is not kept in the checkpoint. (The `metrics` of a source in the
progress are `ReportsSourceMetrics` of the JVM, which Spark's adapter for Python sources does not implement.) So this
object holds where each partition ends, how many messages are behind the micro-batch that was planned last, and under
`total` the sums and the metrics of the micro-batch.

A micro-batch with a limit plans some of the partitions. The lag of the others is asked for by a plan of an empty range,
which takes no lease and looks at no entry: for all of them at first, then again after `_REST` times as long as asking
took, and after a second at least. A partition that does not answer in time keeps the lag that is known of it, and
delays the micro-batch by `_LONGEST_S` at most. A partition that was deleted has no lag, and is not shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.admin.reading import NextMessage
from magnetar.exceptions import MagnetarException, TopicNotFound
from magnetar_spark.planning.log_plan import LogPlan
from magnetar_spark.some_at_a_time import some_at_a_time
from magnetar_spark.stream.offsets import LogOffset

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["BatchFacts", "Lag"]

_LEAST_REST_S: Final = 1.0
_REST: Final = 10.0
_LONGEST_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What the progress tells of the micro-batch itself, besides Spark's own figures."""

    messages: int = 0
    bytes: int = 0
    # Until brokers had planned it.
    planning_ms: int = 0
    # For which messages were held back, to be more (`minMessagesPerTrigger`).
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class _LogLag:
    incarnation: str
    end: NextMessage
    end_index: int
    messages_behind: int


class Lag:
    def __init__(self, admin: AsyncAdmin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._logs: dict[str, _LogLag] = {}
        # Those that did not exist when they were asked for last.
        self._deleted: set[str] = set()
        self._facts = BatchFacts()
        self._not_before = 0.0
        # When messages were counted last, and what had been published by then, by incarnation.
        self._counted_at: float | None = None
        self._end_indexes: dict[tuple[str, str], int] = {}
        self._rate = 0.0

    async def update(self, places: Mapping[str, LogOffset], plans: Mapping[str, LogPlan], facts: BatchFacts) -> None:
        """Take over the plans of a micro-batch, and ask for the lag of the other logs. `places`: where the micro-batch
        ends in each log that was found; `plans`: the plans of some of these logs, up to there."""
        self._facts = facts
        self._logs = {log: lag for log, lag in self._logs.items() if log in places}
        self._deleted &= places.keys() - plans.keys()
        for log, plan in plans.items():
            self._logs[log] = _LogLag(plan.incarnation, plan.end, plan.end_index, plan.messages_behind)
        others = {log: offset for log, offset in places.items() if log not in plans}
        if others and (self._clock() >= self._not_before or not self._logs.keys() | self._deleted >= others.keys()):
            await self._ask(others)
        self._count()

    async def measure(self, places: Mapping[str, LogOffset]) -> int | None:
        """Count the messages from these places on. A log that is deleted has none. None: one of the logs was deleted
        and made again, or does not answer."""
        self._logs = {}
        await self._ask(places)
        if not self._logs.keys() | self._deleted >= places.keys():
            return None
        self._facts = BatchFacts()
        self._count()
        return sum(lag.messages_behind for lag in self._logs.values())

    def shown(self) -> dict[str, Any] | None:
        """None before the first micro-batch was planned."""
        if not self._logs:
            return None
        shown: dict[str, Any] = {
            log: {"incarnation": lag.incarnation, **lag.end._asdict(), "messages_behind": lag.messages_behind}
            for log, lag in sorted(self._logs.items())
        }
        shown["total"] = {
            "messages_behind": sum(lag.messages_behind for lag in self._logs.values()),
            "published_per_second": round(self._rate, 3),
            "batch_messages": self._facts.messages,
            "batch_bytes": self._facts.bytes,
            "planning_ms": self._facts.planning_ms,
            "waited_ms": self._facts.waited_ms,
        }
        return shown

    async def _ask(self, places: Mapping[str, LogOffset]) -> None:
        started = self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_S):
                await some_at_a_time(lambda one: self._ask_one(*one), list(places.items()))
        ended = self._clock()
        self._not_before = ended + max(_LEAST_REST_S, _REST * (ended - started))

    async def _ask_one(self, log: str, offset: LogOffset) -> None:
        self._deleted.discard(log)
        try:
            answer = await self._admin.reading.plan(
                log, incarnation=offset.incarnation, start=offset.place, stop=offset.place
            )
        except TopicNotFound:
            self._logs.pop(log, None)
            self._deleted.add(log)
        except MagnetarException:
            # The lag that is known stays.
            pass
        else:
            if not answer.other_incarnation:
                self._logs[log] = _LogLag(answer.incarnation, answer.end, answer.end_index, answer.messages_behind)

    def _count(self) -> None:
        """How many messages were published in a second since they were counted last."""
        now = self._clock()
        ends = {(log, lag.incarnation): lag.end_index for log, lag in self._logs.items()}
        if self._counted_at is not None:
            elapsed = now - self._counted_at
            if elapsed < _LEAST_REST_S:
                return
            came = sum(max(0, end - self._end_indexes.get(key, end)) for key, end in ends.items())
            self._rate = came / elapsed
        self._counted_at, self._end_indexes = now, ends
