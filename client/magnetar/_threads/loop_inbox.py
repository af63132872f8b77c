"""Passes items from the application's threads to the client's event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["CallSoon", "LoopInbox"]

T = TypeVar("T")
CallSoon = Callable[[Callable[[], object]], object]


class LoopInbox(Generic[T]):
    """A list to which any thread adds, and which the loop empties.

    The loop is notified of the first item, and again when there are `size` items. Each other item costs an append.
    """

    def __init__(
        self,
        call_soon: CallSoon,
        on_first: Callable[[], object],
        on_full: Callable[[], object],
        size: int,
    ) -> None:
        """Both are called on the loop. `on_first` must lead to a call of `drain`."""
        self._call_soon = call_soon
        self._on_first = on_first
        self._on_full = on_full
        self._size = size
        self._items: list[T] = []
        # The loop was notified, and has not drained the items since.
        self._is_notified = False
        self._is_notified_full = False

    def add(self, item: T) -> None:
        # In this order: `drain` resets the flags before it copies the items.
        self._items.append(item)
        try:
            if not self._is_notified:
                self._is_notified = True
                self._call_soon(self._on_first)
            if len(self._items) >= self._size and not self._is_notified_full:
                self._is_notified_full = True
                self._call_soon(self._on_full)
        except BaseException:  # Ctrl-C: it is not known whether the loop was notified
            self._is_notified = self._is_notified_full = False
            raise

    def drain(self) -> list[T]:
        """Remove all items and return them. On the loop."""
        self._is_notified = self._is_notified_full = False
        items = self._items[:]
        del self._items[: len(items)]
        return items
