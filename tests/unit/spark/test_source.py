"""The data source as Spark calls it: with the options that Spark 4.3 was seen to pass for each statement."""

from __future__ import annotations

import signal

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from magnetar_spark import stream_reader
from magnetar_spark.errors import InvalidColumns, InvalidOptions, NoSink
from magnetar_spark.options.columns import COLUMNS, build_spark_schema
from magnetar_spark.source import MagnetarDataSource
from magnetar_spark.stream_reader import StreamReader

URL = "magnetar://here:6652"
QUERY = {"url": URL, "topic": "t"}


@pytest.mark.parametrize(
    "added",
    [
        # CREATE TABLE t USING magnetar
        {},
        # … USING magnetar COMMENT 'a comment' TBLPROPERTIES ('a' = 'b', 'url' = 'c') DEFAULT COLLATION UTF8_BINARY
        {"comment": "a comment", "a": "b", "url": "c", "collation": "UTF8_BINARY"},
        # CREATE EXTERNAL TABLE t USING magnetar LOCATION '/there'
        {"external": "true", "location": "file:/there", "path": "file:/there"},
        # spark.catalog.createTable("t", path="/there", source="magnetar")
        {"external": "true", "location": "file:/there", "path": "file:/there", "option.path": "/there"},
    ],
)
def test_table_creation_ignores_options_added_by_spark(added: dict[str, str]) -> None:
    """SPK-1"""
    definition = {"provider": "magnetar", "owner": "root", **added}
    assert MagnetarDataSource(definition).schema() == build_spark_schema(COLUMNS)
    chosen = {**definition, "columns": "Value, key", "option.columns": "Value, key"}
    assert MagnetarDataSource(chosen).schema() == build_spark_schema(("value", "key"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": URL, "topic": "t"}, r"none of its queries, so 'url', 'topic' .*SELECT … FROM t WITH \(url"),
        ({"startingoffsets": "latest"}, r"none of its queries, so 'startingoffsets' would have no effect"),
        ({"colums": "key"}, "no option 'colums': did you mean 'columns'"),
        ({"columns": "keys"}, "no column 'keys': did you mean 'key'"),
    ],
)
def test_options_of_a_table_that_no_query_receives_are_refused(given: dict[str, str], message: str) -> None:
    """SPK-1: Spark 4.3 passes them when the table is created, and to no query."""
    definition = {"provider": "magnetar", "owner": "root", **given}
    definition |= {f"option.{name}": value for name, value in given.items()}
    with pytest.raises(InvalidOptions, match=message):
        MagnetarDataSource(definition).schema()


def test_query_of_table_without_options_explains_how_to_set_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-1: SELECT … FROM t, to which Spark passes nothing at all"""
    for url, missing in (("", "the option 'url' is missing"), (URL, "the option 'topic' is missing")):
        monkeypatch.setenv("MAGNETAR_URL", url)
        with pytest.raises(InvalidOptions, match=rf"{missing}.*OPTIONS.*SELECT … FROM t WITH \(url") as raised:
            MagnetarDataSource({}).reader(build_spark_schema())
        assert "  " not in str(raised.value)
    with pytest.raises(InvalidOptions, match="'url' is missing") as raised:
        monkeypatch.setenv("MAGNETAR_URL", "")
        MagnetarDataSource({"topic": "t"}).schema()
    assert "WITH" not in str(raised.value)


def test_a_query_of_a_table_reads_the_columns_of_the_table() -> None:
    """SPK-1: SELECT … FROM t WITH (url '…', topic '…')"""
    two = build_spark_schema(("value", "key"))
    assert MagnetarDataSource(QUERY).reader(two)._columns == ("value", "key")
    assert MagnetarDataSource({**QUERY, "columns": "value,key"}).reader(two)._columns == ("value", "key")
    with pytest.raises(InvalidColumns, match=r"'columns' is 'key', but .*'value,key': leave out one of them"):
        MagnetarDataSource({**QUERY, "columns": "key"}).reader(two)


@pytest.mark.parametrize(
    "options",
    [
        {},  # INSERT INTO t, CREATE TABLE t USING magnetar AS SELECT …
        {"checkpointlocation": "/some/where"},  # writeStream.toTable
        {"checkpointlocation": "/some/where", **QUERY},  # writeStream.format
        {"path": "t", "url": URL},  # write.save
        {"url": "http://not/ours"},
    ],
)
def test_writing_is_refused_for_any_writer_options(options: dict[str, str]) -> None:
    """SPK-4 is not there yet, and that is what the user reads."""
    schema = StructType([StructField("value", BinaryType()), StructField("other", StringType())])
    source = MagnetarDataSource(options)
    for write in (source.writer, source.streamWriter):
        with pytest.raises(NoSink, match="this version has no sink"):
            write(schema, False)


def test_sigterm_while_a_query_ends_does_not_keep_leases_from_being_given_back() -> None:
    """SPK-5: Spark closes the connection, after which PySpark calls `stop`, and sends SIGTERM at the same time"""

    class Driver:
        closed = False

        def close(self) -> None:
            signal.raise_signal(signal.SIGTERM)
            self.closed = True

    reader, driver = StreamReader({}, StructType()), Driver()
    reader._driver = driver  # type: ignore[assignment]
    before = signal.signal(signal.SIGTERM, stream_reader._exit)
    try:
        reader.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert driver.closed
