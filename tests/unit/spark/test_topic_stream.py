"""A stream's driver over topics that come, go and are deleted: which messages each micro-batch holds."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import Any, cast

import pytest

from magnetar.admin import AsyncAdmin, MessagePosition
from magnetar.exceptions import ConnectError, NotFound
from magnetar_spark.errors import (
    DataLost,
    InvalidOffsets,
    InvalidOptions,
    NoSuchTopic,
    NothingKept,
    PositionBeyondEnd,
    SubscriptionInUse,
)
from magnetar_spark.options.decoding_options import DecodingOptions, Unreadable
from magnetar_spark.options.offset_option import encode_position
from magnetar_spark.options.source_options import parse_stream_options
from magnetar_spark.planning.log_plan import PlanLimits
from magnetar_spark.stream.topic_stream import TopicStream
from tests.running import until
from tests.unit.spark.fake_service import FakeService

ALL = PlanLimits()
LOG = "persistent://public/default/t"
DELETE_MINE = f"magnetar subscriptions delete {LOG} mine"


def a_stream(service: FakeService, **options: str) -> TopicStream:
    given = {"url": "magnetar://here:6652", "startingOffsets": "earliest", "topic": "t", **options}
    if "topicsPattern" in options or "topics" in options:
        del given["topic"]
    return TopicStream(cast(AsyncAdmin, service), parse_stream_options(given))


class Query:
    """What Spark does with a stream: one micro-batch after the other, and what a checkpoint keeps. A sink that is
    idempotent by the batch's number has the rows of each."""

    def __init__(self, service: FakeService, **options: str) -> None:
        self.service = service
        self.options = options
        self.stream = a_stream(service, **options)
        # The log of offsets, and the last batch that is done with.
        self.planned: list[str] = []
        self.done = -1
        self.rows: dict[int, list[int]] = {}

    async def plan(self, limits: PlanLimits = ALL) -> bool:
        """Writes the next batch's end down; False: there is nothing new."""
        self.stream._idle_since = None
        start = json.loads(self.planned[-1]) if self.planned else await self.stream.get_initial_offset()
        end = json.dumps(await self.stream.get_latest_offset(start, limits))
        if self.planned and end == self.planned[-1]:
            return False
        self.planned.append(end)
        return True

    async def work(self) -> None:
        """The batch that was planned last."""
        number = len(self.planned) - 1
        start = json.loads(self.planned[-2]) if number else await self.stream.get_initial_offset()
        slices = await self.stream.plan_slices(start, json.loads(self.planned[-1]))
        self.rows[number] = self.service.messages_of(slices)

    async def commit(self) -> None:
        self.done = len(self.planned) - 1
        await self.stream.commit(json.loads(self.planned[-1]))

    async def batch(self, limits: PlanLimits = ALL) -> list[int]:
        if not await self.plan(limits):
            return []
        await self.work()
        await self.commit()
        return self.rows[self.done]

    async def all_batches(self, limits: PlanLimits = ALL) -> list[list[int]]:
        batches = []
        while batch := await self.batch(limits):
            batches.append(batch)
        return batches

    async def crash(self) -> None:
        """The driver dies, and another one continues from the checkpoint: the unfinished batch is repeated."""
        await self.stream.close()
        self.stream = a_stream(self.service, **self.options)
        if self.done < len(self.planned) - 1:
            await self.work()
            self.done = len(self.planned) - 1

    @property
    def read(self) -> list[int]:
        return [message for _, rows in sorted(self.rows.items()) for message in rows]


def filled(**log: Any) -> FakeService:
    """`t` with 30 messages in 6 batches of 5, in 3 ledgers."""
    service = FakeService()
    service.create("t", **log)
    for batch in range(6):
        service["t"].publish(range(5 * batch, 5 * batch + 5))
        if batch % 2:
            service["t"].roll()
    return service


async def test_micro_batches_hold_each_message_once_and_keep_to_their_limits() -> None:
    """SPK-2"""
    query = Query(filled())
    assert await query.all_batches(PlanLimits(messages=7)) == [
        list(range(at, min(at + 7, 30))) for at in range(0, 30, 7)
    ]
    assert await query.batch() == []
    query.service["t"].publish([30, 31])
    assert await query.all_batches(PlanLimits(bytes=100)) == [[30], [31]]


