"""Whether a request may have changed something before it failed.

SERVICE_NOT_READY promises that nothing was done, so that clients repeat the request. A request that acts in several
steps may fail in that way after the first of them: a namespace is marked, and then the owner of one of its topics can't
be reached. So each step that may change something is noted (`note_change`), in whichever task of the request, and what
serves the request (`watch_changes`) reports such a failure as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["BegunChanges", "note_change", "watch_changes"]


class BegunChanges:
    def __init__(self) -> None:
        self.may_be_made = False

    def describe_failure(self, error: BrokerError) -> BrokerError:
        """Return the error to report."""
        if not self.may_be_made or error.code != ErrorCode.SERVICE_NOT_READY:
            return error
        return BrokerError(ErrorCode.UNKNOWN_ERROR, f"it may have been done completely, partly or not at all: {error}")


_watched: Final[ContextVar[BegunChanges | None]] = ContextVar("begun changes", default=None)


@contextmanager
def watch_changes() -> Iterator[BegunChanges]:
    """Note the changes of a request, also in tasks that begin in the block."""
    begun = BegunChanges()
    before = _watched.set(begun)
    try:
        yield begun
    finally:
        _watched.reset(before)


def note_change() -> None:
    """Something may be changed from now on, or was changed."""
    begun = _watched.get()
    if begun is not None:
        begun.may_be_made = True
