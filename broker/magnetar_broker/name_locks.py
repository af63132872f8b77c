"""Locks by name: work on one name at a time, and on different names at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

__all__ = ["NameLocks"]

K = TypeVar("K", bound=Hashable)


class NameLocks(Generic[K]):
    def __init__(self) -> None:
        # The lock of each name, with the number of its holder and waiters.
        self._locks: dict[K, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, name: K) -> AsyncIterator[None]:
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._locks[name][1] - 1
            if users:
                self._locks[name] = lock, users
            else:
                del self._locks[name]
