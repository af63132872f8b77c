"""Access modes of producers on a real log: the topic's epoch is stored first, over crashes and takeovers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.settings.rates import NO_RATE
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.deduplication.deduplication import Deduplication
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_broker.topics.producers import Producers
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import StoredValue
from magnetar_metadata.errors import StoreFull
from magnetar_metadata.store import Put
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, ProducerAccessMode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_protos.schema_pb2 import Schema
from magnetar_testing.metadata import Fault
from magnetar_testing.randomness import SeededRandomness
from tests.produce_client import entry
from tests.unit.broker.fake_cursors import FakeCursorTable
from tests.unit.broker.log_scene import Scene, running_log_scene
from tests.unit.broker.topic_scene import FakeProducerSink

_SHARED = ProducerAccessMode.ACCESS_SHARED
_EXCLUSIVE = ProducerAccessMode.ACCESS_EXCLUSIVE
_WAITS = ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE
_FENCES = ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING


class _AnySchema:
    async def admit_producer(self, schema: Schema, client: str) -> bytes:
        return b""


class _Sink(FakeProducerSink):
    is_alive = True

    async def check_alive(self) -> bool:
        return self.is_alive


class _Topic:
    """The producers of a topic whose log one broker has opened."""

    def __init__(self, scene: Scene, log: ManagedLedger, **settings: Any) -> None:
        self.log = log
        schemas: Any = _AnySchema()
        unlimited = RateLimit("none", lambda: NO_RATE, scene.clock)
        names: ProducerNames[Producer] = ProducerNames()
        live_settings: Any = LiveSettings(BrokerServiceSettings(), Policies(), are_known=True)
        self.producers = Producers(
            log,
            schemas,
            TopicSettings(**settings),
            scene.clock,
            SeededRandomness("producers"),
            PublishThrottle(PublishBudget(2**20), unlimited, unlimited),
            TopicCounters(),
            BrokerCounters(),
            names,
            Deduplication(log, FakeCursorTable(log), names, live_settings, scene.clock),  # type: ignore[arg-type]
            lambda: None,
            self._check_quotas,
        )
        log.on_lost = self._lost
        self._instances = itertools.count()
        self.sinks: dict[Producer, _Sink] = {}

    async def _check_quotas(self) -> None: ...

    def _lost(self, error: TopicUnloaded) -> None:
        self.producers.end_queued(error)
        for producer in self.producers.connected():
            producer.end(error)

    async def open(self, name: str, mode: ProducerAccessMode, epoch: int | None = None, **fields: Any) -> Producer:
        """Open a producer; with `epoch`, one that has reconnected."""
        if epoch is not None:
            fields.setdefault("incarnation", self.log.incarnation)
        fields.setdefault("instance", b"%d" % next(self._instances))
        opening = OpenProducer(producer_name=name, access_mode=mode, topic_epoch=epoch, **fields)
        sink = _Sink()
        producer = await self.producers.open(opening, sink)
        self.sinks[producer] = sink
        return producer

    async def code(self, name: str, mode: ProducerAccessMode, epoch: int | None = None, **fields: Any) -> int:
        """Return the code of the refusal."""
        with pytest.raises(BrokerError) as refused:
            await self.open(name, mode, epoch, **fields)
        return refused.value.code

    @property
    def epoch(self) -> tuple[int, str] | None:
        stored = self.log.topic_epoch
        return None if stored is None else (stored.number, stored.holder)


async def _stored_epoch(scene: Scene) -> int:
    node = await scene.node()
    assert node is not None
    return node.topic_epoch.number if node.HasField("topic_epoch") else -1


async def test_an_exclusive_producer_keeps_others_out_until_it_leaves() -> None:
    """PRD-2: the others are refused with Pulsar's codes, or wait in order, and each gets the next epoch."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        first = await topic.open("first", _EXCLUSIVE)
        assert topic.epoch == (0, "first")
        assert await topic.code("other", _SHARED) == ErrorCode.PRODUCER_BUSY
        assert await topic.code("other", _EXCLUSIVE) == ErrorCode.PRODUCER_FENCED
        waiting = [asyncio.create_task(topic.open(f"w{number}", _WAITS)) for number in range(3)]
        await scene.idle()
        assert topic.producers.queued == 3
        waiting[0].cancel()
        topic.producers.leave(first, TopicUnloaded("it left"))
        second = await waiting[1]
        assert topic.epoch == (1, "w1")
        assert not waiting[2].done()
        topic.producers.leave(second, TopicUnloaded("it left"))
        third = await waiting[2]
        assert await topic.code("first", _EXCLUSIVE, 0) == ErrorCode.PRODUCER_FENCED
        topic.producers.leave(third, TopicUnloaded("it left"))
        shared = [await topic.open(f"s{number}", _SHARED) for number in range(2)]
        assert await topic.code("other", _EXCLUSIVE) == ErrorCode.PRODUCER_FENCED
        last = asyncio.create_task(topic.open("last", _WAITS))
        await scene.idle()
        assert await topic.code("s3", _SHARED) == ErrorCode.PRODUCER_BUSY, "the queue gets its turn"
        for one in shared:
            assert not last.done()
            topic.producers.leave(one, TopicUnloaded("it left"))
        await last
        assert topic.epoch == (3, "last")


