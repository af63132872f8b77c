"""Loaded topics follow changes of their policies: by fakes, and on a whole broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from magnetar.admin import NamespacePolicies, Retention, TopicPolicies
from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics import policy_refresh
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.policy_refresh import PolicyRefresh
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_testing.clock import ManualClock
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.broker_scene import running_broker

_TTL = Policies(message_ttl_seconds=7)
_NO_EVENTS: Final = BrokerError(ErrorCode.METADATA_ERROR, "the owner of the policies can't be reached")


@pytest.fixture(autouse=True)
def _refreshes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.05)


class _Topics:
    """Loaded topics, and what is answered for the policies of each; raised if it is an error."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.settings = BrokerServiceSettings(**settings)
        self.topics = {
            name: SimpleNamespace(
                name=TopicName.parse(name),
                ended=None,
                log=SimpleNamespace(incarnation=f"of {name}"),
                live_settings=LiveSettings(self.settings, Policies(), are_known=False),
            )
            for name in names
        }
        self.answers: dict[str, Policies | Exception | None] = {name.rpartition("/")[2]: None for name in names}
        # Those of this namespace are not answered before it is set.
        self.slow, self.is_answered = "", asyncio.Event()
        self.finds: list[str] = []
        self.clock = ManualClock()
        self.refresh = PolicyRefresh(
            lambda: cast(Any, list(self.topics.values())), self._find, CatalogSettings(), self.clock
        )

    async def _find(self, name: TopicName, incarnation: str, /, *, since: float | None = None) -> Policies | None:
        self.finds.append(name.local_name)
        assert incarnation
        if name.namespace == self.slow:
            await self.is_answered.wait()
        answer = self.answers[name.local_name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def live(self, name: str) -> LiveSettings:
        return cast(LiveSettings, self.topics[name].live_settings)

    async def round(self) -> None:
        running = asyncio.create_task(self.refresh.run())
        for _ in range(20):
            await asyncio.sleep(0)
            self.clock.advance(0.01)
        running.cancel()
        await asyncio.wait([running])


async def test_topics_follow_what_can_be_read() -> None:
    """TOP-4, RET-2: a topic whose policies can't be read keeps what it has, and the others follow theirs. If those of
    its namespace can't be read, no other topic of it is tried in this round."""
    scene = _Topics("ended", "follows", "unknown", "breaks", "fails", "behind")
    scene.answers.update(follows=_TTL, fails=_NO_EVENTS, breaks=ValueError("a defect"), ended=_TTL)
    scene.live("fails").update(_TTL)
    scene.topics["ended"].ended = _NO_EVENTS
    await scene.round()
    assert scene.finds == ["follows", "unknown", "breaks", "fails"]
    assert [
        (scene.live(name).are_known, scene.live(name).current.ttl_duration_default_in_seconds)
        for name in ("follows", "unknown", "fails", "breaks", "ended")
    ] == [(True, 7), (False, 0), (True, 7), (False, 0), (False, 0)]


async def test_a_namespace_that_is_read_slowly_delays_no_other() -> None:
    """TOP-4: not within a round, and not the next one, which leaves it out until it has been read."""
    scene = _Topics("public/slow/a", "public/slow/b", "public/other/c")
    scene.slow = "slow"
    running = asyncio.create_task(scene.refresh.run())
    for _ in range(60):
        await asyncio.sleep(0)
        scene.clock.advance(0.2)
    assert scene.finds[:3] == ["a", "c", "c"]
    assert scene.finds.count("a") == 1
    scene.is_answered.set()
    await asyncio.sleep(0)
    assert "b" in scene.finds
    running.cancel()
    await asyncio.wait([running])


async def test_a_change_applies_within_twice_the_time_of_the_cache() -> None:
    """TOP-4: a round may still use what was read just before the change, and the next one does not."""
    interval_s = 0.0
    scene = _Topics("t")
    running = asyncio.create_task(scene.refresh.run())
    await asyncio.sleep(0)
    while len(scene.finds) < 2:
        scene.clock.advance(0.1)
        interval_s += 0.1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert 1 < interval_s < CatalogSettings().metadata_cache_ttl_seconds
    running.cancel()
    await asyncio.wait([running])


async def test_parts_are_notified_of_changes_only(caplog: pytest.LogCaptureFixture) -> None:
    """One that fails does not prevent the others; settings without a policy are the broker's, as they are now."""
    live = _Topics("t", max_consumers_per_subscription=3).live("t")
    seen: list[int] = []

    def fail() -> None:
        raise ValueError("a defect")

    parts: list[Callable[[], object]] = [
        fail,
        lambda: seen.append(live.current.ttl_duration_default_in_seconds),
    ]
    live.on_changed += parts
    for policies in (Policies(), _TTL, _TTL, Policies(message_ttl_seconds=7), Policies(message_ttl_seconds=8)):
        live.update(policies)
    live.update(Policies())
    assert seen == [7, 8, 0]
    assert live.current.max_consumers_per_subscription == 3
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


async def test_ten_thousand_idle_topics_take_turns() -> None:
    """CHK-59: a round reads each once, other tasks run in between, and the next begins seconds later."""
    names = [f"t{number}" for number in range(10_000)]
    scene = _Topics(*names)
    for name in names:
        scene.answers[name] = _TTL
    running = asyncio.create_task(scene.refresh.run())
    turns = 0
    while len(scene.finds) < 10_000:
        await asyncio.sleep(0)
        scene.clock.advance(0.001)
        turns += 1
    assert turns >= 100
    scene.clock.advance(4)
    await asyncio.sleep(0)
    assert len(scene.finds) == 10_000
    running.cancel()
    await asyncio.wait([running])


async def test_a_loaded_topic_follows_its_own_policies_and_its_namespaces() -> None:
    """TOP-4, RET-2: within seconds. A policy of the topic goes before its namespace's; those that only namespaces have
    apply, too."""
    async with running_broker(metadata_cache_ttl_seconds=0.05) as scene:
        admin = scene.admin
        await admin.topics.create("orders")
        live = (await scene.broker_session.topics.get(TopicName.parse("orders"), create=False)).live_settings
        await admin.topics.change_policies("orders", TopicPolicies(message_ttl_seconds=7))
        await admin.namespaces.change_policies(
            "public/default",
            NamespacePolicies(message_ttl_seconds=99, retention=Retention(5, -1), subscription_expiration_minutes=30),
        )

        def are(ttl: int, retention: int, expiration: float) -> Callable[[], bool]:
            return lambda: (
                (
                    live.current.ttl_duration_default_in_seconds,
                    live.current.default_retention_time_in_minutes,
                    live.current.subscription_expiration_time_minutes,
                )
                == (ttl, retention, expiration)
            )

        await until(are(7, 5, 30), "the policies apply")
        await admin.topics.change_policies("orders", TopicPolicies(), remove=["message_ttl_seconds"])
        await until(are(99, 5, 30), "the namespace's apply")
        await admin.namespaces.change_policies(
            "public/default", NamespacePolicies(), remove=["message_ttl_seconds", "retention"]
        )
        await until(are(0, 0, 30), "the broker's settings apply")


async def test_a_topic_is_opened_without_its_policies_and_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOP-4, RET-2: as long as the owner of its policies can't be reached. Then they apply."""
    fetch, is_reachable = TopicPolicyRpc.fetch, False

    async def fetch_if_reachable(*arguments: Any) -> Any:
        if not is_reachable:
            raise _NO_EVENTS.again()
        return await fetch(*arguments)

    monkeypatch.setattr(TopicPolicyRpc, "fetch", fetch_if_reachable)
    async with running_broker(metadata_cache_ttl_seconds=0.05) as scene:
        topics, name = scene.broker_session.topics, TopicName.parse("orders")
        await scene.admin.topics.create("orders")
        await scene.admin.topics.change_policies("orders", TopicPolicies(message_ttl_seconds=7))
        topic = await topics.get(name, create=False)
        live, retention = topic.live_settings, topic.managed_ledger.retention

        def state() -> tuple[bool, int, bool]:
            return live.are_known, live.current.ttl_duration_default_in_seconds, retention.retains_acknowledged

        assert state() == (False, 0, True)
        is_reachable = True
        await until(lambda: state() == (True, 7, False), "the policies are read, and apply")
        await topics.unload(name)
        assert (await topics.get(name, create=False)).live_settings.are_known
