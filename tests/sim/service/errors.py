"""The errors that an application may get.

For all faults of brokers, bookies and the metadata store, an error is transient, or results from an operation of
somebody: it is never an unknown one, and never one that blames the application for what it did not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar import exceptions
from magnetar.exceptions import MagnetarException
from tests.sim.invariants.history import Violation
from tests.sim.service.topic_incarnations import of_application

if TYPE_CHECKING:
    from tests.sim.service.history import ConsumerSeen
    from tests.sim.service.world import ServiceWorld

__all__ = ["check_error", "is_damaged"]

_NEVER: Final = (
    exceptions.UnknownError,
    exceptions.NotFound,
    exceptions.LookupError,
    exceptions.InvalidArgument,
    exceptions.InvalidMessage,
    exceptions.ChecksumError,
    exceptions.MessageTooBig,
    exceptions.OperationNotSupported,
)


def check_error(world: ServiceWorld, call: str, error: MagnetarException, consumer: ConsumerSeen | None = None) -> None:
    """A call to a producer or consumer, or for one, raised the error."""
    world.count(f"{call}: {type(error).__name__}")
    # A broker that can't know that it has lost a topic speaks of that topic as it was.
    rotten = (
        isinstance(error, exceptions.ChecksumError)
        and consumer is not None
        and is_damaged(world, consumer.topic, consumer.subscription)
    )
    if isinstance(error, _NEVER) and not rotten and not world.service.everybody_owns:
        world.judged(_never, call, error)


def is_damaged(world: ServiceWorld, topic: str, subscription: str) -> bool:
    """Whether a record was destroyed of the subscription's cursor, in some partition of the topic."""
    history = world.checker.history
    for ledger_id, _ in sorted(history.destroyed):
        owner, _, cursor = history.ledger(ledger_id).chain.partition(" ")
        if cursor == subscription and of_application(owner) == of_application(topic):
            return True
    return False


def _never(call: str, error: MagnetarException) -> None:
    raise Violation("CON-3", f"{call}: {type(error).__name__}: {error}")
