"""The columns of SQL tables, and of queries with a schema that is not ours.

**Tables.** What Spark 4.3 does with a table of a Python data source:

    CREATE TABLE t USING magnetar           calls `schema()`; the columns are stored with the table
    CREATE TABLE t (key BINARY) USING …     calls nothing; the columns are those in the statement
    SELECT … FROM t                         calls `reader()` without any options
    SELECT … FROM t WITH (url '…', …)       calls `reader()` with the options of WITH alone, for each query

So the OPTIONS of a CREATE TABLE reach no query. In the call of `schema()` Spark passes each of them twice, as `url`
and as `option.url`, among properties of the table: `provider` and `owner` always, `location`, `path`, `external`,
`comment`, `collation` and all TBLPROPERTIES where the statement has them. `provider` shows that a table is being
defined, and the prefix shows which options the user gave. Only `columns` has an effect on a table: it selects the
columns that are stored. Other options would be ignored silently, so they are refused.

**Schemas.** The schema that Spark passes to a reader may be the user's, by `.schema(…)`, or a table's. It only selects
columns, since their types are fixed. If the option `columns` selects other ones, the query is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from magnetar_spark.errors import InvalidColumns, InvalidOptions
from magnetar_spark.options.columns import COLUMNS, build_spark_schema, choose_columns
from magnetar_spark.options.option_names import check_option_names
from magnetar_spark.options.source_options import parse_column_option

__all__ = ["choose_schema_columns", "is_table_definition", "parse_table_columns"]

_PROVIDER: Final = "provider"
_PREFIX: Final = "option."
# The folder of a table, an option of `spark.catalog.createTable(name, path)`, which has no effect.
_PATH: Final = "path"
_COLUMNS: Final = "columns"


def is_table_definition(given: Mapping[str, str]) -> bool:
    """Whether Spark asks for the columns of a table that is being created, and not of a query."""
    return any(name.lower() == _PROVIDER for name in given)


def parse_table_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a table that is being created. Raises InvalidOptions for options without an effect."""
    options = {name[len(_PREFIX) :].lower(): value for name, value in given.items() if name.lower().startswith(_PREFIX)}
    options.pop(_PATH, None)
    check_option_names(options)
    ignored = ", ".join(repr(name) for name in options if name != _COLUMNS)
    if ignored:
        raise InvalidOptions(
            f"Spark passes the OPTIONS of a table to none of its queries, so {ignored} would have no effect: CREATE "
            "TABLE t USING magnetar without them, and give them in each query, SELECT … FROM t WITH (url '…', topic "
            "'…'), or in CREATE VIEW v AS SELECT … FROM t WITH (…)"
        )
    return parse_column_option(options) or COLUMNS


def choose_schema_columns(schema: StructType, option: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the columns that the schema names, in its order; if it is empty, those of the option `columns`.

    Raises InvalidColumns if a column does not exist or has another type, or if the option names other columns.
    """
    columns = choose_columns(schema.fieldNames()) if len(schema) else option or COLUMNS
    if option and option != columns:
        raise InvalidColumns(
            f"the option 'columns' is {','.join(option)!r}, but the schema of this table or query has "
            f"{','.join(columns)!r}: leave out one of them. The columns of a table are chosen when it is "
            "created: CREATE TABLE t (key BINARY, value BINARY) USING magnetar"
        )
    for given, ours in zip(schema.fields, build_spark_schema(columns).fields, strict=True):
        if given.dataType != ours.dataType:
            raise InvalidColumns(
                f"the schema has the column {given.name!r} as {given.dataType.simpleString()}, but it is "
                f"{ours.dataType.simpleString()}: leave out the schema, and cast the column in the query"
            )
    return columns
