"""What a broker tells a client that went wrong.

    BrokerError           with the `ErrorCode` that travels
    ├── TopicUnloaded      the topic is served no more: another broker has it, or this one can't tell any more
    │   └── NothingDone   and what was asked for was not begun: it may be asked for again, here or elsewhere
    ├── DamagedCursor     the stored state of one subscription can't be read any more: an administrator moves it
    └── UnreadableEntry   an entry of a topic that will never be read
        ├── LostEntry     no bookie has it any more
        └── DamagedEntry  it can be read, and is no entry

What the ledgers raise stays within the managed ledger; what it passes on is one of these.
"""

from __future__ import annotations

from magnetar_broker.core.position import Position
from magnetar_protos.broker_pb2 import ErrorCode, Problem

__all__ = [
    "BrokerError",
    "DamagedCursor",
    "DamagedEntry",
    "LostEntry",
    "NothingDone",
    "TopicUnloaded",
    "UnreadableEntry",
]


class BrokerError(Exception):
    """What was asked for was not done."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def problem(self) -> Problem:
        return Problem(code=self.code, text=str(self))

    def again(self) -> BrokerError:
        """To be raised where the same is to be said more than once: a traceback is tied to its object."""
        return BrokerError(self.code, str(self))


class TopicUnloaded(BrokerError):
    """Whoever meets it looks the topic up again. What had no receipt is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.SERVICE_NOT_READY, text)

    def again(self) -> TopicUnloaded:
        return TopicUnloaded(str(self))


class NothingDone(TopicUnloaded):
    """It was not begun, and never will be."""

    def again(self) -> NothingDone:
        return NothingDone(str(self))


class DamagedCursor(BrokerError):
    """The stored state of one subscription is damaged on all bookies. It will not get better by itself."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.CHECKSUM_ERROR, text)

    def again(self) -> DamagedCursor:
        return DamagedCursor(str(self))


class UnreadableEntry(BrokerError):
    """An entry that will never be read. Readers of the log go on behind it."""

    def __init__(self, code: ErrorCode, position: Position, reason: object) -> None:
        super().__init__(code, f"entry {position} can't be read: {reason}")
        self.position = position


class LostEntry(UnreadableEntry):
    """All bookies that should have it have said that they don't."""

    def __init__(self, position: Position, reason: object) -> None:
        super().__init__(ErrorCode.PERSISTENCE_ERROR, position, reason)


class DamagedEntry(UnreadableEntry):
    """What stands at this place of the log is nothing that a broker has stored."""

    def __init__(self, position: Position, reason: object) -> None:
        super().__init__(ErrorCode.CHECKSUM_ERROR, position, reason)
