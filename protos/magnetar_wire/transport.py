"""The interface between processes: calls and streams of bytes, over any carrier.

The rules use this interface only. gRPC implements it between machines, function calls within one process, and a
simulated network in the simulation, which can lose exactly one answer.

**A call** is a request and its answer. **A stream** carries messages in both directions, each direction in order, each
message once, or the stream breaks. Either end may finish its own direction and continue to receive. Each end has one
sender and one receiver at a time. The client sees the end when the service has returned: if a service fails after its
last message, the stream has failed. A message is bytes, at most `MAX_TRANSPORT_BYTES` (sending a larger one is a bug:
ValueError); its content is the matter of the two ends. `send` waits while the other end can't keep up. The transport's
keep-alive detects a silent peer, which is `Disconnected`.

**What a failure means.** Unknown is not no:

    TransportError
    ├── NotReached        no process was reached: nothing was or will be done
    ├── Disconnected      the connection broke: requests in flight may have been done, or not
    ├── DeadlinePassed    no answer in time: the request may have been done, or may still be done, or not
    ├── Failed            the other end failed during the request: it may have been done, or not
    │   └── ForeignServer     not a process of ours: it has none of our services
    └── Rejected          the other end answered with an error: it did not do it; `code` is the reason

A `Service` receives calls and streams. It raises `Refusal` for a request that it did not and will not do; only that
reaches the caller as `Rejected`. Any other error of the service, for example a `Rejected` of its own calls, reaches the
caller as `Failed`, without details, and is logged by the server. `ServiceFailed` reaches the caller as `Failed`, too,
but is not logged: the service has reported the reason.

Over gRPC a refusal has a mark of ours beside its status, since gRPC's library uses the same codes for its own errors:
UNAVAILABLE if a connection breaks during a request, RESOURCE_EXHAUSTED for an answer that is too large, after
everything was done. A status without the mark is `Disconnected`, `DeadlinePassed` or `Failed`. `NotReached` is for
requests that were never given to a connection; in doubt it is `Disconnected`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
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

# A frame, and the other fields of a service's message.
MAX_TRANSPORT_BYTES: Final = MAX_FRAME_BYTES + 1_048_576


class Code(enum.Enum):
    """Why a request was refused. The names are those of gRPC's status codes."""

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
    """The base of all errors of a transport."""


class NotReached(TransportError):
    """No process was reached: nothing was done, and nothing will be done."""


class Disconnected(TransportError):
    """The connection broke. Requests in flight may have been done, or not."""


class DeadlinePassed(TransportError):
    """No answer arrived in time. The request may have been done, or may still be done, or not."""


class Failed(TransportError):
    """The other end failed with an error of its own. The request may have been done, also in part."""


class ForeignServer(Failed):
    """A server answered that has none of our services. It may be a proxy, so it is unknown what was done."""


class Rejected(TransportError):
    """The other end answered that it did not and will not do the request."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refusal(Exception):
    """Raised by a service for a request that it did not and will not do. The caller gets `Rejected`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServiceFailed(Exception):
    """Raised by a service for a request that may have been done or not, if the service has reported the reason already:
    for example, its disk has failed, and its process ends. The caller gets `Failed`.
    """


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a call or stream, for logs and limits."""

    address: str
    when_call_ends: Callable[[Callable[[], None]], None] | None = None
    """Of a call: its argument is called when the answer was sent, or the client is gone. None: the answer is not
    copied, or takes no memory while it is sent."""


class Stream(Protocol):
    """One end of a stream."""

    in_process_api: object | None
    """An object that the service sets at its end. A client in the same process finds it at the other end, and may call
    it instead of sending messages. None if the service has set none, or if it is in another process."""

    async def send(self, message: bytes) -> None:
        """Send a message, and wait while the other end can't keep up. The message may be in flight on return."""

    async def receive(self) -> bytes | None:
        """Return the next message, or None if the other end has finished. Raise `Rejected` if it ended with an error.

        Cancelling this loses no message.
        """

    async def finish(self) -> None:
        """Finish this end's direction. Messages that were sent still arrive."""

    def cancel(self) -> None:
        """End the stream at once, in both directions. The other end gets `Disconnected`."""


class Connection(Protocol):
    """A client's connection to one address."""

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """Return the answer to `request`. If the caller is cancelled, the outcome is unknown."""

    def open_stream(self, method: str) -> Stream:
        """Return a new stream. It connects when it is used."""

    def reset_backoff(self) -> None:
        """End the pause after a failed attempt to connect. To be called when the peer is known to be reachable."""

    async def close(self) -> None:
        """End all calls and streams with `Disconnected`."""


class Service(Protocol):
    """Answers calls and streams."""

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        """Return the answer. This is cancelled if the caller disconnects."""

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        """Serve one stream, which is finished on return."""


class Listener(Protocol):
    """A service that can be reached at an address."""

    @property
    def address(self) -> str:
        """The requested address, with the port that was chosen."""

    async def close(self) -> None:
        """Accept nothing more, cancel all calls and streams, and wait for their end."""


class Transport(Protocol):
    """Connects to addresses, and listens at them."""

    def connect(self, address: str) -> Connection:
        """Return a connection. It connects at its first use, and again after it broke."""

    async def listen(self, address: str, service: Service) -> Listener:
        """Serve `service` at the address. Port 0 chooses a free port."""


class ProbingTransport(Transport, Protocol):
    """A transport that can detect that a process has ended."""

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        """Return whether no process listens at the address: its machine refuses the connection.

        False is returned for anything else: a timeout proves nothing.
        """
