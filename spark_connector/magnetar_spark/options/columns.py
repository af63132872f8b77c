"""The columns that a topic has in Spark: their names, and their types in Spark and in Arrow.

Every column may be null as far as Spark is told, as those of its own sources may: what a topic holds nobody here can
promise. Arrow's types are exactly those to which Spark turns its own, since Spark refuses record batches of any other.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from magnetar_spark.errors import InvalidColumns
from magnetar_spark.options.other_connectors import column_hint

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "arrow_schema", "choose_columns", "spark_schema"]

_TIME: Final = pa.timestamp("us", tz="UTC")
_MESSAGE_ID: Final = pa.struct(
    [pa.field("ledger_id", pa.int64()), pa.field("entry_id", pa.int64()), pa.field("batch_index", pa.int32())]
)
_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "message_id": _MESSAGE_ID,
    "publish_time": _TIME,
    "event_time": _TIME,
    "broker_time": _TIME,
    "index": pa.int64(),
    "properties": pa.map_(pa.string(), pa.string()),
    "sequence_id": pa.int64(),
    "producer_name": pa.string(),
}
COLUMNS: Final = tuple(_TYPES)


def choose_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns of these names, in their order; case does not matter, as it does not to Spark. None: all of them."""
    chosen = [name.strip().lower() for name in names] or list(COLUMNS)
    for name in chosen:
        if name not in _TYPES:
            hint = column_hint(name) or _most_similar(name)
            raise InvalidColumns(
                f"there is no column {name!r}{': ' + hint if hint else '.'} There are {', '.join(COLUMNS)}"
            )
        if chosen.count(name) > 1:
            raise InvalidColumns(f"the column {name!r} is selected {chosen.count(name)} times: name it once")
    return tuple(chosen)


def _most_similar(name: str) -> str:
    near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def spark_schema(columns: Sequence[str] = COLUMNS) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(columns))


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])
