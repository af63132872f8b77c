"""The columns that a topic has in Spark: their names, and their types in Spark and in Arrow.

All columns are nullable in Spark's schema, as in Spark's own sources. Arrow's types are those to which Spark converts
its own types, since Spark refuses record batches with other ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from magnetar_spark.errors import InvalidColumns
from magnetar_spark.options.other_connectors import find_column_hint

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "build_arrow_schema", "build_spark_schema", "choose_columns"]

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
    """Return the columns with these names, in this order, or all columns if there are no names. Names are not
    case-sensitive, as in Spark. Raises InvalidColumns."""
    selected = [name.strip().lower() for name in names] or list(COLUMNS)
    for name in selected:
        if name not in _TYPES:
            hint = find_column_hint(name) or _find_similar_name(name)
            raise InvalidColumns(
                f"there is no column {name!r}{': ' + hint if hint else '.'} There are {', '.join(COLUMNS)}"
            )
        if selected.count(name) > 1:
            raise InvalidColumns(f"the column {name!r} is selected {selected.count(name)} times: name it once")
    return tuple(selected)


def _find_similar_name(name: str) -> str:
    near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def build_spark_schema(columns: Sequence[str] = COLUMNS) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(build_arrow_schema(columns))


def build_arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])
