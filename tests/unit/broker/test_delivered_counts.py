"""Deliveries in a topic's statistics after its consumers have left."""

from __future__ import annotations

from tests.unit.broker.subscription_scene import Scene, settle


async def test_counts_stay_until_the_subscription_is_deleted_and_those_of_the_topic_for_good() -> None:
    scene = Scene()
    deliveries = scene.subscriptions.deliveries
    scene.add(4)
    consumer, gets = await scene.subscribe()
    assert len(gets.take()) == 4
    consumer.leave()
    reader, _ = await scene.subscribe("r", durable=False)
    reader.leave()
    await settle()
    assert [(one.name, one.counters.delivered.entries) for one in scene.subscriptions.stats()] == [("s", 4)]
    assert deliveries.delivered.entries == 8
    # Who connects later counts on.
    again, _ = await scene.subscribe()
    assert scene.stats().counters.delivered.entries == 8
    assert scene.stats().consumers[0].counters.delivered.entries == 4
    again.leave()
    await scene.subscriptions.delete("s")
    assert (scene.subscriptions.stats(), list(deliveries.durable())) == ([], [])
    assert deliveries.delivered.entries == 12


async def test_the_rate_of_one_without_consumers_falls() -> None:
    scene = Scene()
    consumer, _ = await scene.subscribe()
    counters = scene.stats().counters
    counters.delivered.sample(0.0)
    scene.add(10)
    await settle()
    counters.delivered.sample(10.0)
    assert counters.delivered.messages_per_s > 0
    consumer.leave()
    for one in scene.subscriptions.counters():
        one.delivered.sample(20.0)
    assert scene.stats().counters.delivered.messages_per_s == 0
