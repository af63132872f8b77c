"""Admin calls that wait while the subscription is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.admin import AsyncAdmin
from magnetar_broker.admin.subscription_calls import SubscriptionCalls
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.topics.subscription_stats import Backlog
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import SystemClock
from tests.unit.broker.admin.test_admin_calls import publish
from tests.unit.broker.broker_scene import running_broker
from tests.unit.broker.subscription_scene import EARLIEST, Scene, settle


async def _save_nothing() -> None:
    pass


def _topic(scene: Scene) -> Any:
    return SimpleNamespace(
        name="t",
        log=scene.log,
        managed_ledger=scene.log,
        cursors=scene.cursors,
        subscriptions=scene.subscriptions,
        deduplication=SimpleNamespace(save_snapshot=_save_nothing),
        drop_trimmed_ledgers=scene.cursors.drop_trimmed_ledgers,
    )


async def _scene() -> Scene:
    scene = Scene()
    scene.add(3)
    for name in ("a", "b", "c"):
        await scene.subscriptions.create(name, EARLIEST)
    return scene


async def test_a_topic_is_truncated_though_one_of_its_subscriptions_is_deleted() -> None:
    """CHK-69"""
    scene = await _scene()
    truncated = []

    async def truncate(prepare: Callable[[], Awaitable[None]]) -> None:
        await prepare()
        truncated.append(True)

    scene.log.truncate = truncate  # type: ignore[attr-defined]
    gate = scene.cursors.cursors["a"].gate = asyncio.Event()
    calls = TopicCalls(None, None, None, pb.BrokerAnswer, None, None)  # type: ignore[arg-type]
    truncating = asyncio.create_task(calls.truncate_topic(_topic(scene), pb.TopicRequest()))
    await settle()
    await scene.subscriptions.delete("b")
    gate.set()
    await truncating
    assert truncated
    assert scene.stats("c").backlog_entries == 0


async def test_no_deleted_subscription_is_peeked_at() -> None:
    """CHK-69"""
    scene = await _scene()
    scene.log.gate = asyncio.Event()
    calls = SubscriptionCalls(CatalogSettings(), SystemClock())
    peeking = asyncio.create_task(calls.peek(_topic(scene), pb.PeekRequest(subscription="a", entries=5)))
    await settle()
    await scene.subscriptions.delete("a")
    await scene.subscriptions.create("a", EARLIEST)
    scene.log.gate.set()
    with pytest.raises(BrokerError) as missing:
        await peeking
    assert missing.value.code == ErrorCode.SUBSCRIPTION_NOT_FOUND


async def test_stats_omit_concurrently_deleted_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-69"""

    async with running_broker() as scene:
        admin: AsyncAdmin = scene.admin
        await admin.topics.create("orders")
        for name in ("a", "b", "c"):
            await admin.subscriptions.create("orders", name)
        client = scene.client()
        await publish(client, "orders", b"1", b"2")
        look = Subscriptions.measure_backlog

        async def deleted_before(self: Subscriptions, name: str) -> Backlog:
            if name == "b":
                await self.delete("b")
            return await look(self, name)

        monkeypatch.setattr(Subscriptions, "measure_backlog", deleted_before)
        stats = await admin.topics.stats("orders")
        assert [(one.subscription, one.backlog_messages) for one in stats.subscriptions] == [("a", 2), ("c", 2)]
        await client.close()
