"""Reading ledgers that are closed, are still written, or lose their bookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from magnetar_bookie import paths
from magnetar_bookie.errors import ClientClosed, LedgerDeleted, NoSuchEntry, NoSuchLedger, Unreadable
from magnetar_bookie.ledger.ledger_metadata import make_tombstone, replace_bookie, replace_last_fragment
from magnetar_bookie.ledger.ledger_reader import LedgerReader
from magnetar_bookie.read.record import RECORD_HEADER_BYTES
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import SessionLost
from magnetar_protos import ledger_pb2 as pb
from tests.unit.bookie.honest_bookie import entry, record_of
from tests.unit.bookie.small_cluster import SmallCluster, running_small_cluster

THREE = Striping(3, 3, 2)


def entries(first: int, last: int) -> list[bytes]:
    return [entry(entry_id) for entry_id in range(first, last + 1)]


def numbered(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(entry_id, entry(entry_id)) for entry_id in range(first, last + 1)]


async def closed_ledger(cluster: SmallCluster, count: int, striping: Striping = THREE) -> int:
    ledger_id = await cluster.make(striping)
    await cluster.put(ledger_id, range(count))
    assert (await cluster.client.recover(ledger_id)).last_entry_id == count - 1
    return ledger_id


async def everything(reader: LedgerReader, first: int = 0, last: int | None = None) -> list[tuple[int, bytes]]:
    return [one async for one in reader.entries(first, last)]


async def repair_task(cluster: SmallCluster, ledger_id: int) -> pb.RepairTask | None:
    stored = await compare_and_set.read(cluster.store, paths.task(ledger_id))
    return pb.RepairTask.FromString(stored.payload) if stored else None


async def test_a_closed_ledger_is_read_up_to_its_last_entry() -> None:
    async with running_small_cluster() as cluster:
        reader = await cluster.client.open(await closed_ledger(cluster, 50))
        assert reader.last_add_confirmed == reader.metadata.last_entry_id == 49
        assert await reader.read(0, 49) == entries(0, 49)
        assert await reader.read(7, 7) == entries(7, 7)
        assert await everything(reader) == numbered(0, 49)
        assert await everything(reader, 10, 20) == numbered(10, 20)
        assert [one async for one in reader.tail(45)] == numbered(45, 49)
        for first, last in ((0, 50), (-1, 3)):
            with pytest.raises(NoSuchEntry, match=f"entries {first} to {last} of ledger .* only 0 to 49 are confirmed"):
                await reader.read(first, last)
        with pytest.raises(NoSuchEntry):
            await everything(reader, 0, 50)


async def test_an_empty_ledger_has_nothing_to_read() -> None:
    async with running_small_cluster() as cluster:
        reader = await cluster.client.open_with_recovery(await cluster.make(THREE))
        assert reader.last_add_confirmed == -1
        assert await everything(reader) == []
        assert [one async for one in reader.tail()] == []


@pytest.mark.parametrize("striping", [THREE, Striping(3, 2, 2)], ids=str)
async def test_max_bytes_bounds_an_answer_but_for_its_first_entry(striping: Striping) -> None:
    async with running_small_cluster() as cluster:
        reader = await cluster.client.open(await closed_ledger(cluster, 50, striping))
        assert await reader.read(20, 40, 1) == entries(20, 20)
        one = RECORD_HEADER_BYTES + len(entry(20))
        for fits in (3, 6):
            assert await reader.read(20, 40, fits * one) == entries(20, 19 + fits)
            assert await reader.read(20, 40, fits * one + one - 1) == entries(20, 19 + fits)


async def test_a_reader_without_recovery_sees_nothing_above_the_lac() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(10))  # the last record proves that entry 8 is confirmed
        reader = await cluster.client.open(ledger_id)
        assert reader.last_add_confirmed == 8
        assert await everything(reader) == numbered(0, 8)
        with pytest.raises(NoSuchEntry):
            await reader.read(9, 9)
        assert not any(bookie.ledger(ledger_id).fenced for bookie in cluster.bookies.values())


async def test_the_highest_lac_that_is_answered_counts_and_a_reader_s_own_never_falls() -> None:
    """CHK-6: what was readable stays readable without the bookies that knew of it."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(10), confirmed=-1)
        reader = await cluster.client.open(ledger_id)
        assert reader.last_add_confirmed == -1
        cluster["b1"].confirm(ledger_id, 6)
        assert await reader.read_last_add_confirmed() == 6
        cluster["b1"].ledger(ledger_id).last_add_confirmed = -1
        assert await reader.read_last_add_confirmed() == 6
        assert await reader.read(0, 6) == entries(0, 6)


