"""The calls and streams of a broker's gRPC listeners.

    call   instance                             which process this is; always answered
    call   lookup, partitions, last_message     lookup.py
    call   schema                               schema_answers.py
    call   claim                                lookup.py; from other brokers
    call   admin.<name>, here.<name>            magnetar_broker/admin/admin_service.py; `here` from other brokers
    stream produce                              produce_stream.py
    stream consume                              consume_stream.py
    stream watch_topics                         topic_watch_stream.py

While the broker has no session with its metadata store, or is closing, it refuses all calls and streams but `instance`
as UNAVAILABLE: nothing was done, and the client retries, at this broker or another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.concurrency_limit import ConcurrencyLimit
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.server.context import ServerContext
from magnetar_broker.server.grpc.consume_stream import ConsumeStream
from magnetar_broker.server.grpc.lookup import (
    claim_bundle,
    get_last_message,
    get_partitions,
    look_up,
)
from magnetar_broker.server.grpc.produce_stream import ProduceStream
from magnetar_broker.server.grpc.schema_answers import SchemaAnswers
from magnetar_broker.server.grpc.topic_watch_stream import TopicWatchStream
from magnetar_broker.session_end import is_trusted
from magnetar_broker.topics.topic import Topic
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Peer, Refusal, Stream

__all__ = ["BrokerService"]

_ADMIN: Final = "admin."
_HERE: Final = "here."
# Concurrent claims. A broker whose claim is refused requests another broker.
_MAX_CLAIMS: Final = 1_024


class BrokerService:
    """Implements `magnetar_wire.transport.Service`."""

    def __init__(self, server: ServerContext, instance: bytes) -> None:
        self._server = server
        self._instance = instance
        self._schema_answers = SchemaAnswers(server)
        claim_limit = ConcurrencyLimit(_MAX_CLAIMS, _refuse_claim)
        self._calls: dict[str, Callable[[BrokerSession, bytes], Awaitable[bytes]]] = {
            "lookup": partial(look_up, server),
            "partitions": partial(get_partitions, server),
            "last_message": partial(get_last_message, server),
            "claim": partial(claim_bundle, claim_limit),
        }

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "instance":
            return self._instance
        session = self._session()
        if method.startswith(_ADMIN):
            return await session.admin.serve_client(method.removeprefix(_ADMIN), request, peer.address)
        if method.startswith(_HERE):
            return await session.admin.serve_broker(method.removeprefix(_HERE), request)
        if method == "schema":
            return await self._schema_answers.get_schema(peer, session, request)
        handler = self._calls.get(method)
        if handler is None:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no call {method!r:.100}")
        return await handler(session, request)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        session, settings = self._session(), self._server.settings
        serve = session.client_streams.serve
        if method == "produce":
            find_topic = partial(self._find_topic, session)
            await serve(ProduceStream(stream, find_topic, session.budget, settings, peer.address))
        elif method == "consume":
            await serve(
                ConsumeStream(
                    stream,
                    partial(self._find_topic, session),
                    address=peer.address,
                    settings=settings,
                    budget=self._server.outbox_budget,
                    counters=self._server.counters,
                )
            )
        elif method == "watch_topics":
            await serve(TopicWatchStream(stream, self._server))
        else:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no stream {method!r:.100}")

    async def _find_topic(
        self, session: BrokerSession, name: TopicName, incarnation: str, create: bool, *, to_publish: bool = False
    ) -> Topic:
        """Find a topic for a stream of this session, which may be over while the stream is still open."""
        if not is_trusted(session.store, self._server.clock):
            raise TopicUnloaded("its broker has lost its metadata session: look it up again")
        return await session.topics.find(name, incarnation, create, to_publish=to_publish)

    def _session(self) -> BrokerSession:
        try:
            return self._server.get_session()
        except TopicUnloaded as error:
            raise Refusal(Code.UNAVAILABLE, str(error)) from None


def _refuse_claim(maximum: int) -> Refusal:
    return Refusal(Code.RESOURCE_EXHAUSTED, f"{maximum} claims are in flight at this broker, the maximum: ask another")
