"""Running coroutines in tests, and waiting for conditions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GENEROUS_S = 60.0


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float = GENEROUS_S) -> T:
    """Run it on a loop of its own, and fail if it hangs.

    An async test needs no such wrapper. This is for tests that need several loops, processes, threads or signals, and
    for helpers that synchronous code calls.
    """

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await coroutine

    return asyncio.run(bounded())


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, timeout_s: float = GENEROUS_S) -> None:
    """Returns when the condition holds."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        assert asyncio.get_running_loop().time() < deadline, f"waited {timeout_s} s in vain until {what}"
        await asyncio.sleep(0.01)


async def within(awaitable: Awaitable[T], what: str, timeout_s: float = GENEROUS_S) -> T:
    """The awaitable's result, or a failure that names what did not come."""
    try:
        async with asyncio.timeout(timeout_s):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"waited {timeout_s} s in vain for {what}") from None
