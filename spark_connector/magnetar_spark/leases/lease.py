"""Calls that take leases, which must not be cancelled while they are under way.

A cancelled call may still reach its broker, and take the lease there after the reader has given its leases back; the
lease then lasts for its whole time. So a call goes on when its caller is cancelled, and a reader that ends waits for
the calls under way before it gives back what they may have taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

__all__ = ["LeaseCalls"]

_SETTLE_S: Final = 5.0

T = TypeVar("T")


class LeaseCalls:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The call's result. If the caller is cancelled the call goes on."""
        task = asyncio.get_running_loop().create_task(call)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Waits for the calls under way, and cancels those that don't return soon: leases that these take all the same
        end by themselves."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=_SETTLE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
