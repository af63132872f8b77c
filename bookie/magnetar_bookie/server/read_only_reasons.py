"""Why a bookie takes no new entries: it is read-only for as long as there is a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["CONFIGURED", "FULL", "LEAVING", "OPERATOR", "STOPPING", "ReadOnlyReasons"]

OPERATOR: Final = "an operator requested it"
CONFIGURED: Final = "its configuration requires it"
FULL: Final = "its disk is full"
LEAVING: Final = "it is being decommissioned"
STOPPING: Final = "it is shutting down"


class ReadOnlyReasons:
    def __init__(self, on_change: Callable[[bool], object]) -> None:
        """`on_change` is called with each change of a reason, before those who listen."""
        self._on_change = on_change
        # In the order in which they came.
        self._reasons: dict[str, None] = {}
        self._listeners: dict[Callable[[], object], None] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def __contains__(self, reason: str) -> bool:
        return reason in self._reasons

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def set(self, reason: str, holds: bool) -> None:
        before = bool(self)
        if holds:
            self._reasons[reason] = None
        else:
            self._reasons.pop(reason, None)
        self._on_change(bool(self))
        if bool(self) is not before:
            for listener in list(self._listeners):
                listener()

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Calls it when there is a first reason or no more one; returns what ends that."""
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)
