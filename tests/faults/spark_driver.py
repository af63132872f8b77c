"""A Spark driver to be killed by tests: a query over a topic into JSON files, by Spark's own file sink, which writes
each micro-batch once.

    python -m tests.faults.spark_driver URL TOPIC FOLDER MESSAGES_PER_BATCH

Its tasks are slow, so that a kill can hit them at work.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

SLOW_S = 0.03


def slowly(value: bytearray) -> bytearray:
    time.sleep(SLOW_S)
    return value


def main(url: str, topic: str, folder: Path, messages: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    options = {
        "url": url,
        "topic": topic,
        "startingOffsets": "earliest",
        "maxMessagesPerTrigger": messages,
        "progressSubscription": "spark",
    }
    frame = builder.getOrCreate().readStream.format("magnetar").options(**options).load()
    rows = frame.select(udf(slowly, "binary")("value").alias("value"))
    writer = rows.writeStream.format("json").option("path", str(folder / "rows"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
