"""Record batches, filled with the rows of one entry after the other.

A batch is full with so many rows, or bytes, whichever comes first; it is made then, each column in one go from the
pieces that its entries left (`rows`). Of what is the same for all messages of an entry, its place, times and producer,
one value an entry is kept until then.

Bytes are counted roughly: what the messages came in, and what is said with each of them anew, the topic's name above
all. So a batch is a little above its limit at most, or holds a single row; no column comes near the 2 GiB that Arrow's
offsets reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar_spark.arrow.array_builders import (
    LAST_MS,
    binary,
    fixed,
    maps,
    numbers,
    one_number,
    one_text,
    repeated,
    timestamps,
)
from magnetar_spark.arrow.rows import Rows
from magnetar_spark.options.columns import COLUMNS, arrow_schema

__all__ = ["EntryFacts", "RecordBatches"]

# Of the columns that are of one size: numbers and times.
_FIXED_BYTES: Final = 64
_TIME: Final = pa.timestamp("us", tz="UTC")
_MAX_UINT64: Final = 2**64
CountOutOfRange: TypeAlias = Callable[[str, int, int], None]
# What a column that says nothing of any row is known by.
_NOTHING: Final = object()


class EntryFacts:
    """What is the same for all messages of an entry."""

    __slots__ = ("broker_time_ms", "entry_id", "first_index", "ledger_id", "producer_name", "publish_time_ms")

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        publish_time_ms: int,
        producer_name: str,
        broker_time_ms: int | None,
        first_index: int | None,
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.publish_time_ms = publish_time_ms
        self.producer_name = producer_name
        # Without a broker's part there is neither; the index is that of the message in place 0.
        self.broker_time_ms = broker_time_ms
        self.first_index = first_index


class RecordBatches:
    def __init__(
        self,
        columns: Sequence[str],
        topic: str,
        partition: int,
        max_rows: int,
        max_bytes: int,
        count_out_of_range: CountOutOfRange,
    ) -> None:
        """`count_out_of_range` is called with the column, the number and the first in ms of times that are null since
        they are no timestamps."""
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._topic = topic
        self._partition = partition
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._constants = _Constants()
        self._count_out_of_range = count_out_of_range
        self._clear()

    def _clear(self) -> None:
        self._entries: list[EntryFacts] = []
        self._rows: list[Rows] = []
        self._count = 0
        self._bytes = 0

    def add(self, entry: EntryFacts, rows: Rows) -> Iterator[Any]:
        """Takes the rows; gives the record batches that are full."""
        if not rows.count:
            return
        beside = _FIXED_BYTES + len(self._topic) + len(entry.producer_name)
        size = rows.bytes + rows.count * beside
        if size > self._max_bytes or rows.count > self._max_rows:
            each = min(self._max_rows, max(1, self._max_bytes * rows.count // size))
            yield from self.take()
            for start in range(0, rows.count, each):
                yield from self._add(entry, rows.part(start, min(start + each, rows.count)), beside)
            return
        yield from self._add(entry, rows, beside)

    def _add(self, entry: EntryFacts, rows: Rows, beside: int) -> Iterator[Any]:
        size = rows.bytes + rows.count * beside
        if self._count + rows.count > self._max_rows or self._bytes + size > self._max_bytes:
            yield from self.take()
        self._entries.append(entry)
        self._rows.append(rows)
        self._count += rows.count
        self._bytes += size
        if self._count >= self._max_rows:
            yield from self.take()

    def take(self) -> Iterator[Any]:
        """What there is, full or not."""
        if self._count:
            making = _Making(
                self._entries,
                self._rows,
                self._constants,
                self._topic,
                self._partition,
                self._count_out_of_range,
            )
            self._clear()
            yield pa.RecordBatch.from_arrays([_MAKE[name](making) for name in self._columns], schema=self._schema)


class _Constants:
    """Columns that say the same in every row: made once, and used for every record batch that has no more rows."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[object, Any]] = {}

    def rows(self, column: str, value: Any, count: int, make: Callable[[Any, int], Any]) -> Any:
        known, array = self._arrays.get(column, (None, ()))
        if known != value or len(array) < count:
            array = make(value, count)
            self._arrays[column] = value, array
        return array if len(array) == count else array[:count]


