"""Writing and closing a ledger over real streams, with bookies that fail."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import start_decommission
from magnetar_bookie.errors import (
    AddFailed,
    ClientClosed,
    CloseLost,
    LedgerFenced,
    MetadataUnknown,
    NotEnoughBookies,
    OutcomeNotKnown,
    TooManyPending,
    WriterClosed,
)
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ensemble_rules import EnsembleChange
from magnetar_bookie.ledger.replicated_adds import ReplicatedAdds
from magnetar_bookie.read.record import check_record, encode_record
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.errors import SessionLost
from magnetar_metadata.store import ABSENT, SessionState
from magnetar_protos.ledger_pb2 import Status
from magnetar_testing.metadata import Fault
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import MAX_ENTRY_BYTES
from tests.running import within
from tests.unit.bookie.writer_scene import FakeBookie, Outcomes, Scene


async def test_a_ledger_is_written_and_closed(scene: Scene) -> None:
    writer = await scene.writer()
    assert [await writer.add(b"entry %d" % number) for number in range(20)] == list(range(20))
    outcomes = Outcomes(writer)
    outcomes.append(*[b"more"] * 500)
    metadata = await writer.close()
    assert outcomes.all == list(range(20, 520))
    assert (metadata.is_closed, metadata.last_entry_id) == (True, 519)
    assert metadata.length_bytes == sum(len(b"entry %d" % number) for number in range(20)) + 2000
    assert metadata == await scene.clients[0].ledgers.read_metadata(writer.ledger_id)
    for bookie in scene.ensemble(writer):
        assert len(bookie.entries(writer.ledger_id)) == 520
        assert max(bookie.frames) > 100  # what gathered left together
    assert await writer.close() == metadata


async def test_entries_are_striped_over_a_wider_ensemble(scene: Scene) -> None:
    writer = await scene.writer(4, 2, 2)
    for _ in range(8):
        await writer.add(b"x")
    held = [sorted(bookie.entries(writer.ledger_id)) for bookie in scene.ensemble(writer)]
    assert held == [[0, 3, 4, 7], [0, 1, 4, 5], [1, 2, 5, 6], [2, 3, 6, 7]]


async def test_an_empty_ledger_closes_empty(scene: Scene) -> None:
    writer = await scene.writer()
    metadata = await writer.close()
    assert (metadata.last_entry_id, metadata.length_bytes, metadata.fragments) == (-1, 0, ())


async def test_an_add_completes_when_an_ack_quorum_has_it_and_not_before(scene: Scene) -> None:
    writer = await scene.writer()
    first, second, third = scene.ensemble(writer)
    first.holding = second.holding = third.holding = True
    outcomes = Outcomes(writer)
    outcomes.append(b"a", b"b")
    await first.release()
    await scene.idle()
    assert not outcomes.all
    await third.release()
    await scene.settled(lambda: outcomes.all == [0, 1])
    assert writer.length_bytes == 2


async def test_nothing_completes_before_the_metadata_has_the_new_ensemble(scene: Scene) -> None:
    """CHK-18"""
    writer = await scene.writer()
    await writer.add(b"a")
    lost, slow, dead = scene.ensemble(writer)
    spare = scene.spare(writer)
    slow.holding = spare.holding = True
    dead.holding = True
    outcomes = Outcomes(writer)
    outcomes.append(b"b")
    await scene.settled(lambda: bool(slow.held and dead.held and 1 in lost.entries(writer.ledger_id)))
    scene.server.delay_answers(scene.store, 1.0)
    await dead.go()  # nobody acknowledges for it any more
    await scene.idle()
    outcomes.append(b"c")
    await slow.release()  # an ack quorum of the old ensemble has both
    await scene.idle()
    assert not outcomes.all
    assert len(writer.metadata.fragments) == 1
    for _ in range(6):
        scene.clock.advance(0.5)
        await scene.idle()
    await scene.settled(lambda: outcomes.all == [1, 2])
    assert [fragment.first_entry_id for fragment in writer.metadata.fragments] == [0, 1]
    await scene.settled(lambda: len(spare.held) > 0)  # and has been sent what was pending


async def test_add_responses_of_replaced_bookie_do_not_count(scene: Scene) -> None:
    """CHK-18: one acknowledgement of a bookie that left and one of another are no ack quorum."""
    writer = await scene.writer()
    good, slow, dead = scene.ensemble(writer)
    spare = scene.spare(writer)
    good.holding = slow.holding = spare.holding = True
    outcomes = Outcomes(writer)
    outcomes.append(b"a")
    await scene.settled(lambda: 0 in dead.entries(writer.ledger_id))
    await scene.idle()  # its acknowledgement has come
    await dead.go()
    # The stream was idle, so its end is only seen with the next add.
    outcomes.append(b"b")
    await scene.settled(lambda: spare.bookie_id in writer.metadata.last_fragment.bookies)
    await good.release()
    await scene.idle()
    assert not outcomes.all
    await spare.release()
    await scene.settled(lambda: outcomes.all == [0, 1])


async def test_a_bookie_that_dies_is_replaced(scene: Scene) -> None:
    """Several adds are pending: the fragment begins at the lowest of them, and the new bookie gets all."""
    writer = await scene.writer()
    await writer.add(b"before")
    spare, dead = scene.spare(writer), scene.ensemble(writer)[1]
    for bookie in scene.ensemble(writer):
        bookie.holding = True
    outcomes = Outcomes(writer)
    outcomes.append(b"1", b"2", b"3")
    await scene.settled(lambda: all(bookie.held for bookie in scene.ensemble(writer)))
    held = list(scene.ensemble(writer))
    await dead.go(registered=True)
    await scene.settled(lambda: sorted(spare.entries(writer.ledger_id)) == [1, 2, 3])
    for bookie in held:
        if bookie is not dead:
            await bookie.release()
    await scene.settled(lambda: outcomes.all == [1, 2, 3])
    metadata = await writer.close()
    assert [fragment.first_entry_id for fragment in metadata.fragments] == [0, 1]
    assert metadata.former_bookies == () or dead.bookie_id in metadata.former_bookies


async def test_writer_continues_without_spare_and_refills_slot_on_return() -> None:
    """STO-1; CHK-20: the bookie returns to the slot that it left, and the new ensemble is the old one."""
    async with Scene(bookies=3) as scene:
        writer = await scene.writer()
        await writer.add(b"0")
        dead = scene.ensemble(writer)[0]
        before = writer.metadata
        await dead.go()
        assert [await writer.add(b"x"), await writer.add(b"y")] == [1, 2]
        assert writer.metadata == before  # it stays listed
        assert writer.absent_bookies == [dead.bookie_id]
        await dead.come()
        await scene.settled(lambda: len(writer.metadata.fragments) == 2)
        assert writer.absent_bookies == []
        assert await writer.add(b"z") == 3
        await scene.settled(lambda: 3 in dead.entries(writer.ledger_id))
        old, new = writer.metadata.fragments
        assert old.bookies == new.bookies
        assert new.first_entry_id == 3
        assert sorted(dead.entries(writer.ledger_id)) == [0, 3]  # the writer reads nothing back


async def test_a_silent_writer_replaces_a_bookie_that_stays_away(scene: Scene) -> None:
    """Otherwise repair would have to fence the ledger."""
    writer = await scene.writer()
    await writer.add(b"0")
    dead, spare = scene.ensemble(writer)[1], scene.spare(writer)
    await dead.go()
    await scene.idle()
    scene.clock.advance(14)
    await dead.come()  # in time
    await scene.idle()
    scene.clock.advance(14)
    await scene.idle()
    assert len(writer.metadata.fragments) == 1
    await dead.go()
    await scene.idle()
    scene.clock.advance(16)
    await scene.settled(lambda: len(writer.metadata.fragments) == 2)
    assert writer.metadata.last_fragment.bookies[1] == spare.bookie_id
    assert await writer.add(b"1") == 1
    await scene.settled(lambda: 1 in spare.entries(writer.ledger_id))
    # The next one has no replacement, so it stays in the ensemble, and serves without a registration.
    alone = scene.ensemble(writer)[0]
    assert alone.store is not None
    await alone.store.close()
    await scene.idle()
    scene.clock.advance(16)
    await scene.idle()
    assert await writer.add(b"2") == 2
    await scene.settled(lambda: 2 in alone.entries(writer.ledger_id))
    assert len(writer.metadata.fragments) == 2


async def test_too_few_bookies_fail_the_adds_and_a_close_cuts_them_off() -> None:
    """STO-4: what failed is not in the ledger once the writer's own close has returned."""
    async with Scene(bookies=3) as scene:
        writer = await scene.writer()
        await writer.add(b"stored")
        one, other, third = scene.ensemble(writer)
        for bookie in (one, other, third):
            bookie.holding = True
        outcomes = Outcomes(writer)
        outcomes.append(b"b", b"c")
        await scene.settled(lambda: len(third.entries(writer.ledger_id)) == 3)
        await one.go()
        await other.go()
        outcomes.append(b"d")
        await scene.settled(lambda: len(outcomes.all) == 3)
        assert all(isinstance(failure, NotEnoughBookies) for failure in outcomes.failures)
        assert len(outcomes.failures) == 3
        assert other.bookie_id in str(outcomes.failures[0])
        outcomes.append(b"e")
        await scene.settled(lambda: len(outcomes.failures) == 4)
        assert outcomes.failures[3] is outcomes.failures[0]
        metadata = await writer.close()
        assert (metadata.last_entry_id, metadata.length_bytes) == (0, 6)


