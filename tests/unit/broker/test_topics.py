"""Topics are opened once, closed, deleted and reopened; and housekeeping."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.position import EARLIEST
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import events_topic
from magnetar_broker.topics.housekeeping import Housekeeping
from magnetar_broker.topics.topics import Topics
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer
from magnetar_protos.catalog_pb2 import Policies
from magnetar_testing.clock import ManualClock
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import TopicName
from tests.fake_ownership import FakeOwnership
from tests.produce_client import entry
from tests.running import until, within
from tests.unit.broker.topic_scene import (
    NAME,
    FakeCatalog,
    FakeProducerSink,
    FakeStorage,
    cursors_of,
    log_of,
    passes,
    subscriptions_of,
    topics_on,
)


async def test_concurrent_requests_open_a_topic_once_despite_cancellation() -> None:
    storage = FakeStorage()
    topics = topics_on(storage)
    storage.gate.clear()
    asking = [asyncio.create_task(topics.get(NAME, create=True)) for _ in range(10)]
    await until(lambda: storage.opening == 1, "it is being opened")
    asking[0].cancel()
    asking[7].cancel()
    await asyncio.wait([asking[0], asking[7]])
    storage.gate.set()
    found = {await one for one in asking if not one.cancelled()}
    assert found == {storage.opened[0]}
    assert len(storage.opened) == 1
    assert topics.loaded() == storage.opened
    assert await topics.get(NAME, create=False) in found


async def test_get_with_create_does_not_fail_with_get_without_create() -> None:
    """A request that creates the topic does not share the result of one that does not."""
    storage = FakeStorage()
    topics = topics_on(storage)
    storage.gate.clear()
    first = asyncio.create_task(topics.get(NAME, create=False))
    await until(lambda: storage.opening == 1, "it is being opened")
    second = asyncio.create_task(topics.get(NAME, create=True))
    await asyncio.sleep(0)
    storage.gate.set()
    with pytest.raises(BrokerError) as refused:
        await first
    assert refused.value.code == ErrorCode.TOPIC_NOT_FOUND
    assert (await second).name == NAME


async def test_explicit_creation_succeeds_when_auto_creation_is_disabled() -> None:
    """TOP-2: `allow_auto_topic_creation`."""
    storage, catalog = FakeStorage(), FakeCatalog()
    topics = topics_on(storage, catalog)
    catalog.allowed = False
    for name, create, code in (
        ("t", True, ErrorCode.TOPIC_NOT_FOUND),
        ("t", False, ErrorCode.TOPIC_NOT_FOUND),
        ("public/nowhere/t", True, ErrorCode.NOT_FOUND),
        ("non-persistent://public/default/t", True, ErrorCode.NOT_ALLOWED),
    ):
        with pytest.raises(BrokerError) as refused:
            await topics.get(TopicName.parse(name), create=create)
        assert refused.value.code == code
    await topics.get(NAME, create=True, explicit=True)
    await topics.unload(NAME)
    await topics.get(NAME, create=True)


async def test_concurrent_topic_loads_are_limited() -> None:
    storage = FakeStorage(TopicSettings(max_concurrent_topic_load_request=3))
    topics = topics_on(storage)
    storage.gate.clear()
    asking = [asyncio.create_task(topics.get(TopicName.parse(f"t{n}"), create=True)) for n in range(20)]
    await until(lambda: storage.opening == 3, "they are being opened")
    storage.gate.set()
    for one in asking:
        await one
    assert storage.most_opening == 3
    assert len(topics) == 20


async def test_failed_topic_load_is_reported_and_can_be_retried() -> None:
    storage = FakeStorage(TopicSettings(topic_load_timeout_seconds=0.05))
    topics = topics_on(storage)
    storage.gate.clear()
    with pytest.raises(BrokerError) as refused:
        await topics.get(NAME, create=True)
    assert refused.value.code == ErrorCode.SERVICE_NOT_READY
    storage.gate.set()
    storage.fails = ValueError("a bug")
    with pytest.raises(BrokerError) as refused:
        await topics.get(NAME, create=True)
    assert refused.value.code == ErrorCode.UNKNOWN_ERROR
    storage.fails = None
    await topics.get(NAME, create=True)


async def test_topic_accepts_publishes_before_its_cursors_are_loaded() -> None:
    """OWN-2: after a take-over producers don't wait for cursors; callers that need cursors do."""
    storage = FakeStorage()
    topics = topics_on(storage)
    storage.cursors_gate.clear()
    waiting = asyncio.create_task(topics.get(NAME, create=True))
    topic = await within(topics.find(NAME, "", True, to_publish=True), "the log is open")
    sink = FakeProducerSink()
    producer = await topic.producers.open(OpenProducer(producer_name="p"), sink)
    producer.publish(0, [entry(0)])
    await until(lambda: "stored" in [name for name, *_ in sink.results], "it is stored")
    assert not waiting.done()
    assert topics.loaded() == []  # nothing is trimmed before it is known what the cursors need
    storage.cursors_gate.set()
    assert await waiting is topic
    assert await topics.find(NAME, "", True, to_publish=True) is topic
    assert topic.producers.connected() == [producer]


