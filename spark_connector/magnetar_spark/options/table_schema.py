"""The options that Spark passes for `CREATE TABLE … USING magnetar`, and which of them are the user's.

What Spark 4.3 does with a table of a Python data source:

    CREATE TABLE t USING magnetar           calls `schema()`; the columns are stored with the table
    CREATE TABLE t (key BINARY) USING …     calls nothing; the columns are those that are named
    SELECT … FROM t                         calls `reader()` with no options at all
    SELECT … FROM t WITH (url '…', …)       calls `reader()` with the options of WITH alone, for each query anew

So the OPTIONS of a CREATE TABLE reach no query. To the call of `schema()` Spark passes each of them twice, as `url`
and as `option.url`, among properties of the table: `provider` and `owner` always, `location`, `path`, `external`,
`comment`, `collation` and all TBLPROPERTIES where the statement has them. `provider` says that a table is being
defined, and the prefix says which options the user gave.

Only `columns` has an effect on a table: it chooses the columns that are stored. The other options are refused, since
they would be ignored in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_spark.errors import InvalidOptions
from magnetar_spark.options.columns import COLUMNS
from magnetar_spark.options.option_names import check_names
from magnetar_spark.options.source_options import parse_columns

__all__ = ["is_table_definition", "table_columns"]

_PROVIDER: Final = "provider"
_PREFIX: Final = "option."
# `spark.catalog.createTable(name, path)` has it as an option. A path of a table is a folder, and means nothing here.
_PATH: Final = "path"
_COLUMNS: Final = "columns"


def is_table_definition(given: Mapping[str, str]) -> bool:
    """Whether Spark asks for the columns of a table that is being created, and not of a query."""
    return any(name.lower() == _PROVIDER for name in given)


def table_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a table that is being created. Raises InvalidOptions for options that no query would receive."""
    options = {name[len(_PREFIX) :].lower(): value for name, value in given.items() if name.lower().startswith(_PREFIX)}
    options.pop(_PATH, None)
    check_names(options)
    ignored = ", ".join(repr(name) for name in options if name != _COLUMNS)
    if ignored:
        raise InvalidOptions(
            f"Spark passes the OPTIONS of a table to none of its queries, so {ignored} would have no effect: CREATE "
            "TABLE t USING magnetar without them, and give them in each query, SELECT … FROM t WITH (url '…', topic "
            "'…'), or in CREATE VIEW v AS SELECT … FROM t WITH (…)"
        )
    return parse_columns(options) or COLUMNS
