"""The meaning of kazoo's and ZooKeeper's errors for a request.

There are four groups. Refusals that a transaction's plan can learn from have their own classes. Refusals for other
reasons (permissions, quota, a malformed request) are a definite no: `Refused`. A request that the server rejected
unread is `NotSent`. Everything else, including errors of later versions, is no answer: `OutcomeUnknown`. So an error
that is not in a table here never counts as a success or as a no.
"""

from __future__ import annotations

from typing import Final

from kazoo import exceptions as kazoo

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
from magnetar_metadata.zookeeper.multi_plan import Refusal

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
# With these, the server reports that it has not processed the request.
_TURNED_AWAY: Final = (kazoo.SessionMovedError, kazoo.ThrottledOpError)
# The results, in a failed multi, of the operations that did not cause the failure.
_BYSTANDERS: Final = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)


def to_refusal(error: BaseException) -> Refusal | None:
    return _LEARNED.get(type(error))


def refused(why: Refusal, path: str, index: int) -> Refused:
    return _CLASSES[why](f"{path!r}: ZooKeeper answered {why.value}", path, index)


def to_metadata_error(error: BaseException, path: str, index: int = 0) -> MetadataError:
    """Return the error to raise for a request that failed with `error`."""
    why = to_refusal(error)
    if why is not None:
        return refused(why, path, index)
    if isinstance(error, _REFUSED):
        return Refused(f"{path!r}: ZooKeeper refused: {_name(error)}", path, index)
    if isinstance(error, _TURNED_AWAY):
        return NotSent(f"{path!r}: ZooKeeper rejected the request without executing it: {_name(error)}")
    return OutcomeUnknown(f"{path!r}: no answer from ZooKeeper: {_name(error)}")


def find_failed_operation(results: list[object]) -> tuple[int, BaseException] | None:
    """Return the index and the error of the operation that made a multi fail, or None if it did not fail."""
    errors = [(index, result) for index, result in enumerate(results) if isinstance(result, BaseException)]
    for index, error in errors:
        if not isinstance(error, _BYSTANDERS):
            return index, error
    return errors[0] if errors else None


def _name(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
