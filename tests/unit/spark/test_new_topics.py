"""Topics that join a stream while it runs, or while it does not: a stream's driver on a real broker whose topics delete
what was acknowledged within moments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from magnetar.exceptions import NotFound, Timeout, TooManyLookupRequestException
from magnetar_spark.errors import DataLost
from magnetar_spark.leases import lease
from magnetar_spark.options.source_options import parse_stream_options
from magnetar_spark.planning.log_plan import PlanLimits
from magnetar_spark.stream.topic_stream import TopicStream
from tests.unit.broker.broker_scene import BrokerScene, running_broker
from tests.unit.spark.fake_service import FakeService
from tests.unit.spark.test_topic_stream import ALL, Query, a_stream

_OPTIONS: dict[str, Any] = {
    "managed_ledger_max_entries_per_ledger": 10,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "topic_housekeeping_interval_seconds": 0.02,
}
_NAMES = [f"persistent://public/default/joins-{name}" for name in "abc"]


def a_query(scene: BrokerScene, **options: str) -> TopicStream:
    given = {"url": "magnetar://here:6652", "topicsPattern": "joins-.*", "progressSubscription": "spark", **options}
    return TopicStream(scene.admin, parse_stream_options(given))


async def publish(scene: BrokerScene, topic: str, count: int) -> None:
    """Unbatched, into a topic of which somebody acknowledges all."""
    async with scene.client() as client:
        consumer = await client.subscribe(topic, "acknowledges")
        producer = await client.create_producer(topic, batching_enabled=False)
        sent = [producer.send(b"%d" % number) for number in range(count)]
        await asyncio.gather(*sent)
        for _ in range(count):
            await consumer.acknowledge(await consumer.receive())


async def trimmed(scene: BrokerScene, topic: str) -> None:
    """Returns when ledgers of it have been deleted. Within the test's own bound."""
    while len((await scene.admin.topics.internal_stats(topic)).ledgers) > 2:
        await asyncio.sleep(0.01)