async def test_producers_are_ended_where_the_rest_of_the_topic_is_not_opened() -> None:
    """OWN-2: its bundle is released in the meantime. They look it up again."""
    storage = FakeStorage()
    topics = topics_on(storage)
    storage.cursors_gate.clear()
    topic = await within(topics.find(NAME, "", True, to_publish=True), "the log is open")
    sink = FakeProducerSink()
    await topic.producers.open(OpenProducer(producer_name="p"), sink)
    bundle = BundleRange(0, 0xFFFFFFFF)
    await within(
        topics.unload_bundle_topics(NAME.namespace_name, bundle, TopicUnloaded("it goes")), "nothing of it is open"
    )
    assert [name for name, *_ in sink.results] == ["ended"]
    assert log_of(topic).abandoned
    with pytest.raises(TopicUnloaded):
        await topic.producers.open(OpenProducer(producer_name="q"), sink)
    again = await within(topics.find(NAME, "", True, to_publish=True), "it is opened again")
    assert again is not topic
    # Lost by its log while the cursors are being opened: a client waits for the end of that opening.
    log_of(again).on_lost(TopicUnloaded("another broker has it"))
    asking = asyncio.create_task(topics.find(NAME, "", True, to_publish=True))
    await asyncio.sleep(0.01)
    assert not asking.done()
    storage.cursors_gate.set()
    assert (await within(asking, "the opening has ended")).ended is not None
    third = await within(topics.find(NAME, "", True, to_publish=True), "it is opened again")
    assert third not in (topic, again)


async def test_topic_deleted_while_its_cursors_load_is_recreated() -> None:
    """CHK-57, CHK-69: it was deleted by another broker in the meantime. Producers get the new topic, as soon as its log
    is open."""
    storage = FakeStorage()
    topics = topics_on(storage)
    storage.there[NAME] = "i0"
    storage.cursors_gate.clear()
    opening = asyncio.create_task(topics.get(NAME, create=True))
    first = await within(topics.find(NAME, "", True, to_publish=True), "the log is open")
    storage.cursors_fail = BrokerError(ErrorCode.TOPIC_NOT_FOUND, "it was deleted")
    storage.cursors_gate.set()
    await until(lambda: len(storage.opened) == 2, "it is opened again")
    second = await within(topics.find(NAME, "", True, to_publish=True), "the new log is open")
    assert first.ended is not None
    assert second is storage.opened[1]
    assert not opening.done()
    storage.cursors_gate.set()
    assert await within(opening, "it is open") is second


