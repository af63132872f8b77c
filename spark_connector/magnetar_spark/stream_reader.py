"""`spark.readStream` as Spark calls it: the blocking face of stream/topic_stream.py.

Spark creates several of these. One exists as long as the query, in a process of its own on the driver, and plans
micro-batches; it creates an event loop, connections and leases at the first call. Others are pickled and sent to
executors, for `read` alone.

PySpark 4.3 determines two details. An error in the constructor reaches the user only as another error of PySpark, so
options are parsed at the first call. And when a query is stopped, Spark closes the connection of that process and sends
it SIGTERM, in either order and sometimes twice. Leases must be released in any case: SIGTERM raises `SystemExit`, after
which PySpark calls `stop`; once `stop` has begun SIGTERM is ignored; and `stop` is also called at the process's exit,
in case SIGTERM arrived in between.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from magnetar_spark.batch_reader import START_TIMEOUT_S
from magnetar_spark.broker_requests import await_answer, await_first_answer
from magnetar_spark.errors import hide_tracebacks, is_spark_worker
from magnetar_spark.log_slice import LogSlice
from magnetar_spark.options.source_options import SourceOptions, parse_stream_options
from magnetar_spark.options.table_schema import choose_schema_columns
from magnetar_spark.planning.log_plan import PlanLimits
from magnetar_spark.stream.topic_stream import TopicStream

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.admin import AsyncAdmin

__all__ = ["StreamReader"]

T = TypeVar("T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema
        self._driver: _Driver | None = None

    def initialOffset(self) -> dict[str, Any]:
        with hide_tracebacks():
            driver = self._start()
            return driver.run(driver.stream.get_initial_offset())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with hide_tracebacks():
            driver = self._start()
            # With its other triggers Spark reads everything that is there now, and ends.
            may_wait = not isinstance(limit, ReadAllAvailable)
            return driver.run(driver.stream.get_latest_offset(start, driver.get_limits(limit), may_wait=may_wait))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit, since Spark accepts only one. If there are two, `_Driver.get_limits` adds the other."""
        with hide_tracebacks():
            options = parse_stream_options(self._given)
        if options.max_messages:
            return ReadMaxRows(options.max_messages)
        if options.max_bytes:
            return ReadMaxBytes(options.max_bytes)
        if options.min_messages:
            return ReadMinRows(options.min_messages)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.stream.get_lag() if self._driver is not None else None

    def prepareForTriggerAvailableNow(self) -> None:
        with hide_tracebacks():
            driver = self._start()
            driver.run(driver.stream.fix_target())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with hide_tracebacks():
            driver = self._start()
            return driver.run(driver.stream.plan_slices(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from magnetar_spark.task.slice_reader import read_slice

        assert isinstance(partition, LogSlice)
        with hide_tracebacks():
            yield from read_slice(partition, self._choose_columns(parse_stream_options(self._given)))

    def commit(self, end: dict[str, Any]) -> None:
        with hide_tracebacks():
            driver = self._start()
            driver.run(driver.stream.commit(end))

    def stop(self) -> None:
        """Release the leases, once, within a bounded time."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _exit:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _start(self) -> _Driver:
        """Return the driver, which the first call creates."""
        if self._driver is None:
            options = parse_stream_options(self._given)
            self._choose_columns(options)
            self._driver = _Driver(options)
            if is_spark_worker() and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _exit)
                atexit.register(self.stop)
        return self._driver

    def _choose_columns(self, options: SourceOptions) -> tuple[str, ...]:
        return choose_schema_columns(self._schema, options.columns)


class _Driver:
    """A stream on an event loop of its own thread, which renews leases between the calls of Spark."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="magnetar-spark-driver", daemon=True)
        self._thread.start()
        # A broker has answered this query.
        self._is_answered = False
        self._admin = self._run(_create_admin(options))
        self.stream = TopicStream(self._admin, options)

    def run(self, requests: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine, which makes requests to brokers."""
        if self._is_answered:
            return self._run(await_answer(self._options, requests))
        result = self._run(await_first_answer(self._options, requests))
        self._is_answered = True
        self._admin.set_operation_timeout(self._options.reconnect_s)
        return result

    def get_limits(self, limit: ReadLimit) -> PlanLimits:
        """Combine Spark's limit, which takes precedence, with the other one in the options."""
        if isinstance(limit, ReadMaxRows):
            return PlanLimits(limit.max_rows, self._options.max_bytes)
        if isinstance(limit, ReadMaxBytes):
            return PlanLimits(self._options.max_messages, limit.max_bytes)
        return PlanLimits()

    def close(self) -> None:
        self._run(self.stream.close())
        self._run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop. If this thread is interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def _create_admin(options: SourceOptions) -> AsyncAdmin:
    from magnetar.admin import AsyncAdmin

    return AsyncAdmin(options.url, START_TIMEOUT_S, listener_name=options.listener_name)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
