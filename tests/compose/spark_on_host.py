"""The driver of a Spark on this machine: prints how many rows the topic's values have, and their sum.

python spark_on_host.py URL TOPIC CHECKPOINT [OPTION=VALUE…]
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, sum

_SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def main(url: str, topic: str, checkpoint: str, *options: str) -> None:
    spark = SparkSession.builder.master("local[2]").config(map=_SETTINGS).getOrCreate()
    given = {"url": url, "topic": topic, **dict(option.split("=", 1) for option in options)}
    print("batch", *_counted(spark.read.format("magnetar").options(**given).load()), flush=True)

    def print_batch(rows: DataFrame, batch_id: int) -> None:
        print("stream", *_counted(rows), flush=True)

    stream = spark.readStream.format("magnetar").options(**given).option("progressSubscription", "host")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(print_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def _counted(rows: DataFrame) -> tuple[int, int]:
    number = col("value").cast("string").cast("bigint")
    found = rows.agg(count("*"), sum(number)).collect()[0]
    return found[0], found[1]


if __name__ == "__main__":
    main(*sys.argv[1:])
