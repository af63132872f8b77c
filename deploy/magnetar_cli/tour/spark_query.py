"""The query of the tour, in its own process: `python -m magnetar_cli.tour.spark_query URL TOPIC FOLDER`.

Spark logs to standard error, which the tour writes to a file. Standard output has one JSON object per line:

    {"spark": "4.3.0"}                                      the session has started
    {"messages": 25000}                                     the number of messages so far, after each micro-batch
    {"counts": [{"minute_ms": …, "room": …, "count": …}]}   the result
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
_MESSAGES_PER_BATCH: Final = 50_000
_POLL_S: Final = 1


def main(url: str, topic: str, folder: Path) -> None:
    builder = SparkSession.Builder().appName("magnetar tour").master("local[2]")
    for name, value in {**_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    _print(spark=spark.version)
    messages = (
        spark.readStream.format("magnetar")
        .option("url", url)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxMessagesPerTrigger", _MESSAGES_PER_BATCH)
        .option("progressSubscription", "spark")
        .load()
    )
    query = (
        count_messages(messages)
        .writeStream.format("memory")
        .queryName("counts")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    _follow(query)
    rows = [row.asDict() for row in spark.table("counts").collect()]
    _print(counts=rows)
    spark.stop()


def count_messages(messages: DataFrame) -> DataFrame:
    """Count messages by key and minute of event time."""
    minute = f.window("event_time", "1 minute").alias("minute")
    room = f.col("key").cast("string").alias("room")
    counts = messages.withWatermark("event_time", "1 minute").groupBy(minute, room).count()
    return counts.select(f.unix_millis("minute.start").alias("minute_ms"), "room", "count")


def _follow(query: StreamingQuery) -> None:
    """Wait until the query has ended, and print its progress. Raise the error of a query that fails."""
    reported = 0
    while True:
        has_ended = query.awaitTermination(_POLL_S)
        done = sum(progress.numInputRows for progress in query.recentProgress)
        if done > reported:
            reported = done
            _print(messages=done)
        if has_ended:
            return


def _print(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
