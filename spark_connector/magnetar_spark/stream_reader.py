"""`spark.readStream`, as Spark calls it: all that stream.py does, for a caller that waits.

Spark makes several of these. One lives as long as the query, in a process of its own on the driver, and is asked for
offsets; that one has a loop, connections and leases, from when it is first asked on. Others are pickled and sent to
executors, for `read` alone.

Two things about PySpark 4.3 show here. What is raised while a reader is made is lost to the user behind an error of
PySpark's own, so options are read when the reader is first asked for something. And when a query is stopped, Spark
closes that process' connection and sends it SIGTERM, in either order and sometimes twice. Leases must be given back
all the same: SIGTERM raises `SystemExit`, after which PySpark calls `stop`; once `stop` has begun SIGTERM is ignored;
and `stop` is called at the process' exit, too, in case SIGTERM came in between.
"""

from __future__ import annotations

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
from magnetar_spark.broker_requests import answered, naming_reconnect_timeout
from magnetar_spark.driver_loop import DriverLoop
from magnetar_spark.log_slice import LogSlice
from magnetar_spark.options.source_options import SourceOptions, stream_options
from magnetar_spark.plain_errors import in_a_worker, plainly
from magnetar_spark.planning.log_plan import Limits
from magnetar_spark.stream.topic_stream import TopicStream
from magnetar_spark.user_schema import columns_of_schema

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
        with plainly():
            driver = self._started()
            return driver.run(driver.stream.initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with plainly():
            driver = self._started()
            # With its other triggers the engine reads all that there is, and ends.
            may_wait = not isinstance(limit, ReadAllAvailable)
            return driver.run(driver.stream.latest(start, driver.limits(limit), may_wait=may_wait))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes one limit alone. Where there are two, the other is known here."""
        with plainly():
            options = stream_options(self._given)
        if options.max_messages:
            return ReadMaxRows(options.max_messages)
        if options.max_bytes:
            return ReadMaxBytes(options.max_bytes)
        if options.min_messages:
            return ReadMinRows(options.min_messages)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.stream.lag() if self._driver is not None else None

    def prepareForTriggerAvailableNow(self) -> None:
        with plainly():
            driver = self._started()
            driver.run(driver.stream.fix_target())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with plainly():
            driver = self._started()
            return driver.run(driver.stream.slices(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from magnetar_spark.task.slice_reader import read

        assert isinstance(partition, LogSlice)
        with plainly():
            yield from read(partition, self._columns(stream_options(self._given)))

    def commit(self, end: dict[str, Any]) -> None:
        with plainly():
            driver = self._started()
            driver.run(driver.stream.commit(end))

    def stop(self) -> None:
        """Gives the leases back, once, within a bounded time."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _exit:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _started(self) -> _Driver:
        if self._driver is None:
            options = stream_options(self._given)
            self._columns(options)
            self._driver = _Driver(options)
            if in_a_worker() and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _exit)
                atexit.register(self.stop)
        return self._driver

    def _columns(self, options: SourceOptions) -> tuple[str, ...]:
        return columns_of_schema(self._schema, options.columns)


class _Driver:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop = DriverLoop()
        # A broker has answered this query.
        self._reached = False
        self._admin = self._loop.run(_made(options))
        self.stream = TopicStream(self._admin, options)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._reached:
            return self._loop.run(naming_reconnect_timeout(self._options, work))
        result = self._loop.run(answered(self._options, work))
        self._reached = True
        self._admin.set_operation_timeout(self._options.reconnect_s)
        return result

    def limits(self, limit: ReadLimit) -> Limits:
        """What the engine asks for goes before the options, but one of the two limits is all that it can ask for."""
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, self._options.max_bytes)
        if isinstance(limit, ReadMaxBytes):
            return Limits(self._options.max_messages, limit.max_bytes)
        return Limits()

    def close(self) -> None:
        self._loop.run(self.stream.close())
        self._loop.run(self._admin.close())
        self._loop.close()


async def _made(options: SourceOptions) -> AsyncAdmin:
    from magnetar.admin import AsyncAdmin

    return AsyncAdmin(options.url, START_TIMEOUT_S, listener_name=options.listener_name)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
