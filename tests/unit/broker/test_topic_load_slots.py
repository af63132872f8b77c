"""Topics that can't be opened hold at most half of the slots for loading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_load_slots import TopicLoad, TopicLoadSlots
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_testing.clock import ManualClock
from magnetar_wire.topic_name import TopicName
from tests.running import until, within
from tests.unit.broker.topic_scene import FakeStorage, topics_on


def granted(slots: TopicLoadSlots[str]) -> list[str]:
    names = []
    while (loading := slots.grant_next()) is not None:
        names.append(loading.name)
    return names


def evicted(slots: TopicLoadSlots[str]) -> list[str]:
    names = []
    while (loading := slots.evict_next()) is not None:
        names.append(loading.name)
    return names


def failed_once(slots: TopicLoadSlots[str], *names: str) -> None:
    for name in names:
        loading = slots.request(name)
        assert slots.grant_next() is loading
        slots.release(loading, failed=True)


def requested(slots: TopicLoadSlots[str], *names: str) -> dict[str, TopicLoad[str]]:
    return {name: slots.request(name) for name in names}


def test_load_slots_are_granted_in_request_order() -> None:
    slots: TopicLoadSlots[str] = TopicLoadSlots(2)
    loadings = requested(slots, "a", "b", "c", "d")
    assert granted(slots) == ["a", "b"]
    slots.release(loadings["c"], failed=False)  # withdrawn
    slots.release(loadings["b"], failed=False)
    assert granted(slots) == ["d"]


def test_failed_topics_get_at_most_half_the_load_slots() -> None:
    slots: TopicLoadSlots[str] = TopicLoadSlots(4)
    failed_once(slots, "s1", "s2", "s3")
    loadings = requested(slots, "s1", "s2", "s3", "h1", "h2", "h3")
    assert granted(slots) == ["s1", "s2", "h1", "h2"]
    slots.release(loadings["h1"], failed=False)
    assert granted(slots) == ["h3"]
    slots.release(loadings["h2"], failed=False)
    assert granted(slots) == []  # a slot is free, and not for "s3"
    slots.release(loadings["s1"], failed=False)
    assert granted(slots) == ["s3"]


def test_a_topic_that_was_opened_counts_as_healthy_again() -> None:
    slots: TopicLoadSlots[str] = TopicLoadSlots(2)
    failed_once(slots, "a", "b")
    loading = slots.request("a")
    assert loading.is_slow
    slots.grant_next()
    slots.release(loading, failed=False)
    assert not slots.request("a").is_slow


def test_an_opening_that_became_slow_is_evicted_only_for_a_healthy_one_that_waits() -> None:
    slots: TopicLoadSlots[str] = TopicLoadSlots(4)
    loadings = requested(slots, "a", "b", "c", "d")
    assert granted(slots) == ["a", "b", "c", "d"]
    for loading in loadings.values():
        slots.mark_slow(loading)
    assert evicted(slots) == []
    waiting = requested(slots, "h1")
    assert evicted(slots) == ["a"]
    assert granted(slots) == []  # it still holds its slot
    slots.release(loadings["a"], failed=True)
    assert granted(slots) == ["h1"]
    waiting |= requested(slots, "h2", "h3")
    assert evicted(slots) == ["b"]  # "c" and "d" are the half that slow ones may have
    slots.release(loadings["b"], failed=True)
    assert granted(slots) == ["h2"]
    assert evicted(slots) == []


def test_one_slow_opening_is_always_possible() -> None:
    slots: TopicLoadSlots[str] = TopicLoadSlots(1)
    failed_once(slots, "s")
    slots.request("s")
    assert granted(slots) == ["s"]


def test_failed_topics_are_remembered_in_bounded_memory() -> None:
    slots: TopicLoadSlots[str] = TopicLoadSlots(1, max_remembered=2)
    failed_once(slots, "a", "b", "c")
    assert [slots.request(name).is_slow for name in ("a", "b", "c")] == [False, True, True]


class StorageThatHangs(FakeStorage):
    """Opening a topic whose name begins with "away" never ends."""

    def __init__(self, options: TopicSettings, clock: ManualClock) -> None:
        super().__init__(options, clock)
        self.hanging: list[TopicName] = []

    async def open(
        self,
        name: TopicName,
        *,
        policies: Policies,
        if_absent: NewTopic | None = None,
        own_policies: Awaitable[Policies] | None = None,
        prefetched: None = None,
        log_opened: Callable[[Topic], object] = lambda _: None,
    ) -> Topic:
        if not name.local_name.startswith("away"):
            return await super().open(name, policies=policies, if_absent=if_absent, prefetched=prefetched)
        self.hanging.append(name)
        try:
            await asyncio.Event().wait()
            raise AssertionError("it never ends")
        finally:
            self.hanging.remove(name)


async def test_hanging_topic_loads_leave_slots_for_healthy_topics() -> None:
    """Their bookies are away, say. They keep half of the slots, and healthy topics are opened past them."""
    clock = ManualClock()
    storage = StorageThatHangs(TopicSettings(max_concurrent_topic_load_request=4, slow_topic_load_seconds=5), clock)
    topics = topics_on(storage)

    def left(count: int) -> bool:
        return sum(one.done() for one in away) == count

    away = [asyncio.create_task(topics.get(TopicName.parse(f"away-{n}"), create=True)) for n in range(9)]
    await until(lambda: len(storage.hanging) == 4, "they have all slots")
    healthy = [asyncio.create_task(topics.get(TopicName.parse(f"healthy-{n}"), create=True)) for n in range(9)]
    for turn in range(1, 4):  # each time two of those that were requested before the healthy ones get a slot
        clock.advance(5.0)
        await until(partial(left, 2 * turn), "two have left")
        await until(lambda: len(storage.hanging) >= 3, "others have moved up")
    for one in healthy:
        await within(one, "a healthy topic is opened")
    assert len(storage.hanging) == 3
    refused = next(one for one in away if one.done())
    with pytest.raises(BrokerError, match="slow_topic_load_seconds") as problem:
        await refused
    assert problem.value.code == ErrorCode.SERVICE_NOT_READY
    # Those that failed are slow from the beginning: more of them don't get in the way of others.
    again = [asyncio.create_task(topics.get(TopicName.parse(f"away-{n}"), create=True)) for n in range(2)]
    await within(topics.get(TopicName.parse("late"), create=True), "a healthy topic is opened")
    topics.abort(TopicUnloaded("the test is over"))
    await topics.wait_ended()
    await asyncio.gather(*away, *again, return_exceptions=True)
