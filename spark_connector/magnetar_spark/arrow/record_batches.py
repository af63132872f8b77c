"""Builds record batches from the rows of one entry after the other.

A batch is full when it has the maximum number of rows or bytes. Then each of its columns is built at once from the
pieces of its entries (rows.py). Values that are the same for all messages of an entry, such as its position, times and
producer, are stored once per entry until then.

Bytes are estimated: the size of the payloads, and of values that are repeated for each message, above all the topic's
name. So a batch exceeds its limit only a little, or has a single row, and no column comes near the 2 GiB that Arrow's
offsets allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar_spark.arrow.array_builders import (
    MAX_TIMESTAMP_MS,
    build_binary,
    build_fixed,
    build_maps,
    build_timestamps,
    join_numbers,
    repeat_each_text,
    repeat_number,
    repeat_text,
)
from magnetar_spark.arrow.rows import EntryFields, Rows
from magnetar_spark.options.columns import COLUMNS, build_arrow_schema

__all__ = ["RecordBatchBuilder"]

# The bytes of a row's numbers and times.
_FIXED_BYTES: Final = 64
_TIME: Final = pa.timestamp("us", tz="UTC")
_MAX_UINT64: Final = 2**64
CountOutOfRange: TypeAlias = Callable[[str, int, int], None]
# The cached value of a column without values.
_NO_VALUE: Final = object()


class RecordBatchBuilder:
    def __init__(
        self,
        columns: Sequence[str],
        topic: str,
        partition: int,
        max_rows: int,
        max_bytes: int,
        count_out_of_range: CountOutOfRange,
    ) -> None:
        """`count_out_of_range` is called for times that are null because they are after the last timestamp: with the
        column, their number, and the first one in ms."""
        self._columns = tuple(columns)
        self._schema = build_arrow_schema(columns)
        self._topic = topic
        self._partition = partition
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._constants = _ConstantColumns()
        self._count_out_of_range = count_out_of_range
        self._clear()

    def _clear(self) -> None:
        self._entries: list[EntryFields] = []
        self._rows: list[Rows] = []
        self._count = 0
        self._bytes = 0

    def add_rows(self, entry: EntryFields, rows: Rows) -> Iterator[Any]:
        """Add the rows of an entry, and yield the record batches that are full."""
        if not rows.count:
            return
        repeated_bytes = _FIXED_BYTES + len(self._topic) + len(entry.producer_name)
        size = rows.bytes + rows.count * repeated_bytes
        if size > self._max_bytes or rows.count > self._max_rows:
            each = min(self._max_rows, max(1, self._max_bytes * rows.count // size))
            yield from self.flush()
            for start in range(0, rows.count, each):
                yield from self._add(entry, rows.slice(start, min(start + each, rows.count)), repeated_bytes)
            return
        yield from self._add(entry, rows, repeated_bytes)

    def _add(self, entry: EntryFields, rows: Rows, repeated_bytes: int) -> Iterator[Any]:
        size = rows.bytes + rows.count * repeated_bytes
        if self._count + rows.count > self._max_rows or self._bytes + size > self._max_bytes:
            yield from self.flush()
        self._entries.append(entry)
        self._rows.append(rows)
        self._count += rows.count
        self._bytes += size
        if self._count >= self._max_rows:
            yield from self.flush()

    def flush(self) -> Iterator[Any]:
        """Yield a record batch with all rows that were added, if there are any."""
        if self._count:
            builder = _ColumnBuilder(
                self._entries,
                self._rows,
                self._constants,
                self._topic,
                self._partition,
                self._count_out_of_range,
            )
            self._clear()
            yield pa.RecordBatch.from_arrays([_BUILD[name](builder) for name in self._columns], schema=self._schema)


class _ConstantColumns:
    """Columns with the same value in every row. They are built once, and reused for record batches with as many rows or
    fewer."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[object, Any]] = {}

    def get_array(self, column: str, value: Any, count: int, build: Callable[[Any, int], Any]) -> Any:
        cached, array = self._arrays.get(column, (None, ()))
        if cached != value or len(array) < count:
            array = build(value, count)
            self._arrays[column] = value, array
        return array if len(array) == count else array[:count]


