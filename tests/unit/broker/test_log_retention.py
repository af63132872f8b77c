"""Retention, by a policy and without a durable subscription: over rolls and openings of a log, as subscriptions come
and go, and as policies change."""

from __future__ import annotations

import asyncio

from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.position import LATEST, Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.system_topics import events_topic
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_protos.catalog_pb2 import Policies, Retention
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.log_scene import SMALL, Scene, numbered, running_log_scene

_MINUTES = 60
_HOUR = SMALL.model_copy(update={"default_retention_without_subscription_minutes": 60})


async def filled(scene: Scene, options: ManagedLedgerSettings = _HOUR) -> tuple[ManagedLedger, list[int]]:
    """Three closed ledgers, and an open one."""
    log = await scene.open(options=options)
    await scene.append(log, *numbered(10))
    return log, ids(log)


def ids(log: ManagedLedger) -> list[int]:
    return [one.ledger_id for one in log.stats().ledgers]


async def trimmed(scene: Scene, log: ManagedLedger, cursors: CursorTable | None = None) -> bool:
    """As housekeeping does it, which asks first."""
    up_to = cursors.find_slowest_position if cursors is not None else lambda: None
    expected = log.may_trim(up_to())
    assert await scene.patiently(log.trim(up_to)) == expected
    return expected


async def test_messages_without_a_subscription_stay_for_their_time_over_openings() -> None:
    """RET-1: after a graceful close, and after a take-over that recovers the last ledger."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        assert not await trimmed(scene, log)
        await scene.patiently(log.close())
        log = await scene.open(await scene.another(), _HOUR)
        assert not await trimmed(scene, log)
        scene.clock.advance(30 * _MINUTES)
        await scene.append(log, b"half an hour later")
        log = await scene.open(await scene.another(), _HOUR)
        assert not await trimmed(scene, log)
        assert await scene.payloads(log) == [*numbered(10), b"half an hour later"]
        scene.clock.advance(29 * _MINUTES)
        assert not await trimmed(scene, log)
        scene.clock.advance(1 * _MINUTES)
        assert await trimmed(scene, log)
        assert await scene.payloads(log) == [b"half an hour later"]
        assert not set(ledgers) & set(ids(log))
        scene.clock.advance(31 * _MINUTES)
        assert await trimmed(scene, log)
        assert await scene.payloads(log) == []


async def test_each_ledgers_time_begins_when_it_is_closed() -> None:
    """RET-1, RET-3: a ledger that was open for long keeps all of its time, also for its first message."""

    async with running_log_scene() as scene:
        log = await scene.open(options=_HOUR)
        await scene.append(log, *numbered(2))
        scene.clock.advance(120 * _MINUTES)
        await scene.append(log, *numbered(8, 2))
        first, second, third, _ = ids(log)
        scene.clock.advance(59 * _MINUTES)
        assert not await trimmed(scene, log)
        await scene.append(log, *numbered(2, 10))
        assert ids(log)[:3] == [first, second, third]
        scene.clock.advance(2 * _MINUTES)
        assert await trimmed(scene, log)
        assert not await trimmed(scene, log)
        assert await scene.payloads(log) == numbered(3, 9)


async def test_the_oldest_ledgers_go_when_the_size_is_exceeded() -> None:
    """RET-1: before their time is over."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        stored = log.stats().stored_bytes
        two_and_open = stored - log.stats().ledgers[0].length_bytes
        for max_bytes, left in ((stored, ledgers), (two_and_open, ledgers[1:]), (0, ledgers[3:])):
            bounded = {"default_retention_without_subscription_size_mb": max_bytes / 1_048_576}
            log = await scene.open(await scene.another(), _HOUR.model_copy(update=bounded))
            await trimmed(scene, log)
            assert ids(log) == left or (max_bytes == 0 and ids(log) == [])


