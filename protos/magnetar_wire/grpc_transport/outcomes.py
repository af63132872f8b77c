"""The meaning of a gRPC status: the one table between `TransportError`s and statuses.

    status                                    becomes
    any, with the mark and a code of ours     Rejected with that code: the service refused
    any, with the mark "failed"               Failed: the service failed
    DEADLINE_EXCEEDED                         DeadlinePassed
    UNIMPLEMENTED                             ForeignServer: it has no such service, or does not speak gRPC (HTTP's 404)
    RESOURCE_EXHAUSTED                        Failed: gRPC's library refused a message
    all others                                Disconnected

The mark is the trailing metadata `magnetar-outcome`. Without it a status comes from the library, and does not show what
was done. None of them is NotReached: a request is given to gRPC only on an established connection (`channel.py`),
and from then on it may have been sent.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.transport import Code, DeadlinePassed, Disconnected, Failed, ForeignServer, Rejected, TransportError

__all__ = ["FAILED", "make_trailers", "shorten", "to_status_code", "to_transport_error"]

_MARK: Final = "magnetar-outcome"
# The mark of a service that failed. The mark of a refusal is its code.
FAILED: Final = "failed"
# What gRPC's library reports of a stream that broke while it was written to.
_BROKEN_STREAM: Final = "Internal error from Core"
_CODES: Final = {code.value: code for code in Code}
# The maximum size of a message in the trailers: each byte may become three on the wire.
_MAX_MESSAGE_BYTES: Final = 2_000


def to_status_code(code: Code) -> grpc.StatusCode:
    """Return gRPC's status code for a refusal."""
    return grpc.StatusCode[code.name]


def make_trailers(outcome: str) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata with the mark."""
    return ((_MARK, outcome),)


def shorten(message: str) -> str:
    """Shorten a message to the limit of the trailers."""
    return message.encode("utf-8", "replace")[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore")


def to_transport_error(error: grpc.aio.AioRpcError, what: str, address: str) -> TransportError:
    """Return the error for the caller."""
    mark = next((value for key, value in error.trailing_metadata() or () if key == _MARK), None)
    details = error.details() or ""
    if mark == FAILED:
        return Failed(details)
    if isinstance(mark, str) and mark in _CODES:
        return Rejected(_CODES[mark], details)
    if details == _BROKEN_STREAM:
        return Disconnected(f"{what} at {address}: the connection is lost")
    text = f"{what} at {address}: {error.code().name.lower()}: {details}"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlinePassed(text)
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return ForeignServer(text)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Failed(text)
    return Disconnected(text)