async def test_a_fencing_producer_ends_all_others_at_once() -> None:
    """PRD-2: also those that wait. Their pending entries are decided before it is open."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        holder = await topic.open("holder", _EXCLUSIVE)
        waiting = asyncio.create_task(topic.open("waits", _WAITS))
        await scene.idle()
        for bookie in scene.bookies.values():
            bookie.hanging.add("add")
        holder.publish(0, [entry(0, producer="holder")])
        fencing = asyncio.create_task(topic.open("fences", _FENCES))
        await scene.idle()
        holder.publish(1, [entry(1, producer="holder")])
        assert not fencing.done(), "an entry of the holder is not decided"
        for bookie in scene.bookies.values():
            bookie.hanging.clear()
        await scene.wait(fencing.done)
        with pytest.raises(BrokerError) as fenced:
            await waiting
        assert fenced.value.code == ErrorCode.PRODUCER_FENCED
        assert [one[0] for one in topic.sinks[holder].results] == ["ended"]
        assert topic.sinks[holder].results[0][1].code == ErrorCode.PRODUCER_FENCED
        assert topic.epoch == (1, "fences")
        assert len(await scene.read_all(topic.log)) == 1


async def test_an_exclusive_producer_whose_client_is_dead_is_evicted() -> None:
    """PRD-2: the next one takes over at its request, and the former cannot come back."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        holder = await topic.open("holder", _EXCLUSIVE)

        async def disconnect() -> bool:
            topic.producers.leave(holder, TopicUnloaded("its connection is closed"))
            return False

        topic.sinks[holder].check_alive = disconnect  # type: ignore[method-assign]
        await topic.open("next", _EXCLUSIVE)
        assert await topic.code("holder", _EXCLUSIVE, 0) == ErrorCode.PRODUCER_FENCED


