"""Several brokers in one process, with fake bookies and a metadata store in memory, and clients of all brokers.

async with running_brokers(2) as scene:
    scene["b1"].broker_session.ownership.list_owned()
    client = scene.client()
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from magnetar import aio
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.broker import Broker
from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.broker_pb2 import LookupAnswer, LookupRequest
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.randomness import SystemRandomness
from tests.registered_bookies import register_bookie
from tests.unit.bookie.honest_bookie import HonestBookie

__all__ = ["ClusterScene", "OneBroker", "kill", "running_brokers"]

_OPTIONS = {
    "managed_ledger_default_ensemble_size": 2,
    "managed_ledger_default_write_quorum": 2,
    "managed_ledger_default_ack_quorum": 2,
    "metadata_retry_seconds": 0.01,
}
T = TypeVar("T")


class OneBroker:
    """`b<number>`, which listens at `b<number>:6652` for brokers and clients alike, and at `out<number>:6652`, which
    it advertises as listener `external`."""

    def __init__(self, scene: ClusterScene, number: int, options: dict[str, Any]) -> None:
        self.broker_id = f"b{number}"
        self.address = f"b{number}:6652"
        self.external = f"out{number}:6652"
        # Its current session.
        self.store: MemoryStore | None = None
        self._scene = scene
        self.broker = Broker(
            self._session,
            scene.transport,
            [(scene.transport, self.address), (scene.transport, self.external)],
            scene.clock,
            SystemRandomness(),
            BrokerServiceSettings(**(_OPTIONS | options)),
            LedgerClientSettings(explicit_lac_interval_ms=0),
            broker_id=self.broker_id,
            peer_transport=scene.transport,
            advertised=[("internal", self.address), ("external", self.external)],
            cpu_seconds=lambda: 0.0,
        )

    @property
    def broker_session(self) -> BrokerSession:
        assert self.broker.session is not None
        return self.broker.session

    @property
    def ownership(self) -> BundleOwnership:
        return self.broker_session.ownership

    @property
    def session(self) -> MemoryStore:
        assert self.store is not None
        return self.store

    async def _session(self) -> MemoryStore:
        self.store = self._scene.metadata.connect()
        return self.store


class ClusterScene:
    def __init__(self, brokers: int, **options: Any) -> None:
        self.clock = SystemClock()
        self.metadata = MemoryServer(self.clock, session_timeout_s=60.0)
        self.transport = InProcessTransport(self.clock)
        self.bookies = [HonestBookie(f"bookie{number}", self.clock) for number in range(2)]
        self._options = options
        self.brokers = [OneBroker(self, number, options) for number in range(1, brokers + 1)]
        # A session of the test itself.
        self.registry = self.metadata.connect()

    def __getitem__(self, broker_id: str) -> OneBroker:
        return next(one for one in self.brokers if one.broker_id == broker_id)

    @property
    def service_url(self) -> str:
        return "magnetar://" + ",".join(one.address for one in self.brokers)

    def client(self, **options: Any) -> aio.Client:
        return aio.Client(self.service_url, _transport=self.transport, **options)

    def another(self, number: int, **options: Any) -> OneBroker:
        """Return another broker, which is not started."""
        self.brokers.append(OneBroker(self, number, self._options | options))
        return self.brokers[-1]

    async def lookup(self, at: str, topic: str, listener_name: str = "") -> LookupAnswer:
        """Return the answer of broker `at`."""
        connection = self.transport.connect(self[at].address)
        try:
            request = LookupRequest(topic=topic, listener_name=listener_name).SerializeToString()
            return LookupAnswer.FromString(await connection.call("lookup", request, timeout_s=60.0))
        finally:
            await connection.close()

    async def start(self) -> None:
        for bookie in self.bookies:
            await self.transport.listen(f"{bookie.bookie_id}:1", bookie)
            await register_bookie(self.registry, bookie.bookie_id, f"{bookie.bookie_id}:1")
        for one in self.brokers:
            await one.broker.start()

    async def close(self) -> None:
        for one in self.brokers:
            with suppress(TimeoutError):
                await one.broker.close()


async def kill(one: OneBroker) -> None:
    """Close the broker's listeners and stop its work, as if it were killed. Its metadata session stays."""
    session = one.broker_session
    if one.broker._session_follower is not None:
        one.broker._session_follower.cancel()
    for listener in one.broker._listeners:
        await listener.close()
    await session.ownership.close()
    session.topics.abort(TopicUnloaded("killed"))


@asynccontextmanager
async def running_brokers(brokers: int = 2, **options: Any) -> AsyncIterator[ClusterScene]:
    """Yield brokers that have started, and close them."""
    scene = ClusterScene(brokers, **options)
    await scene.start()
    try:
        yield scene
    finally:
        await scene.close()
