"""What a client knows of the bookies, and how it calls them."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import cancel_decommission, start_decommission
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.quarantine import Quarantine
from magnetar_bookie.core.placement import SpreadPlacement
from magnetar_bookie.errors import ClientClosed
from magnetar_bookie.settings.client import LedgerClientSettings
from magnetar_metadata.errors import InvalidPath, SessionLost
from magnetar_metadata.store import ABSENT, ANY, Node
from magnetar_protos.ledger_pb2 import (
    BookieRegistration,
    ConfirmAnswer,
    ConfirmRequest,
    LastAddConfirmedAnswer,
    LastAddConfirmedRequest,
)
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.transport import Failed, NotReached, Peer
from tests.unit.bookie.writer_scene import Scene


async def test_bookie_list_follows_registrations_and_decommissions(scene: Scene) -> None:
    bookies = (await scene.client()).bookies
    assert bookies.writable() == list(bookies.alive()) == ["b1", "b2", "b3", "b4"]
    told: list[list[str]] = []
    stop = bookies.listen(lambda: told.append(bookies.writable()))
    await scene.bookies["b1"].go()
    await scene.settled(lambda: list(bookies.alive()) == ["b2", "b3", "b4"])
    b2 = scene.bookies["b2"]
    assert b2.store is not None
    said = BookieRegistration(address=b2.address, instance_id=b"i", read_only=True).SerializeToString()
    await b2.store.put(paths.available("b2"), said, 0)
    await scene.settled(lambda: bookies.writable() == ["b3", "b4"])
    assert bookies.alive()["b2"].read_only
    await start_decommission(await scene.client(), "b3")
    await scene.settled(lambda: bookies.writable() == ["b4"])
    assert told[-1] == ["b4"]
    stop()
    count = len(told)
    await scene.bookies["b1"].come()
    await scene.settled(lambda: bookies.writable() == ["b1", "b4"])
    assert len(told) == count


async def test_each_registration_is_read_once_at_the_start(scene: Scene) -> None:
    read: list[str] = []
    get = MemoryStore.get

    async def noted(store: MemoryStore, path: str) -> Node | None:
        read.append(path)
        return await get(store, path)

    with patch.object(MemoryStore, "get", noted):
        bookies = (await scene.client()).bookies
        # What a watch asked for too much would be read before this.
        await scene.bookies["b1"].go()
        await scene.settled(lambda: "b1" not in bookies.alive())
    both = [path(name) for name in ("b1", "b2", "b3", "b4") for path in (paths.available, paths.cookie)]
    assert read == [*both, paths.available("b1")]


async def test_quarantine_ends_after_its_time_or_at_registration(scene: Scene) -> None:
    bookies = (await scene.client()).bookies
    bookies.quarantine("b1")
    bookies.quarantine("b2")
    assert bookies.writable() == ["b3", "b4"]
    assert bookies.in_quarantine() == ["b1", "b2"]
    await scene.bookies["b1"].go()
    await scene.bookies["b1"].come()
    await scene.settled(lambda: bookies.writable() == ["b1", "b3", "b4"])
    told: list[None] = []
    bookies.listen(lambda: told.append(None))
    scene.clock.advance(29)
    assert bookies.writable() == ["b1", "b3", "b4"]
    scene.clock.advance(2)
    assert bookies.writable() == ["b1", "b2", "b3", "b4"]
    assert told


def test_the_quarantine_of_one_that_fails_again_and_again_grows() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock, 10.0, lambda: None)

    def stay() -> int:
        quarantine.put("b1")
        quarantine.put("b1")  # it is in there already
        seconds = 0
        while "b1" in quarantine:
            clock.advance(1)
            seconds += 1
        return seconds

    assert [stay() for _ in range(8)] == [10, 20, 40, 80, 160, 320, 320, 320]
    clock.advance(1000)
    assert stay() == 10
    quarantine.put("b1")
    quarantine.forgive("b1")
    assert stay() == 10


async def test_a_bookie_is_called_at_its_last_address_registered_or_not(scene: Scene) -> None:
    bookies = (await scene.client()).bookies
    b1 = scene.bookies["b1"]
    assert b1.store is not None
    await b1.store.close()
    await scene.settled(lambda: "b1" not in bookies.alive())
    request = LastAddConfirmedRequest(ledger_id=1)

    async def ask(bookie_id: str) -> LastAddConfirmedAnswer:
        return await bookies.call(bookie_id, "last_add_confirmed", request, LastAddConfirmedAnswer, timeout_s=5)

    assert (await ask("b1")).last_add_confirmed == -1
    with pytest.raises(NotReached, match="was never registered"):
        await ask("b9")
    assert b1.listener is not None
    await b1.listener.close()
    with pytest.raises(NotReached):
        await ask("b1")
    b1.listener = await scene.transport.listen("elsewhere:1", b1)
    moved = BookieRegistration(address="elsewhere:1", instance_id=b"i").SerializeToString()
    await scene.store.put(paths.available("b1"), moved, ABSENT, ephemeral=True)
    await scene.settled(lambda: "b1" in bookies.alive())
    assert (await ask("b1")).last_add_confirmed == -1


async def test_a_mark_that_changes_while_a_new_bookie_is_read_is_not_missed(scene: Scene) -> None:
    """Its cookie was read with the mark, and arrives when the mark is cancelled already."""
    operator = await scene.client()
    await start_decommission(operator, "b1")
    await scene.bookies["b1"].go()
    await scene.settled(lambda: "b1" not in operator.bookies.alive())
    late = scene.server.connect()
    bookies = (await scene.client(late)).bookies
    assert list(bookies.alive()) == ["b2", "b3", "b4"]
    get, has_read, may_go_on = MemoryStore.get, asyncio.Event(), asyncio.Event()

    async def delayed(store: MemoryStore, path: str) -> Node | None:
        node = await get(store, path)
        if store is late and path == paths.cookie("b1") and not has_read.is_set():
            has_read.set()
            await may_go_on.wait()
        return node

    with patch.object(MemoryStore, "get", delayed):
        await scene.bookies["b1"].come()
        await scene.settled(has_read.is_set)
        await cancel_decommission(operator, "b1")
        await scene.idle()
        may_go_on.set()
        await scene.settled(lambda: "b1" in bookies.alive())
    await scene.settled(lambda: bookies.writable() == ["b1", "b2", "b3", "b4"])


async def test_an_answer_that_cant_be_read_is_a_failure(scene: Scene) -> None:
    bookies = (await scene.client()).bookies
    b1 = scene.bookies["b1"]

    async def call(peer: Peer, method: str, request: bytes) -> bytes:
        return b"\xff\xff"

    b1.call = call  # type: ignore[method-assign]
    with pytest.raises(Failed, match="answer of bookie b1 to confirm"):
        await bookies.call("b1", "confirm", ConfirmRequest(), ConfirmAnswer, timeout_s=5)


async def test_a_registration_that_cant_be_read_is_passed_over(scene: Scene) -> None:
    await scene.store.put(paths.available("bx"), b"\xff\xff", ABSENT, ephemeral=True)
    bookies = (await scene.client()).bookies
    assert list(bookies.alive()) == ["b1", "b2", "b3", "b4"]
    await scene.store.put(paths.available("bx"), BookieRegistration(address="x:1").SerializeToString(), ANY)
    await scene.settled(lambda: "bx" in bookies.alive())


async def test_bookie_list_is_updated_after_a_reconnect(scene: Scene) -> None:
    bookies = (await scene.client()).bookies
    scene.server.suspend(scene.store)
    await scene.bookies["b1"].go()
    await scene.idle()
    assert "b1" in bookies.alive()
    scene.server.resume(scene.store)
    scene.clock.advance(1)
    await scene.settled(lambda: "b1" not in bookies.alive())


async def test_with_a_lost_session_nothing_starts(scene: Scene) -> None:
    lost: MemoryStore = scene.server.connect()
    scene.server.expire(lost)
    with pytest.raises(SessionLost):
        await scene.client(lost)


async def test_starting_waits_for_the_first_answer(scene: Scene) -> None:
    scene.server.suspend(scene.store)
    starting = asyncio.create_task(scene.client())
    await scene.idle()
    assert not starting.done()
    scene.server.resume(scene.store)
    scene.clock.advance(1)
    assert (await starting).bookies.writable() == ["b1", "b2", "b3", "b4"]


@pytest.mark.parametrize("turns", [0, 30])
async def test_closing_a_client_during_start_raises_client_closed(turns: int) -> None:
    """Its starter was not cancelled, and is told by an error. At once, too, when nothing has begun yet."""

    async with Scene(bookies=1) as scene:
        scene.server.suspend(scene.store)
        client = LedgerClient(scene.store, scene.transport, scene.clock, SeededRandomness(1))
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientClosed):
            await starting


async def test_failed_client_start_raises_the_cause() -> None:
    async with Scene(bookies=1) as scene:

        async def children(_: object, path: str) -> list[str]:
            raise InvalidPath(path)

        with patch.object(MemoryStore, "children", children), pytest.raises(BaseExceptionGroup) as raised:
            await scene.client()
        assert raised.group_contains(InvalidPath)


def test_the_placement_spreads() -> None:
    placement, randomness = SpreadPlacement(), SeededRandomness(1)
    names = [f"b{number}" for number in range(6)]
    seen: dict[str, int] = {}
    for _ in range(600):
        chosen = placement.new_ensemble(3, names, randomness)
        assert len(set(chosen)) == 3
        for name in chosen:
            seen[name] = seen.get(name, 0) + 1
    assert len(seen) == 6
    assert min(seen.values()) > 200
    assert sorted(placement.new_ensemble(8, names, randomness)) == names
    assert placement.replacement(names[:5], names, randomness) == "b5"
    assert placement.replacement(names, names, randomness) is None


def test_every_option_is_checked() -> None:
    for name in LedgerClientSettings.model_fields:
        with pytest.raises(ValueError, match=name):
            LedgerClientSettings(**{name: -1})