async def test_a_producer_that_reconnects_replaces_itself() -> None:
    """PRD-2, CHK-39: with the epoch that it has, or with none if it never got the answer; a later one goes
    before those that wait."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        mine: dict[str, Any] = {"instance": b"mine"}
        await topic.open("", _EXCLUSIVE, **mine, connection_epoch=1)
        second = await topic.open("", _EXCLUSIVE, **mine, connection_epoch=2)
        assert topic.epoch == (1, second.producer_name)
        waiting = asyncio.create_task(topic.open("waits", _WAITS))
        await scene.idle()
        third = await topic.open(second.producer_name, _EXCLUSIVE, 1, **mine, connection_epoch=3)
        assert topic.epoch == (1, second.producer_name)
        assert topic.sinks[second].results[-1][0] == "ended"
        assert topic.producers.connected() == [third]
        assert await topic.code(second.producer_name, _EXCLUSIVE, 1, **mine, connection_epoch=2) == (
            ErrorCode.PRODUCER_FENCED
        )
        assert topic.producers.connected() == [third], "a request that was delayed ends nobody"
        topic.producers.leave(third, TopicUnloaded("it left"))
        await waiting


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST])
@pytest.mark.parametrize("mode", [_EXCLUSIVE, _FENCES, _WAITS])
async def test_a_lost_answer_of_the_store_admits_no_second_producer(mode: ProducerAccessMode, fault: Fault) -> None:
    """CHK-39, CHK-58: if the change of the topic's node is lost, the producer that is open has the highest stored
    epoch, and the former one comes back only if nobody got a higher one."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        holder = await topic.open("holder", _EXCLUSIVE)
        opening: asyncio.Task[Producer]
        if mode == _WAITS:
            opening = asyncio.create_task(topic.open("next", mode))
            await scene.idle()
        elif mode == _EXCLUSIVE:
            topic.producers.leave(holder, TopicUnloaded("cut off"))
        scene.server.queue_faults(scene.store, fault)
        if mode == _WAITS:
            topic.producers.leave(holder, TopicUnloaded("cut off"))
        else:
            opening = asyncio.create_task(topic.open("next", mode))

        def resumed() -> bool:
            if scene.store.session.state.name == "SUSPENDED":
                scene.server.resume(scene.store)
                scene.server.release(scene.store)
            return opening.done()

        await scene.wait(resumed)
        if opening.exception() is None:
            assert await _stored_epoch(scene) == 1
        else:
            topic = _Topic(scene, await scene.open(await scene.another()))
        stored = await _stored_epoch(scene)
        former = asyncio.create_task(topic.open("holder", _EXCLUSIVE, 0))
        await scene.wait(former.done)
        assert (former.exception() is None) == (stored == 0)


async def test_a_broker_that_has_lost_the_topic_admits_nobody() -> None:
    """CHK-39: neither with a new epoch nor with the stored one, and its producers cannot publish any more."""
    async with running_log_scene() as scene:
        zombie = _Topic(scene, await scene.open())
        holder = await zombie.open("holder", _EXCLUSIVE)
        cut_off = await zombie.open("holder", _FENCES)
        assert holder.error is not None
        topic = _Topic(scene, await scene.open(await scene.another()))
        assert topic.epoch == (1, "holder")
        await topic.open("next", _EXCLUSIVE)
        zombie.producers.leave(cut_off, TopicUnloaded("cut off"))
        with pytest.raises(TopicUnloaded):
            await zombie.open("holder", _EXCLUSIVE, 1)
        again = _Topic(scene, await scene.open(await scene.another()))
        for mode in (_EXCLUSIVE, _FENCES, _WAITS):
            zombie = _Topic(scene, topic.log)
            with pytest.raises(TopicUnloaded):
                await zombie.open("late", mode)
        assert await again.code("holder", _EXCLUSIVE, 1) == ErrorCode.PRODUCER_FENCED
        assert again.epoch == (2, "next")


async def test_a_late_change_of_the_epoch_is_not_applied_at_the_next_owner() -> None:
    """CHK-39: the request is in flight while another broker opens the topic."""
    async with running_log_scene() as scene:
        zombie_store = scene.server.connect()
        client = scene.another_client(zombie_store)
        scene.clients.append(client)
        await client.start()
        zombie = _Topic(scene, await scene.open(client))
        scene.server.queue_faults(zombie_store, Fault.HOLD_REQUEST)
        late = asyncio.create_task(zombie.open("late", _EXCLUSIVE))
        await scene.wait(lambda: zombie_store.session.state.name == "SUSPENDED")
        link = scene.server.find_session(zombie_store)
        assert link is not None
        assert any(isinstance(one, Put) for request in link.held for one in request.changes)
        topic = _Topic(scene, await scene.open(await scene.another()))
        await topic.open("next", _EXCLUSIVE)
        scene.server.release(zombie_store)
        scene.server.resume(zombie_store)
        with pytest.raises(TopicUnloaded):
            await late
        assert await _stored_epoch(scene) == 0
        assert topic.epoch == (0, "next")


