"""What an application may be told went wrong.

Whatever brokers, bookies and the metadata store go through, that is a trouble of the moment, or the outcome of what
somebody did on purpose: never an error that nobody can name, and never one that blames the application for what it did
not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar import exceptions
from magnetar.exceptions import MagnetarException
from tests.sim.invariants.history import Violation

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["told"]

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


def told(world: ServiceWorld, call: str, error: MagnetarException) -> None:
    """Of a call to a producer or consumer, or for one."""
    world.count(f"{call}: {type(error).__name__}")
    # A broker that can't know that it has lost a topic speaks of that topic as it was.
    rotten = isinstance(error, exceptions.ChecksumError) and bool(world.checker.history.destroyed)
    if isinstance(error, _NEVER) and not rotten and not world.service.everybody_owns:
        world.judged(_never, call, error)


def _never(call: str, error: MagnetarException) -> None:
    raise Violation("CON-3", f"{call}: {type(error).__name__}: {error}")
