"""The exceptions of the client.

`MagnetarException` is the base of all, and `PulsarException` another name for it. There is one class for each `Result`,
with the names of Pulsar's Python client, and a few more. Operations raise these; callbacks get the `Result` instead.
Classes described as "not raised by this client" exist so that code written for Pulsar's client can name them.
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
    "DecodeError",
    "EncodeError",
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
    "SchemaUnavailable",
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
    """Outcome of an operation. The numbers up to 100 are those of Pulsar's Python client."""

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
    EncodeError = 107
    DecodeError = 108
    SchemaUnavailable = 109


class MagnetarException(Exception):
    """The base of all exceptions of this client."""

    result: ClassVar[Result] = Result.UnknownError

    def error(self) -> Result:
        """Return the result that a callback would get."""
        return self.result


PulsarException = MagnetarException


class UnknownError(MagnetarException):
    """A failure of the broker without an error code of its own."""

    result = Result.UnknownError


class BrokerFailed(UnknownError):
    """An internal error of the broker: see its log. A retry would likely fail again."""

    result = Result.BrokerFailed


class InvalidConfiguration(MagnetarException, ValueError):
    """An option with an invalid value."""

    result = Result.InvalidConfiguration


class UnknownOption(InvalidConfiguration, TypeError):
    """An option name that does not exist."""


class Timeout(MagnetarException, TimeoutError):
    """An operation that took longer than its timeout. It may have been executed, be executed later, or never."""

    result = Result.Timeout


class LookupError(MagnetarException):
    """A failed lookup: no broker could name the topic's owner."""

    result = Result.LookupError


class ConnectError(MagnetarException):
    """A failed connection: no broker could be reached."""

    result = Result.ConnectError

    # What listens at the addresses of the service URL, if no broker has answered there. The message contains it.
    found: str | None = None


class ReadError(MagnetarException):
    """A failed read from a connection; not raised by this client."""

    result = Result.ReadError


class AuthenticationError(MagnetarException):
    """A request that the server rejected for lack of authentication."""

    result = Result.AuthenticationError


class AuthorizationError(MagnetarException):
    """A request that the server rejected for lack of permission."""

    result = Result.AuthorizationError


class ErrorGettingAuthenticationData(MagnetarException):
    """Missing authentication data; not raised by this client."""

    result = Result.ErrorGettingAuthenticationData


class BrokerMetadataError(MagnetarException):
    """A failure of the broker's metadata store, or a store that does not answer."""

    result = Result.BrokerMetadataError


class BrokerPersistenceError(MagnetarException):
    """A failure of the broker's bookies, or bookies that do not answer."""

    result = Result.BrokerPersistenceError


class ChecksumError(MagnetarException):
    """Data that does not match its checksum."""

    result = Result.ChecksumError


class ConsumerBusy(MagnetarException):
    """A subscription with a consumer that excludes this one."""

    result = Result.ConsumerBusy


class NotConnected(MagnetarException):
    """A missing connection to the broker at the moment."""

    result = Result.NotConnected


class AlreadyClosed(MagnetarException):
    """A call on a client, producer, consumer or reader that is closed."""

    result = Result.AlreadyClosed


class InvalidMessage(MagnetarException, ValueError):
    """A message that can't be encoded."""

    result = Result.InvalidMessage


class ConsumerNotInitialized(MagnetarException):
    """A consumer that is not open yet; not raised by this client."""

    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(MagnetarException):
    """A producer that is not open yet; not raised by this client."""

    result = Result.ProducerNotInitialized


class ProducerBusy(MagnetarException):
    """A producer name that is in use on the topic, or a shared producer on a topic that has an exclusive one."""

    result = Result.ProducerBusy


class TooManyLookupRequestException(MagnetarException):
    """A broker with too many requests at a time: try again later."""

    result = Result.TooManyLookupRequestException


class InvalidTopicName(MagnetarException, ValueError):
    """An invalid topic name."""

    result = Result.InvalidTopicName


class InvalidUrl(MagnetarException, ValueError):
    """An invalid service URL."""

    result = Result.InvalidUrl


