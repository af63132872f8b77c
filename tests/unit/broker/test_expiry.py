"""Messages that expire by their age, and subscriptions that expire because they are not used: on fakes with the real
rules of cursors and subscriptions, and a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.position import Position
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.message_expiry import MessageExpiry
from magnetar_broker.topics.subscription_expiry import SubscriptionExpiry
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_protos.catalog_pb2 import Policies
from tests.unit.broker.subscription_scene import EARLIEST, LATEST, Scene, ack, ack_messages, settle

_MINUTE = 60
_TTL = Policies(message_ttl_seconds=100)


class _Messages(Scene):
    """A topic with a time to live."""

    def __init__(self, policies: Policies = _TTL, *, are_known: bool = True) -> None:
        super().__init__()
        self.live = LiveSettings(BrokerServiceSettings(), policies, are_known=are_known)
        self.expiry = MessageExpiry(self.log, self.cursors, self.subscriptions, self.live, self.clock)

    def publish(self, count: int, *, batch: int = 0) -> list[Position]:
        return [self.log.add(max(1, batch), batch=batch > 0, time_ms=self.clock.time_ms()) for _ in range(count)]

    async def expire(self) -> int:
        """Expire what is due, as housekeeping does. Return the number of reads."""
        before = self.log.reads
        if self.expiry.is_due(self.clock.monotonic()):
            await self.expiry.run()
        await settle()
        return self.log.reads - before

    def backlog(self, name: str = "s") -> int:
        return self.stats(name).backlog_entries


async def test_messages_expire_with_and_without_consumers() -> None:
    """RET-2: of each durable subscription, also those that are delivered and not acknowledged; they are counted, and
    saved. A consumer gets the rest, and may still acknowledge what has expired."""
    scene = _Messages()
    old = scene.publish(15)
    await scene.subscriptions.create("alone", EARLIEST)
    exclusive, sink = await scene.subscribe("s")
    shared, shared_sink = await scene.subscribe("shared", SubscriptionType.SHARED, permits=10)
    scene.clock.advance(60)
    new = scene.publish(5)
    scene.clock.advance(41)
    await scene.expire()
    for name in ("alone", "s", "shared"):
        assert scene.backlog(name) == 5
        assert scene.stats(name).counters.expired_entries == 15
        assert scene.stats(name).counters.last_expired_ms == scene.clock.time_ms()
        cursor = scene.cursors.cursors[name]
        assert cursor.mark_delete == old[-1]
    assert scene.stats("shared").unacked_messages == 0
    ack(exclusive, old[3], new[0])
    ack(shared, old[3])
    assert scene.backlog("s") == 4
    shared.flow(shared.epoch, 10)
    assert [one for one in shared_sink.positions if one in new] == new
    assert sink.positions == [*old, *new]


async def test_readers_get_expired_messages() -> None:
    """RET-2, SUB-7: a subscription that is not durable holds nothing back, and loses nothing."""
    scene = _Messages()
    old = scene.publish(3)
    _, sink = await scene.subscribe("reader", durable=False, permits=1)
    scene.clock.advance(101)
    await scene.expire()
    assert scene.stats("reader", durable=False).backlog_entries == 3
    assert sink.positions == old[:1]


async def test_a_partly_acknowledged_batch_expires_as_a_whole() -> None:
    """RET-2"""
    scene = _Messages()
    (batch,) = scene.publish(1, batch=10)
    consumer, _ = await scene.subscribe()
    ack_messages(consumer, batch, 10, 0, 4)
    scene.clock.advance(101)
    await scene.expire()
    assert scene.backlog() == 0
    assert scene.cursors.cursors["s"].mark_delete == batch
    assert not scene.cursors.cursors["s"].has_holes


async def test_acknowledgements_behind_a_hole_stay() -> None:
    """RET-2: what was acknowledged one by one is not counted as expired."""
    scene = _Messages()
    old = scene.publish(10)
    consumer, _ = await scene.subscribe()
    ack(consumer, old[4], old[9])
    scene.clock.advance(50)
    new = scene.publish(4)
    ack(consumer, new[2])
    scene.clock.advance(51)
    await scene.expire()
    assert scene.stats().counters.expired_entries == 8
    assert scene.backlog() == 3


async def test_a_run_reads_no_more_for_a_large_backlog() -> None:
    """RET-2: one entry if nothing is expired, and nothing if there is no backlog; at the interval of the setting."""
    scene = _Messages()
    await scene.subscriptions.create("s", EARLIEST)
    await scene.subscriptions.create("s2", EARLIEST)
    assert await scene.expire() == 0
    scene.publish(500)
    assert await scene.expire() == 0  # the interval is not over
    scene.clock.advance(5 * _MINUTE - 1)
    last = scene.publish(1)
    scene.clock.advance(1)
    assert await scene.expire() <= 2
    assert scene.backlog() == scene.backlog("s2") == 1
    scene.clock.advance(5 * _MINUTE - 2)
    scene.live.update(Policies(message_ttl_seconds=1000))
    assert await scene.expire() == 1
    assert scene.backlog() == 1
    assert scene.cursors.cursors["s"].mark_delete < last[0]


async def test_expiry_follows_policies_at_once_and_waits_for_unknown_ones() -> None:
    """RET-2: a shorter time to live applies to what is stored; without one, or as long as it is not known, nothing
    expires."""
    scene = _Messages(Policies(), are_known=False)
    scene.publish(5)
    await scene.subscriptions.create("s", EARLIEST)
    scene.clock.advance(1000)
    await scene.expire()
    scene.live.update(Policies())
    await scene.expire()
    assert scene.backlog() == 5
    scene.live.update(Policies(message_ttl_seconds=2000))
    await scene.expire()
    assert scene.backlog() == 5
    scene.live.update(_TTL)
    scene.live.are_known = False
    await scene.expire()
    assert scene.backlog() == 5
    scene.live.are_known = True
    await scene.expire()
    assert scene.backlog() == 0


async def test_lost_entries_do_not_stop_expiry() -> None:
    """RET-2"""
    scene = _Messages()
    old = scene.publish(5)
    await scene.subscriptions.create("s", EARLIEST)
    scene.log.lost = old[:2]
    scene.clock.advance(101)
    await scene.expire()
    assert scene.backlog() == 0


async def test_a_subscription_that_is_being_moved_expires_afterwards() -> None:
    """RET-2, SUB-9: the move is not disturbed, and the expiry follows soon, not after an interval."""
    scene = _Messages()
    scene.publish(5)
    await scene.subscriptions.create("other", EARLIEST)
    await scene.subscriptions.create("s", EARLIEST)
    scene.clock.advance(101)
    scene.cursors.cursors["s"].gate = gate = asyncio.Event()
    moving = asyncio.create_task(scene.subscriptions.reset("s", EARLIEST))
    await settle()
    scene.publish(1)
    await scene.expire()
    assert scene.backlog("other") == 1
    gate.set()
    await moving
    assert scene.backlog() == 6
    await scene.expire()
    assert scene.backlog() == 1


@pytest.mark.parametrize("policies", [Policies(), Policies(message_ttl_seconds=1000)])
async def test_a_policy_that_changes_during_a_run_stops_it(policies: Policies) -> None:
    """RET-2, CHK-69: what is not to expire any more stays, and the next run follows soon."""
    scene = _Messages()
    scene.publish(5)
    await scene.subscriptions.create("s", EARLIEST)
    scene.clock.advance(101)
    find = scene.log.find_first_at_time

    async def find_slowly(time_ms: int) -> Position:
        scene.live.update(policies)
        return await find(time_ms)

    scene.log.find_first_at_time = find_slowly  # type: ignore[method-assign]
    await scene.expire()
    assert scene.backlog() == 5
    scene.live.update(_TTL)
    scene.log.find_first_at_time = find  # type: ignore[method-assign]
    await scene.expire()
    assert scene.backlog() == 0


class _Subscriptions(Scene):
    """A topic whose subscriptions expire after an hour; another owner may open it."""

    def __init__(self, minutes: int = 60, before: _Subscriptions | None = None) -> None:
        super().__init__(clock=before.clock if before is not None else None)
        if before is not None:
            self.cursors.cursors = before.cursors.cursors
        self.live = LiveSettings(BrokerServiceSettings(), _after(minutes), are_known=True)
        self.expiry = SubscriptionExpiry(self.log, self.cursors, self.subscriptions, self.live, self.clock)

    async def pass_minutes(self, minutes: float) -> None:
        """Let time pass, with a check every minute, as housekeeping does it."""
        for _ in range(int(minutes)):
            self.clock.advance(_MINUTE)
            if self.expiry.is_due(self.clock.monotonic()):
                await self.expiry.run()

    @property
    def writes(self) -> int:
        return self.cursors.used_writes

    @property
    def names(self) -> list[str]:
        return self.subscriptions.names


def _after(minutes: int) -> Policies:
    return Policies(subscription_expiration_minutes=minutes)


async def test_unused_subscriptions_are_deleted_after_their_time() -> None:
    """RET-2: from when the last consumer left, or from the first check of one that nobody has used, with or without a
    backlog. One with a consumer stays, and so does one whose progress a reader stores."""
    scene = _Subscriptions()
    await scene.subscriptions.create("unused", EARLIEST)
    await scene.subscriptions.create("left", EARLIEST)
    await scene.subscriptions.advance("read", EARLIEST)
    consumer, _ = await scene.subscribe("used")
    other, _ = await scene.subscribe("left")
    await scene.pass_minutes(30)
    other.leave()
    scene.add(3)
    await scene.subscriptions.advance("read", LATEST)
    await scene.pass_minutes(29)
    assert sorted(scene.names) == ["left", "read", "unused", "used"]
    await scene.pass_minutes(8)
    assert sorted(scene.names) == ["left", "read", "used"]
    await scene.pass_minutes(20)
    assert sorted(scene.names) == ["left", "read", "used"]
    await scene.pass_minutes(10)
    assert scene.names == ["used"]
    await scene.pass_minutes(1000)
    assert scene.names == ["used"]
    consumer.leave()
    await scene.pass_minutes(66)
    assert scene.names == []


async def test_messages_that_expire_are_no_use() -> None:
    """RET-2: else a subscription that nobody uses would stay as long as something is published."""
    scene = _Subscriptions()
    scene.add(5)
    await scene.subscriptions.create("s", EARLIEST)
    await scene.pass_minutes(40)
    scene.subscriptions.expire_now("s", scene.log.last)
    await scene.subscriptions.skip_all("s")
    await scene.pass_minutes(30)
    assert scene.names == []


async def test_the_next_owner_continues_to_count() -> None:
    """RET-2: also after a crash. None is deleted early, or late by more than a tenth of its time and an interval; and
    those in use cost no writes."""
    scene = _Subscriptions(600)
    await scene.subscribe("used")
    await scene.subscriptions.create("unused", EARLIEST)
    await scene.pass_minutes(590)
    assert scene.writes <= 10
    # The next owner: nobody is connected yet, and nothing was written as the last one ended.
    scene = _Subscriptions(600, before=scene)
    assert sorted(scene.names) == ["unused", "used"]
    await scene.pass_minutes(75)
    assert scene.names == ["used"]
    await scene.pass_minutes(500)
    assert scene.names == ["used"]
    scene = _Subscriptions(600, before=scene)
    await scene.pass_minutes(95)
    assert scene.names == []


async def test_time_without_an_owner_does_not_count() -> None:
    """RET-2: nobody can use a subscription then, and clients need time to reconnect."""
    scene = _Subscriptions(60)
    scene.add(5)
    await scene.subscribe("used")
    await scene.subscriptions.create("unused", EARLIEST)
    await scene.pass_minutes(55)
    scene.clock.advance(100 * 60 * _MINUTE)
    scene = _Subscriptions(60, before=scene)
    await scene.expiry.run()
    await scene.pass_minutes(4)
    assert sorted(scene.names) == ["unused", "used"]
    await scene.subscribe("used")
    await scene.pass_minutes(11)
    assert scene.names == ["used"]


async def test_a_use_is_stored_soon() -> None:
    """RET-2: the consumer has left when the broker crashes, and does not come back."""
    scene = _Subscriptions(60)
    await scene.subscriptions.create("s", EARLIEST)
    await scene.pass_minutes(59)
    consumer, _ = await scene.subscribe("s")
    consumer.leave()
    assert scene.expiry.is_due(scene.clock.monotonic())
    await scene.expiry.run()
    scene = _Subscriptions(60, before=scene)
    await scene.pass_minutes(55)
    assert scene.names == ["s"]


async def test_a_subscription_that_is_created_again_has_its_whole_time() -> None:
    """RET-2: nothing that is known of the deleted one counts, or stays in memory."""
    scene = _Subscriptions()
    consumer, _ = await scene.subscribe("s")
    consumer.leave()
    await scene.pass_minutes(50)
    await scene.subscriptions.delete("s")
    assert scene.subscriptions.find_last_use("s") is None
    await scene.pass_minutes(1)
    await scene.subscriptions.create("s", EARLIEST)
    await scene.pass_minutes(55)
    assert scene.names == ["s"]
    await scene.pass_minutes(15)
    assert scene.names == []
    assert scene.subscriptions.find_last_use("s") is None


async def test_the_time_begins_when_the_policy_is_set() -> None:
    """RET-2: what has counted before, when the policy was another one, does not count."""
    scene = _Subscriptions()
    await scene.subscriptions.create("s", EARLIEST)
    await scene.pass_minutes(10)
    scene.live.update(Policies())
    await scene.pass_minutes(300)
    scene = _Subscriptions(0, before=scene)
    await scene.pass_minutes(300)
    scene.live.update(_after(30))
    scene.live.are_known = False
    await scene.pass_minutes(300)
    assert scene.names == ["s"]
    scene.live.are_known = True
    await scene.pass_minutes(30)
    assert scene.names == ["s"]
    await scene.pass_minutes(6)
    assert scene.names == []


async def test_a_consumer_that_joins_in_time_keeps_the_subscription() -> None:
    """RET-2, CHK-69: it joins while the deletion waits for its turn."""
    scene = _Subscriptions()
    await scene.subscriptions.create("s", EARLIEST)
    scene.clock.advance(1)
    await scene.expiry.run()
    scene.clock.advance(61 * _MINUTE)
    scene.cursors.cursors["s"].gate = gate = asyncio.Event()
    skipping = asyncio.create_task(scene.subscriptions.reset("s", EARLIEST))
    await settle()
    running = asyncio.create_task(scene.expiry.run())
    await settle()
    await scene.subscriptions.advance("t", LATEST)
    scene.subscriptions.record_use("s")
    gate.set()
    await asyncio.gather(skipping, running)
    assert "s" in scene.names
