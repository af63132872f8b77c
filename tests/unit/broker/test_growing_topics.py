"""Partitioned topics that grow under the SDK's producers and consumers: the broker reports it, so nothing waits."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition, MessageId, aio, exceptions
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from tests.running import until
from tests.unit.broker.broker_scene import running_broker

# Not in the time of a test.
NEVER_S = 86_400
NO_POLLING: dict[str, Any] = {"auto_update_partitions_interval_seconds": NEVER_S}


async def reaches(producer: aio.Producer[bytes], partition: int) -> bool:
    """Whether a message, which may go to any partition, goes to this one."""
    return (await producer.send(b"to any")).partition() == partition


async def receive_of(consumer: aio.Consumer[bytes] | aio.Reader[bytes], wanted: set[bytes]) -> None:
    """Receive messages until these have come."""
    missing = set(wanted)
    while missing:
        receive = consumer.receive if isinstance(consumer, aio.Consumer) else consumer.read_next
        missing.discard((await receive(60_000)).data())


async def test_open_producers_and_consumers_use_new_partitions_at_once() -> None:
    """TOP-3, CHK-56, PRD-6: for all kinds; a custom router gets the new number of partitions. New partitions are read
    from their first message, though the subscriptions began at the latest."""
    async with running_broker() as scene, scene.client() as client, scene.client() as other:
        await scene.admin.topics.create_partitioned("t", 1)
        await scene.admin.topics.create_partitioned("u", 2)
        latest = {"initial_position": InitialPosition.Latest, **NO_POLLING}
        consumers: list[aio.Consumer[bytes] | aio.Reader[bytes]] = [
            await client.subscribe("t", "exclusive", **latest),
            await client.subscribe(["u", "t"], "shared", ConsumerType.Shared, **latest),
            await client.subscribe("t", "failover", ConsumerType.Failover, **latest),
            await client.create_reader("t", MessageId.latest, **NO_POLLING),
        ]
        counts: list[int] = []

        def route(message: Any, partitions: int) -> int:
            counts.append(partitions)
            return partitions - 1

        keyed = await client.create_producer("t", **NO_POLLING)
        routed = await client.create_producer("t", message_router=route, **NO_POLLING)
        assert (await keyed.send(b"0")).partition() == 0
        await scene.admin.topics.update_partitioned("t", 4)
        await (await other.create_producer("t-partition-3")).send(b"before clients know it")
        for producer in (keyed, routed):
            await until(partial(reaches, producer, 3), "it uses the new partitions")
        assert counts[-1] == 4
        keys = [f"key {number}" for number in range(20)]
        assert {(await keyed.send(key.encode(), partition_key=key)).partition() for key in keys} == {0, 1, 2, 3}
        for consumer in consumers:
            await receive_of(consumer, {b"0", b"before clients know it", *(key.encode() for key in keys)})
        await scene.admin.topics.update_partitioned("u", 3)
        await (await other.create_producer("u-partition-2")).send(b"in a list of topics")
        await receive_of(consumers[1], {b"in a list of topics"})


async def test_a_growth_that_was_not_reported_is_noticed_with_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TOP-3, CHK-56: the owner of the first partition is away at the moment of the growth."""
    call_topic_owner = OwnerRpc.call_topic_owner

    async def fail(self: OwnerRpc, topic: Any, called: str, *arguments: Any, **how: Any) -> Any:
        if called == "report_growth":
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, "away")
        return await call_topic_owner(self, topic, called, *arguments, **how)

    monkeypatch.setattr(OwnerRpc, "call_topic_owner", fail)
    async with running_broker() as scene, scene.client() as client:
        await scene.admin.topics.create_partitioned("t", 1)
        consumer = await client.subscribe("t", "s", **NO_POLLING)
        producer = await client.create_producer("t", **NO_POLLING)
        await scene.admin.topics.update_partitioned("t", 2)
        assert not any([await reaches(producer, 1) for _ in range(3)])
        await scene.admin.topics.unload("t-partition-0")
        await until(partial(reaches, producer, 1), "the producer uses both")
        await producer.send(b"0")
        await producer.send(b"1")
        await receive_of(consumer, {b"0", b"1"})


async def test_a_subscription_is_deleted_at_partitions_that_its_consumer_does_not_know() -> None:
    """TOP-3: they have it from the growth on, and would retain all messages."""
    async with running_broker() as scene, scene.client() as client:
        await scene.admin.topics.create_partitioned("t", 1)
        consumer = await client.subscribe("t", "s", auto_update_partitions_interval_seconds=0)
        await scene.admin.topics.update_partitioned("t", 3)
        await consumer.unsubscribe()
        for index in range(3):
            assert await scene.admin.subscriptions.list(f"t-partition-{index}") == []


async def test_a_partition_that_is_missing_is_created_by_its_use() -> None:
    """TOP-3: also where topics are not created automatically; but none that the topic does not have."""
    async with running_broker(allow_auto_topic_creation=False) as scene, scene.client() as client:
        await scene.admin.topics.create_partitioned("t", 3)
        await scene.admin.topics.delete("t-partition-1")
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s")
        await scene.admin.topics.delete("t-partition-2", force=True)
        assert {(await producer.send(b"%d" % number)).partition() for number in range(3)} == {0, 1, 2}
        await receive_of(consumer, {b"0", b"1", b"2"})
        with pytest.raises(exceptions.TopicNotFound, match=r"has 3 partitions, and no .*t-partition-3"):
            await client.create_producer("t-partition-3")