async def test_a_first_subscription_leaves_older_ledgers_their_remaining_time() -> None:
    """RET-1: one that begins at the latest message, and acknowledges all that follows; whoever has the topic."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        scene.clock.advance(20 * _MINUTES)
        cursors = await scene.patiently(scene.cursors(log))
        cursor = await scene.patiently(cursors.create("s", log.last, {}))
        assert not await trimmed(scene, log, cursors)
        await scene.append(log, *numbered(8, 10))
        cursor.acknowledge_up_to(log.last)
        await scene.patiently(cursor.wait_until_saved())
        for _ in range(2):
            assert cursors.find_slowest_position() == log.last
            assert not await trimmed(scene, log, cursors)
            assert await scene.payloads(log) == numbered(18)
            cursors.abandon()
            log = await scene.open(await scene.another(), _HOUR)
            cursors = await scene.patiently(scene.cursors(log))
        scene.clock.advance(38 * _MINUTES)
        assert not await trimmed(scene, log, cursors)
        scene.clock.advance(2 * _MINUTES)
        assert await trimmed(scene, log, cursors)
        # The ledger that was open when the subscription was created was closed 20 minutes later than the others.
        assert await scene.payloads(log) == numbered(9, 9)
        scene.clock.advance(20 * _MINUTES)
        assert await trimmed(scene, log, cursors)
        assert ids(log) == []
        assert not set(ledgers) & set(ids(log))
        # What is published from now on is the subscription's alone.
        await scene.append(log, *numbered(4, 18))
        opened = cursors.get("s")
        assert opened is not None
        opened.acknowledge_up_to(log.last)
        await scene.patiently(opened.wait_until_saved())
        assert await trimmed(scene, log, cursors)
        assert await scene.payloads(log) == numbered(1, 21)


async def test_earliest_subscription_holds_expired_ledgers_until_acknowledged() -> None:
    """RET-1: it stays when its time is over, until it is acknowledged."""

    async with running_log_scene() as scene:
        log, _ = await filled(scene)
        cursors = await scene.patiently(scene.cursors(log))
        cursor = await scene.patiently(cursors.create("s", log.before_first, {}))
        scene.clock.advance(120 * _MINUTES)
        assert not await trimmed(scene, log, cursors)
        cursor.acknowledge_up_to(log.last)
        await scene.patiently(cursor.wait_until_saved())
        assert await trimmed(scene, log, cursors)
        assert await scene.payloads(log) == numbered(1, 9)


async def test_when_the_last_subscription_is_deleted_the_time_counts_again() -> None:
    """RET-1: for ledgers that it had read, and for those that it had not."""

    async with running_log_scene() as scene:
        log = await scene.open(options=_HOUR)
        cursors = await scene.patiently(scene.cursors(log))
        one, _ = [await scene.patiently(cursors.create(name, log.last, {})) for name in ("one", "other")]
        await scene.append(log, *numbered(10))
        one.acknowledge_up_to(log.last)
        await scene.patiently(one.wait_until_saved())
        for name in ("one", "other"):
            assert not await trimmed(scene, log, cursors)
            await scene.patiently(cursors.delete(name))
        assert not await trimmed(scene, log, cursors)
        # Another first one, which begins at the latest message: all of them were written before it.
        await scene.patiently(cursors.create("later", log.last, {}))
        assert not await trimmed(scene, log, cursors)
        assert await scene.payloads(log) == numbered(10)
        await scene.patiently(cursors.delete("later"))
        scene.clock.advance(61 * _MINUTES)
        assert await trimmed(scene, log, cursors)
        assert await scene.payloads(log) == numbered(1, 9)


async def test_trim_during_first_subscription_deletes_no_retained_ledger() -> None:
    """RET-1: at whatever turn of the creation it begins, also of two at once; nor is the mark lost with the broker."""

    async with running_log_scene() as scene:
        for turns in range(0, 60, 2):
            log = await scene.open(options=_HOUR, name=(name := TopicName.parse(f"t{turns}")))
            await scene.append(log, *numbered(7))
            cursors = await scene.patiently(scene.cursors(log))
            making = [asyncio.create_task(cursors.create(one, log.last, {})) for one in ("a", "b")]
            for _ in range(turns):
                await asyncio.sleep(0)
            await scene.patiently(log.trim(cursors.find_slowest_position))
            for one in making:
                await scene.patiently(asyncio.wait_for(one, None))
            assert not await trimmed(scene, log, cursors)
            assert log.entries_between(log.before_first, LATEST) == 7
            cursors.abandon()
            log = await scene.open(await scene.another(), _HOUR, name=name)
            cursors = await scene.patiently(scene.cursors(log))
            assert cursors.find_slowest_position() == log.last
            assert not await trimmed(scene, log, cursors)


async def test_the_mark_is_written_once() -> None:
    """RET-1, CHK-59: a topic that is new, or has a subscription, or retains nothing, costs no write more."""

    async with running_log_scene() as scene:
        for options, appended, expected in ((_HOUR, 7, 1), (_HOUR, 0, 0), (SMALL, 7, 0)):
            log = await scene.open(options=options, name=(name := TopicName.parse(f"t{appended}{expected}")))
            await scene.append(log, *numbered(appended))
            cursors = await scene.patiently(scene.cursors(log))
            before = log.ownership_checks
            await scene.patiently(cursors.create("a", log.last, {}))
            after = log.ownership_checks
            await scene.patiently(cursors.create("b", log.last, {}))
            assert (log.ownership_checks, after != before) == (after, expected == 1)
            node = await scene.node(name)
            assert node is not None
            assert (node.unsubscribed_up_to > 0) == (expected == 1)


async def test_system_topics_retain_nothing() -> None:
    """RET-1"""

    async with running_log_scene() as scene:
        log = await scene.open(options=_HOUR, name=TopicName.parse("persistent://public/default/__events"))
        await scene.append(log, *numbered(10))
        assert await trimmed(scene, log)
        assert await scene.payloads(log) == numbered(1, 9)


async def test_the_topic_of_policies_retains_everything_until_its_owner_trims_it() -> None:
    """RET-1, TOP-4: whatever is acknowledged, and however old it is."""
    async with running_log_scene() as scene:
        log = await scene.open(options=_HOUR, name=events_topic(NamespaceName("public", "default")))
        await scene.append(log, *numbered(10))
        scene.clock.advance(1000 * _MINUTES)
        assert not await trimmed(scene, log)
        assert not await scene.patiently(log.trim(lambda: LATEST))
        await scene.patiently(log.trim_before(ids(log)[2]))
        assert await scene.payloads(log) == numbered(4, 6)


async def test_lease_holds_ledgers_past_their_retention_time() -> None:
    """RET-1, SPK-5"""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        lease_id = bytes(16)
        scene.clock.advance(61 * _MINUTES)
        await scene.patiently(log.leases.take_lease(lease_id, ledgers[1], 600_000, "a reader"))
        assert await trimmed(scene, log)
        assert ids(log) == ledgers[1:]
        assert not await trimmed(scene, log)
        await scene.patiently(log.leases.end_lease(lease_id))
        assert await trimmed(scene, log)
        assert ids(log) == ledgers[3:]


async def test_truncate_deletes_retained_ledgers() -> None:
    """RET-1: it is asked for by name, also where ledgers are older than the first subscription."""

    async with running_log_scene() as scene:
        log, _ = await filled(scene)
        cursors = await scene.patiently(scene.cursors(log))
        await scene.patiently(cursors.create("s", log.last, {}))
        await scene.patiently(log.truncate())
        assert ids(log) == []
        assert log.before_first == Position(*log.last)


def _live(policies: Policies, *, are_known: bool) -> LiveSettings:
    """The settings of a topic with these policies, else as `SMALL`."""
    small = {name: getattr(SMALL, name) for name in type(SMALL).model_fields}
    return LiveSettings(BrokerServiceSettings(**small), policies, are_known=are_known)


async def test_acknowledged_messages_stay_as_long_as_the_policy_has_it() -> None:
    """RET-2: changes of the policy apply to the topic as it is, and to what it has; and without one, nothing that is
    acknowledged stays."""
    async with running_log_scene() as scene:
        live = _live(Policies(retention=Retention(time_minutes=60, size_mb=-1)), are_known=True)
        log = await scene.open(options=live.current)
        cursors = await scene.patiently(scene.cursors(log))
        cursor = await scene.patiently(cursors.create("s", log.before_first, {}))
        await scene.append(log, *numbered(10))
        cursor.acknowledge_up_to(log.last)
        await scene.patiently(cursor.wait_until_saved())
        scene.clock.advance(59 * _MINUTES)
        assert not await trimmed(scene, log, cursors)
        live.update(Policies(retention=Retention(time_minutes=120, size_mb=-1)))
        scene.clock.advance(60 * _MINUTES)
        assert not await trimmed(scene, log, cursors)
        assert log.retention.retains_acknowledged
        live.update(Policies())
        assert await trimmed(scene, log, cursors)
        assert await scene.payloads(log) == numbered(1, 9)


async def test_nothing_is_trimmed_before_the_policies_are_known() -> None:
    """RET-2, CHK-58: a policy that can't be read might retain it. An administrator's truncate goes on."""
    async with running_log_scene() as scene:
        live = _live(Policies(), are_known=False)
        log = await scene.open(options=live.current, are_policies_known=lambda: live.are_known)
        await scene.append(log, *numbered(10))
        assert not await trimmed(scene, log)
        assert await scene.payloads(log) == numbered(10)
        assert log.retention.retains_acknowledged
        live.update(Policies())
        assert await trimmed(scene, log)
        assert await scene.payloads(log) == numbered(1, 9)
        live.are_known = False
        await scene.patiently(log.truncate())
        assert await scene.payloads(log) == []


async def test_a_lease_holds_ledgers_past_the_retention_policy() -> None:
    """RET-2, SPK-5"""
    async with running_log_scene() as scene:
        live = _live(Policies(retention=Retention(time_minutes=1, size_mb=-1)), are_known=True)
        log = await scene.open(options=live.current)
        await scene.append(log, *numbered(10))
        ledgers = ids(log)
        scene.clock.advance(2 * _MINUTES)
        await scene.patiently(log.leases.take_lease(bytes(16), ledgers[1], 600_000, "a reader"))
        assert await trimmed(scene, log)
        assert ids(log) == ledgers[1:]
