"""What a gRPC status means: the one table between `TransportError`s and statuses.

    status                                    is met as
    any, with the mark and a code of ours     Rejected with that code: the service refused
    any, with the mark "failed"               Failed: the service broke off
    DEADLINE_EXCEEDED                         DeadlinePassed
    UNIMPLEMENTED                             ForeignServer: it knows no such service, or is no gRPC server (HTTP's 404)
    RESOURCE_EXHAUSTED                        Failed: gRPC's library refused a message
    all others                                Disconnected

The mark is the trailing metadata `magnetar-outcome`. Without it a status is the library's own, and says nothing about
what was done. None of them is NotReached: a request is handed to gRPC only on a connection that stands
(`connection.py`), and from then on it may have been sent.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.transport import Code, DeadlinePassed, Disconnected, Failed, ForeignServer, Rejected, TransportError

__all__ = ["FAILED", "met_as", "shortened", "status_of", "trailers"]

_MARK: Final = "magnetar-outcome"
# The mark of a service that broke off; that of a refusal is its code.
FAILED: Final = "failed"
_CODES: Final = {code.value: code for code in Code}
# What a message may take of the trailers: each byte may become three on the wire.
_MAX_MESSAGE: Final = 2_000


def status_of(code: Code) -> grpc.StatusCode:
    return grpc.StatusCode[code.name]


def trailers(outcome: str) -> tuple[tuple[str, str], ...]:
    return ((_MARK, outcome),)


def shortened(message: str) -> str:
    """As much of a message as fits trailers."""
    return message.encode("utf-8", "replace")[:_MAX_MESSAGE].decode("utf-8", "ignore")


def met_as(error: grpc.aio.AioRpcError, what: str, address: str) -> TransportError:
    mark = next((value for key, value in error.trailing_metadata() or () if key == _MARK), None)
    details = error.details() or ""
    if mark == FAILED:
        return Failed(details)
    if isinstance(mark, str) and mark in _CODES:
        return Rejected(_CODES[mark], details)
    said = f"{what} at {address}: {error.code().name.lower()}: {details}"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlinePassed(said)
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return ForeignServer(said)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Failed(said)
    return Disconnected(said)
