"""`spark.read`: everything from one position of each partition to another, planned when the query is planned.

Spark plans a DataFrame of a Python source once, at its first action, and caches the plan with the DataFrame. So its
range is fixed then, and later messages need another `load()`. The lease that the plans took is renewed by the tasks,
since no part of the source runs on the driver after planning (leases/batch_lease.py). All actions of the DataFrame
share it: an action that comes after its end may find that messages were deleted. So the lease is not released when all
is read, but shortened. If a partition has nothing to read, or planning fails, no task needs its lease, and this batch's
read of it is released at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from magnetar.admin.reading import MessagePosition
from magnetar.exceptions import MagnetarException
from magnetar_spark.broker_requests import await_first_answer, gather_bounded
from magnetar_spark.errors import hide_tracebacks
from magnetar_spark.leases.batch_lease import BatchLease
from magnetar_spark.leases.lease import Lease, create_shared_lease
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.options.offset_option import EARLIEST, LATEST, RequestedOffset
from magnetar_spark.options.source_options import SourceOptions
from magnetar_spark.planning.data_loss import DataLossReporter
from magnetar_spark.planning.filter_bounds import UNBOUNDED, FilterBounds, derive_bounds
from magnetar_spark.planning.filter_pushdown import FilterPushdown
from magnetar_spark.planning.log_plan import EARLIEST_POSITION, LogPlan, LogPlanner
from magnetar_spark.planning.offset_resolution import ENDING, STARTING, check_start_before_end, resolve_offset
from magnetar_spark.planning.plan_reuse_check import check_same_bounds, check_same_query
from magnetar_spark.planning.slice_builder import build_slices
from magnetar_spark.planning.topic_discovery import TopicDiscovery, TopicPartition, wait_for_topics

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.admin import AsyncAdmin

__all__ = ["BatchReader", "PushFiltersReader"]

# How long requests are retried while a batch is planned, and until a stream got its first answer: the user waits for
# the query to start. A running query retries for `reconnectSeconds`.
START_TIMEOUT_S: Final = 60
_RELEASE_TIMEOUT_S: Final = 5.0

_log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._bounds = UNBOUNDED

    def partitions(self) -> Sequence[InputPartition]:
        with hide_tracebacks():
            return asyncio.run(await_first_answer(self._options, self._plan_slices()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from magnetar_spark.task.slice_reader import read_slice

        # If there is nothing to read, Spark creates a partition of its own.
        if isinstance(partition, LogSlice):
            with hide_tracebacks():
                check_same_query(partition.plan_id)
                yield from read_slice(partition, self._columns)

    async def _plan_slices(self) -> list[InputPartition]:
        options = self._options
        lease = create_shared_lease(options.batch_lease_s * 1000)
        planned_at = time.time()
        from magnetar.admin import AsyncAdmin

        async with AsyncAdmin(options.url, START_TIMEOUT_S, listener_name=options.listener_name) as admin:
            discovery = TopicDiscovery(admin, options.topics)
            partitions = await wait_for_topics(admin, discovery, options.topics, options.wait_for_topic_s)
            options.starting.check_names(STARTING, [one.log for one in partitions])
            options.ending.check_names(ENDING, [one.log for one in partitions])
            planner = _BatchPlanner(admin, options, lease, self._bounds)
            plans: list[LogPlan] = []
            try:
                accepted = [one for one in partitions if self._bounds.accepts_partition(one.partition)]
                found = await gather_bounded(planner.plan_partition, accepted)
                plans = [plan for plan in found if plan is not None and plan.pieces]
            finally:
                await planner.release_leases(except_of={plan.log for plan in plans})
        return [
            *build_slices(
                plans,
                options.max_tasks,
                BatchLease.create(lease, planned_at, [plan.log for plan in plans]),
                Connection(options.url, options.listener_name, options.reconnect_s),
                options.fail_on_data_loss,
                options.decoding,
                min_tasks=options.min_tasks,
                plan_id=lease.read_id.hex() if self._bounds != UNBOUNDED else "",
            )
        ]


class PushFiltersReader(BatchReader):
    """The reader of a batch with the option `pushFilters`: it plans only messages that the query's filters may accept
    (planning/filter_bounds.py, planning/filter_pushdown.py).

    Spark refuses a reader that has the method `pushFilters` unless spark.sql.python.filterPushdown.enabled is set, so
    this is a class of its own. Spark's error shows its name, which therefore contains the option's.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str], load_id: str) -> None:
        super().__init__(options, columns)
        self._load_id = load_id

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Derive the bounds, and return all filters, so that Spark evaluates them, too."""
        self._bounds = derive_bounds(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        with hide_tracebacks():
            check_same_bounds(self._load_id, repr(self._bounds))
        return super().partitions()


class _BatchPlanner:
    def __init__(
        self, admin: AsyncAdmin, options: SourceOptions, lease: Lease, bounds: FilterBounds = UNBOUNDED
    ) -> None:
        self._admin = admin
        self._options = options
        holder = f"spark.read, {socket.gethostname()}, process {os.getpid()}"
        origin = f"{STARTING} or {ENDING}"
        self._planner = LogPlanner(admin, lease, options.listener_name, holder, origin)
        self._data_loss = DataLossReporter(options.fail_on_data_loss)
        self._pushdown = FilterPushdown(admin, bounds, options.fail_on_data_loss)
        self._lease = lease

    async def release_leases(self, *, except_of: Collection[str]) -> None:
        """Release the leases of all logs but these. A lease that can't be released in time expires."""
        await self._planner.wait_settled()
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                unused = [log for log in self._planner.requested_logs if log not in except_of]
                await gather_bounded(self._release_lease, unused)
        except TimeoutError:
            _log.warning("Brokers did not answer in time: the leases of what is not read end when their time is over")

    async def _release_lease(self, log: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.end_lease(log, self._lease.lease_id, read_id=self._lease.read_id)

    async def plan_partition(self, partition: TopicPartition) -> LogPlan | None:
        """Return the plan of the partition's range; None if there is nothing to read."""
        log = partition.log
        starting, ending = self._options.starting.get_offset(log), self._options.ending.get_offset(log)
        if starting == LATEST or ending == EARLIEST:
            # The range is empty. Check that the topic exists, and that the other offset is valid.
            offset, option = (ending, ENDING) if starting == LATEST else (starting, STARTING)
            await resolve_offset(self._admin, log, offset, option)
            return None
        start = EARLIEST_POSITION
        incarnation = ""
        if starting != EARLIEST:
            incarnation, start = await self._resolve(log, starting, STARTING)
        stop = None
        if ending != LATEST:
            incarnation, stop = await self._resolve(log, ending, ENDING)
            await check_start_before_end(self._admin, log, starting, start, ending, stop)
        narrowed = await self._pushdown.narrow_start(log, start)
        stop = await self._pushdown.narrow_stop(log, stop)
        if stop is not None and stop <= narrowed:
            return None
        plan = await self._planner.plan_range(log, incarnation, narrowed, stop)
        if narrowed != start and plan.lost:
            # The log was trimmed in between, so the filters may accept messages that were before the narrowed start.
            plan = await self._planner.plan_range(log, incarnation, start, stop)
        if start == EARLIEST_POSITION:
            # Messages that were deleted before the query are not part of its range.
            plan.chunks_deleted = False
        if plan.other_incarnation:
            # The topic was recreated while it was planned.
            self._data_loss.report_recreated(
                log, incarnation or plan.incarnation, max(start, plan.stop), reads_new_topic=False
            )
            return None
        self._data_loss.report_deleted(log, plan.lost)
        to = plan.end if stop is None else min(stop, plan.end)
        if plan.stop < to:
            self._data_loss.report_missing_end(log, plan.stop, to)
        return plan

    async def _resolve(self, log: str, offset: RequestedOffset, option: str) -> tuple[str, MessagePosition]:
        found = await resolve_offset(self._admin, log, offset, option)
        return found.incarnation, found.position
