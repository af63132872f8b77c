"""What brokers and the transport say went wrong, as the application meets it; and what may pass by itself."""

from __future__ import annotations

from typing import Final

from magnetar import exceptions
from magnetar.exceptions import ConnectError, MagnetarException
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.transport import Code, Rejected, TransportError

__all__ = ["ends_no_consumer", "from_problem", "from_transport", "is_passing"]

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
}
# Troubles of the moment: of the broker, of what it stands on, or of the way there.
_PASSING: Final = (
    exceptions.UnknownError,
    exceptions.BrokerMetadataError,
    exceptions.BrokerPersistenceError,
    exceptions.ServiceUnitNotReady,
    exceptions.TooManyLookupRequestException,
    exceptions.ConnectError,
)
# What ends an opening of a consumer, and may go well the next time though it is no trouble of the moment by its nature.
_GO_ON: Final = (
    exceptions.ConsumerBusy,
    exceptions.IncarnationChanged,
    exceptions.TopicNotFound,
    exceptions.Timeout,
)


def from_problem(problem: Problem) -> MagnetarException:
    return _CLASSES.get(problem.code, exceptions.UnknownError)(problem.text)


def from_transport(error: TransportError) -> MagnetarException:
    """A refusal is the broker's word: it knows no such method, takes no more streams."""
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


def is_passing(error: MagnetarException) -> bool:
    """The same may go well a moment later."""
    return isinstance(error, _PASSING) and not isinstance(error, exceptions.BrokerFailed)


def ends_no_consumer(error: MagnetarException) -> bool:
    """One that was open is opened anew."""
    return is_passing(error) or isinstance(error, _GO_ON)
