"""The call `schema`, and the memory of its answers.

An answer may have a megabyte, and one that its client does not read stays in memory until the call has ended. So the
answers in flight are bounded, of each host and together. Those above a bound are refused, and clients repeat the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.context import ServerContext
from magnetar_broker.server.grpc.lookup import decode_request, parse_topic_name
from magnetar_protos.broker_pb2 import ErrorCode, SchemaAnswer, SchemaRequest
from magnetar_wire.process.addresses import get_host
from magnetar_wire.transport import Peer

__all__ = ["SchemaAnswers"]

_MAX_BYTES: Final = 128 * 1024 * 1024
_MAX_BYTES_PER_HOST: Final = 16 * 1024 * 1024


class SchemaAnswers:
    def __init__(
        self, server: ServerContext, max_bytes: int = _MAX_BYTES, max_bytes_per_host: int = _MAX_BYTES_PER_HOST
    ) -> None:
        self._server = server
        self._max_bytes = max_bytes
        self._max_bytes_per_host = max_bytes_per_host
        # Of answers whose calls have not ended, by host and together.
        self._bytes_of: dict[str, int] = {}
        self.pending_bytes = 0

    async def get_schema(self, peer: Peer, session: BrokerSession, data: bytes) -> bytes:
        """Answer with a version of the topic's schema. Any broker knows it."""
        request, answer = decode_request(SchemaRequest, data), SchemaAnswer()
        try:
            with self._server.lookup_limit.hold():
                name = parse_topic_name(request.topic)
                version, schema = await session.schema_access.read(name, request.schema_version, request.incarnation)
            self._count(peer, schema.ByteSize())
            answer.schema_version = version
            answer.schema.CopyFrom(schema)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()

    def _count(self, peer: Peer, size_bytes: int) -> None:
        """Count an answer until its call has ended. Raises TOO_MANY_REQUESTS. A single one is always sent."""
        host = get_host(peer.address)
        of_host = self._bytes_of.get(host, 0)
        for what, pending_bytes, maximum in (
            (f"the host {host!r:.100} has not read", of_host, self._max_bytes_per_host),
            ("clients have not read", self.pending_bytes, self._max_bytes),
        ):
            if pending_bytes and pending_bytes + size_bytes > maximum:
                raise BrokerError(
                    ErrorCode.TOO_MANY_REQUESTS, f"{what} {pending_bytes:,} bytes of schemas: retry in a moment"
                )
        if peer.when_call_ends is None:
            return
        self._bytes_of[host] = of_host + size_bytes
        self.pending_bytes += size_bytes
        peer.when_call_ends(self._make_release(host, size_bytes))

    def _make_release(self, host: str, size_bytes: int) -> Callable[[], None]:
        def release() -> None:
            self.pending_bytes -= size_bytes
            self._bytes_of[host] -= size_bytes
            if not self._bytes_of[host]:
                del self._bytes_of[host]

        return release
