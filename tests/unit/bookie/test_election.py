"""Who is the auditor, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.election import Election
from magnetar_metadata.errors import SessionLost
from magnetar_testing.metadata import Fault, MemoryStore
from tests.unit.bookie.full_store import FullStore
from tests.unit.bookie.repair_scene import Scene


def election(of: Scene, name: str = "b1") -> tuple[Election, MemoryStore]:
    store = of.server.connect()
    return Election(store, of.clock, name, retry_s=0.5), store


async def test_one_is_elected_and_the_next_when_its_session_is_over() -> None:
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        second, _ = election(of, "b2")
        await of.over(first.won())
        waiting = of.spawn(second.won())
        await of.passes(30)
        assert not waiting.done()
        term = of.spawn(first.term())
        await of.passes(30)
        assert not term.done()
        of.server.expire(first_store)
        await of.until(waiting.done, "the second is elected")
        await of.until(term.done, "the first one's term is over")
        with pytest.raises(SessionLost):
            await term


async def test_the_term_ends_before_another_can_be_elected() -> None:
    """Its answers vanish, and nobody tells it that the session is over: its own clock does."""
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        await of.over(first.won())
        second, _ = election(of, "b2")
        waiting = of.spawn(second.won())
        term = of.spawn(first.term())
        await of.passes(5)
        of.server.cut_silently(first_store)
        seen: list[tuple[bool, bool]] = []

        def both() -> bool:
            seen.append((first.safe(), waiting.done()))
            return waiting.done()

        await of.until(both, "the second is elected")
        assert (True, True) not in seen
        assert term.done()


async def test_a_term_outlives_a_short_trouble() -> None:
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        await of.over(first.won())
        term = of.spawn(first.term())
        for _ in range(5):
            of.server.suspend(first_store)
            await of.passes(2)
            of.server.resume(first_store)
            await of.passes(6)
            assert not term.done()
            assert first.safe()


async def test_vote_with_a_lost_response_counts() -> None:
    async with Scene(bookies=0) as of:
        for fault in (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.HOLD_REQUEST):
            first, first_store = election(of)
            of.server.queue_faults(first_store, fault)
            waiting = of.spawn(first.won())
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
        await of.over(first.won())
        of.server.suspend(first_store)
        again, again_store = election(of)
        waiting = of.spawn(again.won())
        await asyncio.sleep(0)
        await of.passes(3)
        assert not waiting.done()
        await of.until(waiting.done, "the former session has run out")
        stat = await of.store.exists(paths.AUDITOR)
        assert stat is not None
        assert stat.ephemeral_owner == again_store.session.id


async def test_election_retries_a_full_store_after_a_pause() -> None:
    """Being refused for want of room is no verdict, and no reason for auto-recovery to break off."""
    async with Scene(bookies=0) as of:
        first, first_store = election(of)
        full = FullStore(first_store)
        waiting = of.spawn(first.won())
        await of.passes(3)
        assert not waiting.done()
        assert 2 < full.refused < 10
        full.make_room()
        await of.until(waiting.done, "it is elected")
        await waiting
