"""Ledgers as dead writers left them, recovered through bookies that hang, lie, lose and forget."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from magnetar_bookie.errors import LedgerDeleted, LedgerFenced, NoSuchLedger, RecoveryUndecided, Unreadable
from magnetar_bookie.ledger.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    close_by_recovery,
    make_tombstone,
    start_recovery,
)
from magnetar_bookie.ledger.ledger_metadata_store import LedgerNodeCache, Update
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_bookie.server.garbage_collector import GarbageCollector
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.store import Check, SessionState
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_testing.metadata import Fault
from tests.unit.bookie.honest_bookie import entry, length_up_to
from tests.unit.bookie.repair_scene import Scene
from tests.unit.bookie.small_cluster import running_small_cluster

THREE = Striping(3, 3, 2)


def _closed_at(metadata: LedgerMetadata, last: int) -> None:
    assert (metadata.state, metadata.last_entry_id, metadata.length_bytes) == (
        LedgerState.CLOSED,
        last,
        length_up_to(last),
    )


async def test_a_ledger_is_closed_with_all_that_was_completed() -> None:
    """CHK-3: and each of its entries is on an ack quorum then."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(5))
        await cluster.put(ledger_id, [5], without=["b1"])
        metadata = await cluster.client.recover(ledger_id)
        _closed_at(metadata, 5)
        assert await cluster.metadata(ledger_id) == metadata
        assert all(len(cluster.holders(ledger_id, entry_id)) >= 2 for entry_id in range(6))
        assert await cluster.client.recover(ledger_id) == metadata


@pytest.mark.parametrize("confirmed", ["all before it", "nothing"])
async def test_fence_responses_suffice_to_recover_a_short_ledger(confirmed: str) -> None:
    """CHK-8, CHK-13: the entries in the answers to the fences are not read again, whichever LAC each bookie has."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(5), confirmed=-1 if confirmed == "nothing" else None)
        await cluster.put(ledger_id, [5], without=["b1"])  # which knows a lower LAC
        for name in ("b0", "b1", "b2"):
            cluster[name].reads_with_fences = True
        _closed_at(await cluster.client.recover(ledger_id), 5)
        assert not [method for name in ("b0", "b1", "b2") for method, _ in cluster[name].calls if method == "read"]
        assert all(len(cluster.holders(ledger_id, entry_id)) >= 2 for entry_id in range(6))


async def test_entries_missing_from_fence_responses_are_read() -> None:
    """CHK-13, CHK-22: a long rest, an answer that makes no sense, and what a bookie may have lost."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(40), confirmed=-1)
        for name in ("b0", "b1", "b2"):
            cluster[name].reads_with_fences = True
        cluster["b0"].ledger(ledger_id).limbo = True
        lied: list[str] = []

        def lie(request: ReadRequest, answer: ReadAnswer) -> ReadAnswer:
            if not request.fence and not lied:
                lied.append("once")
                answer.absent.append(request.last_entry_id + 7)
            return answer

        cluster["b1"].lie = lie
        _closed_at(await cluster.client.recover(ledger_id), 39)
        assert lied
        assert all(len(cluster.holders(ledger_id, entry_id)) >= 2 for entry_id in range(40))


async def test_an_empty_ledger_is_closed_as_one() -> None:
    """CHK-29"""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        metadata = await cluster.client.recover(ledger_id)
        _closed_at(metadata, -1)
        assert metadata.fragments == ()


async def test_a_hung_bookie_is_not_waited_for_while_the_others_suffice() -> None:
    """CHK-13"""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(5))
        cluster["b1"].hanging = {"fence", "read"}
        _closed_at(await cluster.client.recover(ledger_id), 4)  # on a clock that stands still


async def test_undecided_recovery_reports_each_bookies_response() -> None:
    """CHK-13"""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        cluster["b1"].hanging = {"read"}
        cluster["b2"].failing = {"read"}
        with pytest.raises(RecoveryUndecided) as raised:
            await cluster.patiently(cluster.client.recover(ledger_id))
        message = str(raised.value)
        assert f"ledger {ledger_id} was not recovered within 60.0 s: unknown whether entry 3 was completed" in message
        assert re.search("b0: it never stored the entry; b1: .*did not answer.*; b2: the server failed", message)
        assert (await cluster.metadata(ledger_id)).state is LedgerState.IN_RECOVERY
        cluster["b2"].failing = set()
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)


