"""Leases that several reads share: each read holds what it needs for its time, and all of them are one lease."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.lease_rules import (
    FINISHED_SHARE,
    MAX_PARTS,
    MAX_READS,
    RENEWED_SHARE,
    Lease,
    LeaseReads,
    Leases,
    encode_lease,
)
from magnetar_broker.position import LATEST
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.randomness import SeededRandomness
from tests.unit.broker.log_scene import SMALL, running_log_scene
from tests.unit.broker.test_leases import ONE, OTHER, filled, ids, recorded

_HOUR_MS = 3_600_000
_TEN_MIN_MS = 600_000


def read_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def test_a_driver_that_polls_has_one_lease_and_streams_find_theirs() -> None:
    """SPK-5: 2,000 batches within an hour leave one lease of the topic, and reads in bounded memory."""

    async with running_log_scene() as scene:
        options = ManagedLedgerSettings(managed_ledger_max_leases_per_topic=2)
        log = await scene.open(options=SMALL.model_copy(update=options.model_dump(exclude_unset=True)))
        for number in range(2_000):
            await scene.patiently(log.leases.take_lease(ONE, 1, _HOUR_MS, "a driver", read_id(number)))
            scene.clock.advance(1)
        assert len(log.leases.list_active()) == 1
        assert len(log._node.leases._reads[ONE]._reads) <= MAX_READS
        await scene.patiently(log.leases.take_lease(OTHER, 1, _TEN_MIN_MS, "a stream"))


async def test_batches_have_half_of_the_bound() -> None:
    """SPK-5: drivers that read by batches never use up the leases that streams need."""

    async with running_log_scene() as scene:
        options = ManagedLedgerSettings(managed_ledger_max_leases_per_topic=4)
        log = await scene.open(options=SMALL.model_copy(update=options.model_dump(exclude_unset=True)))
        for number in range(2):
            await scene.patiently(log.leases.take_lease(bytes([number]) * 16, 1, _HOUR_MS, "a driver", read_id(number)))
        with pytest.raises(BrokerError, match=r"2 of them shared by batch reads, .* allows 4, half of them") as refused:
            await scene.patiently(log.leases.take_lease(bytes([2]) * 16, 1, _HOUR_MS, "a driver", read_id(2)))
        assert refused.value.code == ErrorCode.TOO_MANY_REQUESTS
        for number in range(10, 12):
            await scene.patiently(log.leases.take_lease(bytes([number]) * 16, 1, _TEN_MIN_MS, "a stream"))
        # A successor counts them alike.
        log.abandon()
        log = await scene.open(
            await scene.another(), options=SMALL.model_copy(update=options.model_dump(exclude_unset=True))
        )
        assert sum(lease.shared for lease, _ in log.leases.list_active()) == 2


async def test_a_later_read_moves_a_shared_lease_to_no_later_ledger() -> None:
    """SPK-5: concurrent batches of one driver keep their ranges; each ends by itself."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, "", read_id(1)))
        await scene.patiently(log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, "", read_id(2)))
        assert await scene.patiently(log.trim(lambda: LATEST))
        assert ids(log) == ledgers[1:]
        scene.clock.advance(400)
        await scene.patiently(log.leases.renew_lease(ONE, _TEN_MIN_MS, read_id(2)))
        scene.clock.advance(201)
        assert await scene.patiently(log.trim(lambda: LATEST))
        assert ids(log) == ledgers[2:]
        with pytest.raises(BrokerError, match="has ended"):
            await scene.patiently(log.leases.renew_lease(ONE, _TEN_MIN_MS, read_id(1)))
        await scene.patiently(log.leases.end_lease(ONE, read_id(1)))
        assert not await scene.patiently(log.trim(lambda: LATEST))
        await scene.patiently(log.leases.end_lease(ONE, read_id(2)))
        assert await recorded(scene) == []


async def test_a_read_of_an_earlier_ledger_is_written_before_it_is_answered() -> None:
    """SPK-5: a successor keeps what both need."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        both = asyncio.gather(
            log.leases.take_lease(ONE, ledgers[1], _TEN_MIN_MS, "", read_id(1)),
            log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, "", read_id(2)),
            log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, "", read_id(3)),
        )
        await scene.wait(both.done)
        assert await recorded(scene) == [(ONE, ledgers[0])]
        assert not await scene.patiently(log.trim(lambda: LATEST))


async def test_a_read_that_has_finished_lasts_for_a_quarter_of_its_time() -> None:
    """SPK-5: once all of its parts are finished, in any order and any number of times. A second action, and a task that
    still reads another partition, renew it for half of its time, each time."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _HOUR_MS, "", read_id(1)))
        for part in (2, 0, 2):
            log.leases.finish_part(ONE, read_id(1), part, 3)
        assert left_s(log.leases.list_active()) > 3_000
        log.leases.finish_part(ONE, read_id(1), 1, 3)
        assert 800 < left_s(log.leases.list_active()) <= FINISHED_SHARE * 3_600
        scene.clock.advance(800)
        assert not await scene.patiently(log.trim(lambda: LATEST))
        for _ in range(2):
            await scene.patiently(log.leases.renew_lease(ONE, _HOUR_MS, read_id(1)))
            assert 1_790 < left_s(log.leases.list_active()) < RENEWED_SHARE * 3_600 + 1
            scene.clock.advance(1_700)
            assert not await scene.patiently(log.trim(lambda: LATEST))
        await scene.patiently(log.leases.renew_lease(ONE, _HOUR_MS, read_id(1)))
        for part in range(3):
            log.leases.finish_part(ONE, read_id(1), part, 3)
        scene.clock.advance(901)
        # It has not lapsed: all that it was for was read.
        await scene.patiently(log.leases.remove_lapsed())
        assert (await recorded(scene), log.leases.lapsed) == ([], 0)
        log.leases.finish_part(ONE, read_id(1), 0, 3)
        for part, parts in ((3, 3), (0, 0), (0, MAX_PARTS + 1)):
            with pytest.raises(BrokerError, match="invalid part"):
                log.leases.finish_part(ONE, read_id(1), part, parts)


