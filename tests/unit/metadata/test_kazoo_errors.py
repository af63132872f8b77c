"""Every error that kazoo or ZooKeeper can come up with has a meaning, and none of them is success."""

from __future__ import annotations

import pytest
from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError

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
from magnetar_metadata.zookeeper.kazoo_errors import find_failed_operation, to_metadata_error

_DEFINITE: dict[type[BaseException], type[MetadataError]] = {
    kazoo.NoNodeError: NoNode,
    kazoo.BadVersionError: BadVersion,
    kazoo.NodeExistsError: NodeExists,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.NoChildrenForEphemeralsError: NoChildrenAllowed,
    kazoo.NoAuthError: Refused,
    kazoo.InvalidACLError: Refused,
    kazoo.QuotaExceededError: Refused,
    kazoo.BadArgumentsError: Refused,
    kazoo.UnimplementedError: Refused,
    kazoo.NotReadOnlyCallError: Refused,
    kazoo.EphemeralOnLocalSessionError: Refused,
    kazoo.SessionMovedError: NotSent,
    kazoo.ThrottledOpError: NotSent,
}


@pytest.mark.parametrize("code", sorted(kazoo.EXCEPTIONS))
def test_each_error_code_is_a_definite_no_or_unknown(code: int) -> None:
    kind = kazoo.EXCEPTIONS[code]
    error = to_metadata_error(kind(), "/a", 3)
    assert type(error) is _DEFINITE.get(kind, OutcomeUnknown)
    assert "/a" in str(error)
    if isinstance(error, Refused):
        assert (error.path, error.index) == ("/a", 3)


@pytest.mark.parametrize("error", [RuntimeError("Invalid error code"), KazooTimeoutError(), OSError(), ValueError()])
def test_errors_without_a_code_map_to_outcome_unknown(error: Exception) -> None:
    assert type(to_metadata_error(error, "/a")) is OutcomeUnknown


def test_a_failed_multi_is_blamed_on_the_operation_that_failed() -> None:
    rolled_back, beside, error = kazoo.RolledBackError(), kazoo.RuntimeInconsistency(), kazoo.BadVersionError()
    assert find_failed_operation([rolled_back, error, beside]) == (1, error)
    assert find_failed_operation([rolled_back, beside]) == (0, rolled_back)
    assert find_failed_operation(["/a", True, object()]) is None
