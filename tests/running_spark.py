"""A real local Spark for tests: one session for all tests of a process, started with the first that asks for it.

    spark = spark_session()                                  skips where there is no PySpark or no Java
    read(spark, server, topic="orders").count()

Spark's Python workers are processes of their own, and find the code in the same folders as the tests do.
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from magnetar_cli.local_java import NoJava, java_home_for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "BRIEF_JAVA",
    "SPARK_ENVIRONMENT",
    "available_now",
    "java_home",
    "read",
    "read_rows",
    "spark_session",
    "stream",
    "until",
    "values",
]

REPOSITORY: Final = Path(__file__).resolve().parents[1]
_ROOTS: Final = ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy", "")
# For a short-lived JVM: with the optimizing compiler a session takes twice the CPU until its first rows.
BRIEF_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The environment that a process needs to run Spark, besides Java. PySpark starts two JVMs: the first prints the second
# one's command line.
SPARK_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LAUNCHER_OPTS": BRIEF_JAVA,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYTHONPATH": os.pathsep.join(str(REPOSITORY / root) for root in _ROOTS),
}
_GENEROUS_S: Final = 120.0
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": BRIEF_JAVA,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
    # Where there is much to do besides, a Python worker takes its time to come up.
    "spark.python.authenticate.socketTimeout": "120s",
}


@functools.cache
def java_home() -> Path:
    """Made once for all tests; skips where there is no Java."""
    folder = Path(tempfile.mkdtemp(prefix="magnetar-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return java_home_for_spark(folder)
    except NoJava as error:
        pytest.skip(str(error))


@functools.cache
def spark_session() -> SparkSession:
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home())
    previous = {name: os.environ.get(name) for name in SPARK_ENVIRONMENT}
    os.environ.update(SPARK_ENVIRONMENT)
    folder = tempfile.mkdtemp(prefix="magnetar-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", folder)
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    finally:
        for name, was in previous.items():
            if was is None:
                del os.environ[name]
            else:
                os.environ[name] = was
    atexit.register(session.stop)
    return session


def read(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    return spark.read.format("magnetar").option("url", url).options(**_texts(options)).load()


def stream(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    return spark.readStream.format("magnetar").option("url", url).options(**_texts(options)).load()


def available_now(frame: DataFrame, folder: Path, *, rows: Path | None = None) -> StreamingQuery:
    """Reads all that there is, by a query whose checkpoint is in the folder, into JSON files besides it, and waits."""
    writer = frame.writeStream.format("json").option("path", str(rows or folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return query


def values(frame: DataFrame) -> list[bytes]:
    """In the order of their index within each partition."""
    rows = frame.select("partition", "index", "value").collect()
    return [bytes(row.value) for row in sorted(rows, key=lambda row: (row["partition"] or 0, row["index"]))]


def read_rows(folder: Path) -> list[bytes]:
    """The values that a query has written there, as `available_now` does: what Spark's sink has committed, and no more;
    numbers in the order of numbers."""
    log = folder / "rows" / "_spark_metadata"
    written: list[bytes] = []
    names = dict.fromkeys(
        json.loads(line)["path"]
        for batch in (log.iterdir() if log.exists() else ())
        if not batch.name.startswith(".")
        for line in batch.read_text().splitlines()[1:]
    )
    for name in names:
        lines = Path(urllib.parse.unquote(urllib.parse.urlparse(name).path)).read_text().splitlines()
        written += [base64.b64decode(json.loads(line)["value"]) for line in lines if "value" in line]
    return sorted(written, key=lambda value: (len(value), value))


def until(condition: Callable[[], bool], what: str, query: StreamingQuery | None = None) -> None:
    """Returns when it holds; fails when the query has."""
    deadline = time.monotonic() + _GENEROUS_S
    while not condition():
        if query is not None and (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline, f"waited {_GENEROUS_S} s in vain until {what}"
        time.sleep(0.1)


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
