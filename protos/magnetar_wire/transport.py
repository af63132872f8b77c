"""How processes talk: calls and streams of bytes, over whatever carries them.

The rules above know this interface only. gRPC carries it between machines, function calls within one process, and a
simulated network in the simulation, where a real one could not be made to lose exactly this answer.

**A call** is a request and its answer. **A stream** carries messages both ways, each way in order, each message once or
the stream breaks; either end may finish its own way and go on receiving. Each end has one sender and one receiver at a
time. The client sees the end when the service has returned: a service that fails behind its last message has failed. A
message is bytes, at most `MAX_TRANSPORT_BYTES` (sending a larger one is a mistake: ValueError); what is in it is the
two ends' affair. `send` waits while the other end can't keep up. An end that has gone silent is found by the
transport's own keep-alive, and is `Disconnected`.

**What a failure tells.** Unknown is not no:

    TransportError
    ├── NotReached        nobody was reached: nothing was or will be done
    ├── Disconnected      the connection broke: what was on its way may have been done, or not
    ├── DeadlinePassed    no answer in time: likewise, and it may still be done
    ├── Failed            the other end broke off in the middle: likewise
    │   └── ForeignServer     it is no process of ours: it knows none of our services
    └── Rejected          the other end answered with an error: it did not do it; `code` says why

Whoever receives a call or a stream is a `Service`. It raises `Refusal` for what it did not and will not do, and that
alone reaches the caller as `Rejected`. Any other error in it, a `Rejected` that it met on its own errands among them,
reaches the caller as `Failed`, without details, and is logged where it happened. `ServiceFailed` reaches it so, too,
and is not: its reason is known there.

Over gRPC a refusal carries a mark of our own beside its status, since gRPC's library answers with the same codes for
troubles of its own: UNAVAILABLE when a connection breaks under way, RESOURCE_EXHAUSTED for an answer that is too large
when all is done. A status without the mark is `Disconnected`, `DeadlinePassed` or `Failed`. `NotReached` is for what
was never handed to a connection; in doubt it is `Disconnected`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar_wire.limits import MAX_FRAME_BYTES

__all__ = [
    "MAX_TRANSPORT_BYTES",
    "Code",
    "Connection",
    "DeadlinePassed",
    "Disconnected",
    "Failed",
    "ForeignServer",
    "Listener",
    "NotReached",
    "Peer",
    "ProbingTransport",
    "Refusal",
    "Rejected",
    "Service",
    "ServiceFailed",
    "Stream",
    "Transport",
    "TransportError",
]

# A frame, and what a service says beside it.
MAX_TRANSPORT_BYTES: Final = MAX_FRAME_BYTES + 1_048_576


class Code(enum.Enum):
    """Why a request was refused. The names are those of gRPC's status codes that it travels with."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    FAILED_PRECONDITION = "failed_precondition"
    ABORTED = "aborted"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    UNIMPLEMENTED = "unimplemented"
    UNAVAILABLE = "unavailable"


class TransportError(Exception):
    """Whatever a transport raises."""


class NotReached(TransportError):
    """Nobody was reached: nothing was done, and nothing will be."""


class Disconnected(TransportError):
    """The connection broke. What was on its way may have been done, or not."""


class DeadlinePassed(TransportError):
    """No answer came in time. The request may have been done, or be done still, or not."""


class Failed(TransportError):
    """The other end broke off with an error of its own. The request may have been done, in part too."""


class ForeignServer(Failed):
    """A server answered that has none of our services. It may be a proxy, of which nobody knows what it did."""


class Rejected(TransportError):
    """The other end answered that it did not and will not do what was asked."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refusal(Exception):
    """What a service raises for what it did not and will not do. Its caller meets it as `Rejected`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServiceFailed(Exception):
    """What a service raises for what may have been done, or not, where it has told why already: its disk has failed,
    say, and it ends. Its caller meets it as `Failed`."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, for logs and for limits."""

    address: str


class Stream(Protocol):
    """One end of a stream."""

    in_process_api: object | None
    """What the service has put at its end for a client in the same process, which may call it instead of sending
    messages; None at the client's end where there is nothing of the kind, or another process between."""

    async def send(self, message: bytes) -> None:
        """Sends a message; waits while the other end is behind. Returning does not mean that it arrived."""

    async def receive(self) -> bytes | None:
        """The next message, or None when the other end has finished. Raises `Rejected` where it ended with an error.

        Cancelling it loses no message.
        """

    async def finish(self) -> None:
        """No more messages from this end. What was sent still arrives."""

    def cancel(self) -> None:
        """Ends the stream at once, both ways. The other end sees `Disconnected`."""


class Connection(Protocol):
    """A client's connection to one address."""

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """The answer to `request`. A caller that is cancelled leaves the outcome unknown."""

    def open_stream(self, method: str) -> Stream:
        """A new stream. Whether anybody is there shows when it is used."""

    def reset_backoff(self) -> None:
        """Word has come that somebody is there: no pause since an attempt that failed is waited out."""

    async def close(self) -> None:
        """Ends all calls and streams with `Disconnected`."""


class Service(Protocol):
    """What answers calls and streams."""

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        """Cancelled when the caller is gone."""

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        """Serves one stream; returning finishes it."""


class Listener(Protocol):
    """A service that can be reached."""

    @property
    def address(self) -> str:
        """Where: what was asked for, with the port that was chosen."""

    async def close(self) -> None:
        """Takes nothing new, cancels what is being served, and returns when all of it has ended."""


class Transport(Protocol):
    """What makes connections and takes them."""

    def connect(self, address: str) -> Connection:
        """A connection, made when first used and again after it broke."""

    async def listen(self, address: str, service: Service) -> Listener:
        """Has `service` answer at `address`; port 0 is any free one."""


class ProbingTransport(Transport, Protocol):
    """A transport that can tell whether a process is gone."""

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        """Whether no process listens at the address, as the machine there says itself: it refuses the connection. False
        for anything else: a time-out proves nothing."""