async def test_a_fenced_writer_completes_nothing_more_and_its_close_is_lost(scene: Scene) -> None:
    """CHK-1: somebody else closes the ledger at what was completed; nothing completes above that. Also STO-4."""
    writer = await scene.writer()
    await writer.add(b"a")
    ledgers = (await scene.client(scene.server.connect())).ledgers
    await ledgers.change_metadata(writer.ledger_id, ledger_metadata.start_recovery)
    for bookie in scene.ensemble(writer)[:2]:
        bookie.fenced.add(writer.ledger_id)
    outcomes = Outcomes(writer)
    outcomes.append(b"b", b"c")
    await scene.settled(lambda: len(outcomes.all) == 2)
    assert all(isinstance(failure, LedgerFenced) for failure in outcomes.failures)
    assert len(outcomes.failures) == 2
    with pytest.raises(CloseLost):
        await writer.close()
    with pytest.raises(CloseLost):
        await writer.close()


async def test_writer_changes_no_ensemble_during_recovery(scene: Scene) -> None:
    """CHK-1: the bookies that it has left would take its adds still."""
    writer = await scene.writer()
    await writer.add(b"a")
    ledgers = (await scene.client(scene.server.connect())).ledgers
    recovered = await ledgers.change_metadata(writer.ledger_id, ledger_metadata.start_recovery)
    await scene.ensemble(writer)[0].go()
    with pytest.raises(LedgerFenced):
        await writer.add(b"b")
    assert await ledgers.read_metadata(writer.ledger_id) == recovered


