"""Cursors whose bookies hang delay no others, and no caller waits for a cursor for ever."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar_bookie.read.striping import Striping
from magnetar_broker.cursors.opening_slots import FIRST_SLICE_S, OpeningSlots
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from tests.running import within
from tests.unit.broker.cursor_scene import at, entries, open_cursors, running_cursor_scene
from tests.unit.broker.subscription_scene import EARLIEST
from tests.unit.broker.test_damaged_cursors import bring_back_bookies, open_without_bookies, subscriptions_of

# Each cursor's ledger is on one bookie.
_ON_ONE_BOOKIE = Striping(1, 1, 1)


async def test_healthy_cursors_open_within_seconds_while_a_bookie_hangs() -> None:
    """CHK-67: of 80 cursors on two bookies, those on the healthy one open; the others open when theirs is back."""

    async with running_cursor_scene(bookies=2) as scene:
        scene.log.striping = LedgerStriping(_ON_ONE_BOOKIE)
        table = await scene.open()
        names = [f"c{number:03}" for number in range(80)]
        for name in names:
            cursor = await table.create(name, at(5, -1), {})
            cursor.acknowledge(entries(5, 2))
            await cursor.wait_until_saved()
        table.abandon()
        ledgers = {name: (await scene.known(name)).ledger_id for name in names}
        hanging = scene.cluster["b0"]
        healthy = [name for name in names if not hanging.ledger(ledgers[name]).records]
        assert 20 < len(healthy) < 60
        hanging.hanging = {"read", "fence"}
        began = scene.clock.monotonic()
        table = await open_cursors(scene.log, await scene.client(), scene.options, scene.clock, SeededRandomness(9))
        while any(table.get(name) is None for name in healthy):
            await asyncio.sleep(0)
        assert scene.clock.monotonic() - began < 5.0
        with pytest.raises(BrokerError, match="can't be opened now"):
            await table.wait_until_open(next(name for name in names if name not in healthy))
        bring_back_bookies(scene)
        while table.unopened_cursors():
            await asyncio.sleep(0)
        assert all(cursor.is_acknowledged(at(5, 2)) for cursor in table.durable_cursors())


class Reads:
    """Reads in two slots that end when the test ends them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.slots = OpeningSlots(2, self.clock)
        self.running: dict[str, asyncio.Future[None]] = {}

    async def read(self, name: str) -> str:
        self.running[name] = asyncio.get_running_loop().create_future()
        try:
            await self.running[name]
        finally:
            del self.running[name]
        return name

    async def begin(self, *names: str, slice_s: float = FIRST_SLICE_S) -> list[asyncio.Task[str]]:
        tasks = [
            asyncio.create_task(self.slots.run_read(lambda name=name: self.read(name), slice_s))  # type: ignore[misc]
            for name in names
        ]
        await self.settle()
        return tasks

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_read_past_its_slice_is_cancelled_for_waiting_read() -> None:
    reads = Reads()
    first, second = await reads.begin("first", "second", slice_s=1.0)
    [third] = await reads.begin("third")
    assert list(reads.running) == ["first", "second"]
    await reads.advance(0.9)
    assert list(reads.running) == ["first", "second"]
    await reads.advance(0.2)
    # One read waits, so one is cancelled.
    assert list(reads.running) == ["second", "third"]
    with pytest.raises(TimeoutError):
        await first
    for name in ("second", "third"):
        reads.running[name].set_result(None)
    assert [await second, await third] == ["second", "third"]


async def test_read_past_its_slice_continues_while_no_read_waits() -> None:
    reads = Reads()
    [first] = await reads.begin("first")
    await reads.advance(100.0)
    await reads.begin("second", slice_s=1000.0)
    assert list(reads.running) == ["first", "second"]
    [third] = await reads.begin("third")
    await reads.advance(FIRST_SLICE_S)
    assert list(reads.running) == ["second", "third"]
    with pytest.raises(TimeoutError):
        await first
    third.cancel()
    await reads.settle()
    # The slots of cancelled reads are free again.
    await reads.begin("fourth")
    assert list(reads.running) == ["second", "fourth"]


@pytest.mark.parametrize("way", ["closed", "lost"])
@pytest.mark.parametrize("turns", [0, 200])
async def test_a_caller_that_waits_for_a_cursor_of_a_closed_table_is_refused(way: str, turns: int) -> None:
    """CHK-69: a caller that comes after the table was closed, in the same turn of the event loop or later."""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        subscriptions = subscriptions_of(scene, table)
        with pytest.raises(BrokerError, match="can't be opened now"):
            await table.wait_until_open("bad")
        if way == "closed":
            table.abandon()
        else:
            table._lose(TopicUnloaded("changed by another broker"))
        await scene.turns(turns)
        for wait_again in (True, False):
            with pytest.raises(TopicUnloaded):
                await within(table.wait_until_open("bad", wait_again=wait_again), "the refusal", 10.0)
        opened = OpenConsumer(subscription="bad", durable=True)
        with pytest.raises(TopicUnloaded):
            await within(subscriptions.subscribe(opened, SimpleNamespace(address="")), "the refusal", 10.0)


async def test_a_cursor_is_waited_for_only_while_the_subscriptions_are_open() -> None:
    """CHK-69: as by a peek. A caller that waits is refused when the table is closed."""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        subscriptions = subscriptions_of(scene, table)
        with pytest.raises(BrokerError) as raised:
            await subscriptions.wait_for_cursor("absent")
        assert raised.value.code == ErrorCode.SUBSCRIPTION_NOT_FOUND
        await subscriptions.create("open", EARLIEST)
        assert await subscriptions.wait_for_cursor("open") is table.get("open")
        waiting = asyncio.create_task(subscriptions.wait_for_cursor("bad"))
        await asyncio.sleep(0)
        await subscriptions.close()
        with pytest.raises(BrokerError, match="was closed by this broker"):
            await subscriptions.wait_for_cursor("open")
        table.abandon()
        with pytest.raises(TopicUnloaded):
            await within(waiting, "the refusal", 10.0)