class ServiceUnitNotReady(MagnetarException):
    """A topic that this broker does not serve, or not yet."""

    result = Result.ServiceUnitNotReady


class OperationNotSupported(MagnetarException):
    """An operation that is not supported."""

    result = Result.OperationNotSupported


class ProducerBlockedQuotaExceededError(MagnetarException):
    """A backlog at its quota: the producer can't be created until it has shrunk. Open producers wait."""

    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(MagnetarException):
    """A backlog at its quota, whose policy is `producer_exception`. The producer stays usable: send again later."""

    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(MagnetarException):
    """A full send queue: wait for results, or create the producer with `block_if_queue_full`."""

    result = Result.ProducerQueueIsFull


class MessageTooBig(MagnetarException):
    """A message whose payload, or whose properties and keys, are above the limit."""

    result = Result.MessageTooBig


class TopicNotFound(MagnetarException):
    """A topic that does not exist and is not created automatically."""

    result = Result.TopicNotFound


class SubscriptionNotFound(MagnetarException):
    """A subscription that does not exist."""

    result = Result.SubscriptionNotFound


class ConsumerNotFound(MagnetarException):
    """A consumer that does not exist; not raised by this client."""

    result = Result.ConsumerNotFound


class UnsupportedVersionError(MagnetarException):
    """An unsupported protocol version; not raised by this client."""

    result = Result.UnsupportedVersionError


class TopicTerminated(MagnetarException):
    """A topic that accepts no more messages: this one is not stored. It is ConnectError if the message was sent before
    its producer lost its connection: then it is unknown whether it is stored."""

    result = Result.TopicTerminated


class CryptoError(MagnetarException):
    """A failed encryption or decryption; not raised by this client."""

    result = Result.CryptoError


class IncompatibleSchema(MagnetarException):
    """A schema that is not compatible with the topic's: the text has the field and the rule."""

    result = Result.IncompatibleSchema


class ConsumerAssignError(MagnetarException):
    """The slots that a consumer of a Key_Shared subscription requests belong to another one."""

    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(MagnetarException):
    """A cumulative acknowledgement on a Shared subscription."""

    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(MagnetarException):
    """A missing transaction coordinator; not raised by this client."""

    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(MagnetarException):
    """A transaction in the wrong state; not raised by this client."""

    result = Result.InvalidTxnStatusError


class NotAllowedError(MagnetarException):
    """An operation that is not allowed."""

    result = Result.NotAllowedError


class TransactionConflict(MagnetarException):
    """A conflict of transactions; not raised by this client."""

    result = Result.TransactionConflict


class TransactionNotFound(MagnetarException):
    """A transaction that does not exist; not raised by this client."""

    result = Result.TransactionNotFound


class ProducerFenced(MagnetarException):
    """A producer that has lost its topic to another one, or an exclusive one on a topic that has others."""

    result = Result.ProducerFenced


class MemoryBufferIsFull(MagnetarException):
    """An exceeded memory limit of the client: a reader can't hold a message in chunks."""

    result = Result.MemoryBufferIsFull


class Interrupted(MagnetarException):
    """A wait that was interrupted."""

    result = Result.Interrupted


class NotFound(MagnetarException):
    """A tenant, namespace, bundle or broker that does not exist, for example."""

    result = Result.NotFound


class AlreadyExists(MagnetarException):
    """A name that is in use."""

    result = Result.AlreadyExists


class InvalidArgument(MagnetarException, ValueError):
    """An argument with an invalid value."""

    result = Result.InvalidArgument


class IncarnationChanged(MagnetarException):
    """A topic that was deleted and recreated: positions of the old one are not valid in the new one."""

    result = Result.IncarnationChanged


class StaleEpoch(MagnetarException):
    """A request from before a seek, or from before another consumer became active."""

    result = Result.StaleEpoch


class EncodeError(MagnetarException):
    """A value that the producer's schema can't encode: it is not sent."""

    result = Result.EncodeError


class DecodeError(MagnetarException):
    """A payload that does not match its schema version, or that the consumer's schema can't read."""

    result = Result.DecodeError


class SchemaUnavailable(DecodeError):
    """A payload whose schema version can't be read from the brokers at present."""

    result = Result.SchemaUnavailable