class _Making:
    """What one record batch is made of."""

    def __init__(
        self,
        entries: list[EntryFacts],
        rows: list[Rows],
        constants: _Constants,
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
    def places(self) -> NDArray[np.int32]:
        return numbers([each.places for each in self.rows], np.int32)

    def spread(self, values: list[Any], kind: Any) -> NDArray[Any]:
        """An entry's value for each of its rows."""
        return np.repeat(np.array(values, kind), self.counts)

    def known(self, values: Sequence[object]) -> NDArray[np.bool_] | None:
        """Which rows have a value; None: all have."""
        return self.spread([value is not None for value in values], np.bool_) if None in values else None

    def topic(self) -> Any:
        return self.constants.rows("topic", self.topic_name, self.count, one_text)

    def partition(self) -> Any:
        return self.constants.rows("partition", self.partition_number, self.count, one_number)

    def key(self) -> Any:
        pieces = [each.keys for each in self.rows]
        if all(isinstance(piece, int) for piece in pieces):
            return self.constants.rows("key", _NOTHING, self.count, lambda _, count: pa.nulls(count, pa.binary()))
        return binary(pieces)

    def value(self) -> Any:
        return binary([each.values for each in self.rows])

    def properties(self) -> Any:
        pieces = [each.properties for each in self.rows]
        if all(isinstance(piece, int) for piece in pieces):
            return self.constants.rows("properties", _NOTHING, self.count, lambda _, count: maps([count]))
        return maps(pieces)

    def message_id(self) -> Any:
        return pa.StructArray.from_arrays(
            [
                fixed(pa.int64(), self.spread([each.ledger_id for each in self.entries], np.int64)),
                fixed(pa.int64(), self.spread([each.entry_id for each in self.entries], np.int64)),
                fixed(pa.int32(), self.places),
            ],
            names=["ledger_id", "entry_id", "batch_index"],
        )

    def publish_time(self) -> Any:
        return self.times("publish_time", self.spread([each.publish_time_ms for each in self.entries], np.uint64))

    def event_time(self) -> Any:
        pieces = [each.event_times for each in self.rows]
        if all(isinstance(piece, int) for piece in pieces):
            return self.constants.rows("event_time", _NOTHING, self.count, lambda _, count: pa.nulls(count, _TIME))
        ms = numbers(pieces, np.uint64)
        return self.times("event_time", ms, ms != 0)

    def broker_time(self) -> Any:
        ms = [each.broker_time_ms for each in self.entries]
        return self.times("broker_time", self.spread([each or 0 for each in ms], np.uint64), self.known(ms))

    def times(self, column: str, ms: NDArray[np.uint64], present: NDArray[np.bool_] | None = None) -> Any:
        """Milliseconds as timestamps; null where not `present`, and where it is no timestamp."""
        in_range = ms <= np.uint64(LAST_MS)
        if not in_range.all():
            beyond = ms[~in_range]
            self.count_out_of_range(column, len(beyond), int(beyond[0]))
            present = in_range if present is None else present & in_range
        return timestamps(ms, _TIME, present)

    def index(self) -> Any:
        first = [each.first_index for each in self.entries]
        indexes = self.spread([(each or 0) % _MAX_UINT64 for each in first], np.uint64).view(np.int64)
        return fixed(pa.int64(), indexes + np.maximum(self.places, 0), self.known(first))

    def producer_name(self) -> Any:
        names = [each.producer_name for each in self.entries]
        if names.count(names[0]) == len(names):
            return self.constants.rows("producer_name", names[0], self.count, one_text)
        return repeated(names, self.counts)

    def sequence_id(self) -> Any:
        """As Java's long shows it: from 2 ** 63 on negative."""
        pieces = [each.sequence_ids for each in self.rows]
        present = None
        if int in map(type, pieces):
            present = self.spread([type(piece) is not int for piece in pieces], np.bool_)
        return fixed(pa.int64(), numbers(pieces, np.uint64).view(np.int64), present)


_MAKE: Final[dict[str, Callable[[_Making], Any]]] = {name: getattr(_Making, name) for name in COLUMNS}
