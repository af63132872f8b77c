"""A whole broker in memory, and clients of Pulsar's protocol on the connections of the production code: no socket."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from magnetar_broker.server.pulsar.connection import PulsarConnection
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
        self.door = self.broker.door
        self.listener = PulsarListener(self.door, "")
        self.listener.address = PULSAR_ADDRESS
        self.broker.pulsar_listeners.append(self.listener)
        self.clients: list[PulsarClient] = []

    def raw_client(self, *, peer: str = "10.0.0.1") -> PulsarClient:
        """Has said nothing yet."""
        connection = PulsarConnection(self.door, self.listener)
        client = PulsarClient(connection, FakeTransport(connection, (peer, len(self.clients) + 1)))
        self.clients.append(client)
        return client

    async def pulsar_client(self, **connect: Any) -> PulsarClient:
        """One whose CONNECT was answered."""
        client = self.raw_client()
        await client.connect(**connect)
        return client

    async def wait_nothing_left(self, but: Iterable[PulsarClient] = ()) -> None:
        """Until what gone connections had is given back: memory, budgets, topics' producers and consumers."""
        kept = set(but)
        for client in self.clients:
            if client not in kept:
                client.cut()
        await until(lambda: not self._left_of_others(kept), "what gone connections had is given back")

    def _left_of_others(self, kept: set[PulsarClient]) -> bool:
        connections = {client.connection for client in kept}
        # None: the broker has ended.
        life = self.broker.session
        used = self.door.outboxes.queued_bytes + (0 if life is None else life.budget.used_bytes)
        gone = [client.connection for client in self.clients if client not in kept]
        return (
            set(self.listener.connections) != connections
            or any(one.tasks or one.producers or one.consumers for one in gone)
            or (not kept and bool(used))
            or (not kept and bool(self.door.unfinished.bytes))
        )


@asynccontextmanager
async def running_pulsar_broker(**options: Any) -> AsyncIterator[PulsarScene]:
    """Yield a broker that has started. At the end nothing of a connection may be left, and no error logged."""
    bugs = _Bugs()
    log = logging.getLogger("magnetar_broker")
    log.addHandler(bugs)
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
        log.removeHandler(bugs)
    assert not bugs.told, f"the broker met errors of its own: {bugs.told}"


class _Bugs(logging.Handler):
    """What is logged with a traceback, or as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        self.told.append(f"{record.getMessage()}\n{trace}")
