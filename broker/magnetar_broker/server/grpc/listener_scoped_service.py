"""What a broker answers to those who come to one of its listeners: the same as to everybody, but that addresses, where
the request asks for those of no listener by name, are those of this one.

So whoever reached a broker by its external address reaches the others, and bookies, by theirs, and need not know what
that listener is called.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos.admin_pb2 import TopicHomesRequest
from magnetar_protos.broker_pb2 import LookupRequest
from magnetar_protos.reading_pb2 import PlanRequest
from magnetar_wire.transport import Peer, Service, Stream

__all__ = ["ListenerScopedService"]

# The calls whose requests have a `listener_name`.
_ASKS: Final[dict[str, type[LookupRequest | TopicHomesRequest | PlanRequest]]] = {
    "lookup": LookupRequest,
    "admin.topic_homes": TopicHomesRequest,
    "admin.plan": PlanRequest,
}


class ListenerScopedService:
    """Is a magnetar_wire.transport.Service."""

    def __init__(self, service: Service, listener_name: str) -> None:
        self._service = service
        # In front of a request: of a field that comes twice the last one counts, so a name that is in the request does.
        self._in_front = {
            method: request(listener_name=listener_name).SerializeToString() for method, request in _ASKS.items()
        }

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return await self._service.call(peer, method, self._in_front.get(method, b"") + request)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        await self._service.stream(peer, method, stream)