async def test_where_nothing_is_new_the_offset_stays_as_it_is() -> None:
    """Spark compares the texts: another one would be a batch of nothing, again and again."""
    service = filled()
    stream = a_stream(service)
    start = await stream.get_initial_offset()
    end = await stream.get_latest_offset(start, ALL)
    assert json.dumps(await stream.get_latest_offset(json.loads(json.dumps(end)), ALL)) == json.dumps(end)
    assert await stream.plan_slices(end, end) == []
    decodes = a_stream(service, unreadable="null", maxDecompressedBytes="2k", maxChunkBytes="1m")
    found = {one.decoding for one in await decodes.plan_slices(start, end)}
    assert found == {DecodingOptions(Unreadable.NULL, 2_048, 1 << 20)}
    empty = a_stream(service, startingOffsets="latest")
    start = await empty.get_initial_offset()
    assert await empty.get_latest_offset(start, ALL) == start


async def test_a_first_batch_that_is_done_again_begins_where_it_began() -> None:
    """SPK-1: though `latest` has moved by then, and Spark requests it again"""
    query = Query(filled(), startingOffsets="latest")
    assert await query.plan()
    await query.work()
    await query.commit()
    assert query.read == []
    query.service["t"].publish([30, 31, 32])
    assert await query.plan(PlanLimits(messages=2))
    query.service["t"].publish([33])
    await query.crash()
    assert query.read == [30, 31]
    assert await query.all_batches() == [[32, 33]]


async def test_the_very_first_batch_is_not_skipped_after_a_crash() -> None:
    """SPK-1: the offset log holds batch 0's end alone, and its beginning has to be in it"""
    service = filled()
    query = Query(service, startingOffsets="latest", progressSubscription="mine")
    await query.stream.get_initial_offset()
    began = service["t"].end
    service["t"].publish([30, 31])
    assert await query.plan()
    service["t"].publish([32])
    await query.crash()
    assert query.read == [30, 31]
    # It is not released when Spark requests the initial offset again.
    assert service["t"].progress == {"mine": began}
    assert await query.all_batches() == [[32]]


async def test_new_partitions_and_topics_are_read_from_their_earliest() -> None:
    """SPK-1, TOP-3, CHK-56"""
    service = FakeService()
    service.create("t-0", 1)
    service["t-0-partition-0"].publish([0])
    query = Query(service, topicsPattern="t-.*", startingOffsets="latest")
    await query.plan()
    await query.work()
    await query.commit()
    service.create("t-0", 3)
    service["t-0-partition-2"].publish([1, 2])
    service.create("t-1")
    service["t-1"].publish([3])
    service.create("other")
    service["other"].publish([9])
    query.stream._discovery._next_listing_at = 0.0
    assert await query.plan()
    # Found, planned, and the driver dies: they begin where they began then.
    await query.crash()
    assert sorted(query.read) == [1, 2, 3]
    assert await query.all_batches() == []


@pytest.mark.parametrize("seed", range(60))
async def test_every_message_is_read_exactly_once_across_crashes(seed: int) -> None:
    """SPK-1: over restarts from a checkpoint, at any point of a batch, with messages, partitions and ledgers that come,
    and ledgers that go once they have been committed"""
    chance = random.Random(seed)
    service = FakeService()
    service.create("t", 2)
    options = {"startingOffsets": chance.choice(["earliest", "latest"])}
    if chance.random() < 0.5:
        options["progressSubscription"] = "spark"
    query = Query(service, **options)
    await query.stream.get_initial_offset()
    published = 0
    for _ in range(40):
        logs = list(service.logs.values())
        log = chance.choice(logs)
        log.most_pieces = chance.choice([1, 3, 1000])
        what = chance.random()
        if what < 0.5:
            count = chance.randrange(1, 6)
            log.publish(range(published, published + count))
            published += count
        elif what < 0.6:
            log.roll()
        elif what < 0.65 and service.partitioned["persistent://public/default/t"] < 4:
            service.create("t", service.partitioned["persistent://public/default/t"] + 1)
        elif what < 0.75 and query.done >= 0:
            for name, offset in json.loads(query.planned[query.done]).items():
                service.logs[name].delete_ledgers_before(offset["ledger_id"])
        query.stream._discovery._next_listing_at = 0.0
        limits = PlanLimits(chance.choice([0, 1, 3, 10]), chance.choice([0, 100, 700]))
        step = chance.random()
        planned = await query.plan(limits)
        if step < 0.2:
            await query.crash()
        elif planned:
            await query.work()
            if step < 0.4:
                await query.crash()
            else:
                await query.commit()
                if step < 0.5:
                    await query.crash()
    query.stream._discovery._next_listing_at = 0.0
    await query.all_batches()
    assert sorted(query.read) == list(range(published))


