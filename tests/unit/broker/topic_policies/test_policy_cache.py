"""The policies of topics at a broker that does not own their events: how old they may be, and what if none are read."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.topic_policies import policy_cache
from magnetar_broker.topic_policies.policy_cache import FetchedEvents, TopicPolicyCache
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, TopicPoliciesEvent
from magnetar_testing.clock import ManualClock
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.running import until, within

_TOPIC = TopicName.parse("orders")


class _Owner:
    """Answers fetches. `ttl` is the policy of the topic."""

    def __init__(self) -> None:
        self.ttl = 1
        self.fetches: list[bytes] = []
        self.fails: BrokerError | None = None
        self.gate: asyncio.Event | None = None
        self.clock = ManualClock()
        self.incarnation = "i"
        self.incarnation_reads = 0
        self.metadata_fails: BrokerError | None = None
        self.cache = TopicPolicyCache(self._fetch, self._find_incarnation, self.clock, 5.0)

    async def _fetch(self, namespace: NamespaceName, known: FetchedEvents) -> FetchedEvents:
        self.fetches.append(known.version)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        policies = Policies(message_ttl_seconds=self.ttl)
        event = TopicPoliciesEvent(topic=str(_TOPIC), incarnation="i", policies=policies)
        return FetchedEvents(b"%d" % self.ttl, {str(_TOPIC): event})

    async def _find_incarnation(self, topic: TopicName) -> str:
        self.incarnation_reads += 1
        if self.metadata_fails is not None:
            raise self.metadata_fails
        return self.incarnation

    async def ttl_of(self, name: TopicName = _TOPIC) -> int:
        return (await self.cache.get(name)).message_ttl_seconds


async def test_policies_are_fetched_once_in_their_time() -> None:
    """TOP-4: for all topics and partitions of the namespace together."""
    owner = _Owner()
    assert list(await asyncio.gather(owner.ttl_of(), owner.ttl_of(_TOPIC.partition(3)))) == [1, 1]
    assert await owner.ttl_of(TopicName.parse("others")) == 0
    owner.ttl = 2
    owner.clock.advance(4.9)
    assert await owner.ttl_of() == 1
    owner.clock.advance(0.2)
    assert await owner.ttl_of() == 2
    assert owner.fetches == [b"", b"1"]


async def test_policies_of_a_certain_time_are_fetched_after_it() -> None:
    """TOP-4: also behind a fetch that began before. The answer of one fetch is used for all who need it."""
    owner = _Owner()
    owner.gate = asyncio.Event()
    earlier = asyncio.create_task(owner.ttl_of())
    await asyncio.sleep(0)
    owner.clock.advance(0.1)
    since = owner.clock.monotonic()
    later = [asyncio.create_task(owner.cache.get(_TOPIC, since=since)) for _ in range(3)]
    await asyncio.sleep(0)
    owner.gate.set()
    assert await earlier == 1
    assert not owner.cache.knows(_TOPIC, since)
    owner.ttl = 2
    assert [one.message_ttl_seconds for one in await asyncio.gather(*later)] == [2] * 3
    assert owner.cache.knows(_TOPIC, since)
    assert len(owner.fetches) == 2
    owner.fails = BrokerError(ErrorCode.SERVICE_NOT_READY, "down")
    owner.clock.advance(0.1)
    since = owner.clock.monotonic()
    assert (await owner.cache.get(_TOPIC, since=since)).message_ttl_seconds == 2
    assert not owner.cache.knows(_TOPIC, since)


async def test_another_incarnation_and_system_topics_have_none() -> None:
    """TOP-7"""
    owner = _Owner()
    assert owner.cache.knows(TopicName.parse("__change_events"))
    owner.incarnation = "j"
    assert await owner.ttl_of() == 0
    owner.fetches.clear()
    owner.clock.advance(10)
    assert await owner.ttl_of(TopicName.parse("__change_events")) == 0
    assert owner.fetches == []


async def test_the_known_policies_apply_while_they_can_not_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOP-4: and none before they were ever fetched. Nobody waits for long."""
    monkeypatch.setattr(policy_cache, "MAX_WAIT_S", 0.001)
    owner = _Owner()
    owner.fails = BrokerError(ErrorCode.SERVICE_NOT_READY, "down")
    assert await owner.ttl_of() == 0
    owner.fails, owner.gate = None, asyncio.Event()
    owner.clock.advance(10)
    assert await owner.ttl_of() == 0
    owner.gate.set()
    await asyncio.sleep(0)
    assert await owner.ttl_of() == 1
    owner.fails = BrokerError(ErrorCode.SERVICE_NOT_READY, "down")
    owner.clock.advance(10)
    assert await owner.ttl_of() == 1
    await owner.cache.close()


async def test_policies_that_were_never_fetched_are_not_known() -> None:
    """SCH-2: what depends on them for good must not take them for none."""
    owner = _Owner()
    assert not owner.cache.knows(_TOPIC)
    owner.fails = BrokerError(ErrorCode.SERVICE_NOT_READY, "down")
    assert await owner.ttl_of() == 0
    assert not owner.cache.knows(_TOPIC)
    for fails in (None, owner.fails):
        owner.fails = fails
        owner.clock.advance(10)
        assert await owner.ttl_of() == 1
        assert owner.cache.knows(_TOPIC.partition(3))


