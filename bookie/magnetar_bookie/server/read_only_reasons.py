"""The reasons for which a bookie accepts no new entries. It is read-only as long as there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["CONFIGURED", "DECOMMISSION", "DISK_FULL", "OPERATOR", "SHUTDOWN", "ReadOnlyReasons"]

OPERATOR: Final = "an operator requested it"
CONFIGURED: Final = "its configuration requires it"
DISK_FULL: Final = "its disk is full"
DECOMMISSION: Final = "it is being decommissioned"
SHUTDOWN: Final = "it is shutting down"


class ReadOnlyReasons:
    def __init__(self, on_change: Callable[[bool], object]) -> None:
        """`on_change` is called at each change of a reason, before the listeners."""
        self._on_change = on_change
        # In the order in which they were set.
        self._reasons: dict[str, None] = {}
        self._listeners: dict[Callable[[], object], None] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def __contains__(self, reason: str) -> bool:
        return reason in self._reasons

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def set_reason(self, reason: str, is_set: bool) -> None:
        before = bool(self)
        if is_set:
            self._reasons[reason] = None
        else:
            self._reasons.pop(reason, None)
        self._on_change(bool(self))
        if bool(self) is not before:
            for listener in list(self._listeners):
                listener()

    def add_listener(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` when the first reason is set or the last one removed. Return a function that removes it."""
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)
