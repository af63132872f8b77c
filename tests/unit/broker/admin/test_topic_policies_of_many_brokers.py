"""Policies of topics whose events another broker owns, while owners change."""

from __future__ import annotations

import asyncio

import pytest

from magnetar import exceptions
from magnetar.admin import AutoSubscriptionCreation, TopicPolicies
from magnetar_broker.system_topics import events_topic
from magnetar_wire.topic_name import NamespaceName
from tests.unit.broker.admin.many_brokers import admins, serving, spread, topic_at
from tests.unit.broker.cluster_scene import kill, running_brokers

_EVENTS = str(events_topic(NamespaceName("public", "default")))


async def test_policies_survive_each_owner_of_their_events() -> None:
    """TOP-4: any broker takes a change, also while the events' bundle moves or its broker has just died."""
    async with running_brokers(3) as scene, admins(scene) as (one, two, three):
        await spread(scene, one)
        await one.topics.create("orders")
        for ttl in range(1, 5):
            for admin in (one, two, three):
                await admin.topics.change_policies("orders", TopicPolicies(message_ttl_seconds=ttl))
                assert await admin.topics.policies("orders") == TopicPolicies(message_ttl_seconds=ttl)
            moving = asyncio.create_task(one.topics.unload(_EVENTS))
            await two.topics.change_policies("orders", TopicPolicies(deduplication=ttl % 2 == 0))
            await moving
            assert (await three.topics.policies("orders")).deduplication is (ttl % 2 == 0)
            await two.topics.change_policies("orders", TopicPolicies(), remove=["deduplication"])
        [owner] = serving(scene, _EVENTS)
        left = [number for number, broker in enumerate(scene.brokers) if broker.broker_id != owner]
        await kill(scene[owner])
        for number in left:
            admin = (one, two, three)[number]
            assert await admin.topics.policies("orders") == TopicPolicies(message_ttl_seconds=4)
            await admin.topics.change_policies("orders", TopicPolicies(message_ttl_seconds=4))
        assert serving(scene, _EVENTS) != [owner]


async def test_the_broker_that_serves_a_topic_gets_its_policies_within_seconds() -> None:
    """TOP-4: from the owner of the events."""
    async with running_brokers(metadata_cache_ttl_seconds=0.05) as scene, admins(scene) as (one, two):
        await spread(scene, one)
        await one.topics.create("orders")
        no_subscriptions = AutoSubscriptionCreation(allowed=False)
        await one.topics.change_policies("orders", TopicPolicies(auto_subscription_creation=no_subscriptions))
        [owner] = serving(scene, _EVENTS)
        server = next(broker for broker in scene.brokers if broker.broker_id != owner)
        topic = topic_at(scene, server)
        await one.topics.create(topic)
        async with scene.client() as client:
            await (await client.subscribe(topic, "first")).close()
            await two.topics.change_policies(topic, TopicPolicies(auto_subscription_creation=no_subscriptions))

            async def is_refused() -> bool:
                try:
                    await (await client.subscribe(topic, f"s{asyncio.get_running_loop().time()}")).close()
                except exceptions.SubscriptionNotFound:
                    return True
                return False

            for _ in range(100):
                if await is_refused():
                    break
                await asyncio.sleep(0)
            else:
                pytest.fail("the policy has no effect")
            await one.topics.change_policies(topic, TopicPolicies(), remove=["auto_subscription_creation"])
