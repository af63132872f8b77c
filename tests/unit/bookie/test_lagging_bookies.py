"""Which ledgers leave a bookie that lags, and which wait for it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from magnetar_bookie.errors import TooManyPending
from magnetar_bookie.ledger.ensemble_rules import Ensemble
from magnetar_bookie.ledger.replicated_adds import AppendCallback, ReplicatedAdds
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from tests.unit.bookie.small_cluster import running_small_cluster
from tests.unit.bookie.writer_scene import Outcomes, Scene

# Some four entries of this size pass the bound.
LAG_BYTES = 5000
ENTRY = b"e" * 1000
TIGHT = LedgerClientSettings(explicit_lac_interval_ms=0, max_bookie_lag_bytes=LAG_BYTES, add_entry_timeout_seconds=5.0)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (5, 5, 3)]
)
def test_lagging_bookie_is_dispensable_only_with_full_ack_quorums(sizes: tuple[int, ...]) -> None:
    """CHK-66: of all ways in which bookies of an ensemble may lag and be absent."""
    striping = Striping(*sizes)
    names = [f"b{slot}" for slot in range(striping.ensemble_size)]
    for conditions in itertools.product(("well", "lags", "absent"), repeat=len(names)):
        ensemble = Ensemble(striping, names)
        for name, condition in zip(names, conditions, strict=True):
            if condition == "lags":
                ensemble.set_lagging(name, True)
            elif condition == "absent":
                ensemble.mark_failed(name)
        write_sets = [striping.write_set(entry_id) for entry_id in range(striping.ensemble_size)]
        well = [sum(conditions[slot] == "well" for slot in slots) for slots in write_sets]
        expected = [
            name
            for slot, name in enumerate(names)
            if conditions[slot] == "lags"
            and all(
                count >= striping.ack_quorum for count, slots in zip(well, write_sets, strict=True) if slot in slots
            )
        ]
        assert ensemble.unneeded_lagging_bookies == expected
        assert ensemble.lagging_bookies == [
            name for name, condition in zip(names, conditions, strict=True) if condition == "lags"
        ]


def test_a_bookie_that_failed_or_caught_up_holds_nothing_up() -> None:
    ensemble = Ensemble(Striping(1, 1, 1), ["b0"])
    ensemble.set_lagging("b9", True)
    assert ensemble.lagging_bookies == []
    ensemble.set_lagging("b0", True)
    ensemble.set_lagging("b0", False)
    assert ensemble.lagging_bookies == []
    ensemble.set_lagging("b0", True)
    ensemble.mark_failed("b0")
    assert ensemble.lagging_bookies == []
    ensemble.set_lagging("b0", True)  # news of a bookie that is sent nothing any more
    assert ensemble.lagging_bookies == []


async def test_the_only_bookie_is_waited_for_and_its_ledgers_go_on() -> None:
    """CHK-66, STO-1: nothing breaks, nothing fails, and ledgers have capacity again when the bookie has caught up."""
    async with Scene(bookies=1, settings=TIGHT) as scene:
        one, other = await scene.writer(1, 1, 1), await scene.writer(1, 1, 1)
        (bookie,) = scene.bookies.values()
        rooms: list[str] = []
        one.on_capacity = lambda: rooms.append("one")
        other.on_capacity = lambda: rooms.append("other")
        bookie.holding = True
        outcomes, others = Outcomes(one), Outcomes(other)
        others.append(b"small")
        outcomes.append(*[ENTRY] * 5)
        await scene.settled(lambda: one.is_blocked and other.is_blocked)
        assert one.blocking_bookies == other.blocking_bookies == ["b1"]
        assert not one.has_capacity()
        with pytest.raises(TooManyPending, match="b1"):
            one.append(b"more", lambda _: None)
        assert rooms == []
        await bookie.release()
        await scene.settled(lambda: len(outcomes.completed) == 5 and one.has_capacity() and other.has_capacity())
        assert sorted(rooms) == ["one", "other"]
        assert (outcomes.failures, others.failures, one.failure, other.failure) == ([], [], None, None)
        assert scene.clients[0].bookies.quarantined() == []
        assert len(bookie.frames) <= 3
        outcomes.append(b"goes on")
        await scene.settled(lambda: len(outcomes.completed) == 6)


async def test_a_ledger_leaves_a_bookie_that_it_can_do_without_and_others_keep_it() -> None:
    """CHK-66: one stream serves both ledgers, and does not break for the one that needs the bookie."""
    async with Scene(bookies=4, settings=TIGHT) as scene:
        spared = await scene.writer(3, 3, 2)
        lagging = scene.ensemble(spared)[0]
        needs = await scene.writer(4, 4, 4)
        needed = Outcomes(needs)
        needed.append(b"needs all four")
        await scene.settled(lambda: len(needed.completed) == 1)
        lagging.holding = True
        needed.append(b"waits")
        outcomes = Outcomes(spared)
        outcomes.append(*[ENTRY] * 5)
        await scene.settled(lambda: len(outcomes.completed) == 5 and lagging not in scene.ensemble(spared))
        assert spared.failure is None
        assert spared.has_capacity()
        assert scene.clients[0].bookies.quarantined() == [lagging.bookie_id]
        # Dropped, what the other ledger has there is below the bound.
        await scene.settled(lambda: not needs.is_blocked)
        outcomes.append(b"goes on")
        await scene.settled(lambda: len(outcomes.completed) == 6)
        assert len(needed.completed) == 1
        await lagging.release()
        await scene.settled(lambda: len(needed.completed) == 2)
        assert needs.failure is None
        assert lagging in scene.ensemble(needs)


async def test_bookies_that_lag_together_are_all_waited_for() -> None:
    """CHK-66: two of three lag, and one of those is needed. Their memory stays bounded, though adds complete."""
    async with Scene(bookies=3, settings=TIGHT) as scene:
        writer = await scene.writer(3, 3, 2)
        first, second, third = scene.ensemble(writer)
        first.holding = second.holding = True
        outcomes = Outcomes(writer)
        outcomes.append(*[ENTRY] * 5)
        # All three do at first, and one of them answers.
        await scene.settled(lambda: writer.blocking_bookies == [first.bookie_id, second.bookie_id])
        assert not outcomes.all
        # One of the two answers all it was sent: the other is left, and the ledger goes on.
        await first.release()
        await scene.settled(lambda: len(outcomes.completed) == 5 and writer.has_capacity())
        await scene.settled(lambda: writer.absent_bookies == [second.bookie_id])
        assert not third.held
        assert writer.failure is None


async def test_a_bookie_that_lags_and_answers_nothing_fails() -> None:
    """CHK-66: back-pressure ends with the add timeout."""
    async with Scene(bookies=1, settings=TIGHT) as scene:
        writer = await scene.writer(1, 1, 1)
        (bookie,) = scene.bookies.values()
        bookie.holding = True
        outcomes = Outcomes(writer)
        outcomes.append(*[ENTRY] * 5)
        await scene.settled(lambda: writer.is_blocked)
        scene.clock.advance(5.1)
        await scene.settled(lambda: len(outcomes.failures) == 5)
        assert not writer.is_blocked
        assert scene.clients[0].bookies.get_add_channel("b1").unanswered_bytes == 0


async def test_a_new_ledger_learns_of_the_lag_before_its_first_add() -> None:
    """CHK-66: else each new ledger would send as much as it may have pending."""
    async with Scene(bookies=2, settings=TIGHT) as scene:
        writer = await scene.writer(2, 2, 2)
        for bookie in scene.bookies.values():
            bookie.holding = True
        Outcomes(writer).append(*[ENTRY] * 5)
        await scene.settled(lambda: writer.is_blocked)
        late = await scene.writer(2, 2, 2)
        assert late.is_blocked
        assert not late.has_capacity()
        for bookie in scene.bookies.values():
            await bookie.release()
        await scene.settled(lambda: late.has_capacity() and writer.has_capacity())


async def test_a_recovery_adds_nothing_while_a_bookie_that_it_needs_lags() -> None:
    """CHK-68: recoveries of many ledgers send a slow bookie no more than its bound, and go on when it catches up."""
    blocked: list[bool] = []
    append = ReplicatedAdds.append_entries

    def noted(
        adds: ReplicatedAdds, entries: Sequence[bytes], done: AppendCallback, *, are_records: bool = False
    ) -> int:
        blocked.append(adds.is_blocked)
        return append(adds, entries, done, are_records=are_records)

    with patch.object(ReplicatedAdds, "append_entries", noted):
        async with running_small_cluster(
            bookies=2,
            settings=LedgerClientSettings(
                max_bookie_lag_bytes=3000,
                recovery_window_entries=4,
                explicit_lac_interval_ms=0,
                add_entry_timeout_seconds=600,
            ),
        ) as cluster:
            ledger_id = await cluster.make(Striping(2, 2, 2))
            await cluster.put(ledger_id, range(30), confirmed=-1)
            for bookie in cluster.bookies.values():
                bookie.hold()
            recovery = asyncio.create_task(cluster.client.recover(ledger_id))
            for _ in range(2000):
                await asyncio.sleep(0)
            assert not recovery.done()
            assert 0 < len(blocked) < 30
            for bookie in cluster.bookies.values():
                bookie.resume()
            for _ in range(2000):
                await asyncio.sleep(0)
            assert (await recovery).last_entry_id == 29
            assert not any(blocked)