async def test_producers_go_on_while_the_cursors_of_a_bundle_are_saved() -> None:
    """OWN-2: when a bundle moves producers wait for their logs to be closed, and not for all cursors of the bundle."""
    topics = topics_on(FakeStorage())
    first, second = [await topics.get(TopicName.parse(name), create=True) for name in ("a", "b")]
    cursors_of(second).settled.clear()
    sink = FakeProducerSink()
    producer = await first.producers.open(OpenProducer(producer_name="p"), sink)
    bundle = BundleRange(0, 0xFFFFFFFF)
    problem = TopicUnloaded("it moves")
    unloading = asyncio.create_task(topics.unload_bundle_topics(NAME.namespace_name, bundle, problem))
    await until(lambda: cursors_of(first).closed, "its cursors are saved")
    assert subscriptions_of(first).ended == [problem]
    producer.publish(0, [entry(0)])
    await until(lambda: [name for name, *_ in sink.results] == ["stored"], "it is stored")
    cursors_of(second).settled.set()
    await within(unloading, "all are closed")
    assert [name for name, *_ in sink.results] == ["stored", "ended"]
    assert log_of(first).closed
    assert log_of(second).closed


async def test_an_unload_that_is_cancelled_while_a_cursor_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """OWN-2: the topic's error is the topic's warning, and not an exception that was never retrieved."""
    topics = topics_on(FakeStorage())
    topic = await topics.get(NAME, create=True)
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    cursors_of(topic).fails_when_cancelled = TopicUnloaded("its cursors are another broker's")
    closing = asyncio.create_task(topic.close_consumers(TopicUnloaded("it moves")))
    await until(lambda: cursors_of(topic).closed, "its cursors are being saved")
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert "not all cursors were saved: TopicUnloaded: its cursors are another broker's" in caplog.text
    del closing
    gc.collect()
    await asyncio.sleep(0)
    assert unretrieved == []


async def test_get_of_a_closing_topic_waits_and_reopens_it() -> None:
    """Two `Topic` objects of one name are never in use."""
    storage = FakeStorage()
    topics = topics_on(storage)
    topic = await topics.get(NAME, create=True)
    log = log_of(topic)
    log.prompt = False
    sink = FakeProducerSink()
    producer = await topic.producers.open(OpenProducer(producer_name="p"), sink)
    producer.publish(0, [entry(0)])
    unloading = asyncio.create_task(topics.unload(NAME))
    await until(lambda: topic.ended is not None, "it is ending")
    asking = asyncio.create_task(topics.get(NAME, create=False))
    await asyncio.sleep(0.01)
    assert not asking.done()
    log.decide()
    await within(unloading, "it is unloaded")
    assert log.closed
    again = await asking
    assert again is not topic
    assert [name for name, *_ in sink.results] == ["stored", "ended"]
    with pytest.raises(BrokerError):
        await topic.producers.open(OpenProducer(producer_name="q"), sink)


async def test_a_log_that_does_not_close_is_abandoned() -> None:
    storage = FakeStorage(TopicSettings(topic_close_timeout_seconds=0.05))
    topics = topics_on(storage)
    topic = await topics.get(NAME, create=True)
    log_of(topic).close = asyncio.Event().wait  # type: ignore[assignment,method-assign]
    await within(topics.unload(NAME), "it is unloaded")
    assert log_of(topic).abandoned


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("steps", range(4))
async def test_session_loss_aborts_a_deletion_in_flight(loaded: bool, steps: int) -> None:
    """OWN-2: it is broken off, as by a kill. So the broker goes on with its next session at once."""
    storage = FakeStorage()
    storage.there[NAME] = "i1"
    topics = topics_on(storage)
    if loaded:
        await topics.get(NAME, create=False)
    storage.delete = storage.claim = _never  # type: ignore[assignment,method-assign]
    deleting = asyncio.create_task(topics.delete(NAME, force=False))
    for _ in range(steps):
        await asyncio.sleep(0)
    topics.abort(TopicUnloaded("the session is lost"))
    await within(topics.wait_ended(), "the deletion is broken off")
    with pytest.raises(TopicUnloaded):
        await within(deleting, "its outcome is reported")
    assert storage.deleted == []
    assert all(log_of(topic).abandoned for topic in storage.opened)