async def test_fencing_needs_all_but_fewer_than_an_ack_quorum() -> None:
    """CHK-7"""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        cluster["b1"].failing = cluster["b2"].failing = {"fence"}
        with pytest.raises(
            RecoveryUndecided, match="2 of the last fragment's bookies must be fenced: b0: it is fenced"
        ):
            await cluster.patiently(cluster.client.recover(ledger_id))

        def fence_again(method: str) -> None:
            if method == "fence" and cluster.clock.monotonic() > later:
                cluster["b1"].failing = set()

        later = cluster.clock.monotonic() + 20
        cluster["b1"].before = fence_again
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)


@pytest.mark.parametrize("trouble", ["damaged", "limbo"])
async def test_damage_and_limbo_are_no_answers(trouble: str) -> None:
    """CHK-15: entry 2 was completed on b0 and b2; b0 is down and b2's copy can't be read, so b1's no is not enough."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, [2], without=["b1"])
        cluster["b0"].hanging = {"read", "fence"}
        if trouble == "damaged":
            cluster["b2"].damage(ledger_id, 2)
        else:
            del cluster["b2"].ledger(ledger_id).records[2]
            cluster["b2"].ledger(ledger_id).limbo = True
        with pytest.raises(RecoveryUndecided, match="unknown whether entry 2 was completed"):
            await cluster.patiently(cluster.client.recover(ledger_id))
        cluster["b0"].hanging = set()
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)


@pytest.mark.parametrize("lost", [[4], [2], [0], [3, 4], [1, 3], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("striping", [Striping(1, 1, 1), THREE, Striping(3, 2, 2)], ids=str)
async def test_entries_that_are_damaged_everywhere_cost_themselves_alone(striping: Striping, lost: list[int]) -> None:
    """CHK-67 CHK-15: recovery ends, never below an entry that may have been acknowledged, and keeps those behind it."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(striping)
        await cluster.put(ledger_id, range(5))
        for entry_id in lost:
            for holder in cluster.holders(ledger_id, entry_id):
                cluster[holder].damage(ledger_id, entry_id)
        metadata = await cluster.patiently(cluster.client.recover(ledger_id))
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 4)
        readable = [entry_id for entry_id in range(5) if entry_id not in lost]
        assert metadata.length_bytes in ([length_up_to(entry_id) for entry_id in readable] or [0])
        reader = await cluster.client.open(ledger_id)
        for entry_id in range(5):
            if entry_id in lost:
                with pytest.raises(Unreadable) as raised:
                    await cluster.patiently(reader.read(entry_id, entry_id))
                assert raised.value.is_lost
            else:
                assert await reader.read(entry_id, entry_id) == [entry(entry_id)]


async def test_a_confirmed_last_entry_that_is_lost_does_not_hold_up_recovery() -> None:
    """CHK-67: the length is that up to a readable entry below it."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(Striping(1, 1, 1))
        await cluster.put(ledger_id, range(4))
        (holder,) = cluster.holders(ledger_id, 3)
        cluster[holder].confirm(ledger_id, 3)
        cluster[holder].damage(ledger_id, 3)
        metadata = await cluster.patiently(cluster.client.recover(ledger_id))
        assert (metadata.last_entry_id, metadata.length_bytes) == (3, length_up_to(2))


async def test_recovery_reads_also_fence_the_ledger() -> None:
    """CHK-8: b2 hung when the others were fenced, and is the one whose "no such entry" decides."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        cluster["b2"].hanging = {"fence"}
        cluster["b1"].hanging = {"read"}
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)
        assert cluster["b2"].ledger(ledger_id).fenced
        key = (await cluster.metadata(ledger_id)).master_key
        assert all(
            request.fence and request.master_key == key
            for request in cluster["b2"].reads()
            if request.last_entry_id > 2
        )


async def test_fenced_writer_completes_no_more_entries() -> None:
    """CHK-7: what it has sent and was not acknowledged may be in the ledger; what it sends from now on is not."""

    async with running_small_cluster(bookies=3) as cluster:
        made, writer = await cluster.client.create(THREE, "a test")
        for number in range(4):
            await writer.add(entry(number))
        metadata = await cluster.client.recover(made.ledger_id)
        _closed_at(metadata, 3)
        with pytest.raises(LedgerFenced):
            await cluster.patiently(writer.add(entry(4)))
        writer.abandon()
        reader = await cluster.client.open(made.ledger_id)
        assert await reader.read(0, reader.last_add_confirmed) == [entry(number) for number in range(4)]


