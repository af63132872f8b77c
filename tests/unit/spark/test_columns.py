"""The columns that a topic has in Spark."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from magnetar_spark.errors import InvalidColumns
from magnetar_spark.options.columns import COLUMNS, build_arrow_schema, build_spark_schema, choose_columns


def test_spark_schema_converts_to_the_exact_arrow_schema() -> None:
    """SPK-3: Spark refuses record batches whose types are not exactly those that its schema comes to."""
    for columns in (COLUMNS, COLUMNS[::-1], ("properties", "message_id"), ("value",)):
        assert to_arrow_schema(build_spark_schema(columns), timezone="UTC").equals(build_arrow_schema(columns))


def test_the_columns_and_their_types() -> None:
    """SPK-1: every column that was promised, by name, type and order."""
    assert {field.name: field.dataType.simpleString() for field in build_spark_schema().fields} == {
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
    assert tuple(build_spark_schema().fieldNames()) == COLUMNS
    assert isinstance(build_spark_schema(), StructType)


def test_columns_are_chosen_in_any_order_and_case() -> None:
    assert choose_columns([]) == COLUMNS
    assert choose_columns([" Value", "KEY "]) == ("value", "key")


def test_a_column_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidColumns, match=r"no column 'publishtime': did you mean 'publish_time'\? There are key, "):
        choose_columns(["value", "publishTime"])
    with pytest.raises(InvalidColumns, match=r"no column 'zzz'\. There are key, value"):
        choose_columns(["zzz"])
    with pytest.raises(InvalidColumns, match="'value' is selected 2 times"):
        choose_columns(["value", "key", "VALUE"])


@pytest.mark.parametrize(
    ("column", "ours"),
    [
        ("offset", "'index', a message's number in its partition, or 'message_id'"),
        ("headers", "'properties'"),
        ("timestamp", "'publish_time' (the producer's clock), 'event_time' (set by the application) or 'broker_time'"),
        ("timestampType", "'publish_time'"),
        ("__messageId", "'message_id'"),
    ],
)
def test_columns_of_other_connectors_are_refused_with_ours(column: str, ours: str) -> None:
    """SPK-1"""
    with pytest.raises(InvalidColumns, match=f"no column '{column.lower()}': did you mean {re.escape(ours)}"):
        choose_columns(["value", column])
