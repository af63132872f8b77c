"""Counts a topic's messages in windows of ten seconds, for ever: the Spark job of docker-compose.yml, and a start for
one's own.

    spark_job.py --url magnetar://broker-1:6652,broker-2:6652 --topic events --checkpoint /var/lib/magnetar/events

Each micro-batch prints the windows that it changed. Where it stands is in the checkpoint: ended in whatever way and
started again, it goes on there, and counts each message once. The subscription named by --subscription has the broker
keep what the job has not read yet.
"""

from __future__ import annotations

import argparse
import signal
import threading
from types import FrameType

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

import magnetar

_LOOK_S = 1


def main() -> None:
    given = _arguments()
    told_to_end = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        told_to_end.set()

    signal.signal(signal.SIGTERM, end)
    # So that the topic is there, should the job be the first to use it.
    with magnetar.Client(given.url) as client:
        client.create_producer(given.topic).close()

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": given.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    spark = SparkSession.builder.appName(given.topic).master(given.master).config(map=settings).getOrCreate()
    messages = (
        spark.readStream.format("magnetar")
        .option("url", given.url)
        .option("topic", given.topic)
        .option("startingOffsets", "earliest")
        .option("progressSubscription", given.subscription)
        .load()
    )
    counts = (
        messages.withWatermark("publish_time", "1 minute")
        .groupBy(window(col("publish_time"), "10 seconds").alias("window"))
        .count()
        .select(col("window.start").alias("from"), col("window.end").alias("to"), "count")
    )
    query = (
        counts.writeStream.outputMode("update")
        .format("console")
        .option("truncate", "false")
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime=given.every)
        .start()
    )
    print(f"counting the messages of {given.topic}", flush=True)
    # A query that failed raises here, and the process ends with a status that says so.
    while not told_to_end.is_set() and not query.awaitTermination(_LOOK_S):
        pass
    query.stop()
    spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count a topic's messages in windows of ten seconds.")
    parser.add_argument("--url", required=True, help="magnetar://host:port,host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, help="checkpoint folder of the query")
    parser.add_argument(
        "--subscription",
        default="spark-job",
        help="progress subscription: the broker retains messages until the query has read them",
    )
    parser.add_argument("--every", default="2 seconds", help="interval between micro-batches")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="512m", help="memory of the JVM")
    return parser.parse_args()


if __name__ == "__main__":
    main()
