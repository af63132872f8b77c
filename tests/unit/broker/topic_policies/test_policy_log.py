"""The events of topic policies at their owner: changes, take-overs, and snapshots that are interrupted at any step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.system_topics import events_topic
from magnetar_broker.topic_policies import policy_events
from magnetar_broker.topic_policies.policy_events import ForeignEvent, PolicyState, decode_event, encode_event
from magnetar_broker.topic_policies.policy_log import PolicyLog, UpdatePolicies
from magnetar_broker.topics.non_persistent.topic_node import NON_PERSISTENT_INCARNATION
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, TopicPoliciesEvent
from magnetar_testing.metadata.server import Fault
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.log_scene import SMALL, Scene, running_log_scene

_EVENTS = events_topic(NamespaceName("public", "default"))
_A, _B = TopicName.parse("a"), TopicName.parse("b")


class _EventsTopic:
    """All that a `PolicyLog` uses of a `Topic`."""

    def __init__(self, log: ManagedLedger) -> None:
        self.name = log.name
        self.log = self.managed_ledger = log
        self.ended: BrokerError | None = None
        log.on_lost = self._lost

    def _lost(self, error: TopicUnloaded) -> None:
        self.ended = error

    def drop_trimmed_ledgers(self) -> None: ...


class _Owners:
    """Opens the events topic, each time as another broker."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.tasks = TopicTasks()
        # Of the topics that exist.
        self.incarnations = {_A: "a1", _B: "b1"}

    async def open(self, client: LedgerClient | None = None) -> PolicyLog:
        log = await self.scene.open(client or await self.scene.another(), SMALL, name=_EVENTS)
        found = PolicyLog(cast(Topic, _EventsTopic(log)), self._find_incarnation, self.scene.clock, self.tasks)
        await self.scene.patiently(found.load())
        return found

    async def _find_incarnation(self, topic: TopicName) -> str:
        if topic not in self.incarnations:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {topic}")
        return self.incarnations[topic]

    async def change(self, log: PolicyLog, topic: TopicName, ttl: int) -> None:
        await self.scene.patiently(log.change(topic, _set_ttl(ttl)))

    def ttls(self, log: PolicyLog) -> dict[TopicName, int]:
        found = {topic: log.get(topic, incarnation) for topic, incarnation in self.incarnations.items()}
        return {topic: policies.message_ttl_seconds for topic, policies in found.items() if policies.ByteSize()}


def _set_ttl(ttl: int) -> UpdatePolicies:
    def update(policies: Policies) -> None:
        policies.message_ttl_seconds = ttl

    return update


@asynccontextmanager
async def _owners() -> AsyncIterator[_Owners]:
    async with running_log_scene() as scene:
        owners = _Owners(scene)
        try:
            yield owners
        finally:
            await owners.tasks.cancel()


async def test_the_next_owner_has_the_policies() -> None:
    """TOP-4, TOP-7: of the topics' present incarnations."""
    async with _owners() as owners:
        log = await owners.open()
        for ttl in range(1, 8):
            await owners.change(log, _A, ttl)
        await owners.change(log, _B, 9)
        version = log.version
        await owners.change(log, _B, 9)
        assert log.version == version, "nothing has changed, so nothing is stored"
        log = await owners.open()
        assert log.version != version
        assert owners.ttls(log) == {_A: 7, _B: 9}
        owners.incarnations[_A] = "a2"
        assert owners.ttls(log) == {_B: 9}
        await owners.scene.patiently(log.remove_deleted(_B))
        assert owners.ttls(log) == {_B: 9}, "the topic exists"
        await owners.scene.patiently(log.remove_deleted(_A))
        assert [event.topic for event in (await owners.open()).list_events()] == [str(_B)]


async def test_a_change_of_a_recreated_topic_begins_without_policies() -> None:
    """TOP-7"""
    async with _owners() as owners:
        log = await owners.open()
        await owners.change(log, _A, 5)
        owners.incarnations[_A] = "a2"
        await owners.scene.patiently(log.change(_A, lambda policies: setattr(policies, "deduplication", True)))
        assert owners.ttls(await owners.open()) == {_A: 0}


async def test_a_change_that_was_refused_changes_nothing() -> None:
    async with _owners() as owners:
        log = await owners.open()
        await owners.change(log, _A, 5)

        def refuse(policies: Policies) -> None:
            policies.message_ttl_seconds = 6
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "no")

        with pytest.raises(BrokerError, match="no"):
            await owners.scene.patiently(log.change(_A, refuse))
        with pytest.raises(BrokerError, match="there is no topic"):
            await owners.change(log, TopicName.parse("none"), 1)
        assert owners.ttls(log) == owners.ttls(await owners.open()) == {_A: 5}