async def test_recovery_starts_at_last_fragment_if_bookies_know_no_lac() -> None:
    """CHK-12: the second ensemble has never heard of the LAC, and has none of the entries below its fragment."""

    async with running_small_cluster(bookies=6) as cluster:
        ledger_id = await cluster.make(THREE, Fragment(0, ("b0", "b1", "b2")), Fragment(10, ("b3", "b4", "b5")))
        await cluster.put(ledger_id, range(10))
        for name in ("b3", "b4", "b5"):
            cluster[name].ledger(ledger_id).last_add_confirmed = -1
        metadata = await cluster.client.recover(ledger_id)
        _closed_at(metadata, 9)  # and the length comes from the fragment before
        assert metadata.fragments == (Fragment(0, ("b0", "b1", "b2")),)
        assert min(request.first_entry_id for name in ("b3", "b4", "b5") for request in cluster[name].reads()) == 10


async def test_one_record_is_enough_and_is_on_an_ack_quorum_before_the_close() -> None:
    """CHK-14: and so the decision holds even when the one bookie that had it is lost."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, [2], without=["b0", "b2"])
        _closed_at(await cluster.client.recover(ledger_id), 2)
        assert len(cluster.holders(ledger_id, 2)) >= 2
        cluster["b1"].ledger(ledger_id).records.clear()
        reader = await cluster.client.open(ledger_id)
        assert await reader.read(0, 2) == [entry(0), entry(1), entry(2)]


async def test_ensembles_that_recovery_makes_stay_its_own_until_the_close() -> None:
    """CHK-16: b3 replaces one that takes no adds; it is neither in the metadata nor read before the close."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, range(2, 6), without=["b1", "b2"], confirmed=1)
        cluster["b1"].failing = cluster["b2"].failing = {"add"}
        seen: list[LedgerMetadata] = []
        tasks: list[asyncio.Task[None]] = []

        async def look() -> None:
            seen.append(await cluster.client.ledgers.read_metadata(ledger_id))

        cluster["b3"].before = lambda method: tasks.append(asyncio.create_task(look())) if method == "add" else None
        metadata = await cluster.patiently(cluster.client.recover(ledger_id))
        await asyncio.gather(*tasks)
        _closed_at(metadata, 5)
        assert seen
        assert seen[0].state is LedgerState.IN_RECOVERY
        assert seen[0].fragments == (Fragment(0, ("b0", "b1", "b2")),)
        assert seen[0].former_bookies == ("b3",)
        assert cluster["b3"].reads() == []
        assert metadata.fragments[0] == Fragment(0, ("b0", "b1", "b2"))
        assert metadata.fragments[-1].first_entry_id == 2
        assert "b3" in metadata.fragments[-1].bookies
        reader = await cluster.client.open(ledger_id)
        assert await cluster.patiently(reader.read(0, 5)) == [entry(number) for number in range(6)]


async def test_the_recovery_that_closes_first_counts_and_the_others_give_its_result() -> None:
    """CHK-1: the loser has found more than the ledger has in the end, and forgets it."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, [2], without=["b1", "b2"])  # never completed
        faster: list[asyncio.Task[LedgerMetadata]] = []
        fragment = (await cluster.metadata(ledger_id)).last_fragment
        length = length_up_to(1)

        def close_below(method: str) -> None:
            if method == "read" and not faster:
                other = cluster.client.ledgers.change_metadata(
                    ledger_id, lambda current: close_by_recovery(current, fragment, [], 1, length, 0)
                )
                faster.append(asyncio.ensure_future(other))

        for name in ("b0", "b1", "b2"):
            cluster[name].before = close_below
        metadata = await cluster.client.recover(ledger_id)
        assert faster
        assert metadata == await faster[0] == await cluster.metadata(ledger_id)
        _closed_at(metadata, 1)


@pytest.mark.parametrize("decided", ["closed", "deleted"])
async def test_late_recovery_contacts_no_replacement_bookies(decided: str) -> None:
    """Nobody would ever have b3 drop it: it is not among those that a tombstone waits for."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, [2], without=["b1", "b2"])  # never completed
        cluster["b1"].failing = cluster["b2"].failing = {"add"}
        fragment = (await cluster.metadata(ledger_id)).last_fragment
        faster: list[asyncio.Task[LedgerMetadata]] = []

        def update(current: LedgerMetadata | None) -> LedgerMetadata:
            if decided == "deleted":
                return make_tombstone(current)
            return close_by_recovery(current, fragment, [], 1, length_up_to(1), 0)

        def decide(method: str) -> None:
            if method == "add" and not faster:
                faster.append(asyncio.ensure_future(cluster.client.ledgers.change_metadata(ledger_id, update)))

        cluster["b1"].before = cluster["b2"].before = decide
        before = cluster.clock.monotonic()
        if decided == "deleted":
            with pytest.raises(LedgerDeleted):
                await cluster.client.recover(ledger_id)
        else:
            assert await cluster.client.recover(ledger_id) == await faster[0]
        assert "b3" not in (await cluster.metadata(ledger_id)).holders
        assert cluster["b3"].calls == []
        assert cluster.clock.monotonic() == before