async def test_a_fetch_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOP-4: not by each topic that is opened in the meantime."""
    monkeypatch.setattr(policy_cache, "MAX_WAIT_S", 60.0)
    owner = _Owner()
    owner.gate = asyncio.Event()
    first = asyncio.create_task(owner.ttl_of())
    await until(lambda: owner.fetches != [], "the fetch has begun")
    owner.clock.advance(61)
    for _ in range(3):
        assert await within(owner.ttl_of(), "the known policies") == 0
    owner.gate.set()
    assert await first == 1


async def test_a_failed_fetch_is_not_repeated_at_once() -> None:
    owner = _Owner()
    owner.gate, owner.fails = asyncio.Event(), BrokerError(ErrorCode.SERVICE_NOT_READY, "down")
    first = asyncio.create_task(owner.ttl_of())
    await until(lambda: owner.fetches != [], "the fetch has begun")
    owner.clock.advance(100)
    owner.gate.set()
    assert await first == 0
    owner.clock.advance(4.9)
    assert await owner.ttl_of() == 0
    assert owner.fetches == [b""]
    owner.fails = None
    owner.clock.advance(0.2)
    assert await owner.ttl_of() == 1


async def test_the_known_policies_apply_while_metadata_can_not_be_read() -> None:
    """TOP-4, TOP-7: unless the topic was deleted."""
    owner = _Owner()
    assert await owner.ttl_of() == 1
    owner.metadata_fails = BrokerError(ErrorCode.METADATA_ERROR, "no quorum")
    owner.ttl = 2
    owner.clock.advance(10)
    assert await owner.ttl_of() == 2
    owner.metadata_fails = BrokerError(ErrorCode.TOPIC_NOT_FOUND, "deleted")
    assert await owner.ttl_of() == 0
    owner.metadata_fails = BrokerError(ErrorCode.METADATA_ERROR, "no quorum")
    assert await owner.ttl_of() == 0


async def test_policies_are_not_known_before_it_is_known_whose_they_are() -> None:
    """RET-2, TOP-7: the incarnation was never read, which decides whether the policies are those of this topic. Topics
    that have none need no incarnation."""
    owner = _Owner()
    owner.metadata_fails = BrokerError(ErrorCode.METADATA_ERROR, "no quorum")
    assert await owner.ttl_of() == 0
    assert not owner.cache.knows(_TOPIC)
    assert not owner.cache.knows(_TOPIC.partition(1))
    other = TopicName.parse("others")
    assert await owner.ttl_of(other) == 0
    assert owner.cache.knows(other)
    owner.metadata_fails = None
    assert await owner.ttl_of() == 1
    assert owner.cache.knows(_TOPIC)
    owner.metadata_fails = BrokerError(ErrorCode.TOPIC_NOT_FOUND, "deleted")
    assert await owner.ttl_of() == 0
    assert owner.cache.knows(_TOPIC)


async def test_policies_are_not_known_while_a_partition_may_be_of_a_later_topic() -> None:
    """TOP-4, TOP-7: it was created again, and the incarnation of the former one is that which was read last."""
    owner, partition = _Owner(), _TOPIC.partition(1)
    owner.incarnation = "former"
    assert await owner.cache.get(partition, "partition of the former") == Policies()
    assert owner.cache.knows(partition)
    owner.incarnation, owner.metadata_fails = "i", BrokerError(ErrorCode.METADATA_ERROR, "no quorum")
    since = owner.clock.monotonic()
    assert await owner.cache.get(partition, "partition", since) == Policies()
    assert not owner.cache.knows(partition, since)
    owner.metadata_fails = None
    assert (await owner.cache.get(partition, "partition", since)).message_ttl_seconds == 1
    assert owner.cache.knows(partition, since)


async def test_the_incarnation_of_a_loaded_topic_is_not_read() -> None:
    """TOP-4, TOP-7: its policies cost no read of the metadata store. Those of a loaded partition cost one, as the
    events have the incarnation of the partitioned topic."""
    owner = _Owner()
    for _ in range(3):
        assert (await owner.cache.get(_TOPIC, "i")).message_ttl_seconds == 1
        assert (await owner.cache.get(_TOPIC, "j")).message_ttl_seconds == 0
        owner.clock.advance(6)
    assert owner.incarnation_reads == 0
    partition = _TOPIC.partition(3)
    owner.metadata_fails = BrokerError(ErrorCode.METADATA_ERROR, "no quorum")
    await owner.cache.get(partition, "p")
    owner.metadata_fails = None
    for _ in range(3):
        assert (await owner.cache.get(partition, "p")).message_ttl_seconds == 1
        assert owner.cache.knows(partition)
        owner.clock.advance(6)
    assert owner.incarnation_reads == 2
    owner.incarnation = "j"
    assert (await owner.cache.get(partition, "of the next topic")).message_ttl_seconds == 0
    assert (await owner.cache.get(partition, "of the next topic")).message_ttl_seconds == 0
    assert owner.incarnation_reads == 3


async def test_a_non_persistent_topic_has_its_policies_before_it_is_loaded() -> None:
    """TOP-5: but not those of a partitioned topic that had its name."""
    topic = TopicName.parse("non-persistent://public/default/ticks")
    event = TopicPoliciesEvent(topic=str(topic), incarnation="non-persistent", policies=Policies(message_ttl_seconds=7))

    async def fetch(namespace: NamespaceName, known: FetchedEvents) -> FetchedEvents:
        return FetchedEvents(b"1", {str(topic): event})

    async def find_incarnation(topic: TopicName) -> str:
        raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {topic}")

    cache = TopicPolicyCache(fetch, find_incarnation, ManualClock(), 5.0)
    assert not cache.knows(topic)
    assert (await cache.get(topic)).message_ttl_seconds == 7
    assert cache.knows(topic)
    assert await cache.get(TopicName.parse("persistent://public/default/ticks")) == Policies()
    event.incarnation = "1234"
    assert await cache.get(topic) == Policies()