async def _never(*_: object) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


async def test_deleting_refuses_while_somebody_is_connected_unless_forced() -> None:
    """TOP-7: delete, and delete by force; what is made again is another one."""
    storage = FakeStorage()
    topics = topics_on(storage)
    topic = await topics.get(NAME, create=True)
    sink = FakeProducerSink()
    await topic.producers.open(OpenProducer(producer_name="p"), sink)
    subscriptions_of(topic).consumers = 2
    with pytest.raises(BrokerError) as refused:
        await topics.delete(NAME, force=False)
    assert refused.value.code == ErrorCode.NOT_ALLOWED
    assert "1 producers and 2 consumers" in str(refused.value)
    await topics.delete(NAME, force=True)
    assert storage.deleted == [NAME]
    assert storage.deleted_incarnations == [topic.log.incarnation]
    assert subscriptions_of(topic).ended[0].code == ErrorCode.TOPIC_NOT_FOUND
    assert (await topics.find(NAME, "", True)).log.incarnation != topic.log.incarnation
    with pytest.raises(BrokerError) as refused:
        await topics.find(NAME, topic.log.incarnation, True)
    assert refused.value.code == ErrorCode.INCARNATION_CHANGED


async def test_topic_lost_twice_is_closed_once_and_reopened() -> None:
    """OWN-2: aborted by its log or its cursors at any moment, also while it is being opened."""
    storage = FakeStorage()
    topics = topics_on(storage)
    topic = await topics.get(NAME, create=True)
    cursors_of(topic).on_lost(TopicUnloaded("one"))
    log_of(topic).on_lost(TopicUnloaded("two"))
    again = await topics.get(NAME, create=False)
    assert again is not topic
    assert log_of(topic).abandoned
    assert [str(error) for error in subscriptions_of(topic).ended] == ["one"]
    assert topics.loaded() == [again]


async def test_closing_all_topics_refuses_pending_and_new_requests() -> None:
    storage = FakeStorage()
    for in_peace in (True, False):
        topics = topics_on(storage)
        topic = await topics.get(NAME, create=True)
        storage.gate.clear()
        opening = asyncio.create_task(topics.get(TopicName.parse("other"), create=True))
        await until(lambda: storage.opening == 1, "it is being opened")
        problem = TopicUnloaded("it ends")
        if not in_peace:
            topics.abort(problem)
        await within(topics.close(problem) if in_peace else topics.wait_ended(), "all have ended")
        with pytest.raises(BrokerError) as refused:
            await opening
        assert refused.value.code == ErrorCode.SERVICE_NOT_READY
        with pytest.raises(BrokerError, match="it ends"):
            await topics.get(NAME, create=True)
        assert log_of(topic).closed is in_peace
        assert log_of(topic).abandoned
        assert not topics.loaded()
        storage.gate.set()


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("in_peace", [True, False])
async def test_consumers_are_notified_once_when_a_close_is_aborted(in_peace: bool, steps: int) -> None:
    """OWN-2: a topic that is being closed is given up, by its session's end and by its bundle's."""
    topics = topics_on(FakeStorage())
    topic = await topics.get(NAME, create=True)
    if in_peace:
        cursors_of(topic).settled.clear()
        closing = asyncio.create_task(topics.close(TopicUnloaded("it ends in peace")))
        await until(lambda: topic.ended is not None, "it is being closed")
        assert not subscriptions_of(topic).ended
    else:
        topics.abort(TopicUnloaded("its session is over"))
    for _ in range(steps):
        await asyncio.sleep(0)
    topic.abort(TopicUnloaded("its bundle is lost"))
    await within(topics.wait_ended(), "all have ended")
    if in_peace:
        await within(closing, "the close returns")
    assert len(subscriptions_of(topic).ended) == 1


async def test_giving_up_in_the_turn_in_which_an_opening_began_ends_that_too() -> None:
    topics = topics_on(FakeStorage())
    asking = asyncio.create_task(topics.get(NAME, create=True))
    await asyncio.sleep(0)
    topics.abort(TopicUnloaded("it ends"))
    await within(topics.wait_ended(), "all have ended")
    with pytest.raises(BrokerError):
        await asking


