"""Exclusive producers of the SDK: on topics with and without partitions, over reconnects, and how they lose a topic."""

from __future__ import annotations

import asyncio

import pytest

from magnetar import ProducerAccessMode, aio, exceptions
from magnetar._producing.partition_producer import PartitionProducer
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.topics.producers import Producers
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer
from magnetar_protos.broker_pb2 import ProducerAccessMode as WireAccessMode
from magnetar_wire.topic_name import TopicName
from tests.produce_client import ProduceClient
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene, running_broker

_EXCLUSIVE = ProducerAccessMode.Exclusive
_WAITS = ProducerAccessMode.WaitForExclusive
_FENCES = ProducerAccessMode.ExclusiveWithFencing


def _producers(scene: BrokerScene, topic: str = "t") -> Producers | None:
    """Return the broker's producers of the topic or partition, if it is loaded."""
    found = scene.broker_session.topics.get_loaded(TopicName.parse(topic))
    return None if found is None else found.producers


def _epochs(scene: BrokerScene, *partitions: int) -> list[int | None]:
    """Return the epochs of partitions of "t", or of the topic."""
    found = [_producers(scene, f"t-partition-{index}") for index in partitions] or [_producers(scene)]
    return [None if one is None else one.topic_epoch for one in found]


def _queued(scene: BrokerScene, topic: str = "t") -> int:
    found = _producers(scene, topic)
    return 0 if found is None else found.queued


def _cut_off(scene: BrokerScene, topic: str = "t") -> None:
    """End the connected producer, as if the broker had lost its connection."""
    found = _producers(scene, topic)
    assert found is not None
    for producer in found.connected():
        producer.end(TopicUnloaded("cut off"))


async def _wait_queued(scene: BrokerScene, count: int, topic: str = "t") -> None:
    await until(lambda: _queued(scene, topic) == count, f"{count} producers wait")


async def test_leaders_take_turns() -> None:
    """PRD-2: creation waits, longer than an operation may take, and the next one leads when the leader or its client
    closes."""
    options = {"operation_timeout_seconds": 0.2}
    async with running_broker() as scene, scene.client(**options) as first, scene.client() as second:
        leader = await first.create_producer("t", access_mode=_WAITS)
        waiting = [asyncio.create_task(client.create_producer("t", access_mode=_WAITS)) for client in (first, second)]
        await _wait_queued(scene, 2)
        with pytest.raises(exceptions.ProducerBusy):
            await second.create_producer("t")
        with pytest.raises(exceptions.ProducerFenced, match=r"/t has an exclusive producer .*, wait with WaitForExcl"):
            await second.create_producer("t", access_mode=_EXCLUSIVE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting[0]), 0.4)
        cancelled = asyncio.create_task(second.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 3)
        cancelled.cancel()
        await _wait_queued(scene, 2)
        await leader.send(b"first")
        await leader.close()
        leader = await waiting[0]
        await leader.send(b"second")
        assert not waiting[1].done()
        await first.close()
        leader = await waiting[1]
        await leader.send(b"third")
        assert _epochs(scene) == [2]


async def test_a_client_holds_few_producers_that_wait() -> None:
    """LIM-1: further ones are refused, which the library retries for a while."""
    options = {"operation_timeout_seconds": 0.2}
    async with running_broker(max_waiting_producers_per_stream=1) as scene, scene.client(**options) as client:
        leader = await client.create_producer("t", access_mode=_WAITS)
        waiting = asyncio.create_task(client.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1)
        with pytest.raises(exceptions.MagnetarException, match="max_waiting_producers_per_stream"):
            await client.create_producer("t", access_mode=_WAITS)
        await leader.close()
        leader = await waiting
        waiting = asyncio.create_task(client.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1)
        await leader.close()
        await waiting


async def test_a_fenced_producer_fails_what_is_pending() -> None:
    """PRD-2, CHK-39: typed, without resending it, and so does each later send; those that wait are fenced, too."""
    async with running_broker() as scene, scene.client() as first, scene.client() as second:
        fenced = await first.create_producer("t", access_mode=_EXCLUSIVE)
        shared = await first.create_producer("other")
        waiting = asyncio.create_task(second.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1)
        await fenced.send(b"stored")
        leader = await second.create_producer("t", access_mode=_FENCES)
        with pytest.raises(exceptions.ProducerFenced):
            await waiting
        results = await asyncio.gather(*(fenced.send(b"late") for _ in range(3)), return_exceptions=True)
        assert {type(one) for one in results} == {exceptions.ProducerFenced}
        assert not fenced.is_connected()
        await leader.send(b"leader")
        await fenced.close()
        async with await second.subscribe("t", "s", initial_position=aio.InitialPosition.Earliest) as consumer:
            assert [(await consumer.receive()).value() for _ in range(2)] == [b"stored", b"leader"]
        await second.create_producer("other", access_mode=_FENCES)
        with pytest.raises(exceptions.ProducerFenced):
            await shared.send(b"late")


