"""A topic with deduplication whose broker is killed: another one takes it over, while producers publish."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar import MessageId
from magnetar.admin import AsyncAdmin, TopicPolicies
from magnetar_broker import paths
from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.errors import BrokerError
from magnetar_broker.topics import policy_refresh
from magnetar_metadata.compare_and_set import change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.cluster_scene import OneBroker, kill, running_brokers
from tests.unit.broker.deduplication_scene import DUPLICATE, GrpcProducer

_NAME = TopicName.parse("t")


async def test_messages_are_stored_once_when_a_broker_takes_over() -> None:
    """DUP-1, DUP-2, PRD-7: it reads the snapshot and the entries after it, before producers may publish."""
    async with (
        running_brokers(2, broker_deduplication_enabled=True, broker_deduplication_entries_interval=20) as scene,
        scene.client() as client,
    ):
        producer = await client.create_producer("t", producer_name="p", batching_max_messages=3)
        numbers = itertools.count()
        sends: list[asyncio.Task[MessageId]] = []

        def send(count: int) -> None:
            sends.extend(asyncio.create_task(producer.send(b"%d" % next(numbers))) for _ in range(count))

        send(50)
        await sends[30]
        owner = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(_NAME) is not None)
        send(50)
        await asyncio.sleep(0)
        await kill(owner)
        scene.brokers.remove(owner)
        send(20)
        ids = await asyncio.gather(*sends)
        assert producer.last_sequence_id() == 119
        reader = await client.create_reader("t", MessageId.earliest)
        found = [(await reader.read_next()).data() for _ in range(120)]
        assert found == [b"%d" % number for number in range(120)]
        assert not await reader.has_message_available()
        assert len(ids) == 120


async def test_messages_in_chunks_are_stored_once_when_a_broker_takes_over() -> None:
    """DUP-1, DUP-2, PRD-8: the broker is killed while chunks are in flight; groups that it cuts off are completed."""
    settings: dict[str, Any] = {"broker_deduplication_enabled": True, "max_message_size": 20_000}
    async with running_brokers(2, **settings) as scene, scene.client() as client:
        producer = await client.create_producer("t", chunking_enabled=True, batching_enabled=False)
        contents = [b"%d " % number + bytes(70_000) for number in range(12)]
        await producer.send(contents[0])
        scene.bookies[1].hold()  # the other one stores what is in flight
        sends = [asyncio.create_task(producer.send(one)) for one in contents[1:]]
        owner = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(_NAME) is not None)
        topic = owner.broker_session.topics.get_loaded(_NAME)
        assert topic is not None
        await until(lambda: topic.log.stats().pending_appends > 4, "chunks are in flight")
        await kill(owner)
        scene.brokers.remove(owner)
        assert not any(one.done() for one in sends)
        scene.bookies[1].resume()
        await asyncio.gather(*sends)
        reader = await client.create_reader("t", MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in contents] == contents
        assert not await reader.has_message_available()


async def test_a_broker_that_has_lost_the_topic_opens_no_new_producer() -> None:
    """DUP-1: it does not know what was stored since. With an old last sequence id, the first messages of a new producer
    would be taken for duplicates of its predecessor's."""
    async with running_brokers(1, broker_deduplication_enabled=True) as scene:
        broker = scene.brokers[0]
        opened: Any = SimpleNamespace(transport=scene.transport, address=broker.address)
        await GrpcProducer(opened).open("p", "t")
        lost = broker.broker_session.topics.get_loaded(_NAME)

        def opened_elsewhere(payload: bytes | None) -> bytes:
            assert payload is not None
            node = ManagedLedgerNode.FromString(payload)
            node.owner_epoch = b"another"
            return node.SerializeToString()

        path = paths.topic(_NAME)
        await change(scene.registry, path, opened_elsewhere, clock=scene.clock, randomness=SystemRandomness())
        async with scene.client() as client:
            await client.create_producer("t", producer_name="p")  # opens the topic again
        assert broker.broker_session.topics.get_loaded(_NAME) is not lost


@pytest.mark.parametrize(("was_on", "is_readable"), [(True, True), (False, True), (True, False)])
async def test_a_broker_with_older_policies_takes_over_as_the_owner_left_it(
    was_on: bool, is_readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUP-1, TOP-4: a policy was changed, and only the former owner has read it; also if it can't be read then."""
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)
    async with running_brokers(1, metadata_cache_ttl_seconds=0.05) as scene:
        admin, first = AsyncAdmin(scene.service_url, transport=scene.transport), scene["b1"]

        async def open_producer(at: OneBroker) -> GrpcProducer:
            opened: Any = SimpleNamespace(transport=scene.transport, address=at.address)
            producer = GrpcProducer(opened)
            await producer.open("p", "t")
            return producer

        async def fail(*arguments: Any) -> Any:
            raise BrokerError(ErrorCode.METADATA_ERROR, "the owner of the policies can't be reached")

        async def change_policy(is_on: bool) -> None:
            await admin.topics.change_policies("t", TopicPolicies(deduplication=is_on))
            topic = first.broker_session.topics.get_loaded(_NAME)
            assert topic is not None
            await until(lambda: topic.deduplication.status == ("Enabled" if is_on else "Disabled"), "it is followed")

        producer = await open_producer(first)
        await change_policy(not was_on)
        second = scene.another(2, metadata_cache_ttl_seconds=3600)
        await second.broker.start()
        assert (await second.broker_session.topic_policies.get(_NAME)).deduplication is not was_on
        await change_policy(was_on)
        assert DUPLICATE not in await producer.send(entry(0), entry(1))
        await producer.leave()
        await first.broker.close()
        scene.brokers.remove(first)
        if not is_readable:
            monkeypatch.setattr(TopicPolicyRpc, "fetch", fail)
        producer = await open_producer(second)
        results = await producer.send(entry(1), entry(0), entry(2), entry(2))
        assert [one == DUPLICATE for one in results] == [was_on, was_on, False, was_on]
        await producer.leave()
        await admin.close()
