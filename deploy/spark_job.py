"""Count a topic's messages in windows of ten seconds: the Spark job of docker-compose.yml, and an example for others.

    spark_job.py --url magnetar://broker-1:6652,broker-2:6652 --topic events --checkpoint /var/lib/magnetar/events

Each micro-batch prints the windows that it has changed. The position is in the checkpoint: after any end, also kill -9,
the job continues there, and counts each message once. With the subscription named by --subscription, the broker retains
messages until the job has read them.
"""

from __future__ import annotations

import argparse
import signal
import threading
from types import FrameType

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

import magnetar

_POLL_S = 1


def main() -> None:
    options = _parse_options()
    stop_requested = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop_requested.set()

    signal.signal(signal.SIGTERM, request_stop)
    # Create the topic if it does not exist.
    with magnetar.Client(options.url) as client:
        client.create_producer(options.topic).close()

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": options.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    spark = SparkSession.builder.appName(options.topic).master(options.master).config(map=settings).getOrCreate()
    messages = (
        spark.readStream.format("magnetar")
        .option("url", options.url)
        .option("topic", options.topic)
        .option("startingOffsets", "earliest")
        .option("progressSubscription", options.subscription)
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
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=options.every)
        .start()
    )
    print(f"counting the messages of {options.topic}", flush=True)
    # If the query has failed, this raises its error, and the exit status is not 0.
    while not stop_requested.is_set() and not query.awaitTermination(_POLL_S):
        pass
    query.stop()
    spark.stop()


def _parse_options() -> argparse.Namespace:
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