async def test_housekeeping_trims_consumed_ledgers_and_continues_after_failure() -> None:
    """RET-1, RET-3: each topic is ticked and trimmed by what is durable, and one's trouble is not the others'. A ledger
    goes when the slowest cursor has come to its end, though it stands in it still and nothing follows."""
    clock = ManualClock()
    storage = FakeStorage(clock=clock)
    topics = topics_on(storage)
    keeping = asyncio.create_task(Housekeeping(topics, storage.options, clock).run())
    topic = await topics.get(NAME, create=True)
    other = await topics.get(TopicName.parse("other"), create=True)
    log_of(other).trim_fails = BrokerError(ErrorCode.PERSISTENCE_ERROR, "not now")
    log, cursors = log_of(topic), cursors_of(topic)
    log.closed_ledgers = log_of(other).closed_ledgers = 1
    await passes(clock, 2.0)
    assert log.trims == [None]
    assert cursors.trimmed == 1
    assert log.ticks in (1, 2)
    positions = [log.add() for _ in range(5)]
    log.ends = positions[4]
    cursor = await cursors.create("s", positions[4], {})  # of the ledger that is written
    await passes(clock, 2.0)
    log.closed_ledgers = 1
    await cursor.move_to(positions[3])
    await passes(clock, 2.0)
    assert log.trims == [None]
    await cursor.move_to(positions[4])
    await passes(clock, 2.0)
    assert log.trims == [None, positions[4]]
    assert len(log_of(other).trims) > 2  # tried again
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_idle_topics_are_unloaded_and_inactive_ones_deleted_if_enabled() -> None:
    """TOP-2: inactive topics are deleted as the policy says; one with a subscription never is."""
    clock = ManualClock()
    options = BrokerServiceSettings(
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=10,
        unload_idle_topics_after_seconds=20,
    )
    storage = FakeStorage(options, clock)
    topics = topics_on(storage)
    keeping = asyncio.create_task(Housekeeping(topics, options, clock).run())
    names = [TopicName.parse(name) for name in ("inactive", "subscribed", "used")]
    inactive, subscribed, used = [await topics.get(name, create=True) for name in names]
    await cursors_of(subscribed).create("s", EARLIEST, {})
    subscriptions_of(used).consumers = 1
    await passes(clock, 9.0)
    assert len(topics) == 3
    await passes(clock, 5.0)
    assert storage.deleted == [inactive.name]
    assert topics.loaded() == [subscribed, used]
    await passes(clock, 10.0)
    assert topics.loaded() == [used]
    subscriptions_of(used).consumers = 0
    await cursors_of(used).create("s", EARLIEST, {})
    await passes(clock, 15.0)
    assert topics.loaded() == [used]
    await passes(clock, 10.0)
    assert not topics.loaded()
    assert storage.deleted == [inactive.name]
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_topic_that_is_read_by_a_lease_is_not_idle() -> None:
    """SPK-5: a reader past the broker is connected to nobody, and uses the topic."""
    clock = ManualClock()
    options = BrokerServiceSettings(
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=10,
        unload_idle_topics_after_seconds=20,
    )
    storage = FakeStorage(options, clock)
    topics = topics_on(storage)
    keeping = asyncio.create_task(Housekeeping(topics, options, clock).run())
    topic = await topics.get(TopicName.parse("leased"), create=True)
    leases = log_of(topic).leases
    leases.any_active = True
    await passes(clock, 30.0)
    assert topics.loaded() == [topic]
    leases.any_active = False
    await passes(clock, 15.0)
    assert storage.deleted == [topic.name]
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_lease_taken_as_deletion_begins_prevents_the_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leases are checked again when the deletion has begun."""
    clock = ManualClock()
    options = BrokerServiceSettings(
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=10,
    )
    storage = FakeStorage(options, clock)
    topics = topics_on(storage)
    topic = await topics.get(TopicName.parse("leased"), create=True)
    checked = []

    async def taken_over_in_between(*_: object) -> None:
        checked.append(topic.name)
        log_of(topic).leases.any_active = True

    monkeypatch.setattr(FakeOwnership, "verify_owned", taken_over_in_between)
    keeping = asyncio.create_task(Housekeeping(topics, options, clock).run())
    await passes(clock, 30.0)
    assert checked == [topic.name]
    assert storage.deleted == []
    assert topics.loaded() == [topic]
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_five_thousand_topics_cost_no_more_at_a_time_than_two_thousand() -> None:
    """CHK-59: no task, timer or step for each of them: a round takes longer instead."""
    clock = ManualClock()
    storage = FakeStorage(clock=clock)
    topics = topics_on(storage)
    for number in range(5_000):
        await topics.get(TopicName.parse(f"t{number}"), create=True)
    tasks = len(asyncio.all_tasks())
    keeping = asyncio.create_task(Housekeeping(topics, storage.options, clock).run())
    await passes(clock, 1.0)
    ticked = sum(log_of(topic).ticks for topic in topics.loaded())
    assert 1000 < ticked <= 2000
    # A round takes 2.5 seconds, from any step on; each topic is examined again in the next.
    for _ in range(2):
        before = [log_of(topic).ticks for topic in topics.loaded()]
        await passes(clock, 2.5)
        since = [log_of(topic).ticks - was for topic, was in zip(topics.loaded(), before, strict=True)]
        assert set(since) <= {1, 2}
        assert sum(since) <= 5_000 + 200
    assert not any(log_of(topic).trims for topic in topics.loaded())
    assert len(asyncio.all_tasks()) == tasks + 1
    keeping.cancel()
    await asyncio.wait([keeping])


def test_every_option_is_named_by_a_test() -> None:
    """One that nothing reads would be noticed by nobody."""
    folder = Path(__file__).parent
    tests = "".join(path.read_text() for path in folder.glob("**/*.py"))
    own = {name for name in BrokerServiceSettings.__annotations__ if name != "cluster_name"}  # it is shown, and no more
    assert [name for name in sorted({*TopicSettings.model_fields, *own}) if name not in tests] == []


def _with_policies(storage: FakeStorage, read: Callable[[TopicName], Awaitable[Policies]]) -> Topics:
    ownership = FakeOwnership.of_everything(())
    return Topics(storage, FakeCatalog(), storage.options, storage.clock, ownership, storage.counters, read)


async def test_a_topic_is_recovered_while_its_policies_are_fetched() -> None:
    """TOP-4: it is opened with them."""
    storage, answered = FakeStorage(), asyncio.get_running_loop().create_future()
    storage.there[NAME] = "i"
    topics = _with_policies(storage, lambda _: asyncio.shield(answered))
    storage.gate.clear()
    opening = asyncio.create_task(topics.get(NAME, create=False))
    await until(lambda: storage.opening == 1, "it is being recovered")
    storage.gate.set()
    answered.set_result(Policies(message_ttl_seconds=7))
    await within(opening, "it is open")
    assert storage.own_policies.message_ttl_seconds == 7
    await topics.close(TopicUnloaded("the test is over"))


async def test_topics_that_wait_for_policies_do_not_keep_these_from_being_opened() -> None:
    """TOP-4: the topic with the policies needs no slot that the others hold."""
    storage = FakeStorage(TopicSettings(max_concurrent_topic_load_request=1))
    events = events_topic(NAME.namespace_name)
    storage.there |= {NAME: "i", events: "i"}

    async def read(name: TopicName) -> Policies:
        if name == NAME:
            await topics.get(events, create=False)
        return Policies()

    topics = _with_policies(storage, read)
    await within(topics.get(NAME, create=False), "both are open")
    assert {one.name for one in topics.loaded()} == {NAME, events}
    await topics.close(TopicUnloaded("the test is over"))
