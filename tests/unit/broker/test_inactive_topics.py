"""Topics that are deleted because nobody uses them: by mode, retention, and what is known of their policies."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import EARLIEST
from magnetar_broker.topics.housekeeping import Housekeeping
from magnetar_broker.topics.topic_schemas import TopicSchemas
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer
from magnetar_protos.catalog_pb2 import InactiveTopicDeleteMode, InactiveTopics, Policies, Retention
from magnetar_testing.clock import ManualClock
from tests.unit.broker.topic_scene import NAME, FakeStorage, cursors_of, log_of, passes, topics_on

_INACTIVE = InactiveTopics(delete_while_inactive=True, max_inactive_seconds=10)
_CAUGHT_UP = InactiveTopics(
    delete_while_inactive=True,
    delete_mode=InactiveTopicDeleteMode.DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP,
    max_inactive_seconds=10,
)


@pytest.mark.parametrize(
    ("policies", "stored", "acknowledged", "deleted_after"),
    [
        # The broker's settings delete nothing.
        (Policies(), 0, None, None),
        (Policies(inactive_topics=_INACTIVE), 0, None, 10),
        (Policies(inactive_topics=_INACTIVE), 3, None, 10),
        (Policies(inactive_topics=_INACTIVE), 3, 3, None),
        (Policies(inactive_topics=_CAUGHT_UP), 3, None, 10),
        (Policies(inactive_topics=_CAUGHT_UP), 3, 2, None),
        (Policies(inactive_topics=_CAUGHT_UP), 3, 3, 10),
        (Policies(inactive_topics=InactiveTopics(max_inactive_seconds=10)), 0, None, None),
        # What a retention policy retains, keeps the topic.
        (Policies(inactive_topics=_INACTIVE, retention=Retention(time_minutes=1, size_mb=-1)), 3, None, 60),
        (Policies(inactive_topics=_INACTIVE, retention=Retention(time_minutes=1, size_mb=-1)), 0, None, 10),
        (Policies(inactive_topics=_CAUGHT_UP, retention=Retention(time_minutes=-1, size_mb=5)), 3, 3, None),
        (Policies(inactive_topics=_CAUGHT_UP, retention=Retention()), 3, 3, 10),
    ],
)
async def test_inactive_topics_are_deleted_by_their_policies(
    policies: Policies, stored: int, acknowledged: int | None, deleted_after: int | None
) -> None:
    """TOP-2: in both modes, and not before the policies are known."""
    clock = ManualClock()
    storage = FakeStorage(clock=clock)
    topics = topics_on(storage)
    topic = await topics.get(NAME, create=True)
    positions = [log_of(topic).add() for _ in range(stored)]
    if acknowledged is not None:
        cursor = await cursors_of(topic).create("s", EARLIEST, {})
        await cursor.move_to(positions[acknowledged - 1])
    topic.live_settings.update(policies)
    topic.live_settings.are_known = False
    keeping = asyncio.create_task(Housekeeping(topics, storage.options, clock).run())
    await passes(clock, 1.0)
    topic.inactive_since = clock.monotonic()
    await passes(clock, 8.0)
    topic.live_settings.are_known = True
    second = 9
    while second < 80 and not storage.deleted:
        await passes(clock, 1.0)
        second += 1
    assert bool(storage.deleted) == (deleted_after is not None)
    assert deleted_after is None or 0 <= second - deleted_after <= 3
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_topic_that_a_consumer_is_about_to_use_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOP-2, CHK-69: its request waits, for example for the schema."""
    clock = ManualClock()
    storage = FakeStorage(clock=clock)
    topics = topics_on(storage)
    topic = await topics.get(NAME, create=True)
    topic.live_settings.update(Policies(inactive_topics=_INACTIVE))
    waits = asyncio.Event()

    async def admit(*_: object) -> None:
        await waits.wait()
        raise BrokerError(ErrorCode.NOT_ALLOWED, "not this one")

    monkeypatch.setattr(TopicSchemas, "admit_consumer", admit)
    keeping = asyncio.create_task(Housekeeping(topics, storage.options, clock).run())
    subscribing = asyncio.create_task(topic.subscribe(OpenConsumer(), cast(Any, SimpleNamespace(address=""))))
    await passes(clock, 60.0)
    assert topics.loaded() == [topic]
    waits.set()
    with pytest.raises(BrokerError):
        await subscribing
    await passes(clock, 8.0)
    assert topics.loaded() == [topic]
    await passes(clock, 5.0)
    assert storage.deleted == [NAME]
    keeping.cancel()
    await asyncio.wait([keeping])
