"""A broker in memory, and clients of Pulsar's protocol on its production connections, without sockets."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from magnetar_broker.server.pulsar.listener import PulsarListener
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene
from tests.unit.broker.pulsar.fake_transport import FakeTransport
from tests.unit.broker.pulsar.pulsar_client import PulsarClient

__all__ = ["PULSAR_ADDRESS", "PulsarScene", "running_pulsar_broker"]

PULSAR_ADDRESS = "broker:6650"
T = TypeVar("T")


class PulsarScene(BrokerScene):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.context = self.broker.pulsar_context
        self.listener = PulsarListener(self.context, "")
        self.listener.address = PULSAR_ADDRESS
        self.broker.pulsar_listeners.append(self.listener)
        self.clients: list[PulsarClient] = []

    def raw_client(self, *, peer: str = "10.0.0.1") -> PulsarClient:
        """Return a client that has sent nothing yet."""
        connection = self.listener.make_connection()
        client = PulsarClient(connection, FakeTransport(connection, (peer, len(self.clients) + 1)))
        self.clients.append(client)
        return client

    async def pulsar_client(self, **connect: Any) -> PulsarClient:
        """Return a client whose CONNECT was answered."""
        client = self.raw_client()
        await client.connect(**connect)
        return client

    async def wait_nothing_left(self, but: Iterable[PulsarClient] = ()) -> None:
        """Close all clients except `but`, and wait until they occupy no memory, budgets, producers or consumers."""
        open_clients = set(but)
        for client in self.clients:
            if client not in open_clients:
                client.cut()
        await until(lambda: not self._left_of_others(open_clients), "closed connections occupy nothing")

    def _left_of_others(self, open_clients: set[PulsarClient]) -> bool:
        connections = {client.connection for client in open_clients}
        session = self.broker.session  # None: the broker is closed
        used = self.context.server.outbox_budget.queued_bytes + (0 if session is None else session.budget.used_bytes)
        closed = [client for client in self.clients if client not in open_clients]
        return (
            set(self.listener.connections) != connections
            or any(one.tasks or one.producers or one.consumers for one in closed)
            or (not open_clients and bool(used))
            or (not open_clients and bool(self.context.incomplete_frames.bytes))
        )


@asynccontextmanager
async def running_pulsar_broker(**options: Any) -> AsyncIterator[PulsarScene]:
    """Yield a started broker. At the end its connections must occupy nothing, and no error may be logged."""
    errors = _LoggedErrors()
    log = logging.getLogger("magnetar_broker")
    log.addHandler(errors)
    try:
        scene = PulsarScene(**options)
        await scene.start()
        try:
            yield scene
            await scene.wait_nothing_left()
        finally:
            with suppress(TimeoutError):
                await scene.close()
    finally:
        log.removeHandler(errors)
    assert not errors.texts, f"the broker logged errors: {errors.texts}"


class _LoggedErrors(logging.Handler):
    """Records errors and tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        self.texts.append(f"{record.getMessage()}\n{trace}")