async def counts(stream: TopicStream, start: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The end of the next batch, and how many messages of each topic it has."""
    stream._idle_since, stream._discovery._next_listing_at = None, 0.0
    end = json.loads(json.dumps(await stream.get_latest_offset(start, ALL)))
    found: dict[str, int] = {}
    for one in await stream.plan_slices(start, end):
        found[one.log] = found.get(one.log, 0) + sum(piece.messages for piece in one.pieces)
    return end, found


@pytest.mark.parametrize("fails", [True, False])
async def test_new_topics_lose_messages_only_while_the_stream_is_stopped(
    fails: bool,
) -> None:
    """SPK-1, SPK-5, RET-1: two topics come while it runs, and are acknowledged and trimmed before it looks; another one
    comes while it is stopped. The first two are read from their first message; what the third has lost is an error, or
    is logged."""

    async with running_broker(**_OPTIONS) as scene:
        first, second, third = _NAMES
        loss = str(fails).lower()
        stream = a_query(scene, failOnDataLoss=loss)
        start = json.loads(json.dumps(await stream.get_initial_offset()))
        for topic in (first, second, "others"):
            await publish(scene, topic, 35)
        await trimmed(scene, "others")
        start, found = await counts(stream, start)
        assert found == {first: 35, second: 35}
        await stream.commit(start)
        await stream.close()
        assert await scene.admin.reading.namespace_leases("public/default") == []
        assert not (await scene.admin.topics.internal_stats(first)).leases
        await publish(scene, third, 35)
        await trimmed(scene, third)
        stream = a_query(scene, failOnDataLoss=loss)
        if fails:
            for _ in range(2):
                with pytest.raises(DataLost, match=f"messages of {third} are lost.*failOnDataLoss to false to read it"):
                    await counts(stream, start)
            await stream.close()
            stream = a_query(scene, failOnDataLoss="false")
        start, found = await counts(stream, start)
        assert list(found) == [third]
        assert 0 < found[third] < 35
        await stream.close()


async def test_a_partition_that_is_added_is_read_from_its_first_message() -> None:
    """SPK-1, TOP-3, CHK-56: though nobody but the query's lease retains it"""

    async with running_broker(**_OPTIONS) as scene:
        await scene.admin.topics.create_partitioned("grows", 1)
        stream = TopicStream(
            scene.admin,
            parse_stream_options({"url": "magnetar://here:6652", "topic": "grows", "failOnDataLoss": "false"}),
        )
        start = await stream.get_initial_offset()
        await scene.admin.topics.update_partitioned("grows", 2)
        await publish(scene, "grows-partition-1", 35)
        await publish(scene, "others", 35)
        await trimmed(scene, "others")
        _, found = await counts(stream, start)
        assert found == {"persistent://public/default/grows-partition-1": 35}
        await stream.close()


async def test_a_log_that_joins_begins_with_its_first_message() -> None:
    """SPK-1: one that the query began with may begin later: `earliest` is what there is. One that was made again, too,
    joins."""
    service = FakeService()
    service.create("x-1")
    service["x-1"].publish([1])
    service["x-1"].roll()
    service["x-1"].publish([2])
    service["x-1"].delete_ledgers_before(service["x-1"].ledger_id)
    query = Query(service, topicsPattern="x-.*")
    assert await query.batch() == [2]
    service.create("x-2")
    service["x-2"].publish([3])
    service["x-2"].roll()
    service["x-2"].delete_ledgers_before(service["x-2"].ledger_id)
    query.stream._discovery._next_listing_at = 0.0
    with pytest.raises(DataLost, match="x-2 are lost: it has joined this query"):
        await query.plan()


async def test_refused_namespace_lease_is_requested_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SPK-5: with failOnDataLoss=false a stream starts while a broker restarts, and has its lease soon after"""
    monkeypatch.setattr("magnetar_spark.stream.topic_stream._LEASE_MS", 300)

    service = FakeService()
    service.create("x-1")
    service.failing["hold_namespace"] = Timeout("the broker is being restarted")
    stream = a_stream(service, topicsPattern="x-.*", failOnDataLoss="false")
    await stream.get_initial_offset()
    assert service.requests.count("hold_namespace") == 1
    while not service.namespace_leases:
        await asyncio.sleep(0.01)
    await stream.close()
    assert service.namespace_leases == {}
    assert "had expired" not in caplog.text


async def test_a_namespace_that_is_made_again_is_held_again() -> None:
    """SPK-5: the renewal finds none, and the stream's next look takes a lease on the new one"""
    service = FakeService()
    service.create("x-1")
    stream = a_stream(service, topicsPattern="x-.*")
    await stream.get_initial_offset()
    service.namespace_leases.clear()
    service.failing["hold_namespace"] = NotFound("there is no namespace")
    with pytest.raises(NotFound):
        await stream._namespace_leases._renew("public/default")
    await stream._namespace_leases.take_all()
    assert service.namespace_leases
    await stream.close()


async def test_new_logs_are_retained_by_the_driver_while_a_batch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: a micro-batch may take longer than a lease, and its driver lists new topics meantime"""
    monkeypatch.setattr(lease, "RENEWALS_PER_LEASE", 600)  # one each second, and not each 100 s
    service = FakeService()
    service.create("x-1")
    stream = a_stream(service, topicsPattern="x-.*")
    start = await stream.get_initial_offset()
    await stream.plan_slices(start, await stream.get_latest_offset(start, PlanLimits()))
    [(_, lease_id)] = service.namespace_leases
    service.create("x-2")
    service.create("y-1")
    assert lease_id in service["x-2"].leases
    assert lease_id not in service["y-1"].leases
    service.requests.clear()
    await stream._namespace_leases._renew("public/default")
    while "renew_lease" not in service.requests:
        await asyncio.sleep(0.01)
    assert "hold_namespace" in service.requests
    await stream.close()
    assert service.namespace_leases == {}
    assert service["x-2"].leases == {}


async def test_a_lease_on_a_namespace_that_is_refused_is_an_error_unless_losses_are_all_right() -> None:
    """SPK-5, SPK-2: of a namespace that there is not nothing is needed"""
    service = FakeService()
    service.create("x-1")
    for fails in (True, False):
        service.failing["hold_namespace"] = TooManyLookupRequestException("max_leases_per_namespace")
        stream = a_stream(service, topicsPattern="x-.*", failOnDataLoss=str(fails).lower())
        if fails:
            with pytest.raises(TooManyLookupRequestException):
                await stream.get_initial_offset()
        else:
            service.requests.clear()
            await stream.get_latest_offset(await stream.get_initial_offset(), PlanLimits())
            assert service.requests.count("hold_namespace") == 1
        await stream.close()
    service.failing["hold_namespace"] = NotFound("there is no namespace")
    stream = a_stream(service, topicsPattern="x-.*")
    await stream.get_initial_offset()
    await stream.close()
    assert service.namespace_leases == {}