async def test_a_close_at_the_same_entry_counts_as_the_writers_own_if_nothing_failed(scene: Scene) -> None:
    writer = await scene.writer()
    await writer.add(b"a")
    ledgers = (await scene.client(scene.server.connect())).ledgers
    theirs = await ledgers.change_metadata(
        writer.ledger_id, lambda current: ledger_metadata.close_by_writer(current, 0, 1, 1)
    )
    assert await writer.close() == theirs


async def test_a_close_by_somebody_else_is_lost_where_an_add_failed() -> None:
    """STO-4: even at the same entry, since another client has taken the ledger over."""
    async with Scene(bookies=3) as scene:
        writer = await scene.writer()
        await writer.add(b"a")
        for bookie in scene.ensemble(writer)[:2]:
            await bookie.go()
        with pytest.raises(NotEnoughBookies):
            await writer.add(b"b")
        ledgers = (await scene.client(scene.server.connect())).ledgers
        await ledgers.change_metadata(
            writer.ledger_id, lambda current: ledger_metadata.close_by_writer(current, 0, 1, 1)
        )
        with pytest.raises(CloseLost):
            await writer.close()


async def test_a_close_at_another_entry_is_lost(scene: Scene) -> None:
    """STO-4: the client that closed it may have recovered an add that the writer never completed."""
    writer = await scene.writer()
    ledgers = (await scene.client(scene.server.connect())).ledgers
    await ledgers.change_metadata(writer.ledger_id, lambda current: ledger_metadata.close_by_writer(current, 0, 1, 1))
    with pytest.raises(CloseLost, match="closed by another client"):
        await writer.close()


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.HOLD_REQUEST])
async def test_ensemble_change_is_applied_once_after_lost_response(fault: Fault) -> None:
    async with Scene() as scene:
        writer = await scene.writer()
        await writer.add(b"a")
        spare = scene.spare(writer)
        # The read, then the change.
        scene.server.queue_faults(scene.store, None, fault)
        await scene.ensemble(writer)[2].go()
        outcomes = Outcomes(writer)
        outcomes.append(b"b")
        await scene.settled(lambda: scene.store.session.state is SessionState.SUSPENDED)
        await scene.idle()
        assert not outcomes.all
        scene.server.resume(scene.store)
        await scene.idle()
        scene.server.release(scene.store)
        await scene.settled(lambda: outcomes.all == [1])
        assert [fragment.first_entry_id for fragment in writer.metadata.fragments] == [0, 1]
        assert spare.bookie_id in writer.metadata.last_fragment.bookies
        assert writer.metadata == await scene.clients[0].ledgers.read_metadata(writer.ledger_id, fresh=True)
        await writer.close()


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.HOLD_REQUEST])
async def test_close_outcome_is_determined_after_lost_response(fault: Fault) -> None:
    """STO-4: with failed adds too, the writer knows whether the close was its own."""

    async with Scene(bookies=3) as scene:
        writer = await scene.writer()
        await writer.add(b"a")
        for bookie in scene.ensemble(writer)[:2]:
            await bookie.go()
        with pytest.raises(NotEnoughBookies):
            await writer.add(b"b")
        scene.server.queue_faults(scene.store, fault)
        closing = asyncio.create_task(writer.close())
        await scene.settled(lambda: scene.store.session.state is SessionState.SUSPENDED)
        scene.server.resume(scene.store)
        await scene.idle()
        scene.server.release(scene.store)
        metadata = await closing
        assert (metadata.is_closed, metadata.last_entry_id) == (True, 0)