async def test_hung_bookies_are_waited_for_a_short_time_only_where_the_others_are_not_enough() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(10))
        cluster["b0"].hanging = {"last_add_confirmed"}
        began = cluster.clock.monotonic()
        reader = await cluster.client.open(ledger_id)
        assert reader.last_add_confirmed == 8
        assert cluster.clock.monotonic() == began
        cluster["b1"].hanging = {"last_add_confirmed"}
        cluster["b2"].confirm(ledger_id, 9)
        assert await cluster.patiently(reader.read_last_add_confirmed()) == 9
        assert cluster.clock.monotonic() - began < 3


async def test_reader_opens_with_lac_from_metadata_without_bookies() -> None:
    async with running_small_cluster(bookies=6) as cluster:
        ledger_id = await cluster.make(THREE, Fragment(0, ("b0", "b1", "b2")), Fragment(5, ("b3", "b4", "b5")))
        await cluster.put(ledger_id, range(10))
        for name in ("b3", "b4", "b5"):
            cluster[name].failing = {"last_add_confirmed"}
        reader = await cluster.client.open(ledger_id)
        assert reader.last_add_confirmed == 4
        with pytest.raises(Unreadable, match=r"no bookie reports the LAC of ledger .* b3: .* b4: .* b5: "):
            await reader.read_last_add_confirmed()


async def test_asking_for_the_lac_finds_that_the_ledger_was_closed_or_has_a_new_ensemble() -> None:
    async with running_small_cluster(bookies=6) as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(10))
        reader = await cluster.client.open(ledger_id)
        await cluster.client.ledgers.change_metadata(
            ledger_id, lambda current: replace_last_fragment(current, Fragment(10, ("b3", "b4", "b5")))
        )
        await cluster.put(ledger_id, range(10, 15))
        assert await reader.read_last_add_confirmed() == 13
        await cluster.client.recover(ledger_id)
        assert await reader.read_last_add_confirmed() == 14
        assert reader.metadata.is_closed
        assert await everything(reader) == numbered(0, 14)


async def test_reader_uses_bookies_added_by_repair() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await closed_ledger(cluster, 20, Striping(1, 1, 1))
        reader = await cluster.client.open(ledger_id)
        cluster["b0"].failing = {"read"}
        with pytest.raises(Unreadable) as raised:
            await reader.read(0, 19)
        assert list(raised.value.reasons) == ["b0"]
        for entry_id in range(20):
            cluster["b1"].keep(ledger_id, record_of(ledger_id, entry_id))
        await cluster.client.ledgers.change_metadata(
            ledger_id, lambda current: replace_bookie(current, 0, 0, "b0", "b1")
        )
        assert await reader.read(0, 19) == entries(0, 19)
        assert reader.metadata.fragments == (Fragment(0, ("b1",)),)


async def test_damaged_entry_of_closed_ledger_creates_repair_task() -> None:
    """CHK-28: read-repair."""

    async with running_small_cluster() as cluster:
        ledger_id = await closed_ledger(cluster, 20)
        reader = await cluster.client.open(ledger_id)
        assert await reader.read(0, 19) == entries(0, 19)
        assert await repair_task(cluster, ledger_id) is None
        cluster["b0"].damage(ledger_id, 7)
        assert await reader.read(0, 19) == entries(0, 19)
        task = await repair_task(cluster, ledger_id)
        assert task == pb.RepairTask(found_ms=cluster.clock.time_ms())
        # One that is there stays as it is.
        cluster.clock.advance(100)
        assert await reader.read(0, 19) == entries(0, 19)
        assert await repair_task(cluster, ledger_id) == task


async def test_a_bookie_that_repair_has_replaced_is_not_reported() -> None:
    """CHK-29: the reader's metadata are old; a repair task would find nothing to do, and the next read report again."""

    async with running_small_cluster() as cluster:
        ledger_id = await closed_ledger(cluster, 20, Striping(2, 2, 1))
        reader = await cluster.client.open(ledger_id)
        for entry_id in range(20):
            cluster["b2"].keep(ledger_id, record_of(ledger_id, entry_id))
        await cluster.client.ledgers.change_metadata(
            ledger_id, lambda current: replace_bookie(current, 0, 0, "b0", "b2")
        )
        cluster["b0"].damage(ledger_id, 6)
        assert await reader.read(0, 19) == entries(0, 19)
        assert await repair_task(cluster, ledger_id) is None
        assert reader.metadata.bookies() == ["b2", "b1"]


