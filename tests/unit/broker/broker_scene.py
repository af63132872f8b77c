"""A whole broker in one process, on honest bookies and metadata in memory; administrators and clients reach it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.broker import Broker
from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.topic_name import TopicName
from tests.registered_bookies import register_bookie
from tests.unit.bookie.honest_bookie import HonestBookie

__all__ = ["URL", "BrokerScene", "running_broker"]

_ADDRESS = "broker:6652"
# Of the brokers beside another one.
_numbers = itertools.count(2)
URL = f"magnetar://{_ADDRESS}"
T = TypeVar("T")


class BrokerScene:
    def __init__(
        self,
        *,
        add_entry_timeout_seconds: float = 5.0,
        pulsar: bool = False,
        beside: BrokerScene | None = None,
        **options: Any,
    ) -> None:
        """`pulsar`: also listen for Pulsar's protocol, at a free port. `beside`: a scene of the same cluster.
        `options`: the broker's settings."""
        self.clock = SystemClock()
        self.metadata: MemoryServer = beside.metadata if beside else MemoryServer(self.clock, session_timeout_s=60.0)
        self.transport: InProcessTransport = beside.transport if beside else InProcessTransport(self.clock)
        self.bookies = [] if beside else [HonestBookie(f"b{number}", self.clock) for number in range(2)]
        number = next(_numbers) if beside else 1
        self.address = address = f"broker{number}:6652" if beside else _ADDRESS
        striping = {
            "managed_ledger_default_ensemble_size": 2,
            "managed_ledger_default_write_quorum": 2,
            "managed_ledger_default_ack_quorum": 2,
        }
        # Its present session.
        self.store: MemoryStore | None = None
        self.broker = Broker(
            self._session,
            self.transport,
            [(self.transport, address)],
            self.clock,
            SystemRandomness(),
            BrokerServiceSettings(**(striping | {"metadata_retry_seconds": 0.01} | options)),
            LedgerClientSettings(explicit_lac_interval_ms=0, add_entry_timeout_seconds=add_entry_timeout_seconds),
            broker_id=f"b/{number}",
            peer_transport=self.transport,
            pulsar_listeners=[("", "127.0.0.1:0")] if pulsar else [],
        )
        self.admin = AsyncAdmin(f"magnetar://{address}", transport=self.transport)

    @property
    def broker_session(self) -> BrokerSession:
        assert self.broker.session is not None
        return self.broker.session

    def client(self, **options: Any) -> aio.Client:
        return aio.Client(URL, _transport=self.transport, **options)

    async def take_topic(self, name: TopicName) -> None:
        """Open the storage of a topic of this broker as another broker does, and close it."""
        session = self.broker_session
        storage = session.topics._opener.get_storage(name)
        policies = await session.catalog.check_topic(name)
        rival = await storage.open(name, policies=policies)
        await rival.close(BrokerError(ErrorCode.SERVICE_NOT_READY, "it was only a test"))

    async def start(self) -> None:
        registry = self.metadata.connect()
        for bookie in self.bookies:
            await self.transport.listen(f"{bookie.bookie_id}:1", bookie)
            await register_bookie(registry, bookie.bookie_id, f"{bookie.bookie_id}:1")
        await self.broker.start()

    async def close(self) -> None:
        await self.admin.close()
        await self.broker.close()

    async def _session(self) -> MemoryStore:
        self.store = self.metadata.connect()
        return self.store


@asynccontextmanager
async def running_broker(**options: Any) -> AsyncIterator[BrokerScene]:
    """Yield a broker that has started, and close it."""
    scene = BrokerScene(**options)
    await scene.start()
    try:
        yield scene
    finally:
        with suppress(TimeoutError):
            await scene.close()