async def test_lost_session_fails_ensemble_change_and_close(scene: Scene) -> None:
    writer = await scene.writer()
    await writer.add(b"a")
    scene.server.expire(scene.store)
    assert await writer.add(b"bookies need no session") == 1
    await scene.ensemble(writer)[0].go()
    with pytest.raises(MetadataUnknown):
        await writer.add(b"b")
    with pytest.raises(SessionLost):
        await writer.close()


async def test_a_bookie_that_refuses_the_ledger_is_replaced_and_not_chosen_for_it_again(scene: Scene) -> None:
    writer = await scene.writer()
    refusing = scene.ensemble(writer)[0]
    refusing.status = Status.LIMBO
    outcomes = Outcomes(writer)
    outcomes.append(b"a")
    await scene.settled(lambda: outcomes.all == [0])
    await scene.settled(lambda: refusing.bookie_id not in writer.metadata.last_fragment.bookies)
    assert refusing.bookie_id in scene.clients[0].bookies.writable()  # other ledgers are another matter
    second = scene.ensemble(writer)[0]
    await second.go()
    outcomes.append(b"b")
    await scene.settled(lambda: outcomes.all == [0, 1])
    scene.clock.advance(60)
    await scene.idle()
    assert refusing.bookie_id not in writer.metadata.last_fragment.bookies


async def test_a_status_of_the_future_is_a_failure(scene: Scene) -> None:
    writer = await scene.writer()
    odd = scene.ensemble(writer)[0]
    odd.status = 99  # type: ignore[assignment]
    await writer.add(b"a")
    await scene.settled(lambda: odd.bookie_id not in writer.metadata.last_fragment.bookies)


