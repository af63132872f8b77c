"""Many questions to brokers at once, but not all that there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

__all__ = ["some_at_a_time"]

_AT_A_TIME: Final = 32

T = TypeVar("T")
R = TypeVar("R")


async def some_at_a_time(ask: Callable[[T], Awaitable[R]], things: Iterable[T]) -> list[R]:
    """What is answered about each of them, in their order. The first failure ends the others."""
    room = asyncio.Semaphore(_AT_A_TIME)

    async def one(thing: T) -> R:
        async with room:
            return await ask(thing)

    tasks = [asyncio.ensure_future(one(thing)) for thing in things]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
