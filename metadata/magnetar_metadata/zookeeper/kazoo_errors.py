"""What each of kazoo's and ZooKeeper's errors means for a request.

Four groups. A refusal that the plan of a transaction can learn from, and that the interface has a class for. A refusal
for another reason (rights, quota, a malformed request): a definite no, as `Refused`. A request turned away unread:
`NotSent`. All else, whatever kazoo or a later ZooKeeper comes up with, is no answer: `OutcomeUnknown`. So nothing that
is not in a table here can pass for a success or for a no.
"""

from __future__ import annotations

from typing import Final

from kazoo import exceptions as kazoo

from magnetar_metadata.core.multi import Refusal
from magnetar_metadata.errors import (
    BadVersion,
    MetadataError,
    NoChildrenAllowed,
    NodeExists,
    NoNode,
    NotEmpty,
    NotSent,
    OutcomeUnknown,
    Refused,
)

_LEARNED: Final = {
    kazoo.NoNodeError: Refusal.NO_NODE,
    kazoo.BadVersionError: Refusal.BAD_VERSION,
    kazoo.NodeExistsError: Refusal.NODE_EXISTS,
    kazoo.NotEmptyError: Refusal.NOT_EMPTY,
    kazoo.NoChildrenForEphemeralsError: Refusal.NO_CHILDREN_ALLOWED,
}
_CLASSES: Final[dict[Refusal, type[Refused]]] = {
    Refusal.NO_NODE: NoNode,
    Refusal.BAD_VERSION: BadVersion,
    Refusal.NODE_EXISTS: NodeExists,
    Refusal.NOT_EMPTY: NotEmpty,
    Refusal.NO_CHILDREN_ALLOWED: NoChildrenAllowed,
}
_REFUSED: Final = (
    kazoo.BadArgumentsError,
    kazoo.EphemeralOnLocalSessionError,
    kazoo.InvalidACLError,
    kazoo.NoAuthError,
    kazoo.NotReadOnlyCallError,
    kazoo.QuotaExceededError,
    kazoo.UnimplementedError,
)
# The server says of these that it did not look at the request.
_TURNED_AWAY: Final = (kazoo.SessionMovedError, kazoo.ThrottledOpError)
# What stands in a failed multi's answer for the operations that were not to blame.
_BYSTANDERS: Final = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)


def refusal_of(error: BaseException) -> Refusal | None:
    return _LEARNED.get(type(error))


def refused(why: Refusal, path: str, index: int) -> Refused:
    return _CLASSES[why](f"{path!r}: ZooKeeper answered {why.value}", path, index)


def to_metadata_error(error: BaseException, path: str, index: int = 0) -> MetadataError:
    """What is raised for a request that came back with this."""
    why = refusal_of(error)
    if why is not None:
        return refused(why, path, index)
    if isinstance(error, _REFUSED):
        return Refused(f"{path!r}: ZooKeeper refused: {_name(error)}", path, index)
    if isinstance(error, _TURNED_AWAY):
        return NotSent(f"{path!r}: ZooKeeper rejected the request without executing it: {_name(error)}")
    return OutcomeUnknown(f"{path!r}: no answer from ZooKeeper: {_name(error)}")


def culprit(results: list[object]) -> tuple[int, BaseException] | None:
    """The operation that a failed multi failed for, and its error; None if it did not fail."""
    errors = [(place, result) for place, result in enumerate(results) if isinstance(result, BaseException)]
    for place, error in errors:
        if not isinstance(error, _BYSTANDERS):
            return place, error
    return errors[0] if errors else None


def _name(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
