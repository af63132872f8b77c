"""What all recoveries of a process hold together is bounded, and none of them waits for ever."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.recovery_budget import RecoveryBudget, RecoveryShare
from magnetar_bookie.ledger.recovery_rules import RecoveryReads
from magnetar_bookie.read.read_answer import MissingReason, ReadEntries
from magnetar_bookie.read.record import encode_record
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_wire.entry_memory import count_entry_memory
from tests.unit.bookie.small_cluster import running_small_cluster

THREE = Striping(3, 3, 2)
_ENTRY_BYTES = 2000
_ENTRIES = 20
_BUDGET = 40_000


def _always() -> bool:
    return True


async def _idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _result(recovery: asyncio.Task[LedgerMetadata]) -> LedgerMetadata:
    return await recovery


async def test_reservations_are_granted_in_fifo_order() -> None:
    budget = RecoveryBudget(10)
    shares = [budget.open_share() for _ in range(3)]
    # None of them is stalled.
    for share in shares:
        share.set_held(0, is_writing=True)
    granted: list[int] = []

    async def reserve(number: int, size: int) -> None:
        assert await shares[number].reserve(size, _always) == size
        granted.append(number)

    waiting = [asyncio.create_task(reserve(number, size)) for number, size in ((0, 6), (1, 6), (2, 4))]
    await _idle()
    # The third fits, and is behind the second.
    assert granted == [0]
    shares[0].release(6)
    await _idle()
    assert granted == [0, 1, 2]
    assert budget.used_bytes == 10
    await asyncio.gather(*waiting)


async def test_a_recovery_that_can_not_go_on_is_granted_one_entry() -> None:
    budget = RecoveryBudget(10)
    other, stuck = budget.open_share(), budget.open_share()
    other.set_held(10, is_writing=True)
    stuck.set_held(3, is_writing=True)
    unneeded = asyncio.create_task(stuck.reserve(5, lambda: False))
    waiting = [asyncio.create_task(stuck.reserve(5, _always)) for _ in range(2)]
    await _idle()
    assert not any(task.done() for task in waiting)
    # What it wrote is written, and what is left waits for an entry below.
    stuck.set_held(2, is_writing=False)
    await _idle()
    assert [task.done() for task in waiting] == [True, False]
    assert waiting[0].result() == 1
    stuck.release(1)
    await _idle()
    assert waiting[1].result() == 1
    stuck.release(1)
    assert not unneeded.done()
    unneeded.cancel()
    await _idle()
    stuck.close()
    stuck.set_held(7, is_writing=True)  # late news of an add
    assert budget.used_bytes == 10


async def test_cancelled_reservation_releases_its_bytes() -> None:
    budget = RecoveryBudget(10)
    one, two = budget.open_share(), budget.open_share()
    one.set_held(0, is_writing=True)
    two.set_held(0, is_writing=True)
    assert await one.reserve(8, _always) == 8
    large, small = asyncio.create_task(one.reserve(9, _always)), asyncio.create_task(two.reserve(2, _always))
    await _idle()
    large.cancel()
    await _idle()
    assert small.result() == 2
    granted = asyncio.create_task(two.reserve(8, _always))
    await asyncio.sleep(0)
    one.release(8)
    granted.cancel()  # it was granted, and has not heard of it
    await _idle()
    assert granted.cancelled()
    two.release(2)
    assert budget.used_bytes == 0


async def test_many_recoveries_hold_little_more_than_their_budget() -> None:
    """CHK-68: a broker that takes over hundreds of topics recovers their ledgers at once, and bookies write slowly."""
    held: dict[int, int] = {}
    most: list[int] = []
    add_answer = RecoveryReads.add_answer

    def noted(reads: RecoveryReads, slot: int, read: ReadEntries) -> None:
        add_answer(reads, slot, read)
        held[id(reads)] = reads.held_bytes
        most.append(sum(held.values()))

    with patch.object(RecoveryReads, "add_answer", noted):
        async with running_small_cluster(
            settings=LedgerClientSettings(
                max_recovery_bytes=_BUDGET,
                explicit_lac_interval_ms=0,
                max_pending_entries=2,
                add_entry_timeout_seconds=600,
            )
        ) as cluster:
            ledgers = [await cluster.make(THREE) for _ in range(10)]
            for ledger_id in ledgers:
                for entry_id in range(_ENTRIES):
                    size = (entry_id + 1) * _ENTRY_BYTES
                    record = encode_record(ledger_id, entry_id, -1, size, bytes(_ENTRY_BYTES))
                    for name in ("b0", "b1", "b2"):
                        cluster[name].keep(ledger_id, record)
            for bookie in cluster.bookies.values():
                bookie.hold()
            recoveries = [asyncio.create_task(cluster.client.recover(ledger_id)) for ledger_id in ledgers]
            for _ in range(2000):
                await asyncio.sleep(0)
            assert not any(recovery.done() for recovery in recoveries)
            # What is being written counts as well.
            sent = cluster.client.recovery_budget.used_bytes
            assert max(*most, sent) <= _BUDGET + len(ledgers) * (_ENTRY_BYTES + 100)
            for bookie in cluster.bookies.values():
                bookie.resume()
            for recovery in recoveries:
                closed = await cluster.patiently(_result(recovery))
                assert closed.last_entry_id == _ENTRIES - 1
            assert cluster.client.recovery_budget.used_bytes == 0


async def test_adds_after_a_lost_entry_count_toward_the_budget() -> None:
    """CHK-68 CHK-67: the adds that begin behind it count like those before it, at each answer of a bookie."""
    noted: list[tuple[int, bool]] = []
    set_held = RecoveryShare.set_held

    def note(share: RecoveryShare, size_bytes: int, *, is_writing: bool) -> None:
        noted.append((size_bytes, is_writing))
        set_held(share, size_bytes, is_writing=is_writing)

    with patch.object(RecoveryShare, "set_held", note):
        async with running_small_cluster(
            settings=LedgerClientSettings(
                recovery_window_entries=3, explicit_lac_interval_ms=0, add_entry_timeout_seconds=600
            )
        ) as cluster:
            ledger_id = await cluster.make(THREE)
            await cluster.put(ledger_id, range(6), confirmed=-1)
            for bookie in cluster.bookies.values():
                bookie.hold()
            for name in ("b0", "b1", "b2"):
                cluster[name].damage(ledger_id, 0)
            recovery = asyncio.create_task(cluster.client.recover(ledger_id))
            for _ in range(2000):
                await asyncio.sleep(0)
            assert not recovery.done()
            first = next(number for number, (_, writing) in enumerate(noted) if writing)
            assert all(writing for _, writing in noted[first:])
            assert min(size for size, _ in noted[first + 1 :]) > 0
            for bookie in cluster.bookies.values():
                bookie.resume()
            assert (await cluster.patiently(_result(recovery))).last_entry_id == 5


async def test_a_bookie_that_owes_the_undecided_entry_does_not_wait_for_bytes_ahead() -> None:
    """CHK-68 CHK-14: others hold the whole budget, and b0 leaves limbo with what this recovery waits for."""

    async with running_small_cluster(
        settings=LedgerClientSettings(max_recovery_bytes=_BUDGET, explicit_lac_interval_ms=0)
    ) as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(8), confirmed=-1)
        record = cluster["b0"].ledger(ledger_id).records.pop(0)
        cluster["b0"].ledger(ledger_id).limbo = True
        cluster["b1"].hanging = {"read"}
        del cluster["b2"].ledger(ledger_id).records[0]
        others = cluster.client.recovery_budget.open_share()
        others.set_held(_BUDGET, is_writing=True)
        leaves_limbo_at = cluster.clock.monotonic() + 20

        def leave_limbo(method: str) -> None:
            if cluster.clock.monotonic() > leaves_limbo_at:
                cluster["b0"].ledger(ledger_id).records[0] = record
                cluster["b0"].ledger(ledger_id).limbo = False

        cluster["b0"].before = leave_limbo
        assert (await cluster.patiently(cluster.client.recover(ledger_id))).last_entry_id == 7
        others.close()
        assert cluster.client.recovery_budget.used_bytes == 0


def test_a_slot_that_waits_for_bytes_ahead_is_needed_once_it_owes_an_answer() -> None:
    """CHK-68: an entry above the undecided one, which the slot could not answer for, is undecided in its turn."""
    reads = RecoveryReads(THREE, 0, window_entries=64, window_bytes=1 << 24)
    reads.add_answer(0, ReadEntries({0: MissingReason.UNKNOWN, 1: MissingReason.UNKNOWN}, None, 2, -1))
    assert reads.needs(0)
    reads.add_answer(1, ReadEntries({0: b"record"}, None, 1, -1))
    assert reads.next_range(0) == (2, 63)
    assert reads.needs(0)
    reads.add_answer(1, ReadEntries({1: b"record"}, None, 2, -1))
    assert reads.needs(0)
    reads.add_answer(1, ReadEntries({2: MissingReason.ABSENT}, None, 3, -1))
    reads.add_answer(0, ReadEntries({2: MissingReason.ABSENT, 3: MissingReason.UNKNOWN}, None, 4, -1))
    assert not reads.needs(0)


def test_small_records_count_with_memory_overhead() -> None:
    """CHK-68: what is read and not written counts with its overhead, and is released by the same count."""
    reads = RecoveryReads(THREE, 0, window_entries=64, window_bytes=1 << 24)
    reads.add_answer(0, ReadEntries(dict.fromkeys([*range(10), 11], b"x"), None, 12, -1))
    assert reads.held_bytes == count_entry_memory([b"x"] * 11)
    while reads.pop_recovered() is not None:
        pass
    assert reads.held_bytes == count_entry_memory([b"x"])
    for slot in (1, 2):
        reads.add_answer(slot, ReadEntries({10: MissingReason.ABSENT}, None, 11, -1))
    assert reads.is_done
    assert reads.held_bytes == 0


async def test_fence_reserves_immediately_without_overtaking_waiters() -> None:
    """CHK-68: fences never wait for the budget, and what comes with them is within it."""
    budget = RecoveryBudget(10)
    first, second, third = [budget.open_share() for _ in range(3)]
    assert first.try_reserve(6)
    assert not second.try_reserve(6)
    assert second.try_reserve(4)
    third.set_held(0, is_writing=True)
    waiting = asyncio.create_task(third.reserve(8, lambda: False))
    await _idle()
    second.release(4)
    assert not second.try_reserve(1)  # it would fit, and somebody waits
    first.release(6)
    await waiting
    assert budget.used_bytes == 8
