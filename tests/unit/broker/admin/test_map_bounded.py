"""Concurrency, failures and cancellation of `map_bounded`."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode


async def test_some_are_done_at_a_time_and_none_behind_one_that_failed() -> None:
    doing: dict[int, asyncio.Future[None]] = {}

    async def work(item: int) -> int:
        doing[item] = asyncio.get_running_loop().create_future()
        await doing[item]
        return item * item

    task = asyncio.create_task(map_bounded(range(6), work, 2))
    for first, second in ((0, 1), (2, 3)):
        await asyncio.sleep(0.01)
        assert list(doing)[-2:] == [first, second]
        doing[second].set_result(None)
        doing[first].set_result(None)
    await asyncio.sleep(0.01)
    doing[5].set_exception(BrokerError(ErrorCode.NOT_ALLOWED, "five"))
    await asyncio.sleep(0.01)
    assert not task.done()
    doing[4].set_result(None)
    with pytest.raises(BrokerError, match="five"):
        await task
    doing.clear()
    task = asyncio.create_task(map_bounded(range(9), work, 3))
    await asyncio.sleep(0.01)
    doing[2].set_exception(BrokerError(ErrorCode.NOT_ALLOWED, "two"))
    doing[1].set_exception(BrokerError(ErrorCode.NOT_ALLOWED, "one"))
    doing[0].set_result(None)
    with pytest.raises(BrokerError, match="one"):
        await task
    assert sorted(doing) == [0, 1, 2]
    assert await map_bounded([], work) == []


async def test_cancellation_cancels_running_tasks() -> None:
    ended: list[int] = []

    async def work(item: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    task = asyncio.create_task(map_bounded(range(9), work, 3))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [0, 1, 2]
