"""The exceptions that the client raises.

`MagnetarException` is the base class of all, and `PulsarException` another name of it. There is one class for each
`Result`. The names are those of Pulsar's Python client, with a few additions. Operations raise an exception; callbacks
get its `Result`.
"""

from __future__ import annotations

import enum
from typing import ClassVar

__all__ = [
    "AlreadyClosed",
    "AlreadyExists",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerFailed",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "IncarnationChanged",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidArgument",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MagnetarException",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "NotFound",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Result",
    "ServiceUnitNotReady",
    "StaleEpoch",
    "SubscriptionNotFound",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnknownOption",
    "UnsupportedVersionError",
]


class Result(enum.Enum):
    """The result of an operation. The numbers up to 100 are those of Pulsar's Python client."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45
    NotFound = 101
    AlreadyExists = 102
    InvalidArgument = 103
    IncarnationChanged = 104
    StaleEpoch = 105
    BrokerFailed = 106


class MagnetarException(Exception):
    """The base class of all exceptions that the client raises."""

    result: ClassVar[Result] = Result.UnknownError

    def error(self) -> Result:
        """Return the result that a callback would get."""
        return self.result


PulsarException = MagnetarException


class UnknownError(MagnetarException):
    """The broker failed in a way for which there is no other class."""

    result = Result.UnknownError


class BrokerFailed(UnknownError):
    """The broker has a bug, which its log describes. The same request would fail again."""

    result = Result.BrokerFailed


class InvalidConfiguration(MagnetarException, ValueError):
    """An option's value is not allowed."""

    result = Result.InvalidConfiguration


class UnknownOption(InvalidConfiguration, TypeError):
    """There is no option of this name."""


class Timeout(MagnetarException, TimeoutError):
    """The time limit is over. Whether the request was carried out, or will be, is unknown."""

    result = Result.Timeout


class LookupError(MagnetarException):
    """No broker could answer which broker owns the topic."""

    result = Result.LookupError


class ConnectError(MagnetarException):
    """No broker could be reached."""

    result = Result.ConnectError

    # What listens at the addresses of the service URL, if no broker has answered there. The message contains it.
    found: str | None = None


class ReadError(MagnetarException):
    result = Result.ReadError


class AuthenticationError(MagnetarException):
    result = Result.AuthenticationError


class AuthorizationError(MagnetarException):
    result = Result.AuthorizationError


class ErrorGettingAuthenticationData(MagnetarException):
    result = Result.ErrorGettingAuthenticationData


class BrokerMetadataError(MagnetarException):
    """The broker's metadata store has failed, or is not available at the moment."""

    result = Result.BrokerMetadataError


class BrokerPersistenceError(MagnetarException):
    """The broker's bookies have failed, or are not available at the moment."""

    result = Result.BrokerPersistenceError


class ChecksumError(MagnetarException):
    """The bytes of an entry do not match its checksum."""

    result = Result.ChecksumError


class ConsumerBusy(MagnetarException):
    """The subscription has another consumer, and its type or that of this consumer allows only one."""

    result = Result.ConsumerBusy


class NotConnected(MagnetarException):
    """There is no connection to the broker at the moment."""

    result = Result.NotConnected


class AlreadyClosed(MagnetarException):
    """The client, producer, consumer or reader is closed."""

    result = Result.AlreadyClosed


class InvalidMessage(MagnetarException, ValueError):
    """The message can't be encoded."""

    result = Result.InvalidMessage


class ConsumerNotInitialized(MagnetarException):
    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(MagnetarException):
    result = Result.ProducerNotInitialized


class ProducerBusy(MagnetarException):
    """The topic has a producer of this name."""

    result = Result.ProducerBusy


class TooManyLookupRequestException(MagnetarException):
    """The broker has too many requests at the moment."""

    result = Result.TooManyLookupRequestException


class InvalidTopicName(MagnetarException, ValueError):
    """The topic name is not valid."""

    result = Result.InvalidTopicName


class InvalidUrl(MagnetarException, ValueError):
    """The service URL is not valid."""

    result = Result.InvalidUrl


class ServiceUnitNotReady(MagnetarException):
    """The broker does not own the topic, or can't serve it yet."""

    result = Result.ServiceUnitNotReady


class OperationNotSupported(MagnetarException):
    """The operation, option or argument is not supported."""

    result = Result.OperationNotSupported


class ProducerBlockedQuotaExceededError(MagnetarException):
    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(MagnetarException):
    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(MagnetarException):
    """Too much is pending: wait for results, or create the producer with `block_if_queue_full`."""

    result = Result.ProducerQueueIsFull


class MessageTooBig(MagnetarException):
    """The payload, or the properties and keys, of a message exceed the limit."""

    result = Result.MessageTooBig


class TopicNotFound(MagnetarException):
    """The topic does not exist, and is not created automatically."""

    result = Result.TopicNotFound


class SubscriptionNotFound(MagnetarException):
    """The subscription does not exist."""

    result = Result.SubscriptionNotFound


class ConsumerNotFound(MagnetarException):
    result = Result.ConsumerNotFound


class UnsupportedVersionError(MagnetarException):
    result = Result.UnsupportedVersionError


class TopicTerminated(MagnetarException):
    """The topic was terminated, and accepts no messages any more."""

    result = Result.TopicTerminated


class CryptoError(MagnetarException):
    result = Result.CryptoError


class IncompatibleSchema(MagnetarException):
    result = Result.IncompatibleSchema


class ConsumerAssignError(MagnetarException):
    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(MagnetarException):
    """The subscription is Shared, so its messages can only be acknowledged individually."""

    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(MagnetarException):
    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(MagnetarException):
    result = Result.InvalidTxnStatusError


class NotAllowedError(MagnetarException):
    """The request is not allowed."""

    result = Result.NotAllowedError


class TransactionConflict(MagnetarException):
    result = Result.TransactionConflict


class TransactionNotFound(MagnetarException):
    result = Result.TransactionNotFound


class ProducerFenced(MagnetarException):
    """Another producer has taken over from this one."""

    result = Result.ProducerFenced


class MemoryBufferIsFull(MagnetarException):
    result = Result.MemoryBufferIsFull


class Interrupted(MagnetarException):
    """The wait was interrupted."""

    result = Result.Interrupted


class NotFound(MagnetarException):
    """The object of an administrative request does not exist."""

    result = Result.NotFound


class AlreadyExists(MagnetarException):
    """An object of this name exists."""

    result = Result.AlreadyExists


class InvalidArgument(MagnetarException, ValueError):
    """The value of an argument is not valid."""

    result = Result.InvalidArgument


class IncarnationChanged(MagnetarException):
    """The topic was deleted and recreated. Message ids and pending messages of the old one are void."""

    result = Result.IncarnationChanged


class StaleEpoch(MagnetarException):
    """The request belongs to an epoch that a seek or another consumer's takeover has ended."""

    result = Result.StaleEpoch
