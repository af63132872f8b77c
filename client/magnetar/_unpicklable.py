"""The error for pickling an object that holds connections: it says what to do instead."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

__all__ = ["Unpicklable"]


class Unpicklable:
    """A base class of clients, producers, consumers and readers."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} objects can't be pickled or copied, since they hold connections: pass on the "
            "service URL and the options, and create one in each process"
        )
