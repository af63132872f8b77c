"""A stream's driver: from where to where each micro-batch goes, and what is kept for it.

What Spark asks, in its order: the initial offset (once, for a new query), then over and over how far the next batch
goes from where the last one ended, what tasks read it, and, when the next is about to begin, that it is done. After a
crash the batch that was begun is asked for again, by the offsets that are in the checkpoint; that the same offsets mean
the same messages is due to offsets.py. Nothing that matters is kept here but in Spark's checkpoint: what is remembered
only saves questions.

A log that is new to the query is entered at its earliest message, by one plan that takes the lease and finds that
message in one. A log that joins later, since it is in no offset of the checkpoint, must begin with its first message
then: if that was deleted, it is a loss. While the query runs nothing of such a log is deleted
(leases/namespace_leases.py). After that each plan moves the lease to where the query is, and says from where on all
must be kept that the next batch may need: what is committed moves the progress subscription there, and no further.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from magnetar import MessageId
from magnetar.admin.reading import NextMessage
from magnetar.exceptions import MagnetarException, TopicNotFound
from magnetar_spark.leases.batch_lease import new_lease
from magnetar_spark.leases.namespace_leases import NamespaceHolder
from magnetar_spark.leases.stream_leases import Leases
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.options.offset_option import EARLIEST, Point
from magnetar_spark.options.source_options import SourceOptions
from magnetar_spark.planning.data_loss import Losses
from magnetar_spark.planning.log_plan import EARLIEST_PLACE, Limits, LogPlan, Planner
from magnetar_spark.planning.offset_resolution import STARTING, place_at
from magnetar_spark.planning.slice_builder import cut_into_slices
from magnetar_spark.planning.topic_discovery import Topics
from magnetar_spark.some_at_a_time import some_at_a_time
from magnetar_spark.stream.admission_control import Admission
from magnetar_spark.stream.lag_report import BatchFacts, Lag
from magnetar_spark.stream.offsets import LogOffset, ReadRange, parse_offsets, ranges_between, shown_offsets
from magnetar_spark.stream.progress_subscription import Keeping
from magnetar_spark.topic_wait import find_topics
from magnetar_spark.trigger_delay import TriggerDelay

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["TopicStream"]

_LEASE_MS: Final = 10 * 60 * 1000
_QUERY_ID_BYTES: Final = 16
# Spark asks again at once when there was nothing: brokers are asked so often at most.
_IDLE_S: Final = 0.1

_log = logging.getLogger(__name__)


class TopicStream:
    def __init__(self, admin: AsyncAdmin, options: SourceOptions) -> None:
        self._admin = admin
        self._options = options
        lease = new_lease(_LEASE_MS)
        holder = f"spark.readStream, {socket.gethostname()}, process {os.getpid()}"
        self._planner = Planner(admin, lease, options.listener_name, holder, "the query's checkpoint")
        self._leases = Leases(admin, lease)
        self._namespaces = NamespaceHolder(
            admin, lease, options.topics.name_prefixes(), holder, options.fail_on_data_loss, self._adopt_new
        )
        self._topics = Topics(admin, options.topics)
        self._losses = Losses(options.fail_on_data_loss, advise_subscription=not options.progress_subscription)
        self._keeping = Keeping(admin, options.progress_subscription, options.fail_on_data_loss, holder)
        # As the offsets have it that Spark named last; until then a new one.
        self._query_id = secrets.token_hex(_QUERY_ID_BYTES)
        self._admission = Admission(self._planner, self._plan_next, self._stop_of)
        self._lag = Lag(admin)
        self._delay = TriggerDelay(options.min_messages, options.max_trigger_delay_s)
        self._initial: dict[str, Any] | None = None
        # Where the query stands, while the next batch is being planned.
        self._offsets: dict[str, LogOffset] = {}
        # What was planned last, from where that batch begins.
        self._plans: dict[str, LogPlan] = {}
        # How far may be read, once that is fixed.
        self._target: dict[str, LogOffset] | None = None
        self._committed: dict[str, NextMessage] = {}
        # By the plan of each log that was made last, from its `asked` on.
        self._needed: dict[str, LogPlan] = {}
        self._idle_since: float | None = None

    async def initial(self) -> dict[str, Any]:
        """The same however often it is asked."""
        if self._initial is None:
            logs = await self._first_logs(needed=bool(self._options.topics.names))
            starting = self._options.starting
            starting.check_names("startingOffsets", logs)
            entered = await some_at_a_time(lambda log: self._enter(log, starting.of(log)), logs)
            self._initial = shown_offsets(dict(zip(logs, entered, strict=True)))
        return self._initial

    async def fix_target(self) -> None:
        """From now on nothing is read that comes later."""
        logs = await self._first_logs(needed=self._must_be_there)
        places = await some_at_a_time(self._end_of, logs)
        self._target = {log: place for log, place in zip(logs, places, strict=True) if place is not None}

    async def latest(self, start: Mapping[str, Any], limits: Limits, *, may_wait: bool = True) -> dict[str, Any]:
        """Where the batch ends that begins at `start`; `start` itself if there is nothing to read, or if the batch
        waits for more messages, as it does only with `may_wait`."""
        await self._rest()
        started = time.monotonic()
        before = self._parsed(start)
        self._offsets = dict(before)
        logs = await self._logs()
        for log, offset in before.items():
            if log not in logs:
                self._losses.gone(log, offset.place)
        await some_at_a_time(self._enter_new, [log for log in logs if log not in before])
        found = [log for log in logs if log in self._offsets]
        if may_wait and self._target is None and await self._holds_back(found):
            return self._nothing_new(start)
        waited_s = self._delay.end_wait(time.monotonic())
        self._plans = {}
        self._plans = await self._admission.admit(found, limits)
        for plan in self._plans.values():
            # They may have been continued since they were looked at.
            self._tell_deleted(plan)
        if self._target is not None:
            # Spark plans on when all before is in its log of commits, and says so to the source (`commit`) with the
            # next batch alone: of a query that ends with what there is, the last batch would never be committed. Only
            # that trigger never keeps its log of commits asynchronously.
            await self.commit(start)
        moved = {log: plan.stop for log, plan in self._plans.items() if plan.stop > self._offsets[log].place}
        after = {
            log: LogOffset(
                offset.incarnation,
                moved.get(log, offset.place),
                None if offset.has_begun else offset.place,
                offset.entered,
                self._query_id,
            )
            for log, offset in self._offsets.items()
        }
        places = {log: after[log] for log in found}
        await self._lag.update(places, self._plans, self._batch_facts(started, waited_s))
        if not moved and self._offsets == before:
            return self._nothing_new(start)
        self._idle_since = None
        return shown_offsets(after)

    async def _holds_back(self, found: Sequence[str]) -> bool:
        """Return whether the batch waits for more messages of these logs. It does not where the lag of one of them is
        unknown: planning the batch finds out why. Logs that are deleted stay in the offsets, and have no messages."""
        if not self._delay.is_set:
            return False
        # After a restart no lease holds what the batch will need. A plan of one message takes it, and finds losses.
        not_held = [log for log in found if log not in self._needed]
        await some_at_a_time(lambda log: self._plan_next(log, Limits(messages=1)), not_held)
        available = await self._lag.measure({log: self._offsets[log] for log in found})
        return available is not None and self._delay.holds_back(available, time.monotonic())

    def _nothing_new(self, start: Mapping[str, Any]) -> dict[str, Any]:
        self._idle_since = asyncio.get_running_loop().time()
        return dict(start)

    def _batch_facts(self, started: float, waited_s: float) -> BatchFacts:
        return BatchFacts(
            messages=sum(plan.messages for plan in self._plans.values()),
            bytes=sum(plan.bytes for plan in self._plans.values()),
            planning_ms=round(1000 * (time.monotonic() - started)),
            waited_ms=round(1000 * waited_s),
        )

    async def slices(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[LogSlice]:
        """What the batch between the two offsets is made of, the same messages whenever it is asked."""
        before, after = parse_offsets(start), self._parsed(end)
        plans = await some_at_a_time(self._plan_range, ranges_between(before, after))
        await some_at_a_time(lambda one: self._claim(*one), list(after.items()))
        return cut_into_slices(
            [plan for plan in plans if plan is not None],
            self._options.max_tasks,
            None,
            Connection(self._options.url, self._options.listener_name, self._options.reconnect_s),
            self._options.fail_on_data_loss,
            self._options.decoding,
            min_tasks=self._options.min_tasks,
        )

    async def commit(self, end: Mapping[str, Any]) -> None:
        """All in front of it has been done with, and is not asked for again."""
        if self._options.progress_subscription:
            await some_at_a_time(lambda one: self._advance(*one), list(self._parsed(end).items()))

    def lag(self) -> dict[str, Any] | None:
        """How far each log is behind, and all of them, as the query's progress shows it."""
        return self._lag.shown()

    async def close(self) -> None:
        await self._planner.settle()
        await self._namespaces.end()
        await self._leases.end(self._planner.asked)

    async def _rest(self) -> None:
        if self._idle_since is not None:
            await asyncio.sleep(max(0.0, self._idle_since + _IDLE_S - asyncio.get_running_loop().time()))

    async def _first_logs(self, *, needed: bool) -> Sequence[str]:
        found = await find_topics(
            self._admin,
            self._topics,
            self._options.topics,
            self._options.wait_for_topic_s,
            needed=needed,
            before_look=self._namespaces.take,
        )
        return [log.log for log in found]

    async def _logs(self) -> Sequence[str]:
        if self._target is not None:
            return list(self._target)
        return await self._find()

    async def _find(self) -> list[str]:
        """A log that is missing was made after the query's lease on its namespace, and so with a lease."""
        await self._namespaces.take()
        return [log.log for log in await self._topics.find()]

    async def _adopt_new(self) -> None:
        """The next batch may be far off, and new logs were made with leases that end by then."""
        for log in await self._topics.find(now=True):
            self._leases.adopt(log.log)

    async def _enter(self, log: str, point: Point, *, joins: bool = False) -> LogOffset:
        """The query begins with this log here. `joins`: though others have begun before."""
        incarnation, place = "", EARLIEST_PLACE
        if point != EARLIEST:
            placed = await place_at(self._admin, log, point, STARTING)
            incarnation, place = placed.incarnation, placed.place
        plan = await self._planner.plan(log, incarnation, place, limits=Limits(messages=1))
        if plan.other_incarnation:
            # The first batch finds it out.
            return LogOffset(incarnation, place, since=place, query_id=self._query_id)
        entered = None
        if point == EARLIEST:
            plan.asked = entered = place = plan.start
        await self._hold(plan)
        if joins and plan.trimmed:
            self._losses.begins_later(log, plan.first)
        return LogOffset(plan.incarnation, place, since=place, entered=entered, query_id=self._query_id)

    async def _enter_new(self, log: str) -> None:
        try:
            self._offsets[log] = await self._enter(log, EARLIEST, joins=True)
        except TopicNotFound:
            if self._must_be_there:
                raise

    async def _end_of(self, log: str) -> LogOffset | None:
        try:
            placed = await self._admin.reading.place(log, MessageId.latest)
        except TopicNotFound:
            if self._must_be_there:
                raise
            return None
        return LogOffset(placed.incarnation, placed.place, query_id=self._query_id)

    @property
    def _must_be_there(self) -> bool:
        """Return whether the user named the topics, and a loss fails the query."""
        return bool(self._options.topics.names) and self._options.fail_on_data_loss

    def _stop_of(self, log: str) -> NextMessage | None:
        """Up to where it may be read; None: up to its end."""
        if self._target is None:
            return None
        offset, target = self._offsets[log], self._target[log]
        return max(offset.place, target.place) if offset.incarnation == target.incarnation else offset.place

    async def _plan_next(self, log: str, limits: Limits) -> LogPlan | None:
        offset = self._offsets[log]
        try:
            plan = await self._plan_from(log, offset, limits)
            if plan.other_incarnation:
                self._losses.made_again(log, offset.incarnation, offset.place)
                offset = self._offsets[log] = await self._enter(log, EARLIEST, joins=True)
                plan = await self._plan_from(log, offset, limits)
        except TopicNotFound:
            self._losses.gone(log, offset.place)
            return None
        if plan.other_incarnation:
            # Deleted and made again within this moment: the next batch finds out.
            return None
        await self._planned(plan)
        return plan

    async def _plan_from(self, log: str, offset: LogOffset, limits: Limits) -> LogPlan:
        stop = self._stop_of(log)
        return await self._planner.plan(log, offset.incarnation, offset.place, stop, limits, offset.entered)

    async def _plan_range(self, part: ReadRange) -> LogPlan | None:
        plan = self._plans.get(part.log)
        if plan and (plan.incarnation, plan.asked, plan.stop) == (part.incarnation, part.start, part.stop):
            return plan
        try:
            plan = await self._planner.plan(part.log, part.incarnation, part.start, part.stop, entered=part.entered)
        except TopicNotFound:
            self._losses.gone(part.log, part.start)
            return None
        if plan.other_incarnation:
            self._losses.made_again(part.log, part.incarnation, part.start)
            return None
        await self._planned(plan)
        if plan.stop < part.stop:
            self._losses.ends_before(part.log, plan.stop, part.stop)
        return plan

    async def _planned(self, plan: LogPlan) -> None:
        await self._hold(plan)
        self._tell_deleted(plan)

    def _tell_deleted(self, plan: LogPlan) -> None:
        self._losses.deleted(plan.log, plan.lost, self._keeping.describe_if_ahead(plan.log, plan.asked))

    def _parsed(self, offsets: Mapping[str, Any]) -> dict[str, LogOffset]:
        """Offsets that are in Spark's checkpoint, or are about to be: the query's id is theirs."""
        parsed = parse_offsets(offsets)
        self._query_id = next((one.query_id for one in parsed.values() if one.query_id), self._query_id)
        return parsed

    async def _claim(self, log: str, offset: LogOffset) -> None:
        plan = self._needed.get(log)
        place = offset.place
        if plan is not None and plan.incarnation == offset.incarnation:
            place = min(place, plan.needed_from)
        await self._keeping.claim(log, offset.incarnation, place, offset.query_id)

    async def _hold(self, plan: LogPlan) -> None:
        """Keeps what it names for as long as it takes."""
        self._leases.took(plan.log, plan.incarnation)
        self._needed[plan.log] = plan
        await self._keeping.keep(plan.log, plan.incarnation, plan.needed_from, plan.retained)

    async def _advance(self, log: str, offset: LogOffset) -> None:
        """Up to where messages may have begun that go on there: what is kept in front of it by a lease alone ends with
        the query, and one that goes on from the checkpoint needs it."""
        if not offset.has_begun:
            # Nothing of it was read; and the query's id need not be in the checkpoint yet.
            return
        plan = self._needed.get(log)
        if plan is None or plan.incarnation != offset.incarnation or plan.asked > offset.place:
            # Nobody knows yet how far that is. The next commit does.
            return
        to = min(offset.place, plan.needed_from)
        if self._committed.get(log) == to:
            return
        subscription = self._options.progress_subscription
        try:
            await self._keeping.advance(log, offset.incarnation, to, offset.query_id)
            self._committed[log] = to
        except MagnetarException as error:
            # What is read does not depend on it, and the next commit tries again.
            _log.warning(
                "The subscription %r on %s could not be moved, and is retried after the next batch: %s",
                subscription,
                log,
                error,
            )
