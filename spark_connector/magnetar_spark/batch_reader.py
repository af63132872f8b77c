"""`spark.read`: everything from one place of each partition to another, planned when the query is.

Spark plans a DataFrame of a Python source once, with its first action, and keeps the plan with the DataFrame: what it
reads is fixed then, and who wants what came later loads it anew. The lease that the plans took is renewed by the tasks,
since nothing of the driver lives on here (leases/batch_lease.py); it is that of all actions of the DataFrame, so one
that comes when the lease is over may find that something was deleted meanwhile. So it is not given back when all is
read, but shortened. Where nothing is to be read of a partition, or planning fails, nobody will ask for what its lease
holds, and this batch's part of it is given back at once.
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

from magnetar.admin.reading import NextMessage
from magnetar.exceptions import MagnetarException
from magnetar_spark.broker_requests import answered
from magnetar_spark.leases.batch_lease import Lease, TaskLease, new_shared_lease
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.options.offset_option import EARLIEST, LATEST, Point
from magnetar_spark.options.source_options import SourceOptions
from magnetar_spark.plain_errors import plainly
from magnetar_spark.planning.data_loss import Losses
from magnetar_spark.planning.filter_bounds import ALL, FilterBounds, bounds_of
from magnetar_spark.planning.filter_pushdown import Narrowing
from magnetar_spark.planning.log_plan import EARLIEST_PLACE, LogPlan, Planner
from magnetar_spark.planning.offset_resolution import ENDING, STARTING, check_order, place_at
from magnetar_spark.planning.plan_reuse_check import check_bounds, check_query
from magnetar_spark.planning.slice_builder import cut_into_slices
from magnetar_spark.planning.topic_discovery import ReadLog, Topics
from magnetar_spark.some_at_a_time import some_at_a_time
from magnetar_spark.topic_wait import find_topics

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.admin import AsyncAdmin

__all__ = ["BatchReader", "PushFiltersReader"]

# Planning a batch, and the first answer to a stream, are retried for this long. Somebody is waiting for the query to
# begin; a query that runs retries for `reconnectSeconds`.
START_TIMEOUT_S: Final = 60
# Of giving back leases, which end by themselves.
_LONGEST_GOODBYE_S: Final = 5.0

_log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._bounds = ALL

    def partitions(self) -> Sequence[InputPartition]:
        with plainly():
            return asyncio.run(answered(self._options, self._partitions()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from magnetar_spark.task.slice_reader import read

        # Where there is nothing to read, Spark makes a partition of its own.
        if isinstance(partition, LogSlice):
            with plainly():
                check_query(partition.plan_id)
                yield from read(partition, self._columns)

    async def _partitions(self) -> list[InputPartition]:
        options = self._options
        lease = new_shared_lease(options.batch_lease_s * 1000)
        planned_at = time.time()
        from magnetar.admin import AsyncAdmin

        async with AsyncAdmin(options.url, START_TIMEOUT_S, listener_name=options.listener_name) as admin:
            topics = Topics(admin, options.topics)
            logs = await find_topics(admin, topics, options.topics, options.wait_for_topic_s)
            options.starting.check_names("startingOffsets", [log.log for log in logs])
            options.ending.check_names("endingOffsets", [log.log for log in logs])
            planning = _Planning(admin, options, lease, self._bounds)
            read: list[LogPlan] = []
            try:
                bounded = [log for log in logs if self._bounds.read_partition(log.partition)]
                plans = await some_at_a_time(planning.plan, bounded)
                read = [plan for plan in plans if plan is not None and plan.pieces]
            finally:
                await planning.give_back_leases({plan.log for plan in read})
        connection = Connection(options.url, options.listener_name, options.reconnect_s)
        return [
            *cut_into_slices(
                read,
                options.max_tasks,
                TaskLease.of(lease, planned_at, [plan.log for plan in read]),
                connection,
                options.fail_on_data_loss,
                options.decoding,
                min_tasks=options.min_tasks,
                plan_id=lease.read_id.hex() if self._bounds != ALL else "",
            )
        ]


class PushFiltersReader(BatchReader):
    """The reader of a batch with the option `pushFilters`: it plans the messages that the query's filters can let pass
    (filter_bounds.py, planning/filter_pushdown.py). Spark refuses a reader that has the method `pushFilters` unless
    spark.sql.python.filterPushdown.enabled is set, so this is a class of its own. Spark's error shows its name, which
    therefore names the option."""

    def __init__(self, options: SourceOptions, columns: Sequence[str], load_id: str) -> None:
        super().__init__(options, columns)
        self._load_id = load_id

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Spark evaluates all of them, too."""
        self._bounds = bounds_of(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        with plainly():
            check_bounds(self._load_id, repr(self._bounds))
        return super().partitions()


class _Planning:
    def __init__(self, admin: AsyncAdmin, options: SourceOptions, lease: Lease, bounds: FilterBounds = ALL) -> None:
        self._admin = admin
        self._options = options
        holder = f"spark.read, {socket.gethostname()}, process {os.getpid()}"
        origin = f"{STARTING} or {ENDING}"
        self._planner = Planner(admin, lease, options.listener_name, holder, origin)
        self._losses = Losses(options.fail_on_data_loss)
        self._narrowing = Narrowing(admin, bounds, options.fail_on_data_loss)
        self._lease = lease

    async def give_back_leases(self, read: Collection[str]) -> None:
        """Gives back the leases of logs that are not read. A lease that can't be given back soon ends by itself."""
        await self._planner.settle()
        try:
            async with asyncio.timeout(_LONGEST_GOODBYE_S):
                await some_at_a_time(self._end_lease, [log for log in self._planner.asked if log not in read])
        except TimeoutError:
            _log.warning("Brokers did not answer in time: the leases of what is not read end when their time is over")

    async def _end_lease(self, log: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.end_lease(log, self._lease.lease_id, read_id=self._lease.read_id)

    async def plan(self, log: ReadLog) -> LogPlan | None:
        """Of what is to be read of it; None: nothing is."""
        starting, ending = self._options.starting.of(log.log), self._options.ending.of(log.log)
        if starting == LATEST or ending == EARLIEST:
            # The topic must be there all the same, and so must the position that the other one may be.
            point, option = (ending, ENDING) if starting == LATEST else (starting, STARTING)
            await place_at(self._admin, log.log, point, option)
            return None
        start = EARLIEST_PLACE
        incarnation = ""
        if starting != EARLIEST:
            incarnation, start = await self._place(log.log, starting, STARTING)
        stop = None
        if ending != LATEST:
            incarnation, stop = await self._place(log.log, ending, ENDING)
            await check_order(self._admin, log.log, starting, start, ending, stop)
        narrowed = await self._narrowing.find_start(log.log, start)
        stop = await self._narrowing.find_stop(log.log, stop)
        if stop is not None and stop <= narrowed:
            return None
        planned = await self._planner.plan(log.log, incarnation, narrowed, stop)
        if narrowed != start and planned.lost:
            # Trimmed meanwhile, so that it is not certain any more what was in front of it.
            planned = await self._planner.plan(log.log, incarnation, start, stop)
        if start == EARLIEST_PLACE:
            # What was deleted in front of it was not asked for.
            planned.chunks_deleted = False
        if planned.other_incarnation:
            # Deleted and made again within this moment.
            self._losses.made_again(
                log.log, incarnation or planned.incarnation, max(start, planned.stop), reads_on=False
            )
            return None
        self._losses.deleted(log.log, planned.lost)
        to = planned.end if stop is None else min(stop, planned.end)
        if planned.stop < to:
            self._losses.ends_before(log.log, planned.stop, to)
        return planned

    async def _place(self, log: str, point: Point, option: str) -> tuple[str, NextMessage]:
        placed = await place_at(self._admin, log, point, option)
        return placed.incarnation, placed.place
