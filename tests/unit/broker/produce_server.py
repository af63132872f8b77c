"""A server of `produce` streams, on topics of fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from magnetar_broker.server.grpc.produce_stream import ProduceStream
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.topics import Topics
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Peer, Stream
from tests.produce_client import ProduceClient
from tests.unit.broker.fake_log import FakeLog
from tests.unit.broker.topic_scene import FakeCatalog, FakeStorage, topics_on

__all__ = ["ProduceServer", "running_produce_server"]


class ProduceServer:
    """Serve `produce` streams on topics of a FakeStorage."""

    def __init__(self, **options: Any) -> None:
        self.storage = FakeStorage(TopicSettings(**options))
        self.catalog = FakeCatalog()
        self.topics: Topics = topics_on(self.storage, self.catalog)
        self.budget = PublishBudget(self.storage.options.max_message_publish_buffer_size_in_mb << 20)
        self.sessions: list[ProduceStream] = []

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        raise AssertionError

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        session = ProduceStream(stream, self.topics.find, self.budget, self.storage.options, peer.address)
        self.sessions.append(session)
        await session.serve()

    def log(self, opening: int = -1) -> FakeLog:
        log: object = self.storage.opened[opening].log
        assert isinstance(log, FakeLog)
        return log


@asynccontextmanager
async def running_produce_server(**options: Any) -> AsyncIterator[tuple[ProduceServer, Callable[[], ProduceClient]]]:
    """Yield a server that listens, and the function that opens another stream to it."""
    server = ProduceServer(**options)
    transport = InProcessTransport()
    listener = await transport.listen("broker:1", server)
    connections = []

    def connect() -> ProduceClient:
        connection = transport.connect("broker:1")
        connections.append(connection)
        return ProduceClient(connection.open_stream("produce"))

    yield server, connect
    for connection in connections:
        await connection.close()
    await listener.close()
