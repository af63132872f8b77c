"""What applications acknowledge, on its way to the I/O loop: a list that any thread puts in, and the loop empties.

The loop is told of the first, and again when there are as many as may gather; the others cost no more than being put in
a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    def __init__(
        self,
        post: Callable[[Callable[[], object]], object],
        on_first: Callable[[], object],
        on_full: Callable[[], object],
        size: int,
    ) -> None:
        """Both are called on the loop. `on_first` sees to it that `drain` is called before long."""
        self._post = post
        self._on_first = on_first
        self._on_full = on_full
        self._size = size
        self._items: list[T] = []
        # The loop was told, and has not come since.
        self._told = False
        self._told_full = False

    def put(self, item: T) -> None:
        # In this order: `drain` takes the marks away before it looks at the items.
        self._items.append(item)
        try:
            if not self._told:
                self._told = True
                self._post(self._on_first)
            if len(self._items) >= self._size and not self._told_full:
                self._told_full = True
                self._post(self._on_full)
        except BaseException:  # Ctrl-C: whether the loop was told is not known
            self._told = self._told_full = False
            raise

    def drain(self) -> list[T]:
        self._told = self._told_full = False
        items = self._items[:]
        del self._items[: len(items)]
        return items
