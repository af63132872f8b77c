"""A client that does not know of a decommission names the bookie in no ledger: the transaction checks its cookie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from unittest.mock import patch

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.decommission import cancel_decommission, start_decommission
from magnetar_bookie.auto_recovery.ledger_repair import LedgerRepair
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView
from magnetar_bookie.errors import NotEnoughBookies
from magnetar_bookie.ledger.bookies import Bookies
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.striping import Striping
from magnetar_metadata.store import Change, ChangeResult, Check
from magnetar_testing.metadata import Fault, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.unit.bookie.repair_scene import Scene

ONE = Striping(1, 1, 1)

T = TypeVar("T")


class Prefers(SeededRandomness):
    """Chooses this bookie whenever it is possible."""

    def __init__(self, preferred: str) -> None:
        super().__init__(1)
        self._preferred = preferred

    def choice(self, among: Sequence[T]) -> T:
        return next((one for one in among if one == self._preferred), None) or super().choice(among)


async def deaf_client(of: Scene) -> LedgerClient:
    """Return a client that sees no changes of the decommissions."""

    async def ignore(bookies: Bookies) -> None:
        pass

    with patch.object(Bookies, "_read_leaving", ignore):
        return await of.new_client()


async def test_a_new_ledger_is_not_made_on_a_bookie_that_leaves() -> None:
    """STO-2: with an ack quorum of one an entry would be acknowledged by that bookie alone."""
    async with Scene(bookies=3) as of:
        client = await deaf_client(of)
        await start_decommission(of.client, "b2")
        assert "b2" in client.bookies.writable()
        for _ in range(12):
            made, _ = await client.create(ONE, "a test")
            assert made.metadata.bookies() != ["b2"]
        assert "b2" not in client.bookies.writable()


async def test_ledger_creation_takes_a_single_store_transaction() -> None:
    """CHK-59: idle topics roll, and so ledgers are made often."""
    async with Scene(bookies=3) as of:
        store = of.client.ledgers.store
        await of.client.create(Striping(3, 3, 2), "takes ids")
        transactions: list[Sequence[Change]] = []
        transaction = MemoryStore.transaction

        async def record(one: MemoryStore, changes: Sequence[Change]) -> list[ChangeResult]:
            transactions.append(changes)
            return await transaction(one, changes)

        async def read(*_: object) -> None:
            raise AssertionError("it reads")

        with (
            patch.object(MemoryStore, "transaction", record),
            patch.object(store, "sync", read),
            patch.object(store, "exists", read),
        ):
            for _ in range(3):
                await of.client.create(Striping(3, 3, 2), "a test")
        made = [changes for changes in transactions if any(isinstance(one, Check) for one in changes)]
        checked = [sorted(one.path for one in changes if isinstance(one, Check)) for changes in made]
        assert checked == [[paths.cookie(one) for one in ("b1", "b2", "b3")]] * 3


async def test_a_cancelled_decommission_is_heard_of_by_the_next_ledger() -> None:
    """The cookie has another version, so the client is refused once, and then names the bookie."""
    async with Scene(bookies=3) as of:
        client = await deaf_client(of)
        await start_decommission(of.client, "b1")
        await cancel_decommission(of.client, "b1")
        made, _ = await client.create(Striping(3, 3, 2), "a test")
        assert sorted(made.metadata.bookies()) == ["b1", "b2", "b3"]
        await start_decommission(of.client, "b1")
        made, _ = await client.create(Striping(3, 3, 2), "a test")
        assert sorted(made.metadata.bookies()) == ["b2", "b3"]


@pytest.mark.parametrize("spares", [1, 2])
async def test_an_ensemble_change_names_no_bookie_that_leaves(spares: int) -> None:
    """STO-2: the change is refused, and another bookie is chosen, if there is one."""

    async with Scene(bookies=1 + spares) as of:
        client = await deaf_client(of)
        made, writer = await client.create(ONE, "a test")
        (listed,) = made.metadata.bookies()
        leaving, *others = [one for one in of.bookies if one != listed]
        await start_decommission(of.client, leaving)
        for number in range(4):
            await of.over(writer.add(b"%d" % number))
        client.randomness = Prefers(leaving)
        assert leaving in client.bookies.writable()
        await of.bookies[listed].go()
        if others:
            await of.over(writer.add(b"4"))
        else:
            with pytest.raises(NotEnoughBookies):
                await of.over(writer.add(b"4"))
        assert (await of.metadata(writer.ledger_id)).bookies() == [listed, *others]
        assert not of.bookies[leaving].holds(writer.ledger_id, 4)


async def test_a_recovery_closes_on_no_bookie_that_leaves() -> None:
    """STO-2: it chose the bookie before it could see the mark."""
    async with Scene(bookies=4) as of:
        writer = await of.writer()
        for number in range(3):
            await of.over(writer.add(b"%d" % number))
        writer.abandon()
        bookies = writer.metadata.bookies()
        (spare,) = [one for one in of.bookies if one not in bookies]
        client = await deaf_client(of)
        await start_decommission(of.client, spare)
        await of.bookies[bookies[0]].go()
        closed = await of.over(client.recover(writer.ledger_id))
        assert closed.is_closed
        assert spare not in closed.bookies()


async def test_a_repair_moves_no_entries_to_a_bookie_that_leaves() -> None:
    """STO-2: the mark is set while the entries are copied."""
    async with Scene(bookies=5) as of:
        ledger_id = await of.ledger(4)
        bookies = (await of.metadata(ledger_id)).bookies()
        leaving, other = [one for one in of.bookies if one not in bookies]
        client = await deaf_client(of)
        client.randomness = Prefers(leaving)
        watcher = BookieWatcher(client, of.settings)
        await watcher.refresh_view()
        await of.bookies[bookies[0]].go()
        await of.passes(of.settings.lost_bookie_recovery_delay_seconds + 1)
        refresh_view = watcher.refresh_view

        async def marked_after_the_refresh() -> ClusterView:
            found = await refresh_view()
            if not found.leaving:
                assert leaving in found.writable
                await start_decommission(of.client, leaving)
            return found

        async def progress(_: int) -> None: ...

        repair = LedgerRepair(client, watcher, of.settings, ledger_id, progress)
        with patch.object(watcher, "refresh_view", marked_after_the_refresh):
            assert await of.over(repair.run([bookies[0]])) == ""
        assert sorted((await of.metadata(ledger_id)).bookies()) == sorted([*bookies[1:], other])


async def test_cookies_that_could_not_be_read_again_are_read_later() -> None:
    """Until then the bookie is not chosen, and a writer does not wait for it."""
    async with Scene(bookies=3) as of:
        client = await deaf_client(of)
        made, writer = await client.create(ONE, "a test")
        (listed,) = made.metadata.bookies()
        others = [one for one in of.bookies if one != listed]
        for one in others:
            await start_decommission(of.client, one)
            await cancel_decommission(of.client, one)
        store = client.ledgers.store
        assert isinstance(store, MemoryStore)
        await of.over(writer.add(b"0"))
        sync = store.sync
        failed: list[bool] = []

        async def cut_off() -> None:
            if not failed:
                failed.append(True)
                of.server.queue_faults(store, Fault.LOSE_REQUEST)
            await sync()

        with patch.object(store, "sync", cut_off):
            await of.bookies[listed].go()
            adding = of.spawn(writer.add(b"1"))
            await of.until(lambda: bool(failed), "the cookies are read again")
            await of.passes(1)
            of.server.resume(store)
            await of.until(adding.done, "the add is decided")
        await of.until(lambda: set(client.bookies.writable()) >= set(others), "both may be chosen again")