async def test_batch_is_read_with_a_single_plan_request() -> None:
    service = filled()
    query = Query(service)
    await query.stream.get_initial_offset()
    service.requests.clear()
    assert await query.batch() == list(range(30))
    assert service.requests.count("plan") == 1


async def test_long_ranges_are_planned_under_one_lease_from_their_beginning() -> None:
    """SPK-5: a later plan of the range does not move it on to what is read last"""
    service = filled()
    log = service["t"]
    log.most_pieces = 1
    query = Query(service)
    assert await query.batch() == list(range(30))
    assert [from_ledger for from_ledger, _ in log.leases.values()] == [log.first.ledger_id]
    log.publish([30])
    assert await query.batch() == [30]
    assert [from_ledger for from_ledger, _ in log.leases.values()] == [log.ledger_id]
    await query.stream.close()
    assert log.leases == {}


async def test_message_limit_is_divided_among_partitions() -> None:
    """SPK-2: all get something, and what one has not is the others'"""
    service = FakeService()
    service.create("t", 4)
    service["t-partition-0"].publish(range(1000))
    service["t-partition-1"].publish(range(1000, 1300))
    service["t-partition-2"].publish(range(2000, 2003))
    query = Query(service)
    batch = await query.batch(PlanLimits(messages=103))
    assert len(batch) == 103
    of = [sum(1 for message in batch if message // 1000 == one) for one in range(3)]
    assert of[2] == 3
    assert of[1] >= 25
    assert of[0] >= 25
    # Fewer than partitions: each has its turn.
    small = [await query.batch(PlanLimits(messages=1)) for _ in range(12)]
    assert [len(one) for one in small] == [1] * 12
    assert {one[0] // 1000 for one in small} == {0, 1}


async def test_start_position_of_a_log_is_stored_in_all_offsets() -> None:
    """SPK-1: what was deleted when the query entered a log at its earliest message is no loss of its later"""
    service = filled()
    first = encode_position(service["t"].first)
    query = Query(service)
    while await query.batch(PlanLimits(messages=9)):
        await query.crash()
    offsets = [json.loads(one)["persistent://public/default/t"] for one in query.planned]
    assert [one.get("entered") for one in offsets] == [first] * len(offsets)
    assert ["since" in one for one in offsets] == [True] + [False] * (len(offsets) - 1)
    late = Query(filled(), startingOffsets="latest")
    assert "entered" not in (await late.stream.get_initial_offset())["persistent://public/default/t"]


async def test_available_now_excludes_messages_published_later() -> None:
    """SPK-2: Trigger.AvailableNow"""
    service = filled()
    query = Query(service)
    await query.stream.fix_target()
    service["t"].publish([30])
    read = await query.all_batches(PlanLimits(messages=11))
    assert [len(batch) for batch in read] == [11, 11, 8]
    assert query.read == list(range(30))
    # The next run goes on there, and its target is another.
    await query.crash()
    await query.stream.fix_target()
    assert await query.all_batches() == [[30]]


async def test_the_lag_is_reported() -> None:
    """SPK-2: in the query's progress"""
    query = Query(filled())
    assert query.stream.get_lag() is None
    await query.batch(PlanLimits(messages=7))
    lag = query.stream.get_lag()
    assert lag is not None
    assert lag.keys() == {LOG, "total"}
    assert (lag[LOG]["messages_behind"], lag[LOG]["ledger_id"]) == (23, query.service["t"].ledger_id)
    assert lag["total"]["messages_behind"] == 23
    assert (lag["total"]["batch_messages"], lag["total"]["batch_bytes"]) == (7, 700)


async def test_the_lag_is_that_of_all_partitions_though_a_batch_plans_some() -> None:
    """SPK-2: a limit below the number of partitions"""
    service = FakeService()
    service.create("t", 5)
    for number in range(5):
        service[f"t-partition-{number}"].publish(range(100 * number, 100 * number + 10))
    query = Query(service)
    for batch in range(1, 8):
        query.stream._lag._next_request_at = 0.0
        assert len(await query.batch(PlanLimits(messages=2))) == 2
        lag = query.stream.get_lag()
        assert lag is not None
        assert len(lag) == 6
        assert lag["total"]["messages_behind"] == 50 - 2 * batch
        assert sum(one["messages_behind"] for log, one in lag.items() if log != "total") == 50 - 2 * batch


async def test_batch_waits_for_min_messages_per_trigger() -> None:
    """SPK-2: minMessagesPerTrigger; what waits is in the lag; a log that is created or changes meantime loses
    nothing"""
    service = FakeService()
    service.create("t", 2)
    query = Query(service, minMessagesPerTrigger="10", maxTriggerDelay="1h", failOnDataLoss="false")
    # What was published in four batches to two partitions.
    for number in range(4):
        assert not await query.batch()
        service[f"t-partition-{number % 2}"].publish([3 * number, 3 * number + 1, 3 * number + 2])
        assert not await query.batch() or number == 3
        lag = query.stream.get_lag()
        assert lag is not None
        assert lag["total"]["messages_behind"] == (3 * number + 3 if number < 3 else 0)
    assert sorted(query.read) == list(range(12))
    service["t-partition-0"].publish([12])
    service.partitioned[LOG] = 3
    service.create("t-partition-2")
    service["t-partition-2"].publish(range(13, 22))
    query.stream._discovery._next_listing_at = 0.0
    assert sorted(await query.batch()) == list(range(12, 22))
    service["t-partition-1"].publish([22])
    assert not await query.batch()
    service.delete("t")
    service.create("t", 3)
    service["t-partition-0"].publish([23])
    query.stream._discovery._next_listing_at = 0.0
    assert await query.batch() == [23]


@pytest.mark.parametrize("given", [{"topicsPattern": "p-.*"}, {"topics": "p-a,p-b"}])
async def test_a_batch_waits_for_messages_though_one_topic_was_deleted(given: dict[str, str]) -> None:
    """SPK-2: minMessagesPerTrigger without the deleted topic; also after a restart from offsets that name it"""
    service = FakeService()
    for first, topic in enumerate(("p-a", "p-b")):
        service.create(topic)
        service[topic].publish(range(100 * first, 100 * first + 10))
    options = {"minMessagesPerTrigger": "5", "maxTriggerDelay": "1h", "failOnDataLoss": "false", **given}
    query = Query(service, **options)
    assert len(await query.batch()) == 20
    service["p-b"].publish([110])
    assert not await query.batch()
    service.delete("p-b")
    for number in range(10, 14):
        service["p-a"].publish([number])
        query.stream._discovery._next_listing_at = 0.0
        assert not await query.batch()
        if number == 12:
            await query.crash()
    service["p-a"].publish([14])
    assert await query.batch() == [10, 11, 12, 13, 14]


async def test_a_topic_that_was_deleted_is_no_lag() -> None:
    """SPK-2: messages_behind reaches 0, and the deleted topic is neither shown nor requested"""
    service = FakeService()
    for topic in ("p-a", "p-b"):
        service.create(topic)
        service[topic].publish(range(10))
    query = Query(service, topicsPattern="p-.*", failOnDataLoss="false")
    await query.batch(PlanLimits(messages=4))
    service.delete("p-b")
    query.stream._discovery._next_listing_at = 0.0
    await query.all_batches()
    lag = query.stream.get_lag()
    assert lag is not None
    assert lag.keys() == {"persistent://public/default/p-a", "total"}
    assert lag["total"]["messages_behind"] == 0
    service["p-a"].publish([10])
    service.requests.clear()
    query.stream._discovery._next_listing_at = query.stream._lag._next_request_at = 0.0
    await query.batch()
    assert service.requests.count("plan") == 1


async def test_no_message_waits_longer_than_the_delay() -> None:
    """SPK-2: maxTriggerDelay"""
    service = FakeService()
    service.create("t")
    query = Query(service, minMessagesPerTrigger="10", maxTriggerDelay="30ms")
    assert not await query.batch()
    service["t"].publish([1, 2])
    while not (batch := await query.batch()):
        pass
    assert batch == [1, 2]
    lag = query.stream.get_lag()
    assert lag is not None
    assert lag["total"]["waited_ms"] >= 30


async def test_available_now_and_once_do_not_wait_for_min_messages() -> None:
    """SPK-2: with Trigger.AvailableNow, and with Trigger.Once, which asks for all"""
    service = filled()
    query = Query(service, minMessagesPerTrigger="100", maxTriggerDelay="1h")
    assert not await query.batch()
    end = await query.stream.get_latest_offset(await query.stream.get_initial_offset(), ALL, may_wait=False)
    assert end[LOG]["ledger_id"] == service["t"].ledger_id
    query = Query(service, minMessagesPerTrigger="100", maxTriggerDelay="1h")
    await query.stream.fix_target()
    assert await query.batch() == list(range(30))


async def test_waiting_batch_takes_a_lease_after_a_restart() -> None:
    """SPK-5: the lease is taken though nothing is planned yet; and a query whose messages nobody keeps is refused"""
    service = filled()
    query = Query(service, minMessagesPerTrigger="10", maxTriggerDelay="1h")
    assert await query.batch() == list(range(30))
    await query.crash()
    assert not service["t"].leases
    service["t"].publish([30])
    assert not await query.batch()
    assert len(service["t"].leases) == 1
    await query.crash()
    service["t"].retained = False
    with pytest.raises(NothingKept):
        await query.batch()


async def test_a_stream_waits_for_its_topic() -> None:
    """SPK-1: waitForTopic; or names the topic that is missing, and what to do"""
    service = FakeService()
    for start in (TopicStream.get_initial_offset, TopicStream.fix_target):
        with pytest.raises(NoSuchTopic, match=rf"there is no topic {LOG}: create it .* option waitForTopic"):
            await start(a_stream(service))
        with pytest.raises(NoSuchTopic, match=r"none was created within the 0\.01 s of waitForTopic"):
            await start(a_stream(service, waitForTopic="10ms"))
    assert await a_stream(service, topicsPattern="t.*", waitForTopic="10ms").get_initial_offset() == {}

    def create() -> None:
        if service.requests.count("get_partitioned") >= 3 + before:
            service.create("t")

    before = service.requests.count("get_partitioned")
    service.before["get_partitioned"] = create
    assert list(await a_stream(service, waitForTopic="1h").get_initial_offset()) == [LOG]


async def test_a_stream_waits_for_its_namespace() -> None:
    """SPK-1: waitForTopic; the lease on the namespace is taken once it is there, before the topics are looked for"""
    service = FakeService()
    service.failing = {name: NotFound("no namespace") for name in ("list", "hold_namespace")}
    service.before["list"] = lambda: service.create("t") if service.requests.count("list") == 2 else None
    stream = a_stream(service, topicsPattern="t.*", waitForTopic="1h")
    assert list(await stream.get_initial_offset()) == [LOG]
    assert [*service["t"].leases] == [lease_id for _, lease_id in service.namespace_leases]
    await stream.close()
    service = FakeService()
    service.failing = {name: NotFound("no namespace") for name in ("list", "hold_namespace")}
    with pytest.raises(NoSuchTopic, match="there is no namespace public/default: create it first"):
        await a_stream(service, topicsPattern="t.*").get_initial_offset()
    service = FakeService()
    service.create("t")
    service.failing["find_position"] = NotFound("no namespace")
    assert list(await a_stream(service, waitForTopic="1h").get_initial_offset()) == [LOG]


async def test_stream_without_retention_or_subscription_does_not_start() -> None:
    """SPK-1: it names both ways out, and starts if losses are all right; from a checkpoint, too"""
    service = filled(retained=False)
    with pytest.raises(NothingKept, match=r"(?s)retention.*progressSubscription"):
        await a_stream(service).get_initial_offset()
    query = Query(service, failOnDataLoss="false")
    assert await query.batch(PlanLimits(messages=5)) == list(range(5))
    with pytest.raises(NothingKept):
        await a_stream(service).get_latest_offset(json.loads(query.planned[-1]), ALL)
    with pytest.raises(NothingKept):
        await a_stream(service).plan_slices(await query.stream.get_initial_offset(), json.loads(query.planned[-1]))
    retaining = Query(service, progressSubscription="mine")
    await retaining.stream.get_initial_offset()
    assert service["t"].progress == {"mine": service["t"].first}


async def test_progress_subscription_advances_only_to_the_committed_offset() -> None:
    service = filled(retained=False)
    log = service["t"]
    query = Query(service, progressSubscription="mine")
    assert await query.plan(PlanLimits(messages=7))
    await query.work()
    done = json.loads(query.planned[-1])
    assert await query.plan(PlanLimits(messages=7))
    assert log.progress == {"mine": log.first}
    service.failing["advance_progress"] = ConnectError("nobody is there")
    await query.stream.commit(done)
    assert log.progress == {"mine": log.first}
    await query.stream.commit(done)
    assert log.progress == {"mine": log.position_of(7)}


async def test_available_now_advances_progress_to_the_end() -> None:
    """Spark commits a batch to the source when the next one begins, and the last one of such a query has none; but it
    plans the next micro-batch again. A query that goes on is not moved by that: its batch may be done again."""
    service = filled(retained=False)
    log = service["t"]
    query = Query(service, progressSubscription="mine")
    assert await query.plan(PlanLimits(messages=7))
    await query.work()
    await query.plan(PlanLimits(messages=7))
    assert log.progress == {"mine": log.first}
    ending = Query(service, progressSubscription="ending")
    await ending.stream.fix_target()
    while await ending.plan(PlanLimits(messages=7)):
        await ending.work()
    assert log.progress == {"mine": log.first, "ending": log.end}


async def test_a_progress_subscription_belongs_to_one_query() -> None:
    """SPK-1: another one is refused before it has read or acknowledged anything, with an error that names the owner.
    The first one goes on, also where its driver dies before its first offsets are written down, or before its first
    batch is done."""
    service = filled(retained=False)
    log = service["t"]
    died = Query(service, progressSubscription="mine")
    await died.stream.get_initial_offset()
    query = Query(service, progressSubscription="mine")
    await query.stream.get_initial_offset()
    assert log.progress_owners == {}
    assert await query.plan(PlanLimits(messages=7))
    assert log.progress_owners == {}
    await query.crash()
    [(query_id, holder)] = log.progress_owners.values()
    assert json.loads(query.planned[0])[LOG]["query"] == query_id
    await query.commit()

    other = Query(service, progressSubscription="mine")
    assert await other.plan(PlanLimits(messages=20))
    with pytest.raises(SubscriptionInUse, match=f"'mine' of {LOG} .*{re.escape(holder)}.*{DELETE_MINE}") as raised:
        await other.work()
    assert re.search(r", process \d+, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", str(raised.value))
    assert query_id not in str(raised.value)
    await other.stream.commit(json.loads(other.planned[0]))
    assert log.progress_owners == {"mine": (query_id, holder)}

    await query.crash()
    assert await query.batch(PlanLimits(messages=7)) == list(range(7, 14))
    await query.crash()
    assert await query.plan(PlanLimits(messages=7))
    await query.crash()
    assert query.read == list(range(21))
    assert log.progress["mine"] <= log.position_of(21)
    assert {json.loads(planned)[LOG]["query"] for planned in query.planned} == {query_id}


async def test_a_consumers_subscription_is_no_progress_subscription() -> None:
    """SPK-1, SUB-1: it is refused by name, whether or not it has consumers: when the query begins, and when it goes on
    after the subscription was deleted and consumers have taken its name."""
    service = filled(retained=False)
    service["t"].consumed.add("billing")
    with pytest.raises(SubscriptionInUse, match=f"'billing' of {LOG} .*a name that no consumer uses") as raised:
        await a_stream(service, progressSubscription="billing").get_initial_offset()
    assert "delete" not in str(raised.value)
    query = Query(service, progressSubscription="mine")
    assert await query.plan(PlanLimits(messages=7))
    service["t"].consumed.add("mine")
    with pytest.raises(SubscriptionInUse, match="a name that no consumer uses"):
        await query.work()
    with pytest.raises(SubscriptionInUse, match="a name that no consumer uses"):
        await query.crash()
    assert query.read == []


async def test_a_subscription_that_nobody_has_claimed_is_not_ahead_of_the_query_that_claims_it() -> None:
    """SPK-1: the query that created it died before its first batch, and began at a later position."""
    service = filled(retained=False)
    log = service["t"]
    died = a_stream(service, progressSubscription="mine", startingOffsets="latest")
    await died.get_initial_offset()
    assert log.progress == {"mine": log.end}
    query = Query(service, progressSubscription="mine", startingOffsets="earliest")
    assert await query.plan(PlanLimits(messages=7))
    assert log.progress == {"mine": log.first}
    await died.get_initial_offset()
    await query.work()
    assert log.progress == {"mine": log.first}
    log.delete_ledgers_before(log.ledger_id + 1)
    with pytest.raises(DataLost) as raised:
        await query.plan()
    assert "ahead" not in str(raised.value)


async def test_checkpoint_behind_its_subscription_is_read_or_reported_lost() -> None:
    """SPK-1: it was restarted from an older copy. Messages that still exist are read; if they are deleted, the error
    shows where both are."""
    service = filled(retained=False)
    log = service["t"]
    query = Query(service, progressSubscription="mine")
    await query.batch(PlanLimits(messages=7))
    older = json.loads(query.planned[-1])
    while await query.batch(PlanLimits(messages=7)):
        pass
    at = log.progress["mine"]
    assert at > log.position_of(14)
    again = a_stream(service, progressSubscription="mine")
    end = await again.get_latest_offset(older, PlanLimits(messages=7))
    assert service.messages_of(await again.plan_slices(older, end)) == [*range(7, 14)]
    await again.commit(end)
    assert log.progress["mine"] == at
    log.delete_ledgers_before(log.position_of(10).ledger_id)
    shown, checkpoint = ("{}:{}:{}".format(*position) for position in (at, MessagePosition(100, 1, 2)))
    with pytest.raises(
        DataLost, match=f"Subscription 'mine' is at {shown}, ahead of the checkpoint, which is at {checkpoint}: "
    ):
        await a_stream(service, progressSubscription="mine").get_latest_offset(older, ALL)
    with pytest.raises(DataLost, match=r"is unknown\. Set the option") as raised:
        await a_stream(service, progressSubscription="new").get_latest_offset(older, ALL)
    assert "ahead" not in str(raised.value)


async def test_a_position_behind_the_end_of_a_log_is_refused_with_both() -> None:
    """SPK-1: messages that are published next would be skipped. It does not matter where the position is from, or
    whether losses are tolerated."""
    service = filled()
    query = Query(service, failOnDataLoss="false")
    await query.batch()
    end = service["t"].end
    for beyond in (end._replace(skip_messages=1), MessagePosition(end.ledger_id + 1, 0, 0)):
        offsets = json.loads(query.planned[-1])
        offsets[LOG] |= encode_position(beyond)
        shown = "{}:{}:{}"
        with pytest.raises(
            PositionBeyondEnd,
            match=f"(?s){LOG}.* {shown.format(*beyond)}, from the query's checkpoint, "
            f"but it ends at {shown.format(*end)},",
        ):
            await a_stream(service, failOnDataLoss="false").get_latest_offset(offsets, ALL)
        starting = json.dumps({LOG: encode_position(beyond)})
        for fails in ("true", "false"):
            with pytest.raises(PositionBeyondEnd, match="from startingOffsets, but it ends at"):
                await a_stream(service, startingOffsets=starting, failOnDataLoss=fails).get_initial_offset()
            with pytest.raises(PositionBeyondEnd):
                before = json.loads(query.planned[-1])
                await a_stream(service, failOnDataLoss=fails).plan_slices(before, before | {LOG: offsets[LOG]})
    assert service["t"].progress == {}
    assert await a_stream(service).get_latest_offset(json.loads(query.planned[-1]), ALL) == json.loads(
        query.planned[-1]
    )
    starting = json.dumps({LOG: encode_position(end)})
    assert (await a_stream(service, startingOffsets=starting).get_initial_offset())[LOG]["entry_id"] == end.entry_id


async def test_progress_does_not_pass_first_chunks_of_incomplete_messages() -> None:
    """SPK-1: a query that continues from the checkpoint needs their first chunks, when this query's leases are over"""
    service = filled(retained=False)
    log = service["t"]
    log.reach_ledgers = 1
    starting = json.dumps({LOG: encode_position(log.position_of(11))})
    query = Query(service, progressSubscription="mine", startingOffsets=starting)
    await query.stream.get_initial_offset()
    assert log.progress == {"mine": MessagePosition(100, 0, 0)}
    assert await query.plan(PlanLimits(messages=12))
    await query.work()
    # It is unknown yet how far back messages may have begun that end after it.
    await query.commit()
    assert log.progress == {"mine": MessagePosition(100, 0, 0)}
    assert await query.plan(PlanLimits(messages=1))
    await query.stream.commit(json.loads(query.planned[0]))
    assert log.position_of(23).ledger_id == 102
    assert log.progress == {"mine": MessagePosition(101, 0, 0)}


@pytest.mark.parametrize("fails", [True, False])
async def test_a_deleted_part(fails: bool) -> None:
    """SPK-2: failOnDataLoss, with an error that names the lost messages"""
    service = filled()
    log = service["t"]
    query = Query(service, failOnDataLoss=str(fails).lower())
    assert await query.batch(PlanLimits(messages=7)) == list(range(7))
    log.delete_ledgers_before(log.ledger_id - 1)
    if fails:
        with pytest.raises(DataLost, match=r"t are lost: from 100:1:2 on, .* up to 102:0:0; .*failOnDataLoss"):
            await query.batch()
    else:
        assert await query.all_batches() == [list(range(20, 30))]


@pytest.mark.parametrize("subscription", ["", "spark"])
async def test_a_loss_advises_a_subscription_to_a_stream_that_has_none(subscription: str) -> None:
    """SPK-2: a subscription would have retained the trimmed messages, but not a topic that was deleted."""
    for deletes, message in ((False, "t are lost: from"), (True, "t does not exist any more")):
        service = filled()
        service.create("other")
        options = {"progressSubscription": subscription} if subscription else {}
        query = Query(service, topics="t,other", **options)
        assert await query.batch(PlanLimits(messages=7)) == list(range(7))
        if deletes:
            service.delete("t")
        else:
            service["t"].delete_ledgers_before(service["t"].ledger_id - 1)
        with pytest.raises(DataLost, match=message) as raised:
            await query.batch()
        assert ("progressSubscription" in str(raised.value)) == (not subscription and not deletes)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_topic_that_was_deleted_and_made_again(fails: bool) -> None:
    """SPK-2, TOP-7: its offsets are not applied to the new one"""
    service = filled()
    query = Query(service, failOnDataLoss=str(fails).lower())
    assert await query.batch(PlanLimits(messages=7)) == list(range(7))
    service.delete("t")
    service.create("t")
    service["t"].publish([100, 101])
    if fails:
        with pytest.raises(DataLost, match="another topic was created with its name"):
            await query.batch()
    else:
        assert await query.plan()
        await query.crash()
        assert query.rows[1] == [100, 101]
        assert await query.all_batches() == []


@pytest.mark.parametrize("fails", [True, False])
async def test_deleted_topic_fails_the_query_unless_losses_are_allowed(fails: bool) -> None:
    """SPK-2"""
    service = filled()
    service.create("other")
    service["other"].publish([50])
    query = Query(service, topics="t,other", failOnDataLoss=str(fails).lower())
    assert sorted(await query.batch(PlanLimits(messages=2))) == [0, 50]
    service.delete("t")
    service["other"].publish([51])
    if fails:
        with pytest.raises(DataLost, match="t does not exist any more"):
            await query.batch()
    else:
        assert await query.all_batches() == [[51]]


async def test_replayed_batch_detects_deleted_messages() -> None:
    """SPK-2"""
    for fails in (True, False):
        service = filled()
        log = service["t"]
        query = Query(service, failOnDataLoss=str(fails).lower())
        assert await query.plan()
        log.delete_ledgers_before(log.ledger_id - 1)
        if fails:
            with pytest.raises(DataLost, match="are lost"):
                await query.crash()
        else:
            await query.crash()
            assert query.read == list(range(20, 30))


async def test_topics_that_there_are_not() -> None:
    service = FakeService()
    with pytest.raises(NoSuchTopic):
        await a_stream(service).get_initial_offset()
    with pytest.raises(NoSuchTopic):
        await a_stream(service).fix_target()
    query = Query(service, topicsPattern="t.*")
    assert await query.stream.get_initial_offset() == {}
    await query.plan()
    service.create("t1")
    service["t1"].publish([1])
    query.stream._discovery._next_listing_at = 0.0
    assert await query.all_batches() == [[1]]


@pytest.mark.parametrize(
    "offsets",
    [
        {"persistent://public/default/t": {"ledger_id": 1, "entry_id": 0, "batch_index": 0}},
        {"persistent://public/default/t": {"incarnation": "x", "ledger_id": -1, "entry_id": 0, "batch_index": 0}},
        {"persistent://public/default/t": {"incarnation": "x", "ledger_id": 1, "entry_id": "0"}},
        {"persistent://public/default/t": {"incarnation": "x", "ledger_id": 1, "entry_id": 0, "since": 5}},
        {"persistent://public/default/t": 5},
    ],
)
async def test_offsets_of_another_source_are_refused(offsets: dict[str, Any]) -> None:
    with pytest.raises(InvalidOffsets, match="Does the checkpoint belong to this query"):
        await a_stream(filled()).get_latest_offset(offsets, ALL)


async def test_starting_offsets_of_an_unread_topic_are_refused() -> None:
    with pytest.raises(InvalidOptions, match="names persistent://public/default/elsewhere"):
        await a_stream(filled(), startingOffsets='{"elsewhere": "earliest"}').get_initial_offset()


async def test_a_cancelled_question_leaves_the_stream_usable() -> None:
    query = Query(filled())
    await query.stream.get_initial_offset()
    for turns in range(12):
        asking = asyncio.ensure_future(query.stream.get_latest_offset(await query.stream.get_initial_offset(), ALL))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert await query.batch() == list(range(30))


@pytest.mark.parametrize("call", ["plan", "hold_namespace"])
async def test_a_stream_that_ends_during_a_call_leaves_no_lease(call: str) -> None:
    """SPK-5: a cancelled call may take its lease when the stream has given the others back"""
    service = filled()
    stream = a_stream(service, topicsPattern="t.*")
    arrival = service.late[call] = asyncio.Event()
    asking = asyncio.ensure_future(stream.get_initial_offset())
    await until(lambda: call in service.requests, "it is called")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    closing = asyncio.ensure_future(stream.close())
    await asyncio.sleep(0.01)
    arrival.set()
    await closing
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert service.namespace_leases == {}
    assert service["t"].leases == {}
