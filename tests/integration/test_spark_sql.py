"""Topics in Spark's SQL: tables, views, streams, and writing, which is refused. How topics and addresses are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import magnetar
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running_spark import available_now, read, read_rows, spark_session, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.xdist_group("spark streams")]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session()


@pytest.fixture(scope="module")
def server(magnetar_standalone: StandaloneProcess) -> StandaloneProcess:
    return magnetar_standalone


@pytest.fixture(scope="module")
def url(server: StandaloneProcess) -> str:
    return server.service_url


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """One that any topic is read by."""
    spark.sql("CREATE TABLE topics USING magnetar").collect()
    yield "topics"
    spark.sql("DROP TABLE topics").collect()


def send(url: str, topic: str, *values: bytes) -> None:
    with magnetar.Client(url) as client:
        producer = client.create_producer(topic)
        for value in values:
            producer.send(value)


def texts(spark: SparkSession, query: str) -> list[str]:
    return sorted(bytes(row.value).decode() for row in spark.sql(query).collect())


def test_tables_and_views(spark: SparkSession, url: str, table: str) -> None:
    """SPK-1: a table is read with the options of each SELECT, and a view of such a SELECT sees what came later; a
    temporary view with OPTIONS of its own reads what there was at its first SELECT, until it is replaced."""
    send(url, "sql", b"first")
    options = f"url '{url}', topic 'sql'"
    select = f"SELECT value FROM {table} WITH ({options})"
    spark.sql(f"CREATE VIEW selected AS {select}").collect()
    spark.sql(f"CREATE TEMPORARY VIEW selected_now AS {select}").collect()
    fixed = f"CREATE OR REPLACE TEMPORARY VIEW fixed USING magnetar OPTIONS ({options})"
    spark.sql(fixed).collect()
    try:
        names = (f"{table} WITH ({options})", "selected", "selected_now", "fixed")
        for name in names:
            assert texts(spark, f"SELECT value FROM {name}") == ["first"]
        send(url, "sql", b"later")
        seen = {name: texts(spark, f"SELECT value FROM {name}") for name in names}
        assert seen == {name: ["first"] if name == "fixed" else ["first", "later"] for name in names}
        spark.sql(fixed).collect()
        assert texts(spark, "SELECT value FROM fixed") == ["first", "later"]
        frame = spark.read.option("url", url).option("topic", "sql").table(table)
        assert frame.count() == 2
        latest = f"SELECT value FROM {table} WITH ({options}, startingOffsets 'latest')"
        assert texts(spark, latest) == []
    finally:
        spark.sql("DROP VIEW selected").collect()
        for name in ("selected_now", "fixed"):
            spark.catalog.dropTempView(name)


def test_the_columns_of_a_table(spark: SparkSession, url: str) -> None:
    """SPK-1: those that it is created with"""
    send(url, "columns", b"one")
    for definition in ("chosen (value BINARY, partition INT) USING magnetar", "chosen USING magnetar OPTIONS ({})"):
        spark.sql("CREATE TABLE " + definition.format("columns 'value,partition'")).collect()
        try:
            select = f"SELECT * FROM chosen WITH (url '{url}', topic 'columns'{{}})"
            assert [tuple(row) for row in spark.sql(select.format("")).collect()] == [(b"one", None)]
            with pytest.raises(Exception, match="'columns' is 'key', but the schema of this table or query has"):
                spark.sql(select.format(", columns 'key'")).collect()
        finally:
            spark.sql("DROP TABLE chosen").collect()


def test_options_of_a_table_reach_no_query(spark: SparkSession, url: str, table: str) -> None:
    """SPK-1: as Spark 4.3 does it; the error comes when the table is created or when it is read."""
    with pytest.raises(Exception, match="so 'url', 'topic' would have no effect: CREATE TABLE t USING magnetar"):
        spark.sql(f"CREATE TABLE refused USING magnetar OPTIONS (url '{url}', topic 'sql')").collect()
    assert not spark.catalog.tableExists("refused")
    # Where the columns are named, the source is not even called.
    spark.sql(f"CREATE TABLE named (value BINARY) USING magnetar OPTIONS (url '{url}', topic 'sql')").collect()
    try:
        for name in ("named", table):
            with pytest.raises(Exception, match=r"'url' is missing.*SELECT … FROM t WITH \(url"):
                spark.sql(f"SELECT * FROM {name}").collect()
    finally:
        spark.sql("DROP TABLE named").collect()


def test_a_table_is_read_as_a_stream(spark: SparkSession, url: str, table: str, tmp_path: Path) -> None:
    """SPK-1: with the options of readStream, or of STREAM … WITH"""
    send(url, "streamed", b"1", b"2")
    options = {"url": url, "topic": "streamed", "startingOffsets": "earliest", "progressSubscription": "spark"}
    available_now(spark.readStream.options(**options).table(table), tmp_path / "table")
    assert read_rows(tmp_path / "table") == [b"1", b"2"]
    shown = ", ".join(f"{name} '{value}'" for name, value in {**options, "progressSubscription": "sql"}.items())
    available_now(spark.sql(f"SELECT * FROM STREAM {table} WITH ({shown})"), tmp_path / "sql")
    assert read_rows(tmp_path / "sql") == [b"1", b"2"]


def test_there_is_no_sink(spark: SparkSession, url: str, table: str, tmp_path: Path) -> None:
    """SPK-4 is not supported yet: each way to write raises an error for that, and no other."""
    rows = spark.sql("SELECT CAST('x' AS BINARY) AS value")
    rate = spark.readStream.format("rate").load().selectExpr("CAST(CAST(value AS STRING) AS BINARY) AS value")
    spark.sql("CREATE TABLE written (value BINARY) USING magnetar").collect()

    def streamed(start: Callable[[Any], Any]) -> None:
        query = start(rate.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")))
        try:
            until(lambda: query.exception() is not None, "the query has failed")
            raise query.exception()
        finally:
            query.stop()

    ways: list[Callable[[], object]] = [
        lambda: rows.write.format("magnetar").option("url", url).mode("append").save("sql"),
        lambda: rows.write.format("magnetar").mode("overwrite").save(),
        lambda: rows.write.insertInto("written"),
        lambda: rows.write.format("magnetar").saveAsTable("made"),
        lambda: spark.sql("INSERT INTO written VALUES (CAST('x' AS BINARY))").collect(),
        lambda: spark.sql(f"INSERT INTO {table} (value) SELECT CAST('x' AS BINARY)").collect(),
        lambda: spark.sql("CREATE TABLE made USING magnetar AS SELECT 1 AS value").collect(),
        lambda: streamed(lambda writer: writer.format("magnetar").option("url", url).option("topic", "t").start()),
        lambda: streamed(lambda writer: writer.toTable("written")),
    ]
    try:
        for way in ways:
            with pytest.raises(Exception, match="this version has no sink"):
                way()
        assert not spark.catalog.tableExists("made")
    finally:
        spark.sql("DROP TABLE written").collect()


def test_several_topics_by_load(spark: SparkSession, url: str) -> None:
    """SPK-1: load(["a", "b"]); load("a,b") names one topic with a comma, and is refused"""
    send(url, "load-a", b"a")
    send(url, "load-b", b"b")
    source = spark.read.format("magnetar").option("url", url)
    rows = source.load(["load-a", "load-b"]).collect()
    assert sorted(bytes(row.value) for row in rows) == [b"a", b"b"]
    with pytest.raises(Exception, match=r"load\(…\) takes one topic, but 'load-a,load-b' has a comma") as raised:
        source.load("load-a,load-b")
    assert "Traceback" not in str(raised.value).partition("JVM stacktrace")[0]
    with pytest.raises(Exception, match=r"by the option 'topic', 'load-b' and by load\(…\), 'load-a'"):
        read(spark, url, topic="load-b", path="load-a")


def test_the_port_of_another_protocol(spark: SparkSession, server: StandaloneProcess) -> None:
    """SPK-1: the error names the protocol that answers there, and the port that the option `url` takes."""
    http, pulsar = (url.partition("://")[2] for url in (server.http_url, server.pulsar_url))
    expected = rf"{http} answers in HTTP, .*; {pulsar} answers in Pulsar's protocol, .* port is 6652 by default"
    with pytest.raises(Exception, match=expected) as raised:
        read(spark, f"magnetar://{http},{pulsar}", topic="sql").collect()
    assert "Traceback" not in str(raised.value).partition("JVM stacktrace")[0]