class _ColumnBuilder:
    """Builds the columns of one record batch. Each column has a method with its name."""

    def __init__(
        self,
        entries: list[EntryFields],
        rows: list[Rows],
        constants: _ConstantColumns,
        topic: str,
        partition: int,
        count_out_of_range: CountOutOfRange,
    ) -> None:
        self.entries = entries
        self.rows = rows
        self.constants = constants
        self.topic_name = topic
        self.partition_number = partition
        self.count_out_of_range = count_out_of_range
        self.counts = [each.count for each in rows]
        self.count = sum(self.counts)

    @cached_property
    def batch_indexes(self) -> NDArray[np.int32]:
        return join_numbers([each.batch_indexes for each in self.rows], np.int32)

    def repeat_for_rows(self, values: list[Any], kind: Any) -> NDArray[Any]:
        """Repeat each entry's value for each of its rows."""
        return np.repeat(np.array(values, kind), self.counts)

    def find_present(self, values: Sequence[object]) -> NDArray[np.bool_] | None:
        """Return which rows have a value; None: all of them."""
        return self.repeat_for_rows([value is not None for value in values], np.bool_) if None in values else None

    def topic(self) -> Any:
        return self.constants.get_array("topic", self.topic_name, self.count, repeat_text)

    def partition(self) -> Any:
        return self.constants.get_array("partition", self.partition_number, self.count, repeat_number)

    def key(self) -> Any:
        pieces = [each.keys for each in self.rows]
        if all(isinstance(piece, int) for piece in pieces):
            return self.constants.get_array("key", _NO_VALUE, self.count, lambda _, count: pa.nulls(count, pa.binary()))
        return build_binary(pieces)

    def value(self) -> Any:
        return build_binary([each.values for each in self.rows])

    def properties(self) -> Any:
        pieces = [each.properties for each in self.rows]
        if all(isinstance(piece, int) for piece in pieces):
            return self.constants.get_array("properties", _NO_VALUE, self.count, lambda _, count: build_maps([count]))
        return build_maps(pieces)

    def message_id(self) -> Any:
        return pa.StructArray.from_arrays(
            [
                build_fixed(pa.int64(), self.repeat_for_rows([each.ledger_id for each in self.entries], np.int64)),
                build_fixed(pa.int64(), self.repeat_for_rows([each.entry_id for each in self.entries], np.int64)),
                build_fixed(pa.int32(), self.batch_indexes),
            ],
            names=["ledger_id", "entry_id", "batch_index"],
        )

    def publish_time(self) -> Any:
        return self.build_times(
            "publish_time", self.repeat_for_rows([each.publish_time_ms for each in self.entries], np.uint64)
        )

    def event_time(self) -> Any:
        pieces = [each.event_times for each in self.rows]
        if all(isinstance(piece, int) for piece in pieces):
            return self.constants.get_array(
                "event_time", _NO_VALUE, self.count, lambda _, count: pa.nulls(count, _TIME)
            )
        ms = join_numbers(pieces, np.uint64)
        return self.build_times("event_time", ms, ms != 0)

    def broker_time(self) -> Any:
        ms = [each.broker_time_ms for each in self.entries]
        return self.build_times(
            "broker_time", self.repeat_for_rows([each or 0 for each in ms], np.uint64), self.find_present(ms)
        )

    def build_times(self, column: str, ms: NDArray[np.uint64], present: NDArray[np.bool_] | None = None) -> Any:
        """Convert milliseconds to timestamps, null where they are not `present` or after the last timestamp."""
        in_range = ms <= np.uint64(MAX_TIMESTAMP_MS)
        if not in_range.all():
            beyond = ms[~in_range]
            self.count_out_of_range(column, len(beyond), int(beyond[0]))
            present = in_range if present is None else present & in_range
        return build_timestamps(ms, _TIME, present)

    def index(self) -> Any:
        first = [each.first_index for each in self.entries]
        indexes = self.repeat_for_rows([(each or 0) % _MAX_UINT64 for each in first], np.uint64).view(np.int64)
        return build_fixed(pa.int64(), indexes + np.maximum(self.batch_indexes, 0), self.find_present(first))

    def producer_name(self) -> Any:
        names = [each.producer_name for each in self.entries]
        if names.count(names[0]) == len(names):
            return self.constants.get_array("producer_name", names[0], self.count, repeat_text)
        return repeat_each_text(names, self.counts)

    def sequence_id(self) -> Any:
        """Return the ids as Java's `long`: from 2 ** 63 on they are negative."""
        pieces = [each.sequence_ids for each in self.rows]
        present = None
        if int in map(type, pieces):
            present = self.repeat_for_rows([type(piece) is not int for piece in pieces], np.bool_)
        return build_fixed(pa.int64(), join_numbers(pieces, np.uint64).view(np.int64), present)


_BUILD: Final[dict[str, Callable[[_ColumnBuilder], Any]]] = {name: getattr(_ColumnBuilder, name) for name in COLUMNS}
