"""Ids of new ledgers, drawn for all who wait together."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie.ledger.ledger_id_generator import LedgerIdGenerator
from magnetar_metadata.errors import NotSent
from tests.running import until


class Counter:
    """A counter whose changes wait until `release`."""

    def __init__(self) -> None:
        self.last = 0
        self.draws: list[int] = []
        self.fails: Exception | None = None
        self.ids = LedgerIdGenerator(self.draw)
        self._released = asyncio.Semaphore(0)

    async def draw(self, count: int) -> int:
        self.draws.append(count)
        await self._released.acquire()
        if self.fails is not None:
            raise self.fails
        self.last += count
        return self.last

    def release(self, draws: int = 1) -> None:
        for _ in range(draws):
            self._released.release()

    async def request(self, count: int) -> list[asyncio.Task[int]]:
        tasks = [asyncio.create_task(self.ids.generate_ledger_id()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks


@pytest.fixture
async def counter() -> Counter:
    return Counter()


async def test_concurrent_requests_share_the_next_counter_change(counter: Counter) -> None:
    """Not the one in flight, which may have read the counter before the request."""
    first = await counter.request(1)
    others = await counter.request(50)
    assert counter.draws == [1]
    counter.release(2)
    assert await asyncio.gather(*first, *others) == list(range(1, 52))
    assert counter.draws == [1, 50]


async def test_new_id_exceeds_all_ids_issued_before_the_request(counter: Counter) -> None:
    counter.release(3)
    given = [await counter.ids.generate_ledger_id()]
    counter.last += 10  # another process
    given.append(await counter.ids.generate_ledger_id())
    given.append(await counter.ids.generate_ledger_id())
    assert given == [1, 12, 13]


async def test_cancelled_counter_change_is_taken_over_by_next_waiter(counter: Counter) -> None:
    first, *others = await counter.request(4)
    assert counter.draws == [1]
    first.cancel()
    await until(lambda: len(counter.draws) == 2, "the next one draws")
    assert counter.draws == [1, 3]
    others[0].cancel()  # it draws, too
    await until(lambda: len(counter.draws) == 3, "the one after it draws")
    counter.release()
    assert await asyncio.gather(*others[1:]) == [1, 2]
    assert counter.draws == [1, 3, 2]
    assert first.cancelled()


async def test_cancelled_waiter_consumes_no_id(counter: Counter) -> None:
    first, second, third = await counter.request(3)
    second.cancel()
    await asyncio.sleep(0)
    counter.release(2)
    assert list(await asyncio.gather(first, third)) == [1, 2]
    assert counter.draws == [1, 1]


async def test_error_reaches_only_the_waiters_of_its_change(counter: Counter) -> None:
    """Each of a thousand must not wait for the store's timeout again, one after the other."""
    first, *others = await counter.request(3)
    counter.fails = NotSent("no connection")
    counter.release(2)
    for task in (first, *others):
        with pytest.raises(NotSent, match="no connection"):
            await task
    assert counter.draws == [1, 2]
    counter.fails = None
    counter.release()
    assert await counter.ids.generate_ledger_id() == 1
