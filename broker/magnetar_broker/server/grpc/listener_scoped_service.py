"""The broker's service at a named listener: lookups that name no listener get addresses of this one.

So a client that reached a broker at its external address reaches the other brokers, and bookies, at theirs, and need
not know the name of that listener.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos.admin_pb2 import LookupTopicRequest, TopicOwnersRequest
from magnetar_protos.broker_pb2 import LookupRequest
from magnetar_protos.reading_pb2 import PlanRequest
from magnetar_wire.transport import Peer, Service, Stream

__all__ = ["ListenerScopedService"]

# The calls whose requests have a `listener_name`.
_REQUESTS: Final[dict[str, type[LookupRequest | LookupTopicRequest | TopicOwnersRequest | PlanRequest]]] = {
    "lookup": LookupRequest,
    "admin.lookup_topic": LookupTopicRequest,
    "admin.topic_owners": TopicOwnersRequest,
    "admin.plan": PlanRequest,
}


class ListenerScopedService:
    """Implements `magnetar_wire.transport.Service`."""

    def __init__(self, service: Service, listener_name: str) -> None:
        self._service = service
        # Prepended to the encoded request. Of a field that occurs twice the last counts, so a name in the request wins.
        self._prefixes = {
            method: request(listener_name=listener_name).SerializeToString() for method, request in _REQUESTS.items()
        }

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return await self._service.call(peer, method, self._prefixes.get(method, b"") + request)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        await self._service.stream(peer, method, stream)
