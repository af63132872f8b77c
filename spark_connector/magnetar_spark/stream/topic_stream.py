"""A stream's driver: plans micro-batches, and retains the messages that they need.

Spark asks for the initial offset, once for a new query. Then, again and again, it asks for the end of the next
micro-batch, which begins at the end of the previous one, for its slices, and, when the next one begins, it commits the
previous one. After a crash Spark asks again for the slices of the unfinished micro-batch, with the offsets that are in
the checkpoint; offsets.py explains why these always have the same messages. All important state is in Spark's
checkpoint. The rest is cached here to save requests.

A log that is new to the query is entered at its earliest message, by one plan that both takes the lease and finds that
message. A log that joins a running query is in no offset of the checkpoint, and must begin with its first message then:
if that was deleted, it is a loss. While the query runs no message of such a log is deleted
(leases/namespace_leases.py). Each later plan moves the lease to the query's position, and returns from which position
on messages must be retained for the next micro-batch. A commit moves the progress subscription to that position, and no
further.
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
from magnetar.admin.reading import MessagePosition
from magnetar.exceptions import MagnetarException, TopicNotFound
from magnetar_spark.broker_requests import gather_bounded
from magnetar_spark.leases.lease import create_lease
from magnetar_spark.leases.namespace_leases import NamespaceLeases
from magnetar_spark.leases.stream_leases import StreamLeases
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.options.offset_option import EARLIEST, RequestedOffset
from magnetar_spark.options.source_options import SourceOptions
from magnetar_spark.planning.data_loss import DataLossReporter
from magnetar_spark.planning.log_plan import EARLIEST_POSITION, LogPlan, LogPlanner, PlanLimits
from magnetar_spark.planning.offset_resolution import STARTING, resolve_offset
from magnetar_spark.planning.slice_builder import build_slices
from magnetar_spark.planning.topic_discovery import TopicDiscovery, wait_for_topics
from magnetar_spark.stream.admission_control import AdmissionControl, TriggerDelay
from magnetar_spark.stream.lag_report import BatchMetrics, LagReport
from magnetar_spark.stream.offsets import LogOffset, OffsetRange, find_ranges, format_offsets, parse_offsets
from magnetar_spark.stream.progress_subscription import ProgressSubscription

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["TopicStream"]

_LEASE_MS: Final = 10 * 60 * 1000
_QUERY_ID_BYTES: Final = 16
# If there are no new messages, Spark asks again at once. Requests to brokers wait for this pause.
_IDLE_PAUSE_S: Final = 0.1

_log = logging.getLogger(__name__)


class TopicStream:
    def __init__(self, admin: AsyncAdmin, options: SourceOptions) -> None:
        self._admin = admin
        self._options = options
        lease = create_lease(_LEASE_MS)
        holder = f"spark.readStream, {socket.gethostname()}, process {os.getpid()}"
        self._planner = LogPlanner(admin, lease, options.listener_name, holder, "the query's checkpoint")
        self._leases = StreamLeases(admin, lease)
        prefixes = options.topics.find_name_prefixes()
        self._namespace_leases = NamespaceLeases(
            admin, lease, prefixes, holder, options.fail_on_data_loss, self._renew_new_logs
        )
        self._discovery = TopicDiscovery(admin, options.topics)
        self._data_loss = DataLossReporter(
            options.fail_on_data_loss, advise_subscription=not options.progress_subscription
        )
        self._progress = ProgressSubscription(admin, options.progress_subscription, options.fail_on_data_loss, holder)
        # The id in the last offsets that Spark passed; until then a new one.
        self._query_id = secrets.token_hex(_QUERY_ID_BYTES)
        self._admission = AdmissionControl(self._planner, self._plan_next, self._get_stop)
        self._lag = LagReport(admin)
        self._delay = TriggerDelay(options.min_messages, options.max_trigger_delay_s)
        self._initial: dict[str, Any] | None = None
        # The query's offsets, while the next micro-batch is planned.
        self._offsets: dict[str, LogOffset] = {}
        # The plans of the last planned micro-batch.
        self._plans: dict[str, LogPlan] = {}
        # The end of the query, once it is fixed.
        self._target: dict[str, LogOffset] | None = None
        self._committed: dict[str, MessagePosition] = {}
        # The last plan of each log: what must be retained from its `requested_start` on.
        self._last_plans: dict[str, LogPlan] = {}
        self._idle_since: float | None = None

    async def get_initial_offset(self) -> dict[str, Any]:
        """Return the start of a new query, the same at each call."""
        if self._initial is None:
            logs = await self._wait_for_logs(needed=bool(self._options.topics.names))
            starting = self._options.starting
            starting.check_names(STARTING, logs)
            offsets = await gather_bounded(lambda log: self._enter_log(log, starting.get_offset(log)), logs)
            self._initial = format_offsets(dict(zip(logs, offsets, strict=True)))
        return self._initial

    async def fix_target(self) -> None:
        """Read no messages that are published after this call."""
        logs = await self._wait_for_logs(needed=self._requires_topics)
        ends = await gather_bounded(self._find_end, logs)
        self._target = {log: end for log, end in zip(logs, ends, strict=True) if end is not None}

    async def get_latest_offset(
        self, start: Mapping[str, Any], limits: PlanLimits, *, may_wait: bool = True
    ) -> dict[str, Any]:
        """Plan the micro-batch that begins at `start`, and return its end. This is `start` itself if there are no
        messages, or if the micro-batch waits for more, as it does only with `may_wait`."""
        await self._pause_if_idle()
        started = time.monotonic()
        before = self._parse_checkpoint(start)
        self._offsets = dict(before)
        logs = await self._list_logs()
        for log, offset in before.items():
            if log not in logs:
                self._data_loss.report_missing_topic(log, offset.position)
        await gather_bounded(self._enter_new_log, [log for log in logs if log not in before])
        found = [log for log in logs if log in self._offsets]
        if may_wait and self._target is None and await self._should_wait(found):
            return self._return_idle(start)
        waited_s = self._delay.end_wait(time.monotonic())
        self._plans = {}
        self._plans = await self._admission.plan_logs(found, limits)
        for plan in self._plans.values():
            # It may have been extended after it was checked.
            self._report_deleted(plan)
        if self._target is not None:
            # Spark calls `commit` for a micro-batch only with the next one, when the commit is in its log. The last
            # micro-batch of a query that ends would never be committed. With the triggers that end a query, Spark
            # never writes that log asynchronously, so all before `start` is committed.
            await self.commit(start)
        moved = {log: plan.stop for log, plan in self._plans.items() if plan.stop > self._offsets[log].position}
        after = {
            log: LogOffset(
                offset.incarnation,
                moved.get(log, offset.position),
                None if offset.has_begun else offset.position,
                offset.entered,
                self._query_id,
            )
            for log, offset in self._offsets.items()
        }
        ends = {log: after[log] for log in found}
        await self._lag.update(ends, self._plans, self._measure_batch(started, waited_s))
        if not moved and self._offsets == before:
            return self._return_idle(start)
        self._idle_since = None
        return format_offsets(after)

    async def plan_slices(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[LogSlice]:
        """Return the slices of the micro-batch between the two offsets, with the same messages at each call."""
        before, after = parse_offsets(start), self._parse_checkpoint(end)
        plans = await gather_bounded(self._plan_range, find_ranges(before, after))
        await gather_bounded(lambda one: self._claim_subscription(*one), list(after.items()))
        return build_slices(
            [plan for plan in plans if plan is not None],
            self._options.max_tasks,
            None,
            Connection(self._options.url, self._options.listener_name, self._options.reconnect_s),
            self._options.fail_on_data_loss,
            self._options.decoding,
            min_tasks=self._options.min_tasks,
        )

    async def commit(self, end: Mapping[str, Any]) -> None:
        """Move the progress subscription: messages before `end` are processed, and will not be requested again."""
        if self._options.progress_subscription:
            await gather_bounded(
                lambda one: self._advance_subscription(*one), list(self._parse_checkpoint(end).items())
            )

    def get_lag(self) -> dict[str, Any] | None:
        """Return the lag of each log and in total, for the query's progress."""
        return self._lag.format()

    async def close(self) -> None:
        await self._planner.wait_settled()
        await self._namespace_leases.release_all()
        await self._leases.release_all(self._planner.requested_logs)

    # Which logs there are

    async def _wait_for_logs(self, *, needed: bool) -> Sequence[str]:
        partitions = await wait_for_topics(
            self._admin,
            self._discovery,
            self._options.topics,
            self._options.wait_for_topic_s,
            needed=needed,
            before_listing=self._namespace_leases.take_all,
        )
        return [partition.log for partition in partitions]

    async def _list_logs(self) -> Sequence[str]:
        if self._target is not None:
            return list(self._target)
        # A log that is missing in the list was created after the namespace's lease was taken, and so with a lease.
        await self._namespace_leases.take_all()
        return [partition.log for partition in await self._discovery.list_partitions()]

    async def _renew_new_logs(self) -> None:
        """Renew the leases of new logs, which could expire before the next micro-batch is planned."""
        for partition in await self._discovery.list_partitions(now=True):
            self._leases.add_new_log(partition.log)

    @property
    def _requires_topics(self) -> bool:
        """Whether the user named the topics, and a loss fails the query."""
        return bool(self._options.topics.names) and self._options.fail_on_data_loss

    # Where a log begins and ends

    async def _enter_log(self, log: str, starting: RequestedOffset, *, joins: bool = False) -> LogOffset:
        """Return the query's start in the log. `joins`: the query has begun with other logs before."""
        incarnation, position = "", EARLIEST_POSITION
        if starting != EARLIEST:
            found = await resolve_offset(self._admin, log, starting, STARTING)
            incarnation, position = found.incarnation, found.position
        plan = await self._planner.plan_range(log, incarnation, position, limits=PlanLimits(messages=1))
        if plan.other_incarnation:
            # The first micro-batch reports it.
            return LogOffset(incarnation, position, since=position, query_id=self._query_id)
        entered = None
        if starting == EARLIEST:
            plan.requested_start = entered = position = plan.start
        await self._retain(plan)
        if joins and plan.trimmed:
            self._data_loss.report_trimmed(log, plan.first)
        return LogOffset(plan.incarnation, position, since=position, entered=entered, query_id=self._query_id)

    async def _enter_new_log(self, log: str) -> None:
        try:
            self._offsets[log] = await self._enter_log(log, EARLIEST, joins=True)
        except TopicNotFound:
            if self._requires_topics:
                raise

    async def _find_end(self, log: str) -> LogOffset | None:
        try:
            found = await self._admin.reading.find_position(log, MessageId.latest)
        except TopicNotFound:
            if self._requires_topics:
                raise
            return None
        return LogOffset(found.incarnation, found.position, query_id=self._query_id)

    def _get_stop(self, log: str) -> MessagePosition | None:
        """Return the position up to which the log may be read; None: up to its end."""
        if self._target is None:
            return None
        offset, target = self._offsets[log], self._target[log]
        return max(offset.position, target.position) if offset.incarnation == target.incarnation else offset.position

    # Waiting for messages

    async def _pause_if_idle(self) -> None:
        if self._idle_since is not None:
            await asyncio.sleep(max(0.0, self._idle_since + _IDLE_PAUSE_S - asyncio.get_running_loop().time()))

    async def _should_wait(self, found: Sequence[str]) -> bool:
        """Return whether the micro-batch waits for more messages of these logs. It does not if the lag of one of them
        is unknown: planning the micro-batch finds out why. Deleted logs stay in the offsets, and have no messages."""
        if not self._delay.is_enabled:
            return False
        # After a restart no lease retains the messages yet. A plan of one message takes it, and finds losses.
        not_retained = [log for log in found if log not in self._last_plans]
        await gather_bounded(lambda log: self._plan_next(log, PlanLimits(messages=1)), not_retained)
        available = await self._lag.count_messages_behind({log: self._offsets[log] for log in found})
        return available is not None and self._delay.should_wait(available, time.monotonic())

    def _return_idle(self, start: Mapping[str, Any]) -> dict[str, Any]:
        self._idle_since = asyncio.get_running_loop().time()
        return dict(start)

    def _measure_batch(self, started: float, waited_s: float) -> BatchMetrics:
        return BatchMetrics(
            messages=sum(plan.messages for plan in self._plans.values()),
            bytes=sum(plan.bytes for plan in self._plans.values()),
            planning_ms=round(1000 * (time.monotonic() - started)),
            waited_ms=round(1000 * waited_s),
        )

    # Plans

    async def _plan_next(self, log: str, limits: PlanLimits) -> LogPlan | None:
        """Plan the log from the query's position on. If the topic was recreated, plan the new one from its start."""
        offset = self._offsets[log]
        try:
            plan = await self._plan_from(log, offset, limits)
            if plan.other_incarnation:
                self._data_loss.report_recreated(log, offset.incarnation, offset.position)
                offset = self._offsets[log] = await self._enter_log(log, EARLIEST, joins=True)
                plan = await self._plan_from(log, offset, limits)
        except TopicNotFound:
            self._data_loss.report_missing_topic(log, offset.position)
            return None
        if plan.other_incarnation:
            # It was recreated again in this moment: the next micro-batch reports it.
            return None
        await self._retain(plan)
        self._report_deleted(plan)
        return plan

    async def _plan_from(self, log: str, offset: LogOffset, limits: PlanLimits) -> LogPlan:
        stop = self._get_stop(log)
        return await self._planner.plan_range(log, offset.incarnation, offset.position, stop, limits, offset.entered)

    async def _plan_range(self, part: OffsetRange) -> LogPlan | None:
        plan = self._plans.get(part.log)
        if plan and (plan.incarnation, plan.requested_start, plan.stop) == (part.incarnation, part.start, part.stop):
            return plan
        try:
            plan = await self._planner.plan_range(
                part.log, part.incarnation, part.start, part.stop, entered=part.entered
            )
        except TopicNotFound:
            self._data_loss.report_missing_topic(part.log, part.start)
            return None
        if plan.other_incarnation:
            self._data_loss.report_recreated(part.log, part.incarnation, part.start)
            return None
        await self._retain(plan)
        self._report_deleted(plan)
        if plan.stop < part.stop:
            self._data_loss.report_missing_end(part.log, plan.stop, part.stop)
        return plan

    async def _retain(self, plan: LogPlan) -> None:
        """Renew the lease that the plan has taken, and retain the messages that the query needs."""
        self._leases.add_log(plan.log, plan.incarnation)
        self._last_plans[plan.log] = plan
        await self._progress.retain_messages(plan.log, plan.incarnation, plan.needed_from, plan.retained)

    def _report_deleted(self, plan: LogPlan) -> None:
        why = self._progress.describe_if_ahead(plan.log, plan.requested_start)
        self._data_loss.report_deleted(plan.log, plan.lost, why)

    # Offsets in the checkpoint, and the progress subscription

    def _parse_checkpoint(self, offsets: Mapping[str, Any]) -> dict[str, LogOffset]:
        """Parse offsets that are in Spark's checkpoint, or are about to be, and take over the query's id in them."""
        parsed = parse_offsets(offsets)
        self._query_id = next((one.query_id for one in parsed.values() if one.query_id), self._query_id)
        return parsed

    async def _claim_subscription(self, log: str, offset: LogOffset) -> None:
        plan = self._last_plans.get(log)
        position = offset.position
        if plan is not None and plan.incarnation == offset.incarnation:
            position = min(position, plan.needed_from)
        await self._progress.claim(log, offset.incarnation, position, offset.query_id)

    async def _advance_subscription(self, log: str, offset: LogOffset) -> None:
        """Move the subscription to where an incomplete message may begin: the lease that retains messages before the
        query's position ends with the query, and a query that continues from the checkpoint needs them."""
        if not offset.has_begun:
            # No message of the log was read, and the query's id may not be in the checkpoint yet.
            return
        plan = self._last_plans.get(log)
        if plan is None or plan.incarnation != offset.incarnation or plan.requested_start > offset.position:
            # That position is unknown until the next plan; the next commit moves the subscription.
            return
        to = min(offset.position, plan.needed_from)
        if self._committed.get(log) == to:
            return
        try:
            await self._progress.advance(log, offset.incarnation, to, offset.query_id)
            self._committed[log] = to
        except MagnetarException as error:
            # Reading does not depend on it, and the next commit tries again.
            _log.warning(
                "The subscription %r on %s could not be moved, and is retried after the next batch: %s",
                self._options.progress_subscription,
                log,
                error,
            )