async def test_a_change_goes_on_without_its_caller_and_before_the_next_one() -> None:
    """TOP-4: the next change begins with what the one before it has stored."""
    async with _owners() as owners:
        log = await owners.open()
        first = asyncio.create_task(log.change(_A, _set_ttl(5)))
        await asyncio.sleep(0)
        first.cancel()
        await owners.scene.patiently(log.change(_A, lambda policies: setattr(policies, "deduplication", True)))
        policies = (await owners.open()).get(_A, "a1")
        assert (policies.message_ttl_seconds, policies.deduplication) == (5, True)


async def test_an_owner_that_has_lost_the_topic_changes_nothing() -> None:
    """TOP-4: the outcome is unknown to its caller, and the log is right."""
    async with _owners() as owners:
        log = await owners.open()
        await owners.change(log, _A, 5)
        again = await owners.open()
        with pytest.raises(TopicUnloaded):
            await owners.change(log, _A, 6)
        assert owners.ttls(log) == {_A: 5}
        await owners.change(again, _A, 7)
        with pytest.raises(TopicUnloaded):
            await owners.change(log, _A, 8)
        assert owners.ttls(await owners.open()) == {_A: 7}


async def test_a_snapshot_bounds_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOP-4: it is written by itself, and has no policies of topics that were deleted. Those of a non-persistent topic
    that nobody uses stay, until it is deleted."""
    monkeypatch.setattr(policy_events, "MIN_EVENTS", 10)
    async with _owners() as owners:
        log = await owners.open()
        deleted, unused = TopicName.parse("deleted"), TopicName.parse("non-persistent://public/default/unused")
        owners.incarnations |= {deleted: "g1", unused: NON_PERSISTENT_INCARNATION}
        for topic in (deleted, unused):
            await owners.change(log, topic, 1)
            del owners.incarnations[topic]
        for ttl in range(1, 41):
            await owners.change(log, _A, ttl)
        await owners.change(log, _B, 3)
        await owners.scene.wait(lambda: log.topic.log.stats().stored_entries <= 13)
        for opened in (log, await owners.open()):
            assert owners.ttls(opened) == {_A: 40, _B: 3}
            assert [event.topic for event in opened.list_events()] == [str(unused), str(_A), str(_B)]
        await owners.scene.patiently(opened.remove_deleted(unused))
        assert [event.topic for event in opened.list_events()] == [str(_A), str(_B)]


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST])
@pytest.mark.parametrize("at", range(8))
async def test_a_snapshot_that_is_interrupted_at_any_step_loses_no_policy(at: int, fault: Fault) -> None:
    """TOP-4: neither a request to the metadata store nor its answer is needed; another owner goes on."""
    async with _owners() as owners:
        scene = owners.scene
        log = await owners.open(scene.client)
        for ttl in range(1, 6):
            await owners.change(log, _A, ttl)
        await owners.change(log, _B, 3)
        scene.server.queue_faults(scene.store, *[None] * at, fault)
        writing = asyncio.create_task(log.write_snapshot())
        await scene.idle()
        again = await owners.open()
        assert owners.ttls(again) == {_A: 5, _B: 3}
        session = scene.server.find_session(scene.store)
        assert session is not None
        session.faults.clear()
        scene.server.resume(scene.store)
        scene.server.release(scene.store)
        await scene.wait(writing.done)
        assert writing.exception() is None or isinstance(writing.exception(), BrokerError)
        await owners.change(again, _B, 4)
        await scene.patiently(again.write_snapshot())
        assert again.topic.log.stats().stored_entries == 2
        assert owners.ttls(await owners.open()) == {_A: 5, _B: 4}


async def test_entries_that_are_no_events_are_skipped() -> None:
    """CHK-67"""
    async with _owners() as owners:
        log = await owners.open()
        await owners.change(log, _A, 5)
        await owners.scene.append(log.topic.managed_ledger, b"no event")
        await owners.change(log, _B, 6)
        assert owners.ttls(await owners.open()) == {_A: 5, _B: 6}


def test_an_event_without_policies_removes_them() -> None:
    """TOP-4: its entry has the topic as key, and no payload, so that a compaction drops it."""
    state = PolicyState()
    for policies in (Policies(message_ttl_seconds=5), Policies()):
        event = decode_event(encode_event(TopicPoliciesEvent(topic="t", incarnation="i", policies=policies), 1, 2))
        assert event.topic == "t"
        state.apply(event)
        assert state.get("t", "i") == policies
        assert state.get("t", "another") == Policies()
    assert state.by_topic == {}
    with pytest.raises(ForeignEvent):
        decode_event(b"x" * 30)
