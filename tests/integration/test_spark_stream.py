"""`spark.readStream.format("magnetar")` over a standalone: each message once, with limits, restarts, growth and
loss."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import magnetar
from magnetar.admin import Admin, MessagePosition
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running_spark import available_now, read_rows, spark_session, stream, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("spark streams")]

PER_LEDGER: Final = 7
BEGIN: Final = MessagePosition(0, 0, 0)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("standalone") / "data"
    with StandaloneProcess(
        folder,
        managed_ledger_max_entries_per_ledger=PER_LEDGER,
        managed_ledger_min_ledger_rollover_time_minutes=0,
        # What is published before a subscription is deleted as soon as it has been read.
        default_retention_without_subscription_minutes=0,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: StandaloneProcess) -> str:
    return server.service_url


def send(url: str, topic: str, numbers: range, **options: Any) -> None:
    with magnetar.Client(url) as client:
        producer = client.create_producer(topic, **options)
        for number in numbers:
            producer.send_async(b"%d" % number, None, partition_key=str(number))
            if number % 10 == 9:
                producer.flush()
        producer.flush()


def test_available_now_with_limits_and_restarts(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-1, SPK-2: each message once over restarts from a checkpoint; micro-batches keep to the limit; the lag is in
    the query's progress; the subscription is where the query is when it has ended."""
    with Admin(url) as admin:
        admin.topics.create_partitioned("restarts", 2)
    options = {"topic": "restarts", "startingOffsets": "earliest", "progressSubscription": "spark"}
    # The first run finds nothing, but from now on everything is retained.
    available_now(stream(spark, url, **options), tmp_path)
    send(url, "restarts", range(200))
    frame = stream(spark, url, **options, maxMessagesPerTrigger="75")
    query = available_now(frame, tmp_path)
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [75, 75, 50]
    shown = [lag_of(progress) for progress in query.recentProgress if progress.numInputRows]
    assert [lag["total"]["messages_behind"] for lag in shown] == [125, 50, 0]
    assert [lag["total"]["batch_messages"] for lag in shown] == [75, 75, 50]
    for lag in shown:
        assert len(lag) == 3
        assert sum(one["messages_behind"] for one in lag.values()) == 2 * lag["total"]["messages_behind"]
    assert read_rows(tmp_path) == [b"%d" % number for number in range(200)]
    send(url, "restarts", range(200, 230), batching_enabled=False)
    available_now(frame, tmp_path)
    assert read_rows(tmp_path) == [b"%d" % number for number in range(230)]
    with Admin(url) as admin:
        (subscription,) = admin.topics.stats("restarts").subscriptions
        assert (subscription.subscription, subscription.backlog_messages) == ("spark", 0)