async def test_a_successor_gives_reads_that_it_does_not_know_their_full_time() -> None:
    """SPK-5: neither a new read nor parts of an old one that finish take anything from them; they can be renewed."""

    async with running_log_scene() as scene:
        log, ledgers = await filled(scene)
        await scene.patiently(log.leases.take_lease(ONE, ledgers[0], _TEN_MIN_MS, "", read_id(1)))
        scene.clock.advance(590)
        log.abandon()
        log = await scene.open(await scene.another())
        await scene.patiently(log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, "", read_id(2)))
        for number in (1, 2):
            log.leases.finish_part(ONE, read_id(number), 0, 1)
            await scene.patiently(log.leases.end_lease(ONE, read_id(number)))
        scene.clock.advance(300)
        await scene.patiently(log.leases.renew_lease(ONE, _TEN_MIN_MS, read_id(1)))
        scene.clock.advance(590)
        assert not await scene.patiently(log.trim(lambda: LATEST))
        assert await recorded(scene) == [(ONE, ledgers[0])]
        scene.clock.advance(11)
        assert await scene.patiently(log.trim(lambda: LATEST))


def test_reads_at_equal_intervals_end() -> None:
    """SPK-5: a driver that polls by the clock for hours has bounded memory, and keeps no ledger for ever."""
    reads, lease_s = LeaseReads(), 60
    for now in range(20 * lease_s):
        reads.add_read(read_id(now), now, 1000 * lease_s, now)
        first = reads.first_ledger_id(now)
        assert first is not None
        assert now - 3 * lease_s <= first <= max(0, now - lease_s + 1)
        assert len(reads._reads) <= MAX_READS


def left_s(standing: list[tuple[Lease, float]]) -> float:
    [(_, left)] = standing
    return left


@dataclass
class Promise:
    """What a read was told: from which ledger on it holds, and up to when at least."""

    from_ledger_id: int
    until: float


def check_bound_of_finished(leases: Leases, one: bytes, lease_ms: int, now: float) -> None:
    """A read that is finished is never held for longer than a renewal promises."""
    read = leases._reads[ONE]._reads.get(one) if ONE in leases._reads else None
    if read is not None and read.is_finished:
        assert read.until <= now + RENEWED_SHARE * lease_ms / 1_000


@pytest.mark.parametrize("seed", range(40))
def test_shared_lease_holds_the_ledgers_of_every_read(seed: int) -> None:
    """SPK-5: any mix of plans, renewals, ends, finished parts, changes of the node and take-overs by seed. The lease
    holds every ledger of every read for its time here, and the node says so to a successor."""
    chance, now = SeededRandomness(seed), 1_000.0
    leases = Leases()
    # By read; a read that was planned again has the later promise besides.
    promised: dict[bytes, list[Promise]] = {}
    node: list[Lease] = []

    def change(new: Lease | None) -> None:
        nonlocal node, now
        begun = now
        node = leases.begin_change(new, begun)
        now += chance.random()
        leases.commit_change(node, new, begun, now)

    longest_ms = 30_000
    for step in range(600):
        now += 3 * chance.random()
        # Some reads change often enough to be finished and renewed.
        one = read_id(chance.below(30 if chance.below(2) else 3))
        lease_ms = 10_000 * (1 + chance.below(3))
        promises = promised[one] = [promise for promise in promised.get(one, []) if now < promise.until]
        match chance.below(12):
            case 0 | 1 | 2 | 3:
                wanted = 1 + step // 10 + chance.below(8)
                if leases.renew(ONE, wanted, lease_ms, now, one) is None:
                    change(Lease(ONE, wanted, lease_ms, "", 0, read_id=one))
                promises.append(Promise(wanted, now + lease_ms / 2_000))
            case 4 | 5 | 6 if promises:
                if leases.renew(ONE, None, lease_ms, now, one) is None:
                    from_ledger_id = leases.find_first_ledger(ONE, one, now)
                    assert from_ledger_id is not None, "a read that lasts can be renewed"
                    change(Lease(ONE, from_ledger_id, lease_ms, "", 0, read_id=one))
                for promise in promises:
                    promise.until = max(promise.until, now + lease_ms / 2_000)
            case 7 | 8:
                parts = 1 + chance.below(2)
                leases.finish_part(ONE, one, chance.below(parts), parts, now)
                for promise in promises:
                    promise.until = min(promise.until, now + FINISHED_SHARE * 10)
            case 9:
                leases.end_lease(ONE, one, now)
                promises.clear()
            case 10:
                change(None)
            case 11:
                leases = Leases()
                leases.load([encode_lease(lease) for lease in node], now - 0.5, now)
        check_bound_of_finished(leases, one, longest_ms, now)
        for promise in (promise for promises in promised.values() for promise in promises if now < promise.until):
            assert leases.protects(promise.from_ledger_id, now), f"step {step}"
            assert any(one.from_ledger_id <= promise.from_ledger_id for one in node), f"step {step}: not in the node"