async def test_entries_of_losing_recovery_are_deleted_with_the_ledger(of: Scene) -> None:
    """One of its own bookies has an entry of the ledger, and no fragment ever names that bookie."""
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    writer.abandon()
    ledger_id, fragment = writer.ledger_id, writer.metadata.last_fragment
    (spare,) = [one for one in of.bookies.values() if one.bookie_id not in fragment.bookies]
    await of.bookies[fragment.bookies[0]].go()
    other = await of.new_client()
    change = other.ledgers.change_metadata

    async def another_closes_first(
        ledger: int, update: Update, checks: Sequence[Check] = (), known: LedgerNodeCache | None = None
    ) -> LedgerMetadata:
        if spare.bookie_id in (await of.client.ledgers.read_metadata(ledger, fresh=True)).former_bookies:
            while not spare.holds(ledger, 2):
                await asyncio.sleep(0)
            await of.client.ledgers.change_metadata(
                ledger, lambda current: close_by_recovery(current, fragment, [], 2, 3, 0)
            )
        return await change(ledger, update, checks, known)

    with patch.object(other.ledgers, "change_metadata", another_closes_first):
        closed = await of.over(other.recover(ledger_id))
    assert spare.bookie_id not in closed.bookies()
    assert spare.holds(ledger_id, 2)
    await of.bookies[fragment.bookies[0]].come()
    await of.client.delete(ledger_id)
    # It is the last to look.
    for bookie in (*(of.bookies[name] for name in fragment.bookies), spare):
        assert bookie.bookie is not None
        await of.over(GarbageCollector(bookie.bookie, of.clock, of.randomness).collect(of.client.ledgers))
    assert not spare.holds(ledger_id, 2)


async def test_recoveries_at_the_same_time_agree() -> None:
    """CHK-1"""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(20))
        await cluster.put(ledger_id, [20], without=["b1", "b2"])
        found = await asyncio.gather(*(cluster.client.recover(ledger_id) for _ in range(4)))
        assert all(metadata == found[0] for metadata in found)
        assert found[0].last_entry_id in (19, 20)


