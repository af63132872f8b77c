"""Subscriptions that are created or deleted while a partitioned topic grows: the new partitions have the same ones.

A call of the administrator is begun and ends at a chosen call that another one makes to the owner of a partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar import exceptions
from magnetar_broker.admin import partitioned_topic_calls
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.broker_scene import BrokerScene, running_broker

Change = Callable[[BrokerScene], Awaitable[object]]


async def create(scene: BrokerScene) -> None:
    await scene.admin.subscriptions.create("events", "s")


async def delete(scene: BrokerScene) -> None:
    await scene.admin.subscriptions.delete("events", "s")


async def grow(scene: BrokerScene) -> None:
    await scene.admin.topics.update_partitioned("events", 4)


async def fail(scene: BrokerScene) -> None:
    raise BrokerError(ErrorCode.INTERNAL_ERROR, "the broker dies")


def at_call(
    patch: pytest.MonkeyPatch, scene: BrokerScene, name: str, partition: int, change: Change, *, after: bool
) -> None:
    """Make the change at the first call `name` to the owner of the partition: when it was answered, or before it."""
    call_topic_owner = OwnerRpc.call_topic_owner
    left = [change]

    async def call(self: OwnerRpc, topic: TopicName, called: str, *args: Any, **how: Any) -> Any:
        mine = bool(left) and (called, topic.partition_index) == (name, partition)
        if mine and not after:
            await left.pop()(scene)
        answer = await call_topic_owner(self, topic, called, *args, **how)
        if mine and after:
            await left.pop()(scene)
        return answer

    patch.setattr(OwnerRpc, "call_topic_owner", call)


async def partitions_with_subscription(scene: BrokerScene) -> list[int]:
    list_names = scene.admin.subscriptions.list
    partitions = (await scene.admin.topics.get_partitioned("events")).partitions
    return [index for index in range(partitions) if "s" in await list_names(f"events-partition-{index}")]


@pytest.mark.parametrize("change", [create, delete])
@pytest.mark.parametrize(
    ("name", "partition", "after"),
    [("durable_subscriptions", 0, True), ("durable_subscriptions", 3, True), ("durable_subscriptions", 2, False)],
)
async def test_a_subscription_that_is_changed_during_a_growth_is_changed_on_new_partitions(
    change: Change, name: str, partition: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-56, TOP-3: the growth has read the first partition's subscriptions, or has not."""

    async with running_broker() as scene:
        await scene.admin.topics.create_partitioned("events", 2)
        if change is delete:
            await create(scene)
        with monkeypatch.context() as patch:
            at_call(patch, scene, name, partition, change, after=after)
            await grow(scene)
        assert await partitions_with_subscription(scene) == ([] if change is delete else [0, 1, 2, 3])


@pytest.mark.parametrize(("change", "call"), [(create, "create_subscription"), (delete, "delete_subscription")])
@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_topic_that_grows_during_a_change_of_a_subscription_has_it_on_new_partitions(
    change: Change, call: str, partition: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-56, TOP-3: the call has read the number of partitions, and the whole growth comes between."""

    async with running_broker() as scene:
        await scene.admin.topics.create_partitioned("events", 2)
        if change is delete:
            await create(scene)
        with monkeypatch.context() as patch:
            at_call(patch, scene, call, partition, grow, after=after)
            await change(scene)
        assert await partitions_with_subscription(scene) == ([] if change is delete else [0, 1, 2, 3])


async def test_a_deletion_covers_the_new_partitions_of_a_growth_that_was_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CHK-56: they are announced and have subscriptions, and clients do not know them."""

    async with running_broker() as scene:
        await scene.admin.topics.create_partitioned("events", 2)
        await create(scene)
        with monkeypatch.context() as patch:
            at_call(patch, scene, "create_subscription", 3, fail, after=True)
            with pytest.raises(exceptions.MagnetarException):
                await grow(scene)
        await delete(scene)
        await grow(scene)
        assert await partitions_with_subscription(scene) == []


async def test_growth_fails_while_subscriptions_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-56: it ends, and clients are not notified of partitions without the subscriptions."""

    async with running_broker() as scene:
        await scene.admin.topics.create_partitioned("events", 2)
        await create(scene)
        with monkeypatch.context() as patch:
            patch.setattr(partitioned_topic_calls, "_MAX_ROUNDS", 1)
            with pytest.raises(exceptions.MagnetarException, match="grow it again"):
                await grow(scene)
        assert (await scene.admin.topics.get_partitioned("events")).partitions == 2
        await grow(scene)
        assert await partitions_with_subscription(scene) == [0, 1, 2, 3]
