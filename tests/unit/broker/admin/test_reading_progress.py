"""Progress of those who read topics by plans, kept as durable subscriptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import exceptions
from magnetar.admin import NextMessage
from magnetar_protos.broker_pb2 import MessagePlace, StartAt
from magnetar_wire.message_id import MessageId
from tests.unit.broker.admin.read_logs import LOGS, numbers, publish
from tests.unit.broker.broker_scene import BrokerScene, in_broker


def test_progress_goes_on_and_never_back() -> None:
    """SPK-1: the progress subscription has acknowledged what was read, within a batch too, and nothing else."""

    async def body(scene: BrokerScene) -> None:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 14, batch=7)
            plan = await reading.plan(LOGS, start=NextMessage(0, 0, 0))
            ledger = plan.start.ledger_id

            async def left() -> list[bytes]:
                return [one.payload or b"" for one in await scene.admin.subscriptions.peek(LOGS, "p", 10)]

            for to, first in (
                (NextMessage(ledger, 0, 3), 3),
                (NextMessage(ledger, 0, 3), 3),
                (NextMessage(ledger, 1, 2), 9),
                (NextMessage(ledger, 0, 5), 9),
                (NextMessage(0, 0, 0), 9),
                (NextMessage(ledger, 1, 7), 14),
                (plan.stop, 14),
                (NextMessage(ledger + 50, 3, 1), 14),
            ):
                await reading.advance_progress(LOGS, plan.incarnation, "p", to)
                assert await left() == numbers(first, 14)
            await reading.advance_progress(LOGS, plan.incarnation, "q", NextMessage(0, 0, 0))
            assert sorted(await scene.admin.subscriptions.list(LOGS)) == ["p", "q"]
            await client.subscribe(LOGS, "q")
            for only_make in (False, True):
                with pytest.raises(exceptions.ConsumerBusy, match="consumer"):
                    await reading.advance_progress(LOGS, plan.incarnation, "q", plan.stop, only_make=only_make)
            with pytest.raises(exceptions.InvalidArgument):
                await reading.advance_progress(LOGS, plan.incarnation, "", plan.stop)

    in_broker(body)


def test_what_is_only_made_stays_where_it_is() -> None:
    """SPK-1: who begins to read, and begins again before anything is committed, keeps what was to be read first."""

    async def body(scene: BrokerScene) -> None:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 14, batch=7)
        plan = await reading.plan(LOGS, start=NextMessage(0, 0, 0))
        places = (NextMessage(plan.start.ledger_id, 0, 3), plan.stop)
        for to in places:
            await reading.advance_progress(LOGS, plan.incarnation, "p", to, only_make=True)
            left = await scene.admin.subscriptions.peek(LOGS, "p", 20)
            assert [one.payload for one in left] == numbers(3, 14)
        # Two at once: an old driver that is not dead yet, and the next one.
        subscriptions = scene.life.topics.loaded()[0].subscriptions
        asked = [
            StartAt(place=MessagePlace(ledger_id=to[0], entry_id=to[1], batch_index=to[2], inclusive=True))
            for to in places
        ]
        await asyncio.gather(*(subscriptions.advance("q", to, only_make=True) for to in asked))
        left = await scene.admin.subscriptions.peek(LOGS, "q", 20)
        assert [one.payload for one in left] == numbers(3, 14)

    in_broker(body)


def test_progress_belongs_to_its_first_owner() -> None:
    """SPK-1: another one is refused, and told whose it is, also after the topic has changed hands."""

    async def body(scene: BrokerScene) -> None:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 14, batch=7)
        plan = await reading.plan(LOGS, start=NextMessage(0, 0, 0))

        async def advance(owner: str, **more: Any) -> None:
            to = NextMessage(plan.start.ledger_id, 0, 3)
            await reading.advance_progress(LOGS, plan.incarnation, "p", to, owner=owner, owner_name="a query", **more)

        await scene.admin.subscriptions.create(LOGS, "p", properties={"mine": "too"}, start=MessageId.earliest)
        await advance("", only_make=True)
        await advance("first", only_make=True)
        for _ in range(2):
            await advance("first")
            await advance("", only_make=True)  # does nothing
            for owner, only_make in (("second", False), ("second", True), ("", False)):
                with pytest.raises(exceptions.ConsumerBusy, match=r"subscription p .* first \(a query\)"):
                    await advance(owner, only_make=only_make)
            stats = (await scene.admin.topics.stats(LOGS)).subscription("p")
            assert stats.properties == {
                "mine": "too",
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

    in_broker(body)


def test_progress_is_whole_whenever_its_caller_goes() -> None:
    async def body(scene: BrokerScene) -> None:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 40, batch=4)
        place = (await reading.place(LOGS, MessageId.earliest)).place
        subscriptions = scene.life.topics.loaded()[0].subscriptions
        for turns in range(0, 40, 2):
            # Two at a time, of which one goes: that of a new subscription, and that of one that there is.
            to = StartAt(
                place=MessagePlace(ledger_id=place.ledger_id, entry_id=turns // 4, batch_index=1, inclusive=True)
            )
            for name in (f"p{turns}", "p"):
                asked = [asyncio.create_task(subscriptions.advance(name, to)) for _ in range(2)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                asked[0].cancel()
                await asyncio.wait(asked)
                await asked[1]
                left = await scene.admin.subscriptions.peek(LOGS, name, 100)
                assert [one.payload for one in left] == numbers(turns // 4 * 4 + 1, 40)

    in_broker(body)
