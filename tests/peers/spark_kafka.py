"""Spark's own Kafka connector reading and writing 100-byte rows: one JSON object a line. Run by `peer spark-kafka`."""

import glob
import json
import os
import statistics
import sys
import tempfile
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

lib, servers = sys.argv[1:]
rows, cores = int(os.environ.get("ROWS", "3000000")), len(os.sched_getaffinity(0))
stamp = str(time.time_ns())
topics = {1: "one" + stamp, cores: "many" + stamp, -1: "sink" + stamp}
admin = AdminClient({"bootstrap.servers": servers})
for made in admin.create_topics([NewTopic(name, abs(n), 1) for n, name in topics.items()]).values():
    made.result()
producer = Producer(
    {"bootstrap.servers": servers, "linger.ms": 5, "acks": "all", "queue.buffering.max.messages": 1_000_000}
)
body = os.urandom(100)
for partitions in (1, cores):
    for i in range(rows):
        while True:
            try:
                producer.produce(topics[partitions], body, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
skip = ("hadoop", "scala", "slf4j", "jsr305")
jars = ",".join(j for j in glob.glob(lib + "/*.jar") if not os.path.basename(j).startswith(skip))
spark = (
    SparkSession.builder.master(f"local[{cores}]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "2g")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
common = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}


def timed(n, action, repeats):
    rates = []
    for _ in range(repeats + 1):  # the first is a warm-up
        started = time.perf_counter()
        action()
        rates.append(n / (time.perf_counter() - started))
    return round(statistics.median(rates[1:]))


def stream(topic):
    source = spark.readStream.format("kafka").options(**common).option("subscribe", topic).load()
    with tempfile.TemporaryDirectory() as folder:
        source.writeStream.format("noop").option("checkpointLocation", folder).trigger(
            availableNow=True
        ).start().awaitTermination()


for partitions in (1, cores):
    topic = topics[partitions]
    read = spark.read.format("kafka").options(**common).option("subscribe", topic).load()
    print(
        json.dumps(
            {
                "bench": "spark-kafka.batch-read",
                "partitions": partitions,
                "cores": cores,
                "unit": "rows/s",
                "value": timed(rows, lambda read=read: read.write.format("noop").mode("overwrite").save(), 3),
            }
        ),
        flush=True,
    )
    print(
        json.dumps(
            {
                "bench": "spark-kafka.stream-read",
                "partitions": partitions,
                "cores": cores,
                "unit": "rows/s",
                "value": timed(rows, lambda topic=topic: stream(topic), 2),
            }
        ),
        flush=True,
    )
frame = spark.range(0, rows, 1, cores).selectExpr("cast(id as string) key", "rpad(cast(id as string), 100, 'x') value")
write = lambda: frame.write.format("kafka").options(**common).option("topic", topics[-1]).save()  # noqa: E731
print(
    json.dumps({"bench": "spark-kafka.batch-write", "cores": cores, "unit": "rows/s", "value": timed(rows, write, 3)}),
    flush=True,
)
spark.stop()
