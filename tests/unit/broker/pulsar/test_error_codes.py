"""What went wrong, in the protocol's codes: libraries go by these alone."""

from __future__ import annotations

import pytest

from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import ServerError

# What Pulsar 4's broker answers in such a case (BrokerServiceException.getClientErrorCode).
_AS_PULSAR = {
    "ERROR_CODE_UNSPECIFIED": "UNKNOWN_ERROR",
    "UNKNOWN_ERROR": "UNKNOWN_ERROR",
    "INTERNAL_ERROR": "UNKNOWN_ERROR",
    "METADATA_ERROR": "METADATA_ERROR",
    "PERSISTENCE_ERROR": "PERSISTENCE_ERROR",
    "SERVICE_NOT_READY": "SERVICE_NOT_READY",
    "CONSUMER_BUSY": "CONSUMER_BUSY",
    "PRODUCER_BUSY": "PRODUCER_BUSY",
    "PRODUCER_FENCED": "PRODUCER_FENCED",
    "TOPIC_NOT_FOUND": "TOPIC_NOT_FOUND",
    "SUBSCRIPTION_NOT_FOUND": "SUBSCRIPTION_NOT_FOUND",
    "NOT_FOUND": "TOPIC_NOT_FOUND",
    "INVALID_TOPIC_NAME": "INVALID_TOPIC_NAME",
    "CHECKSUM_ERROR": "CHECKSUM_ERROR",
    "TOO_MANY_REQUESTS": "TOO_MANY_REQUESTS",
    "TOPIC_TERMINATED": "TOPIC_TERMINATED_ERROR",
    "ALREADY_EXISTS": "NOT_ALLOWED_ERROR",
    "NOT_ALLOWED": "NOT_ALLOWED_ERROR",
    "INVALID_ARGUMENT": "NOT_ALLOWED_ERROR",
    "MESSAGE_TOO_BIG": "NOT_ALLOWED_ERROR",
    "INCARNATION_CHANGED": "NOT_ALLOWED_ERROR",
    "STALE_EPOCH": "NOT_ALLOWED_ERROR",
    "UNSUPPORTED": "NOT_ALLOWED_ERROR",
    "CONFLICT": "NOT_ALLOWED_ERROR",
    "INCOMPATIBLE_SCHEMA": "INCOMPATIBLE_SCHEMA",
    "CONSUMER_ASSIGN_ERROR": "CONSUMER_ASSIGN_ERROR",
    "BACKLOG_QUOTA_HOLD": "PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR",
    "BACKLOG_QUOTA_EXCEEDED": "PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION",
}
# What libraries do when a producer or consumer that was open is reopened: after these both Java's (4.0) and C++'s
# (isRetriableError, isResultRetryable) go on trying.
_TRIED_AGAIN = {"UNKNOWN_ERROR", "METADATA_ERROR", "PERSISTENCE_ERROR", "SERVICE_NOT_READY"}


@pytest.mark.parametrize("name", ErrorCode.keys())
def test_each_error_has_the_code_that_pulsars_brokers_choose(name: str) -> None:
    """WIRE-1."""
    assert ServerError.Name(server_error(ErrorCode.Value(name))) == _AS_PULSAR[name]


def test_transient_errors_are_retried_by_every_client_library() -> None:
    """A topic that moves, a store that is away, bookies that fail: none of it ends a producer or a consumer. WIRE-1."""
    for name in ("SERVICE_NOT_READY", "METADATA_ERROR", "PERSISTENCE_ERROR", "INTERNAL_ERROR", "UNKNOWN_ERROR"):
        assert ServerError.Name(server_error(ErrorCode.Value(name))) in _TRIED_AGAIN
    assert server_error(ErrorCode.UNSUPPORTED) not in map(ServerError.Value, _TRIED_AGAIN)


def test_an_invalid_schema_is_an_incompatible_one() -> None:
    """WIRE-1."""
    assert server_error(ErrorCode.INVALID_ARGUMENT, "schema") == ServerError.INCOMPATIBLE_SCHEMA


def test_a_code_that_nobody_knows_is_an_unknown_error() -> None:
    assert server_error(10_000) == ServerError.UNKNOWN_ERROR
