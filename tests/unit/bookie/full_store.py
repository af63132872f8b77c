"""A metadata store without space, which refuses changes like the embedded one on a full disk."""

from __future__ import annotations

from typing import Any

from magnetar_metadata.errors import StoreFull
from magnetar_testing.metadata import MemoryStore

__all__ = ["FullStore"]


class FullStore:
    """Have the store refuse every `put` until there is space again."""

    def __init__(self, store: MemoryStore) -> None:
        self.refused = 0
        self._store = store
        self._put = store.put
        store.put = self._refuse  # type: ignore[method-assign, assignment]

    def free_space(self) -> None:
        self._store.put = self._put  # type: ignore[method-assign]

    async def _refuse(self, path: str, *_: Any, **__: Any) -> None:
        self.refused += 1
        raise StoreFull("the disk of the metadata store is full", path)
