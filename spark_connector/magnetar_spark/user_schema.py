"""The columns of a query whose schema is not ours: it is the user's, by `.schema(…)`, or that of a table.

Such a schema chooses columns, since their types are fixed. The option `columns` chooses them, too: where both are given
and differ, one of them would be ignored, so that is refused.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from magnetar_spark.errors import InvalidColumns
from magnetar_spark.options.columns import COLUMNS, choose_columns, spark_schema

__all__ = ["columns_of_schema"]


def columns_of_schema(schema: StructType, option: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns that the schema names, in its order; without any, those of the option `columns`.

    Raises InvalidColumns if a column does not exist or has another type, or if the option names other columns.
    """
    named = choose_columns(schema.fieldNames()) if len(schema) else option or COLUMNS
    if option and option != named:
        raise InvalidColumns(
            f"the option 'columns' is {','.join(option)!r}, but the schema of this table or query has "
            f"{','.join(named)!r}: leave out one of them. The columns of a table are chosen when it is "
            "created: CREATE TABLE t (key BINARY, value BINARY) USING magnetar"
        )
    for asked, there in zip(schema.fields, spark_schema(named).fields, strict=True):
        if asked.dataType != there.dataType:
            raise InvalidColumns(
                f"the schema has the column {asked.name!r} as {asked.dataType.simpleString()}, but it is "
                f"{there.dataType.simpleString()}: leave out the schema, and cast the column in the query"
            )
    return named