async def test_an_exclusive_producer_survives_the_loss_of_its_connection() -> None:
    """PRD-2, PRD-9: with its epoch, if nobody else was there; the topic's next opening knows the epoch."""
    async with running_broker() as scene, scene.client() as client, scene.client() as other:
        producer = await client.create_producer("t", access_mode=_EXCLUSIVE)
        await other.create_producer("unrelated")
        for number in range(3):
            if number == 1:
                await scene.admin.topics.unload("t")
            elif number == 2:
                _cut_off(scene)
            await producer.send(b"%d" % number)
        assert _epochs(scene) == [0]
        with pytest.raises(exceptions.ProducerFenced):
            await other.create_producer("t", access_mode=_EXCLUSIVE)


async def test_a_waiting_producer_waits_on_at_the_next_opening_of_the_topic() -> None:
    """PRD-2: its broker has unloaded the topic while it waited, for longer than an operation may take."""
    async with running_broker() as scene, scene.client() as first, scene.client(operation_timeout_seconds=5) as second:
        leader = await first.create_producer("t", access_mode=_EXCLUSIVE)
        await leader.send(b"x")
        waiting = asyncio.create_task(second.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1)
        await scene.admin.topics.unload("t")
        await until(lambda: _queued(scene) == 1 or waiting.done(), "it waits again, or has its turn")
        await leader.close()
        await (await waiting).send(b"y")


async def test_an_exclusive_producer_ends_with_its_topic() -> None:
    """TOP-7: its epoch is not one of the topic that is created later."""
    async with running_broker() as scene, scene.client() as client:
        producer = await client.create_producer("t", access_mode=_EXCLUSIVE)
        await producer.send(b"x")
        await scene.admin.topics.delete("t", force=True)
        with pytest.raises((exceptions.IncarnationChanged, exceptions.TopicNotFound)):
            while True:
                await producer.send(b"late")
        await client.create_producer("t", access_mode=_EXCLUSIVE)
        assert _epochs(scene) == [0]


async def test_an_exclusive_producer_has_all_partitions_or_none() -> None:
    """PRD-2: if one is refused, all are released, and nothing is left of the attempt; also with a lazy start."""
    async with running_broker() as scene, scene.client() as first, scene.client() as second:
        await scene.admin.topics.create_partitioned("t", 3)
        for _ in range(3):  # somebody uses a single partition
            await (await first.create_producer("t-partition-2", access_mode=_EXCLUSIVE)).close()
        holder = await first.create_producer("t", access_mode=_EXCLUSIVE, lazy_start_partitioned_producers=True)
        assert _epochs(scene, 0, 1, 2) == [0, 0, 3]
        waiting = asyncio.create_task(second.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1, "t-partition-0")
        await holder.close()
        holder = await waiting
        assert _epochs(scene, 0, 1, 2) == [1, 1, 4]
        await holder.close()
        in_the_way = await first.create_producer("t-partition-1")
        for mode in (_EXCLUSIVE, _WAITS):
            with pytest.raises(
                exceptions.ProducerFenced, match=r"t-partition-1 has a shared producer: close it, or fence it with"
            ):
                await second.create_producer("t", access_mode=mode)
        await (await second.create_producer("t-partition-0")).close()
        await (await second.create_producer("t-partition-2")).close()
        leader = await second.create_producer("t", access_mode=_FENCES)
        with pytest.raises(exceptions.ProducerFenced):
            await in_the_way.send(b"late")
        for _ in range(6):
            await leader.send(b"x")


async def test_who_gets_the_first_partition_has_the_topic() -> None:
    """PRD-2: one that has lost it is fenced at the others, and ends everywhere."""
    async with running_broker() as scene, scene.client() as first, scene.client() as second:
        await scene.admin.topics.create_partitioned("t", 2)
        former = await first.create_producer("t", access_mode=_EXCLUSIVE)
        await former.send(b"x")
        waiting = asyncio.create_task(second.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1, "t-partition-0")
        _cut_off(scene, "t-partition-0")
        leader = await waiting
        assert _epochs(scene, 0, 1) == [1, 1]
        for _ in range(2):  # one of each partition
            with pytest.raises(exceptions.ProducerFenced):
                await former.send(b"late")
        for _ in range(4):
            await leader.send(b"y")


