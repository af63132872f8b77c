"""Progress of readers that read topics by plans, stored as durable subscriptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import ConsumerType, exceptions
from magnetar.admin import MessagePosition
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode, StartAt, StartMessageId
from magnetar_wire.message_id import MessageId
from tests.unit.broker.admin.read_logs import LOGS, numbers, publish
from tests.unit.broker.broker_scene import running_broker


async def test_progress_advances_and_never_moves_back() -> None:
    """SPK-1: the progress subscription has acknowledged what was read, within a batch too, and nothing else."""

    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 14, batch=7)
            plan = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
            ledger = plan.start.ledger_id

            async def left() -> list[bytes]:
                return [one.payload or b"" for one in await scene.admin.subscriptions.peek(LOGS, "p", 10)]

            for to, first in (
                (MessagePosition(ledger, 0, 3), 3),
                (MessagePosition(ledger, 0, 3), 3),
                (MessagePosition(ledger, 1, 2), 9),
                (MessagePosition(ledger, 0, 5), 9),
                (MessagePosition(0, 0, 0), 9),
                (MessagePosition(ledger, 1, 7), 14),
                (plan.stop, 14),
                (MessagePosition(ledger + 50, 3, 1), 14),
            ):
                await reading.advance_progress(LOGS, plan.incarnation, "p", to)
                assert await left() == numbers(first, 14)
            await reading.advance_progress(LOGS, plan.incarnation, "q", MessagePosition(0, 0, 0))
            assert sorted(await scene.admin.subscriptions.list(LOGS)) == ["p", "q"]
            with pytest.raises(exceptions.InvalidArgument):
                await reading.advance_progress(LOGS, plan.incarnation, "", plan.stop)


async def test_create_only_advance_preserves_existing_position() -> None:
    """SPK-1: who begins to read, and begins again before anything is committed, keeps what was to be read first."""

    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 14, batch=7)
        plan = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
        positions = (MessagePosition(plan.start.ledger_id, 0, 3), plan.stop)
        for to in positions:
            await reading.advance_progress(LOGS, plan.incarnation, "p", to, only_make=True)
            left = await scene.admin.subscriptions.peek(LOGS, "p", 20)
            assert [one.payload for one in left] == numbers(3, 14)
        # Two at once: an old driver that is not dead yet, and the next one.
        subscriptions = scene.broker_session.topics.loaded()[0].subscriptions
        starts = [
            StartAt(message_id=StartMessageId(ledger_id=to[0], entry_id=to[1], batch_index=to[2], inclusive=True))
            for to in positions
        ]
        await asyncio.gather(*(subscriptions.advance("q", to, only_make=True) for to in starts))
        left = await scene.admin.subscriptions.peek(LOGS, "q", 20)
        assert [one.payload for one in left] == numbers(3, 14)


async def test_progress_belongs_to_its_first_owner() -> None:
    """SPK-1: another reader is refused with an error that names the owner, also after the topic has moved."""

    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 14, batch=7)
        plan = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))

        async def advance(owner: str, **more: Any) -> None:
            to = MessagePosition(plan.start.ledger_id, 0, 3)
            await reading.advance_progress(LOGS, plan.incarnation, "p", to, owner=owner, owner_name="a query", **more)

        await advance("", only_make=True)
        assert (await scene.admin.topics.stats(LOGS)).subscription("p").properties == {"magnetar.progress-owner": ""}
        await advance("first", only_make=True)
        for _ in range(2):
            await advance("first")
            await advance("", only_make=True)  # does nothing
            for owner, only_make in (("second", False), ("second", True), ("", False)):
                with pytest.raises(exceptions.ConsumerBusy, match=r"subscription p .* \(a query\)"):
                    await advance(owner, only_make=only_make)
            stats = (await scene.admin.topics.stats(LOGS)).subscription("p")
            assert stats.properties == {
                "magnetar.progress-owner": "first",
                "magnetar.progress-owner-name": "a query",
            }
            await scene.admin.topics.unload(LOGS)
        with pytest.raises(exceptions.InvalidArgument):
            await advance("x" * 257)
        await scene.admin.subscriptions.delete(LOGS, "p")
        await advance("second")
        with pytest.raises(exceptions.ConsumerBusy):
            await advance("first")


async def test_advancing_a_consumer_subscription_is_refused() -> None:
    """SPK-1, SUB-1: its messages stay, whether or not a consumer is connected."""

    async with running_broker() as scene, scene.client() as client:
        consumer = await client.subscribe(LOGS, "billing")
        await scene.admin.subscriptions.create(LOGS, "created", start=MessageId.earliest)
        await publish(client, 4)
        plan = await scene.admin.reading.plan(LOGS, start=MessagePosition(0, 0, 0))

        async def check_refused() -> None:
            for name in ("billing", "created"):
                for more in ({"only_make": True}, {"only_make": True, "owner": "reader"}, {"owner": "reader"}, {}):
                    with pytest.raises(exceptions.NotAllowedError, match=f"{name} belongs to consumers"):
                        await scene.admin.reading.advance_progress(LOGS, plan.incarnation, name, plan.stop, **more)

        await check_refused()
        await consumer.close()
        await check_refused()
        await scene.admin.topics.unload(LOGS)
        await check_refused()
        consumer = await client.subscribe(LOGS, "billing")
        assert [(await consumer.receive()).data() for _ in range(4)] == numbers(0, 4)


async def test_a_progress_subscription_has_no_consumers() -> None:
    """SPK-1, SUB-1: with and without an owner, and after another broker has opened the topic. Administrators may change
    it, and delete it; after that the name is free."""

    async with running_broker() as scene:
        admin = scene.admin
        async with scene.client() as client:
            await publish(client, 4)
            plan = await admin.reading.plan(LOGS, start=MessagePosition(0, 0, 0))

            async def check_refused() -> None:
                for kind in (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover):
                    with pytest.raises(exceptions.NotAllowedError, match=r"subscription p stores the progress"):
                        await client.subscribe(LOGS, "p", consumer_type=kind)

            for owner in ("", "reader"):
                await admin.reading.advance_progress(
                    LOGS, plan.incarnation, "p", plan.start, only_make=True, owner=owner, owner_name="a query"
                )
                await check_refused()
                await admin.topics.unload(LOGS)
                await check_refused()
            await admin.subscriptions.skip(LOGS, "p", 1)
            assert [one.payload for one in await admin.subscriptions.peek(LOGS, "p", 9)] == numbers(1, 4)
            await admin.subscriptions.reset(LOGS, "p", MessageId.earliest)
            assert [one.payload for one in await admin.subscriptions.peek(LOGS, "p", 9)] == numbers(0, 4)
            await check_refused()
            await admin.subscriptions.delete(LOGS, "p")
            with pytest.raises(exceptions.NotAllowedError, match="stores the progress"):
                await client.subscribe(LOGS, "p", subscription_properties={"magnetar.progress-owner": ""})
            assert await admin.subscriptions.list(LOGS) == []
            await client.subscribe(LOGS, "p")


async def test_a_subscription_without_an_owner_is_moved_back() -> None:
    """SPK-1: to a reader that begins before it, within a batch, too; never forward, and not once it has an owner."""

    async with running_broker() as scene:
        async with scene.client() as client:
            await publish(client, 14, batch=7)
        plan = await scene.admin.reading.plan(LOGS, start=MessagePosition(0, 0, 0))
        ledger = plan.start.ledger_id

        async def check_left(name: str, to: MessagePosition, first: int, **more: Any) -> None:
            await scene.admin.reading.advance_progress(LOGS, plan.incarnation, name, to, **more)
            left = await scene.admin.subscriptions.peek(LOGS, name, 20)
            assert [one.payload for one in left] == numbers(first, 14)

        for name, last in (("p", {"only_make": True, "owner": "me"}), ("q", {"owner": "me"})):
            await check_left(name, plan.stop, 14, only_make=True)
            await check_left(name, MessagePosition(ledger, 1, 3), 10, only_make=True)
            await check_left(name, MessagePosition(ledger, 1, 5), 10, only_make=True)
            await check_left(name, MessagePosition(ledger, 1, 2), 9, only_make=True)
            await check_left(name, MessagePosition(ledger, 0, 4), 4, **last)
            await check_left(name, MessagePosition(0, 0, 0), 4, only_make=True)
            await check_left(name, MessagePosition(0, 0, 0), 4, **last)


async def test_a_claim_that_failed_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-1: a subscription that could not be moved back has no owner yet."""
    move_to, failures = DurableCursor.move_to, 1

    async def fail_once(cursor: DurableCursor, position: Position) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise BrokerError(ErrorCode.UNSUPPORTED, "not now")
        await move_to(cursor, position)

    monkeypatch.setattr(DurableCursor, "move_to", fail_once)
    async with running_broker() as scene:
        async with scene.client() as client:
            await publish(client, 14, batch=7)
        reading = scene.admin.reading
        plan = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
        await reading.advance_progress(LOGS, plan.incarnation, "p", plan.stop, only_make=True)

        async def claim() -> MessagePosition:
            return await reading.advance_progress(
                LOGS, plan.incarnation, "p", plan.start, only_make=True, owner="reader"
            )

        with pytest.raises(exceptions.OperationNotSupported):
            await claim()
        assert await claim() == plan.start
        assert await claim() == plan.start


async def test_cancelled_advance_does_not_disturb_concurrent_advance() -> None:
    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 40, batch=4)
        position = (await reading.find_position(LOGS, MessageId.earliest)).position
        subscriptions = scene.broker_session.topics.loaded()[0].subscriptions
        for turns in range(0, 40, 2):
            # Two calls at a time, one of which is cancelled: for a new subscription, and for an existing one.
            to = StartAt(
                message_id=StartMessageId(
                    ledger_id=position.ledger_id, entry_id=turns // 4, batch_index=1, inclusive=True
                )
            )
            for name in (f"p{turns}", "p"):
                calls = [asyncio.create_task(subscriptions.advance(name, to)) for _ in range(2)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                calls[0].cancel()
                await asyncio.wait(calls)
                await calls[1]
                left = await scene.admin.subscriptions.peek(LOGS, name, 100)
                assert [one.payload for one in left] == numbers(turns // 4 * 4 + 1, 40)