_BOUND = 100 + 2 * ENTRY_OVERHEAD_BYTES


async def test_pending_adds_are_limited_in_entries_and_bytes() -> None:
    async with Scene(
        settings=LedgerClientSettings(explicit_lac_interval_ms=0, max_pending_entries=3, max_pending_bytes=_BOUND)
    ) as scene:
        writer = await scene.writer()
        for bookie in scene.ensemble(writer):
            bookie.holding = True
        outcomes = Outcomes(writer)
        outcomes.append(b"a", b"b", b"c")
        with pytest.raises(TooManyPending, match=f"may have 3 of {_BOUND}"):
            outcomes.append(b"d")
        waiting = asyncio.create_task(writer.wait_for_capacity())
        later = asyncio.create_task(writer.add(b"d"))
        await scene.idle()
        assert not waiting.done()
        for bookie in scene.ensemble(writer):
            await bookie.release()
        await waiting
        assert await later == 3
        for bookie in scene.ensemble(writer):
            bookie.holding = True
        outcomes.append(b"x" * _BOUND)
        with pytest.raises(TooManyPending):
            outcomes.append(b"e")
        with pytest.raises(TooLarge):
            outcomes.append(b"x" * (MAX_ENTRY_BYTES + 1))
        for bookie in scene.ensemble(writer):
            await bookie.release()
        await scene.settled(lambda: outcomes.all == [0, 1, 2, 4])


async def test_add_waiting_for_capacity_fails_when_writer_is_abandoned(scene: Scene) -> None:
    writer = await scene.writer()
    for bookie in scene.ensemble(writer):
        bookie.holding = True
    outcomes = Outcomes(writer)
    outcomes.append(*[b"x"] * 1000)
    waiting = asyncio.create_task(writer.add(b"y"))
    await scene.idle()
    writer.abandon()
    with pytest.raises(WriterClosed):
        await waiting
    assert len(outcomes.failures) == 1000


async def test_a_caller_that_is_cancelled_leaves_its_add_in_the_ledger(scene: Scene) -> None:
    writer = await scene.writer()
    for bookie in scene.ensemble(writer):
        bookie.holding = True
    adding = asyncio.create_task(writer.add(b"a"))
    await scene.idle()
    adding.cancel()
    await asyncio.wait([adding])
    closing = asyncio.create_task(writer.close())
    await scene.idle()
    closing.cancel()  # and may be called again
    await asyncio.wait([closing])
    outcomes = Outcomes(writer)
    outcomes.append(b"too late")
    await scene.idle()
    assert not outcomes.all  # in order, after the pending ones
    for bookie in scene.ensemble(writer):
        await bookie.release()
    metadata = await writer.close()
    assert metadata.last_entry_id == 0
    await scene.settled(lambda: len(outcomes.all) == 1)
    assert isinstance(outcomes.all[0], WriterClosed)


async def test_an_abandoned_writer_changes_nothing(scene: Scene) -> None:
    writer = await scene.writer()
    await writer.add(b"a")
    before = await scene.clients[0].ledgers.read_metadata(writer.ledger_id)
    writer.abandon()
    with pytest.raises(CloseLost):
        await writer.close()
    with pytest.raises(WriterClosed):
        await writer.add(b"b")
    assert await scene.clients[0].ledgers.read_metadata(writer.ledger_id, fresh=True) == before


async def test_idle_writer_sends_lac_until_all_bookies_have_it() -> None:
    async with Scene(settings=LedgerClientSettings(explicit_lac_interval_ms=100)) as scene:
        writer = await scene.writer()
        await writer.add(b"a")
        await writer.add(b"b")
        first, second, third = scene.ensemble(writer)
        scene.clock.advance(0.05)
        await writer.add(b"c")
        listener, third.listener = third.listener, None
        assert listener is not None
        await listener.close()
        scene.clock.advance(0.06)
        await scene.idle()
        assert not first.confirmed  # the writer was not idle
        scene.clock.advance(0.05)
        await scene.settled(lambda: first.confirmed == second.confirmed == {writer.ledger_id: 2})
        await scene.idle()
        assert not third.confirmed
        third.listener = await scene.transport.listen(third.address, third)
        for _ in range(4):
            scene.clock.advance(0.5)
            await scene.idle()
        assert scene.ensemble(writer)[2] is third
        assert third.confirmed == {writer.ledger_id: 2}
        first.confirmed.clear()
        scene.clock.advance(20)
        await scene.idle()
        assert not first.confirmed  # once is enough


