"""Message ids that a client has kept from before its topic was deleted and made again under the same name.

Ledger ids grow over the whole cluster, and a topic notes the highest one that there was when it was made. So an id that
is not above it was never one of this topic, and to take it for the place next to it would be to apply what was said of
another one.
"""

from __future__ import annotations

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.position import Position
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["another_incarnation", "is_of_another_incarnation"]


def is_of_another_incarnation(log: Log, ledger_id: int) -> bool:
    """A ledger id below 0 is before everything, in any incarnation."""
    return 0 <= ledger_id <= log.floor


def another_incarnation(log: Log, position: Position) -> BrokerError:
    return BrokerError(
        ErrorCode.INCARNATION_CHANGED,
        f"{position} is not a position of topic {log.name}: the topic was created after ledger {log.floor}, "
        "perhaps again under the same name. Use a message id of this topic, or earliest or latest",
    )