async def test_an_exclusive_producer_takes_partitions_that_are_added() -> None:
    """PRD-2, TOP-3: as soon as it notices them, with its epoch; somebody else may have been there first."""
    async with running_broker() as scene, scene.client() as first, scene.client() as second:
        await scene.admin.topics.create_partitioned("t", 1)
        holder = await first.create_producer("t", access_mode=_EXCLUSIVE, auto_update_partitions_interval_seconds=0.05)
        await scene.admin.topics.update_partitioned("t", 2)
        await until(lambda: _epochs(scene, 0, 1) == [0, 0], "it has noticed them")
        await holder.send(b"x")
        with pytest.raises(exceptions.ProducerBusy):
            await second.create_producer("t-partition-1")


async def test_the_first_partition_was_created_again() -> None:
    """PRD-2, TOP-7: its epochs begin with 0, and the other partitions remember the former ones."""
    async with running_broker() as scene, scene.client() as client:
        await scene.admin.topics.create_partitioned("t", 2)
        for _ in range(4):
            await (await client.create_producer("t", access_mode=_EXCLUSIVE)).close()
        await scene.admin.topics.delete("t-partition-0", force=True)
        await client.create_producer("t", access_mode=_EXCLUSIVE)
        assert _epochs(scene, 0, 1) == [4, 4]


async def test_an_attempt_to_take_new_partitions_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """PRD-2, TOP-3: after one that has opened only some of them, until somebody else has left the others."""
    has_others = asyncio.Event()
    open_partition = PartitionProducer.open

    async def wait_for_others(self: PartitionProducer) -> None:
        if self.topic_epoch is not None and self.topic.endswith("-partition-2"):
            await has_others.wait()
        await open_partition(self)

    monkeypatch.setattr(PartitionProducer, "open", wait_for_others)
    async with running_broker() as scene, scene.client() as first, scene.client() as second:
        await scene.admin.topics.create_partitioned("t", 1)
        holder = await first.create_producer("t", access_mode=_EXCLUSIVE, auto_update_partitions_interval_seconds=0.05)
        await scene.admin.topics.update_partitioned("t", 3)
        await until(lambda: _epochs(scene, 1) == [0], "it has noticed them")
        for _ in range(3):
            await (await second.create_producer("t-partition-2", access_mode=_EXCLUSIVE)).close()
        other = await second.create_producer("t-partition-2", access_mode=_EXCLUSIVE)
        has_others.set()
        await until(lambda: (_epochs(scene, 1)[0] or 0) > 1, "it tries again")
        await other.close()
        await until(lambda: _epochs(scene, 2) == [4], "it has them")
        async with asyncio.timeout(30):
            while {(await holder.send(b"x")).partition() for _ in range(3)} != {0, 1, 2}:
                pass


async def test_a_producer_that_has_waited_takes_partitions_that_were_added() -> None:
    """PRD-2, TOP-3: while it waited. Its keys go to the same partitions as those of its predecessor."""
    async with running_broker() as scene, scene.client() as first, scene.client() as second:
        await scene.admin.topics.create_partitioned("t", 1)
        leader = await first.create_producer("t", access_mode=_EXCLUSIVE)
        waiting = asyncio.create_task(second.create_producer("t", access_mode=_WAITS))
        await _wait_queued(scene, 1, "t-partition-0")
        await scene.admin.topics.update_partitioned("t", 3)
        await leader.close()
        successor = await waiting
        for index in (1, 2):
            with pytest.raises(exceptions.ProducerBusy):
                await first.create_producer(f"t-partition-{index}")
        assert {(await successor.send(b"x")).partition() for _ in range(3)} == {0, 1, 2}


async def test_made_up_epochs_keep_nobody_out() -> None:
    """PRD-2: a number that the first partition does not have is refused everywhere."""
    async with running_broker() as scene, scene.client() as client:
        await scene.admin.topics.create_partitioned("t", 2)
        for _ in range(3):
            await (await client.create_producer("t", access_mode=_EXCLUSIVE)).close()
        connection = scene.transport.connect(scene.address)
        for topic in ("t-partition-1", "t-partition-0", "other"):
            raw = ProduceClient(connection.open_stream("produce"))
            exclusive = WireAccessMode.ACCESS_EXCLUSIVE
            await raw.send(OpenProducer(producer_id=1, topic=topic, access_mode=exclusive, topic_epoch=2**62))
            assert await raw.code(1) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_ARGUMENT)
            raw.stream.cancel()
        await connection.close()
        await (await client.create_producer("t", access_mode=_EXCLUSIVE)).close()
        assert _epochs(scene, 0, 1) == [3, 3]