async def test_recovery_restarts_when_last_fragment_changes() -> None:
    """CHK-16: what somebody else's change makes of the last fragment is what the next attempt is based on."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        changed: list[asyncio.Task[LedgerMetadata]] = []

        def change(current: LedgerMetadata | None) -> LedgerMetadata:
            assert current is not None
            return LedgerMetadata(
                **{
                    **{name: getattr(current, name) for name in LedgerMetadata.__slots__},
                    "fragments": (*current.fragments, Fragment(3, ("b1", "b2", "b3"))),
                }
            )

        def once(method: str) -> None:
            if method == "fence" and not changed:
                changed.append(asyncio.ensure_future(cluster.client.ledgers.change_metadata(ledger_id, change)))

        cluster["b0"].before = once
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)
        assert cluster["b3"].reads()


async def test_a_deleted_ledger_is_not_recovered() -> None:
    async with running_small_cluster() as cluster:
        with pytest.raises(NoSuchLedger):
            await cluster.client.recover(99)
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        await cluster.client.ledgers.change_metadata(ledger_id, start_recovery)
        before = cluster.clock.monotonic()
        tasks: list[asyncio.Task[LedgerMetadata]] = []

        def delete(method: str) -> None:
            if method == "read" and not tasks:
                tasks.append(asyncio.ensure_future(cluster.client.ledgers.change_metadata(ledger_id, make_tombstone)))
                for bookie in cluster.bookies.values():
                    bookie.ledger(ledger_id).deleted = True

        for bookie in cluster.bookies.values():
            bookie.before = delete
        with pytest.raises(LedgerDeleted):
            await cluster.patiently(cluster.client.recover(ledger_id))
        assert cluster.clock.monotonic() < before + 5


async def test_recovery_completes_only_after_bookies_form_an_ack_quorum() -> None:
    """CHK-3"""

    async with running_small_cluster(bookies=3) as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, [2], without=["b1", "b2"])
        cluster["b1"].failing = cluster["b2"].failing = {"add"}
        with pytest.raises(RecoveryUndecided, match="a recovered entry can't be written"):
            await cluster.patiently(cluster.client.recover(ledger_id))
        assert (await cluster.metadata(ledger_id)).state is LedgerState.IN_RECOVERY
        cluster["b1"].failing = set()
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)


async def test_ledger_is_not_closed_while_recovered_entries_are_in_flight() -> None:
    """CHK-3: nor when the timeout passes in the meantime."""

    async with running_small_cluster(
        bookies=3,
        settings=LedgerClientSettings(
            recovery_timeout_seconds=3, add_entry_timeout_seconds=60, explicit_lac_interval_ms=0
        ),
    ) as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        await cluster.put(ledger_id, [2], without=["b1", "b2"])
        cluster["b1"].hanging = cluster["b2"].hanging = {"add"}
        with pytest.raises(RecoveryUndecided, match="1 recovered entries up to 2 are not stored on an ack quorum yet"):
            await cluster.patiently(cluster.client.recover(ledger_id))
        assert (await cluster.metadata(ledger_id)).state is LedgerState.IN_RECOVERY


async def test_close_outcome_is_determined_after_lost_response() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        await cluster.client.ledgers.change_metadata(ledger_id, start_recovery)

        def back(state: SessionState) -> None:
            if state is SessionState.SUSPENDED:
                cluster.server.resume(cluster.store)

        cluster.store.session.listen(back)
        cluster["b0"].before = lambda method: (
            cluster.server.queue_faults(cluster.store, Fault.LOSE_ANSWER) if method == "read" else None
        )
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 2)


async def test_many_entries_are_read_by_the_window_and_not_one_by_one() -> None:
    async with running_small_cluster(settings=LedgerClientSettings(recovery_window_entries=16)) as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(300))
        for bookie in cluster.bookies.values():
            bookie.ledger(ledger_id).last_add_confirmed = -1
        _closed_at(await cluster.client.recover(ledger_id), 299)
        assert max(len(bookie.reads()) for bookie in cluster.bookies.values()) <= 40
        assert all(request.last_entry_id - request.first_entry_id < 16 for request in cluster["b0"].reads())


@pytest.mark.parametrize(
    "striping", [Striping(1, 1, 1), Striping(4, 2, 2), Striping(5, 3, 2), Striping(3, 1, 1)], ids=str
)
async def test_striped_ledgers_are_recovered(striping: Striping) -> None:
    async with running_small_cluster(bookies=6) as cluster:
        ledger_id = await cluster.make(striping)
        await cluster.put(ledger_id, range(30))
        for bookie in cluster.bookies.values():
            bookie.ledger(ledger_id).last_add_confirmed = 3
        _closed_at(await cluster.patiently(cluster.client.recover(ledger_id)), 29)


async def test_a_recovery_that_is_stopped_anywhere_leaves_nothing_running_and_the_next_one_finishes() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(3))
        await cluster.put(ledger_id, range(3, 6), without=["b1"], confirmed=2)
        metadata = await cluster.metadata(ledger_id)
        for turns in range(200):
            # What the client itself keeps running are streams.
            others = asyncio.all_tasks()
            recovery = asyncio.create_task(cluster.client.recover(ledger_id))
            for _ in range(turns):
                await asyncio.sleep(0)
            finished = recovery.done()
            recovery.cancel()
            await asyncio.gather(recovery, return_exceptions=True)
            left = [task for task in asyncio.all_tasks() - others if "ledger_recovery" in repr(task.get_coro())]
            assert left == []
            if finished:
                break
        assert finished
        assert metadata.last_fragment in (await cluster.metadata(ledger_id)).fragments
        _closed_at(await cluster.client.recover(ledger_id), 5)