@pytest.mark.parametrize("setting", ["max_producers_per_topic", "max_waiting_producers_per_topic"])
async def test_the_queue_of_producers_is_bounded(setting: str) -> None:
    """LIM-1: for those that would wait in it. One that reconnects replaces itself."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open(), **{setting: 2})
        await topic.open("holder", _EXCLUSIVE, instance=b"holder")
        waiting = [
            asyncio.create_task(topic.open(f"w{number}", _WAITS, instance=b"%d" % number)) for number in range(2)
        ]
        await scene.idle()
        assert await topic.code("w2", _WAITS) == ErrorCode.PRODUCER_BUSY
        assert await topic.code("other", _EXCLUSIVE) == ErrorCode.PRODUCER_FENCED
        await topic.open("holder", _WAITS, 0, instance=b"holder", connection_epoch=1)
        waiting.append(asyncio.create_task(topic.open("w0", _WAITS, instance=b"0", connection_epoch=1)))
        with pytest.raises(BrokerError, match="has reconnected"):
            await waiting.pop(0)
        error = TopicUnloaded("it is moved")
        topic.producers.end_queued(error)
        await asyncio.wait(waiting)
        assert all(isinstance(one.exception(), TopicUnloaded) for one in waiting)
        assert topic.epoch == (0, "holder"), "none of them got its turn"


async def test_producers_that_wait_share_a_check_of_the_holder() -> None:
    """PRD-2: many of them must not ping it once each."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        holder = await topic.open("holder", _EXCLUSIVE)
        answered, checks = asyncio.Event(), 0

        async def check() -> bool:
            nonlocal checks
            checks += 1
            return await answered.wait()

        topic.sinks[holder].check_alive = check  # type: ignore[method-assign]
        waiting = [asyncio.create_task(topic.open(f"w{number}", _WAITS)) for number in range(3)]
        await scene.idle()
        answered.set()
        assert await topic.code("other", _EXCLUSIVE) == ErrorCode.PRODUCER_FENCED
        await scene.idle()
        waiting[0].cancel()
        assert (topic.producers.queued, checks) == (3, 1)
        topic.producers.leave(holder, TopicUnloaded("it left"))
        await waiting[1]
        topic.producers.end_queued(TopicUnloaded("it is moved"))
        await asyncio.wait(waiting)


@pytest.mark.parametrize("outcome", ["waits", "refused", "done"])
async def test_a_cancelled_opening_ends_no_epoch_that_is_stored(outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-39: the former producer comes back if the change had not begun, or is refused; not before that is known."""
    async with running_log_scene() as scene:
        topic = _Topic(scene, await scene.open())
        topic.producers.leave(await topic.open("former", _EXCLUSIVE), TopicUnloaded("its connection broke"))
        answered, in_flight = asyncio.Event(), asyncio.Event()

        async def change_later(*arguments: Any, **options: Any) -> StoredValue | None:
            in_flight.set()
            await answered.wait()
            if outcome == "refused":
                raise StoreFull("the store is full", "/t")
            return await change(*arguments, **options)

        change = compare_and_set.change
        monkeypatch.setattr(compare_and_set, "change", change_later)
        if outcome == "waits":
            other = asyncio.create_task(topic.log.change_properties({"other": b"change"}))
            await in_flight.wait()
        opening = asyncio.create_task(topic.open("next", _EXCLUSIVE))
        await in_flight.wait()
        await scene.idle()
        opening.cancel()
        await asyncio.wait([opening])
        if outcome == "waits":
            answered.set()
            await other
        else:
            assert await topic.code("former", _EXCLUSIVE, 0) == ErrorCode.SERVICE_NOT_READY
            answered.set()
        await scene.idle()
        if outcome == "done":
            assert await topic.code("former", _EXCLUSIVE, 0) == ErrorCode.PRODUCER_FENCED
            assert topic.epoch == (1, "next")
        else:
            await topic.open("former", _EXCLUSIVE, 0)
            assert topic.epoch == (0, "former")
        assert await _stored_epoch(scene) == (outcome == "done")