def test_stream_waits_for_topic_and_min_messages_per_trigger(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-1, SPK-2: waitForTopic; minMessagesPerTrigger, while the progress shows what waits"""
    with pytest.raises(Exception, match=r"there is no topic persistent://public/default/late: create it"):
        available_now(stream(spark, url, topic="late", startingOffsets="earliest"), tmp_path / "never")
    options = {"topic": "late", "startingOffsets": "earliest", "progressSubscription": "spark", "waitForTopic": "5m"}
    frame = stream(spark, url, **options, minMessagesPerTrigger="5", maxTriggerDelay="1h")
    interval = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(interval, "100ms")
    try:
        writer = frame.writeStream.format("json").option("path", str(tmp_path / "rows"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    finally:
        spark.conf.unset(interval)
    try:
        send(url, "late", range(3))

        def waiting() -> bool:
            progress = query.lastProgress
            return progress is not None and lag_of(progress)["total"]["messages_behind"] == 3

        until(waiting, "the progress shows what waits", query)
        send(url, "late", range(3, 6))

        def sizes() -> list[int]:
            return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

        until(lambda: bool(sizes()), "a batch has ended", query)
        assert sizes() == [6]
    finally:
        query.stop()


def lag_of(progress: StreamingQueryProgress) -> dict[str, Any]:
    lag: dict[str, Any] = json.loads(progress.sources[0].latestOffset or "{}")
    return {"total": {"messages_behind": 0}} | lag


def test_new_partitions_and_topics_are_read_from_earliest(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-1, TOP-3, CHK-56: they are found, and read from their earliest message, though the query began at latest"""
    with Admin(url) as admin:
        admin.topics.create_partitioned("grows-a", 1)
    frame = stream(spark, url, topicsPattern="grows-.*", progressSubscription="spark")
    writer = frame.writeStream.format("json").option("path", str(tmp_path / "rows"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        until(lambda: query.lastProgress is not None, "the query has begun", query)
        send(url, "grows-a", range(10))
        with Admin(url) as admin:
            admin.topics.update_partitioned("grows-a", 3)
        send(url, "grows-a", range(10, 40))
        send(url, "grows-b", range(40, 50))
        until(lambda: len(read_rows(tmp_path)) >= 50, "all is read", query)
    finally:
        query.stop()
    assert read_rows(tmp_path) == [b"%d" % number for number in range(50)]


def test_query_without_retention_or_subscription_is_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-1: it names both ways out"""
    send(url, "unkept", range(3))
    with pytest.raises(Exception, match=r"(?s)no retention.*progressSubscription") as raised:
        available_now(stream(spark, url, topic="unkept", startingOffsets="earliest"), tmp_path)
    assert "Traceback" not in str(raised.value).partition("JVM stacktrace")[0]
    frame = stream(spark, url, topic="unkept", startingOffsets="earliest", failOnDataLoss="false")
    available_now(frame, tmp_path / "loose")
    assert read_rows(tmp_path / "loose") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("made_again", [False, True])
def test_messages_that_are_lost(spark: SparkSession, url: str, tmp_path: Path, made_again: bool) -> None:
    """SPK-2, TOP-7: failOnDataLoss both ways, on a topic that was truncated, or deleted and made again"""
    topic = f"lossy-{made_again}"
    send(url, topic, range(5))
    options = {"topic": topic, "startingOffsets": "earliest"}
    available_now(stream(spark, url, **options, failOnDataLoss="false"), tmp_path)
    send(url, topic, range(5, 10))
    with Admin(url) as admin:
        until(lambda: not admin.topics.internal_stats(topic).leases, "nothing is leased any more")
        if made_again:
            admin.topics.delete(topic, force=True)
        else:
            admin.topics.truncate(topic)
    send(url, topic, range(10, 15))
    with pytest.raises(Exception, match="another topic was created" if made_again else "are lost: from"):
        available_now(stream(spark, url, **options, progressSubscription="spark"), tmp_path)
    available_now(stream(spark, url, **options, failOnDataLoss="false"), tmp_path)
    assert read_rows(tmp_path) == [b"%d" % number for number in (*range(5), *range(10, 15))]


def test_a_progress_subscription_of_two_queries(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-1: the second one is refused, and the error names the first; the first one loses nothing. One that goes on
    from an old copy of its checkpoint gets an error that the subscription is ahead of it.
    """
    send(url, "shared", range(5))
    frame = stream(spark, url, topic="shared", startingOffsets="earliest", progressSubscription="spark")
    first, second, old = tmp_path / "first", tmp_path / "second", tmp_path / "old"
    available_now(frame, first)
    shutil.copytree(first / "checkpoint", old / "checkpoint")
    send(url, "shared", range(5, 40), batching_enabled=False)
    with pytest.raises(Exception, match=r"progressSubscription 'spark' of \S+/shared belongs to another query"):
        available_now(frame, second)
    assert read_rows(second) == []
    available_now(frame, first)
    assert read_rows(first) == [b"%d" % number for number in range(40)]
    send(url, "shared", range(40, 50))
    with Admin(url) as admin:
        until(lambda: admin.reading.plan("shared", start=BEGIN).trimmed, "what was read is deleted")
    with pytest.raises(Exception, match=r"Subscription 'spark' is at \S+, ahead of the checkpoint, which is at \S+: "):
        available_now(frame, old)
    available_now(frame, first)
    assert read_rows(first) == [b"%d" % number for number in range(50)]


def test_the_name_of_a_consumers_subscription_is_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-1, SUB-1: its messages come to the consumer that is connected next."""
    with magnetar.Client(url) as client:
        client.subscribe("bills", "billing").close()
        send(url, "bills", range(4))
        frame = stream(spark, url, topic="bills", startingOffsets="earliest", progressSubscription="billing")
        with pytest.raises(
            Exception, match=r"'billing' of \S+/bills belongs to consumers: .* a name that no consumer uses"
        ):
            available_now(frame, tmp_path)
        consumer = client.subscribe("bills", "billing")
        assert [consumer.receive(30_000).data() for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_options_of_the_other_mode_are_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"'endingOffsets' is for spark\.read: a stream has no end"):
        available_now(stream(spark, url, topic="restarts", endingOffsets="latest"), tmp_path)


def test_a_stopped_query_gives_its_leases_back(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """SPK-5: what a stream holds while it runs is free when it has ended"""
    send(url, "leased", range(3))
    frame = stream(spark, url, topic="leased", startingOffsets="earliest", progressSubscription="spark")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    with Admin(url) as admin:
        until(lambda: query.lastProgress is not None, "it has read", query)
        until(lambda: len(admin.topics.internal_stats("leased").leases) == 1, "its lease stands", query)
        query.stop()
        until(lambda: len(admin.topics.internal_stats("leased").leases) == 0, "its lease has ended")
