"""The protocol's error codes for errors of the broker.

Libraries decide by the code alone: after some codes they look up again and retry, after others they report an error to
the application. So each code is chosen by what the client should do, as Pulsar's brokers choose it.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import ServerError

__all__ = ["refusal_error", "server_error", "survives_send_error"]

# Prefixes of the client version in CONNECT.
_CPP: Final = "Pulsar-CPP"
_GO: Final = "Pulsar-Go"

_SERVER_ERRORS: Final[dict[int, ServerError]] = {
    ErrorCode.METADATA_ERROR: ServerError.METADATA_ERROR,
    ErrorCode.PERSISTENCE_ERROR: ServerError.PERSISTENCE_ERROR,
    # The client looks up again and retries.
    ErrorCode.SERVICE_NOT_READY: ServerError.SERVICE_NOT_READY,
    ErrorCode.CONSUMER_BUSY: ServerError.CONSUMER_BUSY,
    ErrorCode.PRODUCER_BUSY: ServerError.PRODUCER_BUSY,
    ErrorCode.PRODUCER_FENCED: ServerError.PRODUCER_FENCED,
    ErrorCode.TOPIC_NOT_FOUND: ServerError.TOPIC_NOT_FOUND,
    ErrorCode.SUBSCRIPTION_NOT_FOUND: ServerError.SUBSCRIPTION_NOT_FOUND,
    # A missing namespace or tenant: clients know topics only.
    ErrorCode.NOT_FOUND: ServerError.TOPIC_NOT_FOUND,
    ErrorCode.INVALID_TOPIC_NAME: ServerError.INVALID_TOPIC_NAME,
    ErrorCode.CHECKSUM_ERROR: ServerError.CHECKSUM_ERROR,
    ErrorCode.TOO_MANY_REQUESTS: ServerError.TOO_MANY_REQUESTS,
    ErrorCode.TOPIC_TERMINATED: ServerError.TOPIC_TERMINATED_ERROR,
    # The client reports an error: a retry would fail again.
    ErrorCode.ALREADY_EXISTS: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.NOT_ALLOWED: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.INVALID_ARGUMENT: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.MESSAGE_TOO_BIG: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.INCARNATION_CHANGED: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.STALE_EPOCH: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.UNSUPPORTED: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.CONFLICT: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.INCOMPATIBLE_SCHEMA: ServerError.INCOMPATIBLE_SCHEMA,
    ErrorCode.CONSUMER_ASSIGN_ERROR: ServerError.CONSUMER_ASSIGN_ERROR,
    # A producer that was open before retries after both. After the second one its pending messages fail.
    ErrorCode.BACKLOG_QUOTA_HOLD: ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR,
    ErrorCode.BACKLOG_QUOTA_EXCEEDED: ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION,
}


def server_error(code: int, about: str = "") -> ServerError:
    """`about`: as in `BrokerError`. A schema that is not valid is an incompatible one for clients, as in Pulsar."""
    if code == ErrorCode.INVALID_ARGUMENT and about == "schema":
        return ServerError.INCOMPATIBLE_SCHEMA
    return _SERVER_ERRORS.get(code, ServerError.UNKNOWN_ERROR)


def survives_send_error(client_version: str) -> bool:
    """Return whether the client's library handles SEND_ERROR for one entry.

    Go's library applies it to the whole producer: after NOT_ALLOWED_ERROR it ignores all later results and continues
    to publish, so its application never learns which messages are stored; after most other codes it closes the
    connection. If its producer is closed instead, it reopens it and resends the entry until the message times out. Then
    that message has failed, and later ones continue.
    """
    return not client_version.startswith(_GO)


def refusal_error(code: int, client_version: str) -> ServerError:
    """Return the code after which the library fails the message instead of resending it.

    The C++ library and those built on it (Python, Node.js) fail a message after one code only, CHECKSUM_ERROR. After
    any other they reconnect and resend it, ten times a second, for all producers of the connection. Other libraries
    fail it after NOT_ALLOWED_ERROR; after CHECKSUM_ERROR those that verify the checksum resend it.
    """
    return ServerError.CHECKSUM_ERROR if client_version.startswith(_CPP) else server_error(code)
