"""PySpark's daemon, one that has used a client before it forks its workers (`spark.python.daemon.module`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import magnetar

client = magnetar.Client(os.environ["SPARK_TEST_URL"])
producer = client.create_producer("spark")


def send_partition(rows: Iterable[int]) -> Iterator[int]:
    """In a worker: with the client that the daemon made, and with one of its own."""
    try:
        producer.send(b"the daemon's producer")
        raise AssertionError("the daemon's producer can be used in a worker")
    except magnetar.exceptions.AlreadyClosed:
        pass
    sent = 0
    with magnetar.Client(os.environ["SPARK_TEST_URL"]) as own:
        inherited, made = client.create_producer("spark"), own.create_producer("spark")
        for row in rows:
            inherited.send(b"inherited %d" % row)
            made.send(b"own %d" % row)
            sent += 1
        inherited.close()
    yield sent


if __name__ == "__main__":
    producer.send(b"the daemon is ready")
    from pyspark.daemon import manager

    manager()
