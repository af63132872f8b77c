"""The errors that a broker reports to a client.

    BrokerError                 with the `ErrorCode` that is sent
    ├── TopicUnloaded           a topic that this broker does not serve any more, or may not own any more
    │   └── RequestNotStarted   the same for a request that was not started: it can be sent again, to any broker
    │       ├── NotOwner        this broker does not own the topic or bundle of the request
    │       └── NamespaceChanged    a topic was not created, since its namespace was changed at the same time
    ├── DamagedCursor           a subscription whose stored state can't be read any more: an administrator resets it
    └── UnreadableEntry         an entry of a topic that will never be read
        ├── LostEntry           an entry that no bookie has any more
        └── DamagedEntry        bytes in the log that are not an entry

Errors of ledgers stay within the managed ledger, which translates them into these.
"""

from __future__ import annotations

from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode, Problem

__all__ = [
    "BrokerError",
    "DamagedCursor",
    "DamagedEntry",
    "LostEntry",
    "NamespaceChanged",
    "NotOwner",
    "RequestNotStarted",
    "TopicUnloaded",
    "UnreadableEntry",
]


class BrokerError(Exception):
    """The base of all errors that a broker reports."""

    def __init__(self, code: ErrorCode, text: str, about: str = "") -> None:
        """`about`: as in `Problem`."""
        super().__init__(text)
        self.code = code
        self.about = about

    @property
    def problem(self) -> Problem:
        return Problem(code=self.code, text=str(self), about=self.about)

    def again(self) -> BrokerError:
        """Return a copy, to raise the same error again: a traceback is tied to its object."""
        return BrokerError(self.code, str(self), self.about)


class TopicUnloaded(BrokerError):
    """A topic that this broker does not serve any more. Clients look it up again. Requests have no known outcome."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.SERVICE_NOT_READY, text)

    def again(self) -> TopicUnloaded:
        return TopicUnloaded(str(self))


class RequestNotStarted(TopicUnloaded):
    """A request that was not started and never will be."""

    def again(self) -> RequestNotStarted:
        return RequestNotStarted(str(self))


class NotOwner(RequestNotStarted):
    """A request to a broker that does not own the topic or bundle."""

    def again(self) -> NotOwner:
        return NotOwner(str(self))


class NamespaceChanged(RequestNotStarted):
    """A topic was not created: its namespace, which was read before, was changed at the same time."""

    def again(self) -> NamespaceChanged:
        return NamespaceChanged(str(self))


class DamagedCursor(BrokerError):
    """A subscription whose stored state is damaged on all bookies. An administrator has to reset or delete it."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.CHECKSUM_ERROR, text)

    def again(self) -> DamagedCursor:
        return DamagedCursor(str(self))


class UnreadableEntry(BrokerError):
    """An entry that will never be read. Readers of the log continue after it."""

    def __init__(self, code: ErrorCode, position: Position, reason: object) -> None:
        super().__init__(code, f"entry {position} can't be read: {reason}")
        self.position = position


class LostEntry(UnreadableEntry):
    """An entry that all bookies which should have it answered to lack."""

    def __init__(self, position: Position, reason: object) -> None:
        super().__init__(ErrorCode.PERSISTENCE_ERROR, position, reason)


class DamagedEntry(UnreadableEntry):
    """Bytes in the log that no broker has stored as an entry."""

    def __init__(self, position: Position, reason: object) -> None:
        super().__init__(ErrorCode.CHECKSUM_ERROR, position, reason)
