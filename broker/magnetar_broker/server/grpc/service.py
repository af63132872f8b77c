"""What a broker answers: calls and streams by their names.

    stream produce          produce_stream.py
    stream consume          consume_stream.py
    call   lookup, partitions, last_message     lookup.py
    call   admin.<name>     broker/magnetar_broker/admin/admin_service.py
    call   here.<name>      the same between brokers
    call   claim            bundle_claims.py: of other brokers
    call   instance         which process this is; answered always

A broker that has no session with its metadata store, or is closing, refuses all the rest as UNAVAILABLE: nothing was
done, and the client tries again, here or elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from magnetar_broker.server.grpc.bundle_claims import BundleClaims
from magnetar_broker.server.grpc.lookup import Finding
from magnetar_wire.transport import Code, Peer, Refusal, Stream

__all__ = ["BrokerService", "Serving"]

_ADMIN: Final = "admin."
_HERE: Final = "here."


class Serving(Protocol):
    """What there is while the broker serves."""

    finding: Finding
    claiming: BundleClaims

    async def admin(self, method: str, request: bytes) -> bytes: ...

    async def here(self, method: str, request: bytes) -> bytes: ...

    async def produce(self, peer: Peer, stream: Stream) -> None: ...

    async def consume(self, peer: Peer, stream: Stream) -> None: ...


class BrokerService:
    """Is a magnetar_wire.transport.Service."""

    def __init__(self, serving: Callable[[], Serving | None], instance: bytes) -> None:
        self._serving = serving
        self._instance = instance

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "instance":
            return self._instance
        serving = self._now()
        if method.startswith(_ADMIN):
            return await serving.admin(method.removeprefix(_ADMIN), request)
        if method.startswith(_HERE):
            return await serving.here(method.removeprefix(_HERE), request)
        finding = serving.finding
        calls: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "lookup": finding.lookup,
            "partitions": finding.partitions,
            "last_message": finding.last_message,
            "claim": serving.claiming.claim,
        }
        if method not in calls:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no call {method!r:.100}")
        return await calls[method](request)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        serving = self._now()
        if method == "produce":
            await serving.produce(peer, stream)
        elif method == "consume":
            await serving.consume(peer, stream)
        else:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no stream {method!r:.100}")

    def _now(self) -> Serving:
        serving = self._serving()
        if serving is None:
            raise Refusal(
                Code.UNAVAILABLE, "the broker serves nothing at the moment: it starts, ends, or has lost its session"
            )
        return serving
