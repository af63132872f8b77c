"""Spark in a process of its own, reading what a standalone has: one JSON object a line, as tests/peers/spark_kafka.py.

    python spark_child.py URL TOPIC ROWS TOPIC ROWS

The first topic has no partitions, the second as many as there are cores. Each is known to hold that many rows, which is
held against a count behind all that is measured: a count in front would warm up our source alone. A DataFrame is
created each time, since Spark keeps a Python source's partitions with it, and calls Kafka's connector again.

The columns of a read of the second topic are what a data source of ready-made batches gives Spark, as often and in as
many tasks: what is left of a row's time when nothing is read or decoded.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from magnetar_spark import MagnetarDataSource, register

CORES: Final = len(os.sched_getaffinity(0))
REPEATS: Final = 3


class ReadyMade(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> StructType:
        from magnetar_spark.options.columns import build_spark_schema

        return build_spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyMadeReader(self.options["file"], int(self.options["tasks"]), int(self.options["batches"]))


class ReadyMadeReader(DataSourceReader):
    def __init__(self, file: str, tasks: int, batches: int) -> None:
        self._file = file
        self._tasks = tasks
        self._batches = batches

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow

        with pyarrow.OSFile(self._file) as file:
            batch = pyarrow.ipc.open_file(file).get_batch(0)
        mine = range(int(partition.value), self._batches, self._tasks)
        for _ in mine:
            yield batch


def main() -> None:
    url, one, rows_of_one, many, rows_of_many = sys.argv[1:]
    expected = {one: int(rows_of_one), many: int(rows_of_many)}
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(ReadyMade)

    def load(source: Any, topic: str) -> Any:
        common = {"url": url, "startingOffsets": "earliest", "failOnDataLoss": "false"}
        return source.format("magnetar").options(**common).option("topic", topic).load()

    def read(topic: str) -> Callable[[], None]:
        return lambda: load(spark.read, topic).write.format("noop").mode("overwrite").save()

    def stream() -> None:
        frame = load(spark.readStream, many)
        with tempfile.TemporaryDirectory() as folder:
            writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
            writer.trigger(availableNow=True).start().awaitTermination()

    with tempfile.TemporaryDirectory() as folder:
        report("read_one", _rates(expected[one], read(one)))
        rows = expected[many]
        made, made_rows = _ready_made({"url": url, "topic": many, "failOnDataLoss": "false"}, rows, Path(folder))

        def read_ready_made() -> None:
            spark.read.format("ready_made").options(**made).load().write.format("noop").mode("overwrite").save()

        turns = [(_rate(rows, read(many)), _rate(made_rows, read_ready_made)) for _ in range(REPEATS + 1)][1:]
        report("read_many", [one for one, _ in turns])
        report("ready_made", [other for _, other in turns])
        report("stream", _rates(rows, stream))
    for topic, rows in expected.items():
        found = load(spark.read, topic).count()
        assert found == rows, f"{topic} has {found} rows, and {rows} were sent"
    spark.stop()


def _ready_made(options: dict[str, str], rows: int, folder: Path) -> tuple[dict[str, str], int]:
    """A batch as our source makes it, in a file, and in how many tasks how often to give it; how many rows that are."""
    import pyarrow

    source = MagnetarDataSource(CaseInsensitiveDict(options))
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    batch = next(iter(reader.read(tasks[0])))
    file = folder / "batch.arrow"
    with pyarrow.OSFile(str(file), "wb") as sink, pyarrow.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    batches = max(1, round(rows / batch.num_rows))
    return {"file": str(file), "tasks": str(len(tasks)), "batches": str(batches)}, batches * batch.num_rows


def report(bench: str, rates: list[float]) -> None:
    print(json.dumps({"bench": bench, "rows_per_s": rates}), flush=True)


def _rates(rows: int, action: Callable[[], object]) -> list[float]:
    """Of each repeat, behind one to warm up."""
    return [_rate(rows, action) for _ in range(REPEATS + 1)][1:]


def _rate(rows: int, action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return rows / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
