"""Leases of a topic's log: what they keep, for how long, and that nothing comes between them and a trim."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.lease_rules import Lease, Leases, encode_lease
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.position import LATEST, Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.metadata.server import Fault
from magnetar_testing.metadata.store import MemoryStore
from tests.unit.broker.log_scene import SMALL, Scene, numbered, running_log_scene

ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16
_TEN_MIN_MS = 600_000


async def filled(scene: Scene) -> tuple[ManagedLedger, list[int]]:
    """Three closed ledgers, and an open one."""
    log = await scene.open()
    await scene.append(log, *numbered(10))
    return log, ids(log)


def ids(log: ManagedLedger) -> list[int]:
    return [one.ledger_id for one in log.stats().ledgers]


async def recorded(scene: Scene) -> list[tuple[bytes, int]]:
    node = await scene.node()
    assert node is not None
    return [(one.lease_id, one.from_ledger_id) for one in node.leases]


async def test_trim_spares_leased_ledgers_until_the_lease_expires() -> None:
    """SPK-5, RET-1: closed ledgers go, but what a lease holds; it is in the metadata before it is answered."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        until_ms = await scene.patiently(log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, "a query"))
        assert await recorded(scene) == [(ONE, ledgers[1])]
        assert 0 < until_ms - scene.clock.time_ms() <= _TEN_MIN_MS
        assert log.may_trim(None)
        assert await scene.patiently(log.trim(lambda: None))
        assert ids(log) == ledgers[1:]
        assert not log.may_trim(None)
        assert not await scene.patiently(log.trim(lambda: LATEST))
        scene.clock.advance(500)
        assert not log.may_trim(None)
        [(lease, left_s)] = log.leases.list_active()
        assert (lease.holder, lease.from_ledger_id) == ("a query", ledgers[1])
        assert 90 < left_s <= 100
        scene.clock.advance(101)
        assert log.leases.list_active() == []
        assert log.may_trim(None)
        assert await scene.patiently(log.trim(lambda: None))
        assert ids(log) == ledgers[3:]
        assert await recorded(scene) == []


async def test_a_lease_that_has_lapsed_is_removed_and_counted_once() -> None:
    """SPK-5: whichever change of the topic's node comes first; one that was renewed, or ended, has not lapsed."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        for lease_id in (ONE, OTHER, b"ended" + bytes(11)):
            await scene.patiently(log.leases.take_lease(lease_id, ledgers[1], _TEN_MIN_MS, "a query"))
        await scene.patiently(log.leases.end_lease(b"ended" + bytes(11)))
        scene.clock.advance(400)
        await scene.patiently(log.leases.renew_lease(OTHER, _TEN_MIN_MS))
        await scene.patiently(log.leases.remove_lapsed())
        assert len(await recorded(scene)) == 2
        scene.clock.advance(201)
        assert log.leases.has_lapsed
        assert log.leases.lapsed == 0
        await scene.patiently(log.leases.remove_lapsed())
        assert await recorded(scene) == [(OTHER, ledgers[1])]
        assert (log.leases.has_lapsed, log.leases.lapsed) == (False, 1)
        await scene.patiently(log.leases.remove_lapsed())
        assert log.leases.lapsed == 1
        scene.clock.advance(601)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, "a query"))
        assert await recorded(scene) == [(ONE, ledgers[1])]
        assert log.leases.lapsed == 2


async def test_truncate_leaves_leased_ledgers_to_a_later_trim() -> None:
    """SPK-5"""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, ""))
        await scene.patiently(log.truncate())
        assert ids(log) == ledgers[2:]
        await scene.patiently(log.leases.end_lease(ONE))
        assert await scene.patiently(log.trim(lambda: None))
        assert ids(log) == []


async def test_new_owner_honours_a_lease_for_its_full_time() -> None:
    """SPK-5: from take-over on, by its own clock; also the third who has the topic, and one killed at once."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, "a query"))
        for _ in range(3):
            scene.clock.advance(590)
            log.abandon()
            log = await scene.open(await scene.another())
            scene.clock.advance(590)
            assert not await scene.patiently(log.trim(lambda: None))
            assert ids(log) == ledgers
        scene.clock.advance(11)
        assert await scene.patiently(log.trim(lambda: None))


