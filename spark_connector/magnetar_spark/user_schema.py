"""A schema that the user gave, by `.schema(…)`: a choice of columns, since their types are what they are."""

from __future__ import annotations

from pyspark.sql.types import StructType

from magnetar_spark.columns import choose_columns, spark_schema
from magnetar_spark.errors import InvalidColumns

__all__ = ["columns_of_schema"]


def columns_of_schema(schema: StructType, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that it names, in its order. Raises InvalidColumns if one is not there, or of another type."""
    named = choose_columns(schema.fieldNames()) if len(schema) else columns
    for asked, there in zip(schema.fields, spark_schema(named).fields, strict=True):
        if asked.dataType != there.dataType:
            raise InvalidColumns(
                f"the schema has the column {asked.name!r} as {asked.dataType.simpleString()}, but it is "
                f"{there.dataType.simpleString()}: leave the schema out, and cast where it is used"
            )
    return named
