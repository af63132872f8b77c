"""What went wrong, in the public protocol's words.

Libraries go by the code alone: after some they look the topic up and try again, after others they give up and tell the
application. So what stands here is chosen by what a client should do, as Pulsar's own brokers choose it.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import ServerError

__all__ = ["gives_entries_up", "refusal_error", "server_error"]

# As clients call themselves when they connect.
_CPP: Final = "Pulsar-CPP"
_GO: Final = "Pulsar-Go"

_SERVER_ERRORS: Final[dict[int, ServerError]] = {
    ErrorCode.METADATA_ERROR: ServerError.METADATA_ERROR,
    ErrorCode.PERSISTENCE_ERROR: ServerError.PERSISTENCE_ERROR,
    # Tried again, after a fresh lookup.
    ErrorCode.SERVICE_NOT_READY: ServerError.SERVICE_NOT_READY,
    ErrorCode.CONSUMER_BUSY: ServerError.CONSUMER_BUSY,
    ErrorCode.PRODUCER_BUSY: ServerError.PRODUCER_BUSY,
    ErrorCode.PRODUCER_FENCED: ServerError.PRODUCER_FENCED,
    ErrorCode.TOPIC_NOT_FOUND: ServerError.TOPIC_NOT_FOUND,
    ErrorCode.SUBSCRIPTION_NOT_FOUND: ServerError.SUBSCRIPTION_NOT_FOUND,
    # Of namespaces and tenants: what clients know of is topics.
    ErrorCode.NOT_FOUND: ServerError.TOPIC_NOT_FOUND,
    ErrorCode.INVALID_TOPIC_NAME: ServerError.INVALID_TOPIC_NAME,
    ErrorCode.CHECKSUM_ERROR: ServerError.CHECKSUM_ERROR,
    ErrorCode.TOO_MANY_REQUESTS: ServerError.TOO_MANY_REQUESTS,
    ErrorCode.TOPIC_TERMINATED: ServerError.TOPIC_TERMINATED_ERROR,
    # Given up: it would fail again.
    ErrorCode.ALREADY_EXISTS: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.NOT_ALLOWED: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.INVALID_ARGUMENT: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.MESSAGE_TOO_BIG: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.INCARNATION_CHANGED: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.STALE_EPOCH: ServerError.NOT_ALLOWED_ERROR,
    ErrorCode.UNSUPPORTED: ServerError.NOT_ALLOWED_ERROR,
}


def server_error(code: int) -> ServerError:
    return _SERVER_ERRORS.get(code, ServerError.UNKNOWN_ERROR)


def gives_entries_up(client_version: str) -> bool:
    """Whether its library can be told by SEND_ERROR that an entry may not be stored.

    Go's takes that to be about the whole producer: after NOT_ALLOWED_ERROR it hears nothing more of it, and publishes
    on without its application ever learning of what is stored; after most others it closes the connection. Where its
    producer is closed instead, it opens it anew and sends the same again, until that message's time is over: it has
    failed then, and those behind it go on.
    """
    return not client_version.startswith(_GO)


def refusal_error(code: int, client_version: str) -> ServerError:
    """Of an entry that may not be stored, so that the library gives it up.

    Libraries in C++ and what stands on them (Python, Node.js) know one such error; after any other one they connect
    again and send the same, ten times a second, for all producers of that connection. Others go by NOT_ALLOWED_ERROR,
    and of CHECKSUM_ERROR those that look whether the entry is sound send it again.
    """
    return ServerError.CHECKSUM_ERROR if client_version.startswith(_CPP) else server_error(code)