async def test_a_silent_writer_that_was_fenced_hears_of_it() -> None:
    async with Scene(settings=LedgerClientSettings(explicit_lac_interval_ms=100)) as scene:
        writer = await scene.writer()
        await writer.add(b"a")
        for bookie in scene.ensemble(writer):
            bookie.fenced.add(writer.ledger_id)
        scene.clock.advance(0.2)
        await scene.settled(lambda: isinstance(writer.failure, LedgerFenced))


async def test_every_record_carries_the_lac_and_the_length(scene: Scene) -> None:
    writer = await scene.writer(1, 1, 1)
    for entry in (b"a", b"bb", b"ccc"):
        await writer.add(entry)
    (bookie,) = scene.ensemble(writer)
    headers = [check_record(bookie.records[writer.ledger_id][number], writer.ledger_id, number) for number in range(3)]
    assert [(header.last_add_confirmed, header.ledger_bytes) for header in headers] == [(-1, 1), (0, 3), (1, 6)]


async def test_with_too_few_bookies_a_ledger_is_made_degraded_and_rolls_when_they_are_back() -> None:
    """STO-1"""
    async with Scene(bookies=2) as scene:
        writer = await scene.writer()
        assert writer.metadata.striping == Striping(2, 2, 2)
        assert writer.metadata.is_degraded
        assert not writer.should_roll
        await writer.add(b"a")
        third = scene.bookies["b3"] = FakeBookie(scene, "b3")
        await third.come()
        await scene.settled(lambda: writer.should_roll)
        whole = await scene.writer()
        assert not whole.metadata.is_degraded
        assert not whole.should_roll


async def test_below_the_ack_quorum_no_ledger_is_made() -> None:
    async with Scene(bookies=1) as scene:
        with pytest.raises(NotEnoughBookies, match="needs 2 bookies, but 1 of 1 registered"):
            await scene.writer()
        assert await scene.store.children(paths.INTENTS) == []


async def test_unavailable_bookies_are_reported_and_awaited() -> None:
    """STO-1: below the ack quorum publishing waits, and the error lists the missing bookies with reasons."""
    async with Scene(bookies=4) as scene:
        client = await scene.client()
        # Before this client was there: nobody but the metadata knows of it.
        await scene.store.put(paths.cookie("b0"), b"", ABSENT)
        b1, b2, b3, _ = scene.bookies.values()
        await b1.go()
        await b2.go(registered=True)
        client.bookies.quarantine("b2")
        await b3.go()
        await b3.come(read_only=True)
        await start_decommission(client, "b4")
        await scene.settled(lambda: client.bookies.writable() == [])
        with pytest.raises(NotEnoughBookies) as raised:
            await client.create(Striping(3, 3, 2), "a test")
        assert raised.value.reasons == {
            "b0": "is not registered",
            "b1": "is not registered",
            "b2": "is registered, but failed recently and does not answer",
            "b3": "is read-only",
            "b4": "is being decommissioned",
        }
        assert "b3 is read-only" in str(raised.value)
        waiting = asyncio.create_task(client.wait_for_bookies(Striping(3, 3, 2)))
        await b1.come()
        await scene.settled(lambda: client.bookies.writable() == ["b1"])
        await scene.idle()
        assert not waiting.done()
        # Still in quarantine, and called again.
        b2.listener = await scene.transport.listen(b2.address, b2)
        scene.clock.advance(1)
        await within(waiting, "the end of waiting")
        made, _ = await client.create(Striping(3, 3, 2), "a test")
        assert sorted(made.metadata.last_fragment.bookies) == ["b1", "b2"]
        assert made.metadata.is_degraded


