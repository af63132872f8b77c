"""The columns that a topic has in Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from magnetar_spark.columns import COLUMNS, arrow_schema, choose_columns, spark_schema
from magnetar_spark.errors import InvalidColumns


def test_spark_takes_the_arrow_schema_for_its_own() -> None:
    """SPK-3: Spark refuses record batches whose types are not exactly those that its schema comes to."""
    for columns in (COLUMNS, COLUMNS[::-1], ("properties", "message_id"), ("value",)):
        assert to_arrow_schema(spark_schema(columns), timezone="UTC").equals(arrow_schema(columns))


def test_the_columns_and_their_types() -> None:
    """SPK-1: every column that was promised, by name, type and order."""
    assert {field.name: field.dataType.simpleString() for field in spark_schema().fields} == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "message_id": "struct<ledger_id:bigint,entry_id:bigint,batch_index:int>",
        "publish_time": "timestamp",
        "event_time": "timestamp",
        "broker_time": "timestamp",
        "index": "bigint",
        "properties": "map<string,string>",
        "sequence_id": "bigint",
        "producer_name": "string",
    }
    assert tuple(spark_schema().fieldNames()) == COLUMNS
    assert isinstance(spark_schema(), StructType)


def test_columns_are_chosen_in_any_order_and_case() -> None:
    assert choose_columns([]) == COLUMNS
    assert choose_columns([" Value", "KEY "]) == ("value", "key")


def test_a_column_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidColumns, match="no column 'publishtime', the nearest is 'publish_time': there are key, "):
        choose_columns(["value", "publishTime"])
    with pytest.raises(InvalidColumns, match="no column 'zzz': there are key, value"):
        choose_columns(["zzz"])
    with pytest.raises(InvalidColumns, match="'value' is named 2 times"):
        choose_columns(["value", "key", "VALUE"])
