"""Points of startingOffsets and endingOffsets, and topics to come, as real brokers answer for them; without Spark."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import magnetar
from magnetar.admin import Admin, AsyncAdmin
from magnetar_spark.batch_reader import BatchReader
from magnetar_spark.errors import NoSuchTopic, PositionOfOtherTopic
from magnetar_spark.log_slice import LogSlice
from magnetar_spark.options.source_options import parse_batch_options, parse_stream_options
from magnetar_spark.stream.topic_stream import TopicStream
from magnetar_testing.standalone_process import StandaloneProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(magnetar_standalone: StandaloneProcess) -> str:
    return magnetar_standalone.service_url


def slices(url: str, **options: str) -> list[LogSlice]:
    reader = BatchReader(parse_batch_options({"url": url, **options}), ["value"])
    return [one for one in reader.partitions() if isinstance(one, LogSlice)]


async def begin(url: str, **options: str) -> dict[str, Any]:
    async with AsyncAdmin(url) as admin:
        stream = TopicStream(admin, parse_stream_options({"url": url, "failOnDataLoss": "false", **options}))
        try:
            return await stream.get_initial_offset()
        finally:
            await stream.close()


def publish(url: str, topic: str) -> str:
    with magnetar.Client(url) as client:
        sent = client.create_producer(topic).send(b"x")
    return json.dumps({"ledger_id": sent.ledger_id(), "entry_id": sent.entry_id()})


def test_a_position_of_the_topic_that_had_the_name_before(url: str) -> None:
    """SPK-1: it is refused, the error names its option, for both values of failOnDataLoss"""
    before = publish(url, "again")
    assert len(slices(url, topic="again", startingOffsets=before)) == 1
    with Admin(url) as admin:
        admin.topics.delete("again", force=True)
    now = publish(url, "again")
    for fails in ("true", "false"):
        for option in ("startingOffsets", "endingOffsets"):
            with pytest.raises(PositionOfOtherTopic, match=f"{option} gives .* is older than the topic"):
                slices(url, topic="again", failOnDataLoss=fails, **{option: before})
    with pytest.raises(PositionOfOtherTopic, match="startingOffsets gives"):
        asyncio.run(begin(url, topic="again", startingOffsets=before))
    assert len(slices(url, topic="again", startingOffsets=now)) == 1


async def test_a_namespace_that_is_created_while_queries_wait(url: str) -> None:
    """SPK-1: waitForTopic, for a pattern and for a name; without it the error names what is missing"""
    with pytest.raises(NoSuchTopic, match="there is no namespace public/later: create it first"):
        await asyncio.to_thread(slices, url, topicsPattern="public/later/t.*")
    with pytest.raises(NoSuchTopic, match="there is no topic persistent://public/later/t"):
        await asyncio.to_thread(slices, url, topic="public/later/t")

    waiting = [
        asyncio.create_task(begin(url, waitForTopic="5m", **choice))
        for choice in ({"topicsPattern": "public/later/t.*"}, {"topic": "public/later/t"})
    ]
    async with AsyncAdmin(url) as admin:
        done, _ = await asyncio.wait(waiting, timeout=1)
        assert not done
        await admin.namespaces.create("public/later")
        await admin.topics.create("public/later/t")
    for initial in await asyncio.gather(*waiting):
        assert list(initial) == ["persistent://public/later/t"]