@pytest.mark.parametrize("answer", ["absent", "limbo"])
async def test_a_copy_in_flight_to_an_open_ledger_is_not_lost(answer: str) -> None:
    """CHK-13 CHK-15: an entry is passed over for good only once nothing can write it any more."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(Striping(2, 2, 1))
        await cluster.put(ledger_id, range(2))
        record = cluster["b1"].ledger(ledger_id).records.pop(0)
        cluster["b1"].ledger(ledger_id).limbo = answer == "limbo"
        cluster["b0"].damage(ledger_id, 0)
        reader = await cluster.client.open(ledger_id)
        reader.raise_last_add_confirmed(1)
        with pytest.raises(Unreadable) as raised:
            await reader.read(0, 0)
        assert not raised.value.is_lost
        cluster["b1"].ledger(ledger_id).records[0] = record
        assert await reader.read(0, 0) == [entry(0)]


@pytest.mark.parametrize("final", ["closed", "earlier fragment", "closed before the second read"])
async def test_an_entry_that_nothing_can_write_any_more_is_lost(final: str) -> None:
    """CHK-67 CHK-15: limbo settles it too; and a reader with old metadata asks again once they say so."""

    async with running_small_cluster() as cluster:
        fragments = [Fragment(0, ("b0", "b1")), Fragment(2, ("b0", "b2"))]
        ledger_id = await cluster.make(Striping(2, 2, 1), *(fragments if final == "earlier fragment" else ()))
        await cluster.put(ledger_id, range(2))
        reader = await cluster.client.open(ledger_id)
        reader.raise_last_add_confirmed(1)
        if final != "earlier fragment":
            assert (await cluster.client.recover(ledger_id)).last_entry_id == 1
        if final == "closed":
            reader = await cluster.client.open(ledger_id)
        cluster["b0"].damage(ledger_id, 0)
        del cluster["b1"].ledger(ledger_id).records[0]
        cluster["b1"].ledger(ledger_id).limbo = True
        reads = len(cluster["b0"].reads())
        with pytest.raises(Unreadable) as raised:
            await reader.read(0, 0)
        assert raised.value.is_lost
        assert len(cluster["b0"].reads()) - reads == (2 if final == "closed before the second read" else 1)


async def test_entry_pending_at_slow_bookie_is_not_reported_for_repair() -> None:
    async with running_small_cluster(bookies=6) as cluster:
        ledger_id = await cluster.make(THREE, Fragment(0, ("b0", "b1", "b2")), Fragment(5, ("b3", "b4", "b5")))
        await cluster.put(ledger_id, range(5))
        await cluster.put(ledger_id, range(5, 10), without=["b5"])
        reader = await cluster.client.open(ledger_id)
        assert await everything(reader) == numbered(0, 8)
        assert await repair_task(cluster, ledger_id) is None
        del cluster["b0"].ledger(ledger_id).records[3]
        assert await everything(reader) == numbered(0, 8)
        assert await repair_task(cluster, ledger_id) is not None  # the fragment before the last is settled


async def test_failed_repair_request_does_not_prevent_reading() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await closed_ledger(cluster, 5)
        reader = await cluster.client.open(ledger_id)
        cluster["b0"].damage(ledger_id, 2)
        cluster.server.suspend(cluster.store)
        assert await cluster.patiently(reader.read(0, 4)) == entries(0, 4)


async def test_a_deleted_ledger_is_not_read() -> None:
    async with running_small_cluster() as cluster:
        with pytest.raises(NoSuchLedger):
            await cluster.client.open(77)
        ledger_id = await closed_ledger(cluster, 5)
        reader = await cluster.client.open(ledger_id)
        await cluster.client.ledgers.change_metadata(ledger_id, make_tombstone)
        for bookie in cluster.bookies.values():
            bookie.ledger(ledger_id).deleted = True
        with pytest.raises(LedgerDeleted):
            await reader.read(0, 4)
        with pytest.raises(LedgerDeleted):
            await cluster.client.open(ledger_id)


@pytest.mark.parametrize("read_ahead", [0, 1, 10])
async def test_sequential_read_limits_read_ahead(read_ahead: int) -> None:
    async with running_small_cluster(
        settings=LedgerClientSettings(read_ahead_entries=read_ahead, explicit_lac_interval_ms=0)
    ) as cluster:
        reader = await cluster.client.open(await closed_ledger(cluster, 60))
        for bookie in cluster.bookies.values():
            bookie.calls.clear()
        async with aclosing(reader.entries()) as reading:
            async for entry_id, found in reading:
                assert found == entry(entry_id)
                for _ in range(30):
                    await asyncio.sleep(0)
                requests = [request for bookie in cluster.bookies.values() for request in bookie.reads()]
                ahead = max(request.last_entry_id for request in requests) - entry_id
                assert ahead <= read_ahead
                if entry_id == 0:
                    assert ahead >= read_ahead - 1
                if entry_id == 40:
                    break
        assert [task for task in asyncio.all_tasks() if "_read_records" in repr(task)] == []


class Tail:
    """Collects what a tail gives."""

    def __init__(self, tail: AsyncGenerator[tuple[int, bytes], None]) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self._tail = tail
        self.task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async with aclosing(self._tail) as tail:
            async for one in tail:
                self.seen.append(one)

    async def has(self, count: int) -> None:
        """Wait until it has seen that many, on a clock that stands still."""
        for _ in range(2000):
            if len(self.seen) >= count or self.task.done():
                break
            await asyncio.sleep(0)
        assert len(self.seen) == count

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_tail_yields_confirmed_entries_until_ledger_is_closed() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        tail = Tail((await cluster.client.open(ledger_id)).tail())
        await tail.has(0)
        for entry_id in range(5):
            await cluster.put(ledger_id, [entry_id])
            await tail.has(entry_id)
        cluster["b2"].confirm(ledger_id, 4)
        await tail.has(5)
        await cluster.put(ledger_id, [5])
        await cluster.client.recover(ledger_id)
        await tail.has(6)
        await tail.task
        assert tail.seen == numbered(0, 5)


async def test_a_tail_follows_the_writer_to_another_ensemble_and_needs_but_one_bookie() -> None:
    async with running_small_cluster(bookies=6) as cluster:
        ledger_id = await cluster.make(THREE)
        cluster["b0"].hanging = {"last_add_confirmed"}
        cluster["b1"].failing = {"last_add_confirmed"}
        reader = LedgerReader(cluster.client, ledger_id, await cluster.metadata(ledger_id))
        tail = Tail(reader.tail())
        await cluster.put(ledger_id, range(3))
        await tail.has(2)
        await cluster.client.ledgers.change_metadata(
            ledger_id, lambda current: replace_last_fragment(current, Fragment(3, ("b3", "b4", "b5")))
        )
        await tail.has(3)  # known from the fragment
        await cluster.put(ledger_id, range(3, 6))
        await tail.has(5)
        await tail.stop()
        assert tail.seen == numbered(0, 4)


async def test_an_idle_tail_polls_now_and_then_and_not_in_a_loop() -> None:
    async with running_small_cluster(
        settings=LedgerClientSettings(long_poll_timeout_ms=5000, explicit_lac_interval_ms=0)
    ) as cluster:
        ledger_id = await cluster.make(THREE)
        cluster["b1"].failing = {"last_add_confirmed"}
        reader = await cluster.client.open(ledger_id)
        for bookie in cluster.bookies.values():
            bookie.calls.clear()
        tail = Tail(reader.tail())
        await cluster.patiently(cluster.clock.sleep(60))
        polls = {name: [one for _, one in bookie.calls] for name, bookie in cluster.bookies.items()}
        assert 10 <= len(polls["b0"]) <= 14
        assert 50 <= len(polls["b1"]) <= 62
        assert polls["b0"][0] == pb.LastAddConfirmedRequest(ledger_id=ledger_id, above=-1, wait_ms=5000)
        await cluster.put(ledger_id, range(3))
        await tail.has(2)
        await tail.stop()


@pytest.mark.parametrize("failing", [False, True])
async def test_a_tail_ends_when_its_client_is_closed(failing: bool) -> None:
    """Nothing would wake it any more: neither a poll in flight nor one that pauses."""

    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        tail = Tail((await cluster.client.open(ledger_id)).tail())
        await tail.has(0)
        for bookie in cluster.bookies.values():
            bookie.failing = {"last_add_confirmed"} if failing else set()
        await cluster.patiently(cluster.clock.sleep(20))
        await cluster.client.close()
        await cluster.patiently(asyncio.wait([tail.task]))
        with pytest.raises(ClientClosed):
            tail.task.result()


async def test_below_the_first_entry_there_is_none() -> None:
    async with running_small_cluster() as cluster:
        reader = await cluster.client.open(await closed_ledger(cluster, 3))
        for reading in (reader.entries(-1), reader.tail(-1)):
            with pytest.raises(NoSuchEntry):
                await anext(reading)
        with pytest.raises(NoSuchEntry):
            await reader.read(-1, 2)


async def test_a_tail_outlives_a_suspended_metadata_store_and_not_a_lost_one() -> None:
    async with running_small_cluster() as cluster:
        ledger_id = await cluster.make(THREE)
        tail = Tail((await cluster.client.open(ledger_id)).tail())
        await tail.has(0)
        cluster.server.suspend(cluster.store)
        for bookie in ("b0", "b1", "b2"):
            for entry_id in range(3):
                cluster[bookie].keep(ledger_id, record_of(ledger_id, entry_id))
        await tail.has(2)
        cluster.server.resume(cluster.store)
        await cluster.client.recover(ledger_id)
        await tail.has(3)
        await tail.task

        other = await cluster.make(THREE)
        tail = Tail((await cluster.client.open(other)).tail())
        await tail.has(0)
        await cluster.store.close()
        with pytest.raises(SessionLost):
            await tail.task
