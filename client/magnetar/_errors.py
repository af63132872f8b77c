"""Errors of brokers and of the transport, as the exceptions that the application gets; and which are retryable."""

from __future__ import annotations

from typing import Final

from magnetar import exceptions
from magnetar.exceptions import ConnectError, MagnetarException
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Code, Rejected, TransportError

__all__ = ["check_request_size", "from_problem", "from_transport", "is_retryable", "may_reopen_consumer"]

_CLASSES: Final[dict[int, type[MagnetarException]]] = {
    ErrorCode.METADATA_ERROR: exceptions.BrokerMetadataError,
    ErrorCode.PERSISTENCE_ERROR: exceptions.BrokerPersistenceError,
    ErrorCode.SERVICE_NOT_READY: exceptions.ServiceUnitNotReady,
    ErrorCode.CONSUMER_BUSY: exceptions.ConsumerBusy,
    ErrorCode.PRODUCER_BUSY: exceptions.ProducerBusy,
    ErrorCode.PRODUCER_FENCED: exceptions.ProducerFenced,
    ErrorCode.TOPIC_NOT_FOUND: exceptions.TopicNotFound,
    ErrorCode.SUBSCRIPTION_NOT_FOUND: exceptions.SubscriptionNotFound,
    ErrorCode.NOT_FOUND: exceptions.NotFound,
    ErrorCode.ALREADY_EXISTS: exceptions.AlreadyExists,
    ErrorCode.INVALID_TOPIC_NAME: exceptions.InvalidTopicName,
    ErrorCode.NOT_ALLOWED: exceptions.NotAllowedError,
    ErrorCode.INVALID_ARGUMENT: exceptions.InvalidArgument,
    ErrorCode.CHECKSUM_ERROR: exceptions.ChecksumError,
    ErrorCode.MESSAGE_TOO_BIG: exceptions.MessageTooBig,
    ErrorCode.TOO_MANY_REQUESTS: exceptions.TooManyLookupRequestException,
    ErrorCode.INCARNATION_CHANGED: exceptions.IncarnationChanged,
    ErrorCode.STALE_EPOCH: exceptions.StaleEpoch,
    ErrorCode.TOPIC_TERMINATED: exceptions.TopicTerminated,
    ErrorCode.UNSUPPORTED: exceptions.OperationNotSupported,
    ErrorCode.INTERNAL_ERROR: exceptions.BrokerFailed,
    ErrorCode.CONFLICT: exceptions.NotAllowedError,
    ErrorCode.INCOMPATIBLE_SCHEMA: exceptions.IncompatibleSchema,
    ErrorCode.CONSUMER_ASSIGN_ERROR: exceptions.ConsumerAssignError,
    ErrorCode.BACKLOG_QUOTA_HOLD: exceptions.ProducerBlockedQuotaExceededError,
    ErrorCode.BACKLOG_QUOTA_EXCEEDED: exceptions.ProducerBlockedQuotaExceededException,
}
# The same request may succeed a moment later: the broker, its storage or metadata, or the connection has failed, or the
# topic has to wait.
_RETRYABLE: Final = (
    exceptions.UnknownError,
    exceptions.BrokerMetadataError,
    exceptions.BrokerPersistenceError,
    exceptions.ServiceUnitNotReady,
    exceptions.TooManyLookupRequestException,
    exceptions.ConnectError,
    # Until the backlog has shrunk.
    exceptions.ProducerBlockedQuotaExceededError,
)
# Not retryable in general, but a consumer that was open once is reopened after them.
_REOPEN: Final = (
    exceptions.ConsumerBusy,
    exceptions.ConsumerAssignError,
    exceptions.IncarnationChanged,
    exceptions.TopicNotFound,
    exceptions.Timeout,
)


def check_request_size(request: bytes, method: str) -> None:
    """Raise InvalidArgument for a request that the transport does not carry."""
    if len(request) > MAX_TRANSPORT_BYTES:
        raise exceptions.InvalidArgument(
            f"the request {method} has {len(request):,} bytes: at most {MAX_TRANSPORT_BYTES:,} are possible"
        )


def from_problem(problem: Problem) -> MagnetarException:
    """Return the exception for an error that a broker has answered."""
    return _CLASSES.get(problem.code, exceptions.UnknownError)(problem.text)


def from_transport(error: TransportError) -> MagnetarException:
    """Return the exception for a call or stream that failed, or that the server has rejected."""
    if isinstance(error, Rejected):
        if error.code is Code.UNIMPLEMENTED:
            return exceptions.OperationNotSupported(str(error))
        if error.code is Code.INVALID_ARGUMENT:
            return exceptions.InvalidArgument(str(error))
        if error.code is Code.PERMISSION_DENIED:
            return exceptions.AuthorizationError(str(error))
        if error.code is Code.UNAUTHENTICATED:
            return exceptions.AuthenticationError(str(error))
    return ConnectError(str(error))


def is_retryable(error: MagnetarException) -> bool:
    """Return whether the same request may succeed a moment later."""
    return isinstance(error, _RETRYABLE) and not isinstance(error, exceptions.BrokerFailed)


def may_reopen_consumer(error: MagnetarException) -> bool:
    """Return whether a consumer that was open, and was closed with this error, is reopened."""
    return is_retryable(error) or isinstance(error, _REOPEN)