async def test_a_broker_that_lost_the_topic_gives_no_lease() -> None:
    """SPK-5, CHK-30: nothing is promised by a broker that can't keep it."""

    async with running_log_scene() as scene:
        old, ledgers = await filled(scene)
        new = await scene.open(await scene.another())
        with pytest.raises(TopicUnloaded):
            await scene.patiently(old.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        assert len(scene.lost) == 1
        assert new.leases.list_active() == []
        with pytest.raises(TopicUnloaded):
            await old.leases.renew_lease(ONE, _TEN_MIN_MS)


async def test_replaced_owner_extends_no_lease_past_its_written_time() -> None:
    """SPK-5: a renewal that is not written leaves the lease as long as it was."""

    async with running_log_scene() as scene:
        old, ledgers = await filled(scene)
        await scene.patiently(old.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        taken_at = scene.clock.time_ms()
        new = await scene.open(await scene.another())
        scene.clock.advance(250)
        until_ms = await old.leases.renew_lease(ONE, _TEN_MIN_MS)
        assert until_ms <= taken_at + _TEN_MIN_MS
        scene.clock.advance((until_ms - scene.clock.time_ms()) / 1000 - 0.1)
        assert not await scene.patiently(new.trim(lambda: None))
        with pytest.raises(TopicUnloaded):  # there is too little left of it, so it would have to be written
            await scene.patiently(old.leases.renew_lease(ONE, _TEN_MIN_MS))


async def test_nothing_is_written_while_a_lease_has_half_its_time_left() -> None:
    """SPK-5: neither for a renewal nor for a plan further on, and what it moves past is let go at once."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        node = await scene.node()
        scene.clock.advance(290)
        await log.leases.renew_lease(ONE, _TEN_MIN_MS)
        await log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, "")
        await log.leases.take_lease(ONE, ledgers[1], 1000, "")
        assert await scene.node() == node
        assert await scene.patiently(log.trim(lambda: None))
        assert ids(log) == ledgers[1:]
        assert await recorded(scene) == [(ONE, ledgers[1])]
        scene.clock.advance(20)
        await scene.patiently(log.leases.renew_lease(ONE, _TEN_MIN_MS))
        assert await scene.node() != node
        [(lease, left_s)] = log.leases.list_active()
        assert (lease.from_ledger_id, round(left_s)) == (ledgers[1], 600)


def test_lease_is_promised_from_request_and_held_from_answer() -> None:
    """SPK-5: a successor may have given its time since; and the predecessor may have promised until just then."""
    lease = Lease(ONE, 5, 10_000, "", 0)
    leases = Leases()
    leases.load([encode_lease(lease)], begun_at=100.0, now=104.0)
    assert leases.renew(ONE, None, 10_000, 105.0) is not None
    assert leases.renew(ONE, None, 10_000, 105.1) is None
    assert leases.protects(5, 113.9)
    assert not leases.protects(5, 114.0)
    leases.commit_change(leases.begin_change(lease, 105.0), lease, begun_at=105.0, now=109.0)
    assert leases.renew(ONE, None, 10_000, 110.0) is not None
    assert leases.renew(ONE, None, 10_000, 110.1) is None
    assert leases.protects(5, 118.9)


async def test_a_lease_that_moves_back_or_grows_is_written_first() -> None:
    """SPK-5"""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, ""))
        await scene.patiently(log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, ""))
        assert await recorded(scene) == [(ONE, ledgers[1])]
        await scene.patiently(log.leases.take_lease(ONE, ledgers[1], 2 * _TEN_MIN_MS, ""))
        node = await scene.node()
        assert node is not None
        assert node.leases[0].lease_ms == 2 * _TEN_MIN_MS
        await log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, "")
        await scene.patiently(log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, ""))
        assert await recorded(scene) == [(ONE, ledgers[1])]
        await scene.patiently(log.trim(lambda: None))
        assert ids(log) == ledgers[1:]


@pytest.mark.parametrize("turns", range(14))
async def test_lease_taken_during_trim_holds_all_listed_ledgers(turns: int) -> None:
    """SPK-5: take, then look: what is on the list then stays there."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        trim = asyncio.ensure_future(log.trim(lambda: None))
        for _ in range(turns):
            await asyncio.sleep(0)
        await log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, "")
        seen = ids(log)
        await scene.patiently(_done(trim))
        await scene.patiently(log.trim(lambda: None))
        assert ids(log) == seen
        assert await recorded(scene) == [(ONE, ledgers[0])]


@pytest.mark.parametrize("turns", range(14))
async def test_lease_moved_back_during_trim_holds_all_listed_ledgers(turns: int) -> None:
    """SPK-5: nor does a lease that stands already come between what a trim has decided and what it does."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        await log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, "")
        trim = asyncio.ensure_future(log.trim(lambda: None))
        for _ in range(turns):
            await asyncio.sleep(0)
        await log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, "")
        seen = ids(log)
        await scene.patiently(_done(trim))
        await scene.patiently(log.trim(lambda: None))
        assert ids(log) == seen


@pytest.mark.parametrize("turns", range(10))
async def test_cancelled_request_leaves_a_complete_lease_or_none(turns: int) -> None:
    """SPK-5: what the node says and what is kept here never differ."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        taking = asyncio.ensure_future(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        with suppress(asyncio.CancelledError):
            await taking
        await scene.idle()
        there = await recorded(scene) == [(ONE, ledgers[0])]
        assert there == bool(log.leases.list_active()) == (not await scene.patiently(log.trim(lambda: None)))
        await scene.patiently(log.leases.take_lease(OTHER, ledgers[-1], _TEN_MIN_MS, ""))
        assert (OTHER, ledgers[-1]) in await recorded(scene)


@pytest.mark.parametrize("fault", list(Fault))
async def test_lease_is_recorded_after_a_faulty_metadata_request(fault: Fault) -> None:
    """SPK-5, CHK-40: what was on its way is written once, or not; the caller is told which."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        store = scene.store
        scene.server.queue_faults(store, fault)
        taking = asyncio.ensure_future(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        await scene.idle()
        scene.server.resume(store)
        scene.server.release(store)
        await scene.patiently(_done(taking))
        assert await recorded(scene) == [(ONE, ledgers[0])]
        assert not await scene.patiently(log.trim(lambda: None))
        assert scene.lost == []


async def test_store_outage_refuses_new_leases_and_preserves_existing_ones() -> None:
    """SPK-5, CHK-40: unknown is not no, and a suspended session takes nothing from who reads."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[1], 3_600_000, ""))
        scene.server.suspend(scene.store)
        await log.leases.renew_lease(ONE, _TEN_MIN_MS)
        taking = asyncio.ensure_future(log.leases.take_lease(OTHER, ledgers[0], _TEN_MIN_MS, ""))
        await scene.wait(taking.done)
        with pytest.raises(BrokerError) as refused:
            taking.result()
        assert refused.value.code == ErrorCode.METADATA_ERROR
        assert [lease.lease_id for lease, _ in log.leases.list_active()] == [ONE]


async def test_a_lease_that_stands_is_renewed_though_a_topic_has_more_than_the_bound() -> None:
    """SPK-5, CHK-49: a broker with a higher bound may have made the topic. A lease that is new is refused."""

    async with running_log_scene() as scene:
        log = await scene.open(options=ManagedLedgerSettings(managed_ledger_max_leases_per_topic=3))
        for lease_id in (ONE, OTHER):
            await scene.patiently(log.leases.take_lease(lease_id, 0, _TEN_MIN_MS, ""))
        await scene.patiently(log.close())
        log = await scene.open(options=ManagedLedgerSettings(managed_ledger_max_leases_per_topic=1))
        scene.clock.advance(_TEN_MIN_MS / 1000 * 0.6)
        await scene.patiently(log.leases.take_lease(ONE, 0, _TEN_MIN_MS, ""))
        await scene.patiently(log.leases.renew_lease(OTHER, _TEN_MIN_MS))
        scene.clock.advance(_TEN_MIN_MS / 1000 * 0.6)
        assert {lease.lease_id for lease, _ in log.leases.list_active()} == {ONE, OTHER}
        with pytest.raises(BrokerError) as refused:
            await scene.patiently(log.leases.take_lease(bytes(16), 0, _TEN_MIN_MS, ""))
        assert refused.value.code == ErrorCode.TOO_MANY_REQUESTS


async def test_invalid_lease_is_refused_and_error_names_the_limit() -> None:
    """SPK-5: no reader holds more, or for longer, than an administrator allows."""

    async with running_log_scene() as scene:
        options = ManagedLedgerSettings(managed_ledger_max_leases_per_topic=2, managed_ledger_max_lease_minutes=10)
        log = await scene.open(options=options)
        leases = log.leases

        async def refused(code: int, work: Coroutine[Any, Any, int]) -> str:
            with pytest.raises(BrokerError) as error:
                await scene.patiently(work)
            assert error.value.code == code
            return str(error.value)

        invalid = ErrorCode.INVALID_ARGUMENT
        assert "16 bytes" in await refused(invalid, leases.take_lease(b"short", 0, _TEN_MIN_MS, ""))
        assert "600000 ms" in await refused(invalid, leases.take_lease(ONE, 0, _TEN_MIN_MS + 1, ""))
        assert "999" in await refused(invalid, leases.take_lease(ONE, 0, 999, ""))
        assert "256 bytes" in await refused(invalid, leases.take_lease(ONE, 0, 1000, "x" * 257))
        await refused(invalid, leases.take_lease(ONE, 2**63, 1000, ""))
        assert ONE.hex() in await refused(ErrorCode.NOT_FOUND, leases.renew_lease(ONE, 1000))
        await scene.patiently(leases.take_lease(ONE, 0, 1000, ""))
        await scene.patiently(leases.take_lease(OTHER, 0, _TEN_MIN_MS, ""))
        third = bytes(16)
        said = await refused(ErrorCode.TOO_MANY_REQUESTS, leases.take_lease(third, 0, 1000, ""))
        assert "managed_ledger_max_leases_per_topic" in said
        scene.clock.advance(1.1)
        await refused(ErrorCode.NOT_FOUND, leases.renew_lease(ONE, 1000))
        await scene.patiently(leases.take_lease(third, 0, 1000, ""))  # in the place of the one that is over
        assert [one for one, _ in await recorded(scene)] == [OTHER, third]


async def test_ended_lease_holds_no_ledgers() -> None:
    """SPK-5"""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
        await scene.patiently(log.leases.end_lease(ONE))
        await scene.patiently(log.leases.end_lease(ONE))
        assert await recorded(scene) == []
        assert await scene.patiently(log.trim(lambda: Position(ledgers[0], 2)))


async def test_leases_add_no_store_requests_to_opening_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: they stand in the node that is read anyway."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        asked_for: list[int] = []

        async def asked() -> int:
            client = await scene.another()
            store = client.ledgers.store
            assert isinstance(store, MemoryStore)
            counted = 0

            def watched(*arguments: Any, ask: Any = store.send_request, **named: Any) -> Any:
                nonlocal counted
                counted += 1
                return ask(*arguments, **named)

            monkeypatch.setattr(MemoryStore, "send_request", lambda _, *given, **named: watched(*given, **named))
            opened = await scene.open(client, SMALL)
            monkeypatch.undo()
            opened.abandon()
            return counted

        for leases in ([], [(ONE, ledgers[0])]):
            await scene.patiently(log.close())
            log = await scene.open()
            await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, ""))
            if not leases:
                await scene.patiently(log.leases.end_lease(ONE))
            assert await recorded(scene) == leases
            asked_for.append(await asked())
        assert asked_for[0] == asked_for[1] > 0


async def _done(work: asyncio.Future[Any]) -> Any:
    return await work
