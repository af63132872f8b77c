"""The bases of the groups of methods, such as `admin.topics`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

from magnetar.admin._calls import AdminCalls

__all__ = ["AsyncGroup", "Run", "SyncGroup"]

T = TypeVar("T")
G = TypeVar("G")


class Run(Protocol):
    """Runs a coroutine on the client's event loop and returns its result."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class AsyncGroup:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls


class SyncGroup(Generic[G]):
    """Runs the methods of an asynchronous group."""

    def __init__(self, group: G, run: Run) -> None:
        self._group = group
        self._run = run