async def test_waiting_for_bookies_ends_with_the_client() -> None:
    async with Scene(bookies=1) as scene:
        client = await scene.client()
        waiting = asyncio.create_task(client.wait_for_bookies(Striping(3, 3, 2)))
        await scene.idle()
        await client.close()
        scene.clock.advance(1)
        with pytest.raises(ClientClosed):
            await within(waiting, "the end of waiting")


async def test_responsive_quarantined_bookies_are_used_when_no_others_exist() -> None:
    async with Scene(bookies=3) as scene:
        client = await scene.client()
        for bookie_id in scene.bookies:
            client.bookies.quarantine(bookie_id)
        await scene.bookies["b2"].go(registered=True)
        writer = await scene.writer()
        assert sorted(writer.metadata.last_fragment.bookies) == ["b1", "b3"]


async def test_a_deleted_ledger_is_a_tombstone_that_its_writer_has_lost(scene: Scene) -> None:
    writer = await scene.writer()
    await writer.add(b"a")
    client = scene.clients[0]
    await client.delete(writer.ledger_id)
    await client.delete(writer.ledger_id)
    metadata = await client.ledgers.read_metadata(writer.ledger_id)
    assert metadata.state is ledger_metadata.LedgerState.TOMBSTONE
    assert set(metadata.holders) == set(writer.metadata.last_fragment.bookies)
    for bookie in scene.ensemble(writer):
        bookie.status = Status.DELETED
    with pytest.raises(LedgerFenced):
        await writer.add(b"b")
    with pytest.raises(CloseLost):
        await writer.close()


async def test_adds_through_a_client_that_is_closed_fail(scene: Scene) -> None:
    """A recovery's, say, which the client does not know of."""
    client = await scene.client()
    writer = await scene.writer()

    async def publish(change: EnsembleChange) -> None:
        pass

    def adds() -> ReplicatedAdds:
        metadata = writer.metadata
        return ReplicatedAdds(client, writer.ledger_id, metadata, metadata.last_fragment, 0, publish, recovery=True)

    record = encode_record(writer.ledger_id, 0, -1, 1, b"a")
    before = adds()
    for bookie in scene.ensemble(writer):
        bookie.holding = True
    errors: list[object] = []
    before.append_entries([record], lambda result, _count: errors.append(result), are_records=True)
    await scene.idle()
    assert not errors
    await client.close()
    after = adds()
    after.append_entries([record], lambda result, _count: errors.append(result), are_records=True)
    await scene.settled(lambda: len(errors) == 2)
    assert all(isinstance(one, AddFailed) for one in errors)


async def test_a_client_that_is_closed_abandons_its_writers(scene: Scene) -> None:
    writer = await scene.writer()
    for bookie in scene.ensemble(writer):
        bookie.holding = True
    adding = asyncio.create_task(writer.add(b"a"))
    await scene.idle()
    await scene.clients[0].close()
    with pytest.raises(WriterClosed):
        await adding


async def test_ledger_close_outcome_is_unknown_when_client_closes(scene: Scene) -> None:
    """Its caller was not cancelled, and gets an error."""
    writer = await scene.writer()
    await writer.add(b"a")
    scene.server.suspend(scene.store)
    closing = [asyncio.create_task(writer.close()) for _ in range(2)]
    await scene.idle()
    await scene.clients[0].close()
    for one in closing:
        with pytest.raises(OutcomeNotKnown, match="recover it"):
            await one
    with pytest.raises(CloseLost, match="abandoned"):
        await writer.close()


async def test_abandoning_writer_fails_close_waiting_for_ensemble_change(scene: Scene) -> None:
    """The writer is abandoned while a new ensemble is made known, with nothing pending."""
    writer = await scene.writer()
    await writer.add(b"a")
    scene.server.suspend(scene.store)
    writer._adds.on_bookie_failed(writer.metadata.last_fragment.bookies[0], "a test")
    await scene.idle()
    closing = asyncio.create_task(writer.close())
    await scene.idle()
    assert not closing.done()
    writer.abandon()
    await scene.settled(closing.done)
    with pytest.raises(CloseLost, match="abandoned"):
        await closing
