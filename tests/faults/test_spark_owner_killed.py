"""A stream over a cluster whose brokers and bookies are killed with -9 while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

import magnetar
from magnetar.admin import Admin, AsyncAdmin
from magnetar_spark.options.source_options import parse_stream_options
from magnetar_spark.planning.log_plan import PlanLimits
from magnetar_spark.stream.topic_stream import TopicStream
from magnetar_testing.quick_cluster import running_cluster
from tests.running_spark import read_rows, spark_session, stream, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("spark")]

EACH: Final = 100


def publish(url: str, first: int) -> None:
    with magnetar.Client(url, operation_timeout_seconds=60) as client:
        producer = client.create_producer("survives", batching_max_messages=9, send_timeout_millis=0)
        for number in range(first, first + EACH):
            producer.send_async(b"%d" % number, None, partition_key=str(number))
        producer.flush()


def test_a_first_micro_batch_does_not_wait_for_the_session_of_a_restarted_owner(tmp_path: Path) -> None:
    """SPK-1, OWN-2: a query that reaches only another broker is planned by the owner, whose metadata session of before
    its kill lasts longer than any request is retried."""
    with running_cluster(tmp_path / "cluster", bookies=3, brokers=2, session_timeout_s=300.0) as cluster:
        publish(cluster.service_url, 0)
        with Admin(cluster.service_url) as admin:
            owner = admin.topics.lookup("survives").broker_id
        addresses = cluster.service_url.removeprefix("magnetar://").split(",")
        others = [one for name, one in zip(cluster.broker_names(), addresses, strict=True) if name != owner]
        cluster.kill(owner)
        cluster.start(owner)
        assert asyncio.run(first_micro_batch(f"magnetar://{others[0]}")) == EACH


async def first_micro_batch(url: str) -> int:
    """How many messages it has, as a stream's driver plans it."""
    options = {"url": url, "topic": "survives", "startingOffsets": "earliest", "progressSubscription": "spark"}
    async with AsyncAdmin(url) as admin:
        stream = TopicStream(admin, parse_stream_options(options))
        start = await stream.get_initial_offset()
        slices = await stream.plan_slices(start, await stream.get_latest_offset(start, PlanLimits()))
        await stream.close()
    return sum(piece.messages for one in slices for piece in one.pieces)


@pytest.mark.soak
def test_the_owner_and_a_bookie_are_killed_while_it_runs(tmp_path: Path) -> None:
    """SPK-1, SPK-5: the query goes on by itself, under the lease that the new owner found, and has each message once"""
    pytest.importorskip("pyspark")
    with running_cluster(tmp_path / "cluster", bookies=4, brokers=2) as cluster:
        url = cluster.service_url
        with Admin(url) as admin:
            admin.topics.create_partitioned("survives", 2)
        frame = stream(spark_session(), url, topic="survives", progressSubscription="spark", maxMessagesPerTrigger="40")
        writer = frame.writeStream.format("json").option("path", str(tmp_path / "rows"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            until(lambda: query.lastProgress is not None, "it has begun", query)
            publish(url, 0)
            until(lambda: len(read_rows(tmp_path)) >= EACH // 2, "half is read", query)
            with Admin(url) as admin:
                owner = admin.topics.lookup("survives-partition-0").broker_id
            cluster.kill(owner)
            publish(url, EACH)
            until(lambda: len(read_rows(tmp_path)) >= 2 * EACH, "all is read under the new owner", query)
            cluster.kill("bookie-1")
            publish(url, 2 * EACH)
            until(lambda: len(read_rows(tmp_path)) >= 3 * EACH, "all is read without that bookie", query)
        finally:
            query.stop()
    assert read_rows(tmp_path) == [b"%d" % number for number in range(3 * EACH)]
