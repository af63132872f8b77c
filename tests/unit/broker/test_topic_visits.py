"""Topics that no client uses are visited: what is due in them is done, by their owner, and nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from magnetar import MessageId
from magnetar_broker import paths
from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics import topic_visits
from magnetar_broker.topics.housekeeping import Housekeeping
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_storage import LedgerTopicStorage
from magnetar_broker.topics.topic_visits import may_be_due
from magnetar_broker.topics.topics import Topics
from magnetar_metadata.store import Change, ChangeResult, Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.managed_ledger_pb2 import LedgerLease, ListedLedger, ManagedLedgerNode
from magnetar_testing.metadata import MemoryStore
from magnetar_wire.clock import SystemClock
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker import broker_scene
from tests.unit.broker.broker_scene import BrokerScene, running_broker
from tests.unit.broker.cluster_scene import running_brokers

_NAME: Final = TopicName.parse("orders")


class _ShiftedClock(SystemClock):
    """Its time is ahead by `shift_s`, its timers are not."""

    shift_s = 0.0

    def time_ms(self) -> int:
        return super().time_ms() + int(self.shift_s * 1000)

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.shift_s


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_visits, "VISIT_PAUSE_S", 0.001)
    monkeypatch.setattr(broker_scene, "SystemClock", _ShiftedClock)
    monkeypatch.setattr(_ShiftedClock, "shift_s", 0.0)


async def _publish(scene: Any, *names: str) -> None:
    async with scene.client() as client:
        for name in names:
            producer = await client.create_producer(name, batching_enabled=False)
            await producer.send(b"x")
            await producer.close()


async def _unload(session: BrokerSession, name: TopicName = _NAME) -> None:
    await session.topics.unload(name)


async def _read(session: BrokerSession, name: TopicName = _NAME) -> tuple[int, ManagedLedgerNode] | None:
    found = await session.catalog.nodes.read(ManagedLedgerNode, paths.topic(name), fresh=True)
    return None if found is None else (found.version, found.node)


async def _ledgers(session: BrokerSession, name: TopicName = _NAME) -> int:
    found = await _read(session, name)
    assert found is not None
    return len(found[1].ledgers)


async def test_messages_expire_and_ledgers_are_deleted_in_a_topic_that_nobody_uses() -> None:
    """RET-1, RET-2, RET-3: after a restart, in a bundle that has no owner, by the broker that gets it."""
    options: dict[str, Any] = {
        "ttl_duration_default_in_seconds": 5,
        "default_retention_without_subscription_minutes": 0,
    }
    async with running_broker(**options) as scene:
        await scene.admin.topics.create("orders")
        await scene.admin.subscriptions.create("orders", "s", MessageId.earliest)
        await _publish(scene, "orders")
        await scene.broker.close()
        _ShiftedClock.shift_s += 10
        restarted = BrokerScene(beside=scene, **options)
        await restarted.start()
        session = restarted.broker_session
        visits = session.topic_visits
        assert await _ledgers(session) == 1
        await visits.visit_all()
        assert await _ledgers(session) == 1
        assert session.ownership.list_owned() == []
        await visits.assign_bundles()
        await visits.visit_all()
        assert await _ledgers(session) == 0
        assert session.topics.loaded() == []
        await restarted.close()


async def test_a_visit_writes_two_nodes_and_creates_no_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-3, CHK-59: and an empty topic is not opened."""
    written: list[str] = []
    transaction = MemoryStore.transaction

    async def record(store: MemoryStore, changes: Sequence[Change]) -> list[ChangeResult]:
        written.extend(change.path for change in changes if not isinstance(change, Check))
        return await transaction(store, changes)

    async with running_broker() as scene:
        session = scene.broker_session
        await scene.admin.topics.create("empty")
        await scene.admin.topics.create("orders")
        await scene.admin.subscriptions.create("orders", "s", MessageId.earliest)
        await _publish(scene, "orders")
        for name in ("empty", "orders"):
            await _unload(session, TopicName.parse(name))
        before, empty = await _read(session), await _read(session, TopicName.parse("empty"))
        last_ledger = await session.client.ledgers.last_ledger_id()
        monkeypatch.setattr(MemoryStore, "transaction", record)
        await session.topic_visits.visit_all()
        after = await _read(session)
        assert before is not None
        assert after is not None
        assert (after[0], len(after[1].ledgers)) == (before[0] + 1, 1)
        assert await _read(session, TopicName.parse("empty")) == empty
        assert await session.client.ledgers.last_ledger_id() == last_ledger
        assert written == [paths.topic(_NAME), paths.cursors(_NAME)]
        assert session.topics.loaded() == []


