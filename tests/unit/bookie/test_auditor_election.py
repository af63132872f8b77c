"""The election of the auditor, and the end of its term."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auditor_election import AuditorElection
from magnetar_metadata.errors import SessionLost
from magnetar_testing.metadata import Fault, MemoryStore
from tests.unit.bookie.full_store import FullStore
from tests.unit.bookie.repair_scene import Scene


def election(of: Scene, name: str = "b1") -> tuple[AuditorElection, MemoryStore]:
    store = of.server.connect()
    return AuditorElection(store, of.clock, name, retry_s=0.5), store


async def test_one_is_elected_and_the_next_when_its_session_is_over() -> None:
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        second, _ = election(of, "b2")
        await of.over(first.wait_elected())
        waiting = of.spawn(second.wait_elected())
        await of.passes(30)
        assert not waiting.done()
        term = of.spawn(first.wait_term_end())
        await of.passes(30)
        assert not term.done()
        of.server.expire(first_store)
        await of.until(waiting.done, "the second is elected")
        await of.until(term.done, "the first one's term is over")
        with pytest.raises(SessionLost):
            await term


async def test_the_term_ends_before_another_can_be_elected() -> None:
    """Its answers are lost, and no one reports that the session is over: its own clock decides."""
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        await of.over(first.wait_elected())
        second, _ = election(of, "b2")
        waiting = of.spawn(second.wait_elected())
        term = of.spawn(first.wait_term_end())
        await of.passes(5)
        of.server.cut_silently(first_store)
        seen: list[tuple[bool, bool]] = []

        def both() -> bool:
            seen.append((first.is_term_valid(), waiting.done()))
            return waiting.done()

        await of.until(both, "the second is elected")
        assert (True, True) not in seen
        assert term.done()


async def test_a_term_outlives_a_short_trouble() -> None:
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        await of.over(first.wait_elected())
        term = of.spawn(first.wait_term_end())
        for _ in range(5):
            of.server.suspend(first_store)
            await of.passes(2)
            of.server.resume(first_store)
            await of.passes(6)
            assert not term.done()
            assert first.is_term_valid()


async def test_vote_with_a_lost_response_counts() -> None:
    async with Scene(bookies=0) as of:
        for fault in (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.HOLD_REQUEST):
            first, first_store = election(of)
            of.server.queue_faults(first_store, fault)
            waiting = of.spawn(first.wait_elected())
            await of.passes(1)
            of.server.release(first_store)
            of.server.resume(first_store)
            await of.until(waiting.done, "it is elected")
            stat = await of.store.exists(paths.AUDITOR)
            assert stat is not None
            assert stat.ephemeral_owner == first_store.session.id
            await first_store.close()


async def test_election_waits_for_the_stale_session_to_expire() -> None:
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        await of.over(first.wait_elected())
        of.server.suspend(first_store)
        again, again_store = election(of)
        waiting = of.spawn(again.wait_elected())
        await asyncio.sleep(0)
        await of.passes(3)
        assert not waiting.done()
        await of.until(waiting.done, "the stale session has expired")
        stat = await of.store.exists(paths.AUDITOR)
        assert stat is not None
        assert stat.ephemeral_owner == again_store.session.id


async def test_election_retries_a_full_store_after_a_pause() -> None:
    """A refusal because the disk is full does not decide the election, and does not end auto-recovery."""
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        full = FullStore(first_store)
        waiting = of.spawn(first.wait_elected())
        await of.passes(3)
        assert not waiting.done()
        assert 2 < full.refused < 10
        full.make_room()
        await of.until(waiting.done, "it is elected")
        await waiting
