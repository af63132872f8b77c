"""What can go wrong, as the application meets it.

`MagnetarException` is the base of all, and `PulsarException` another name for it. There is one class for each `Result`,
with the names of Pulsar's Python client, and a few of our own. An operation raises; what is told to a callback is the
`Result`, the same as the class says.
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
    """How an operation ended. The numbers up to 100 are those of Pulsar's Python client."""

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
    """Whatever this package raises."""

    result: ClassVar[Result] = Result.UnknownError

    def error(self) -> Result:
        """As callbacks are told it."""
        return self.result


PulsarException = MagnetarException


class UnknownError(MagnetarException):
    """The broker failed in a way that has no name."""

    result = Result.UnknownError


class BrokerFailed(UnknownError):
    """The broker met an error of its own, of which its log tells: the same would fail again."""

    result = Result.BrokerFailed


class InvalidConfiguration(MagnetarException, ValueError):
    """An option's value is not allowed."""

    result = Result.InvalidConfiguration


class UnknownOption(InvalidConfiguration, TypeError):
    """There is no option of that name."""


class Timeout(MagnetarException, TimeoutError):
    """It took longer than it may. It may have been done, or be done still, or not."""

    result = Result.Timeout


class LookupError(MagnetarException):
    """No broker could tell who serves the topic."""

    result = Result.LookupError


class ConnectError(MagnetarException):
    """No broker could be reached."""

    result = Result.ConnectError

    # What was found at the addresses of the service URL, if none of them has answered as a broker; the message says it.
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
    """The broker's metadata store could not do it (now)."""

    result = Result.BrokerMetadataError


class BrokerPersistenceError(MagnetarException):
    """The broker's bookies could not do it (now)."""

    result = Result.BrokerPersistenceError


class ChecksumError(MagnetarException):
    """An entry's bytes are not what its checksum says."""

    result = Result.ChecksumError


class ConsumerBusy(MagnetarException):
    """The subscription has a consumer that this one can't stand beside."""

    result = Result.ConsumerBusy


class NotConnected(MagnetarException):
    """There is no connection to the broker at the moment."""

    result = Result.NotConnected


class AlreadyClosed(MagnetarException):
    """The client, producer, consumer or reader is closed."""

    result = Result.AlreadyClosed


class InvalidMessage(MagnetarException, ValueError):
    """A message that can't be encoded as it is."""

    result = Result.InvalidMessage


class ConsumerNotInitialized(MagnetarException):
    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(MagnetarException):
    result = Result.ProducerNotInitialized


class ProducerBusy(MagnetarException):
    """The topic has a producer of this name."""

    result = Result.ProducerBusy


class TooManyLookupRequestException(MagnetarException):
    """The broker is asked too much at a time."""

    result = Result.TooManyLookupRequestException


class InvalidTopicName(MagnetarException, ValueError):
    """No topic can be called that."""

    result = Result.InvalidTopicName


class InvalidUrl(MagnetarException, ValueError):
    """No address of a service."""

    result = Result.InvalidUrl


class ServiceUnitNotReady(MagnetarException):
    """The topic is not served there (any more), or not yet."""

    result = Result.ServiceUnitNotReady


class OperationNotSupported(MagnetarException):
    """What was asked for does not exist here (yet)."""

    result = Result.OperationNotSupported


class ProducerBlockedQuotaExceededError(MagnetarException):
    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(MagnetarException):
    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(MagnetarException):
    """As much is pending as may be: wait for receipts, or create the producer with `block_if_queue_full`."""

    result = Result.ProducerQueueIsFull


class MessageTooBig(MagnetarException):
    """A message, or what it has besides its payload, is above the limit."""

    result = Result.MessageTooBig


class TopicNotFound(MagnetarException):
    """There is no such topic, and it is not made by itself."""

    result = Result.TopicNotFound


class SubscriptionNotFound(MagnetarException):
    """There is no such subscription."""

    result = Result.SubscriptionNotFound


class ConsumerNotFound(MagnetarException):
    result = Result.ConsumerNotFound


class UnsupportedVersionError(MagnetarException):
    result = Result.UnsupportedVersionError


class TopicTerminated(MagnetarException):
    """The topic takes no messages any more."""

    result = Result.TopicTerminated


class CryptoError(MagnetarException):
    result = Result.CryptoError


class IncompatibleSchema(MagnetarException):
    result = Result.IncompatibleSchema


class ConsumerAssignError(MagnetarException):
    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(MagnetarException):
    """On a subscription that messages are dealt out of."""

    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(MagnetarException):
    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(MagnetarException):
    result = Result.InvalidTxnStatusError


class NotAllowedError(MagnetarException):
    """What was asked for can't be."""

    result = Result.NotAllowedError


class TransactionConflict(MagnetarException):
    result = Result.TransactionConflict


class TransactionNotFound(MagnetarException):
    result = Result.TransactionNotFound


class ProducerFenced(MagnetarException):
    """Another producer has taken this one's place."""

    result = Result.ProducerFenced


class MemoryBufferIsFull(MagnetarException):
    result = Result.MemoryBufferIsFull


class Interrupted(MagnetarException):
    """The wait was broken off."""

    result = Result.Interrupted


class NotFound(MagnetarException):
    """There is no such thing."""

    result = Result.NotFound


class AlreadyExists(MagnetarException):
    """There is one of that name."""

    result = Result.AlreadyExists


class InvalidArgument(MagnetarException, ValueError):
    """An argument's value can't be."""

    result = Result.InvalidArgument


class IncarnationChanged(MagnetarException):
    """The topic was deleted and made again: what is known of the old one says nothing of the new one."""

    result = Result.IncarnationChanged


class StaleEpoch(MagnetarException):
    """It belongs to what a seek or a take-over has ended."""

    result = Result.StaleEpoch