@pytest.mark.parametrize("is_opened", [False, True])
async def test_time_goes_on_from_visit_to_visit(is_opened: bool) -> None:
    """TOP-2, RET-4: inactive topics and unused subscriptions expire, and leases lapse, unless somebody has opened the
    topic in between."""
    async with running_broker(
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=15,
        subscription_expiration_time_minutes=0.25,
    ) as scene:
        session = scene.broker_session
        for name in ("orders", "subscribed", "leased"):
            await scene.admin.topics.create(name)
        await scene.admin.subscriptions.create("subscribed", "s")
        leased = (await session.topics.get(TopicName.parse("leased"), create=False)).managed_ledger
        await leased.leases.take_lease(b"1" * 16, 0, 15_000, "a reader")
        names = [TopicName.parse(one) for one in ("orders", "subscribed", "leased")]
        for one in names:
            await _unload(session, one)
        for _ in range(2):
            await session.topic_visits.visit_all()
            _ShiftedClock.shift_s += 9
            if is_opened:
                for one in names:
                    await session.topics.get(one, create=False)
                    await _unload(session, one)
        await session.topic_visits.visit_all()
        there = [await _read(session, one) for one in names]
        assert (there[0] is None) is not is_opened
        assert there[1] is not None
        cursors = await session.catalog.nodes.list_children(paths.cursors(names[1]))
        assert len(cursors) == is_opened
        assert there[2] is not None
        assert len(there[2][1].leases) == is_opened


async def test_a_topic_that_is_requested_stays_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    work_through = Housekeeping.work_through

    async def request(housekeeping: Housekeeping, topic: Topic) -> None:
        await work_through(housekeeping, topic)
        await scene.broker_session.topics.get(topic.name, create=False)

    monkeypatch.setattr(Housekeeping, "work_through", request)
    async with running_broker() as scene:
        session = scene.broker_session
        await _publish(scene, "orders")
        await _unload(session)
        for _ in range(2):
            await session.topic_visits.visit_all()
            assert [one.name for one in session.topics.loaded()] == [_NAME]


async def test_a_topic_that_can_not_be_opened_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-3: nor does one whose visit hangs."""
    names = [f"t{number}" for number in range(6)]
    hangs, visited = asyncio.Event(), list[str]()
    async with running_broker() as scene:
        session = scene.broker_session
        for name in names:
            await scene.admin.topics.create(name)
        await _publish(scene, *names)
        for name in names:
            await _unload(session, TopicName.parse(name))
        open_stored = LedgerTopicStorage.open

        async def fail(storage: LedgerTopicStorage, name: TopicName, **options: Any) -> Topic:
            visited.append(name.local_name)
            if name.local_name in ("t0", "t3"):
                raise BrokerError(ErrorCode.PERSISTENCE_ERROR, "its bookies are lost")
            if name.local_name == "t1":
                await hangs.wait()
            return await open_stored(storage, name, **options)

        monkeypatch.setattr(LedgerTopicStorage, "open", fail)
        visiting = asyncio.create_task(session.topic_visits.visit_all())
        await until(lambda: sorted(visited) == names, "each was visited")
        hangs.set()
        await visiting
        assert session.topics.loaded() == []


async def test_each_topic_is_visited_by_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-3, OWN-3: the leader gives bundles without an owner to the brokers in turn, and visits none of theirs."""
    names = [f"t{number}" for number in range(12)]
    visited: list[tuple[Topics, str]] = []
    visit = Topics.visit

    async def record(topics: Topics, name: TopicName) -> Topic | None:
        visited.append((topics, name.local_name))
        return await visit(topics, name)

    monkeypatch.setattr(Topics, "visit", record)
    async with running_brokers(2) as scene:
        await _publish(scene, *names)
        for one in scene.brokers:
            for owned in one.ownership.list_owned():
                await one.ownership.unload_bundle(owned.namespace, owned.bundle)
        leaders = [await one.ownership.is_leader() for one in scene.brokers]
        assert sorted(leaders) == [False, True]
        leader = scene.brokers[leaders.index(True)]
        await leader.broker_session.topic_visits.assign_bundles()
        assert all(one.ownership.list_owned() for one in scene.brokers)
        for one in scene.brokers:
            await one.broker_session.topic_visits.visit_all()
        assert sorted(name for _, name in visited) == sorted(names)
        for topics, name in visited:
            owner = await leader.ownership.find_owner(TopicName.parse(name))
            assert topics is scene[owner.broker_id].broker_session.topics


async def test_visits_begin_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-3"""
    async with running_broker(topic_visit_interval_minutes=0.001) as scene:
        await _publish(scene, "orders")
        await _unload(scene.broker_session)
        before = await _read(scene.broker_session)
        assert before is not None
        for _ in range(500):
            after = await _read(scene.broker_session)
            if after is not None and after[0] > before[0]:
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the topic was not visited")


def test_what_may_be_due() -> None:
    """CHK-59: an empty topic costs one read."""
    settings = BrokerServiceSettings()
    assert not may_be_due(ManagedLedgerNode(), settings)
    assert may_be_due(ManagedLedgerNode(ledgers=[ListedLedger(ledger_id=1)]), settings)
    assert may_be_due(ManagedLedgerNode(leases=[LedgerLease()]), settings)
    assert may_be_due(ManagedLedgerNode(deleting=[3]), settings)
    for option in ({"broker_delete_inactive_topics_enabled": True}, {"subscription_expiration_time_minutes": 0.5}):
        assert may_be_due(ManagedLedgerNode(), BrokerServiceSettings(**option))
