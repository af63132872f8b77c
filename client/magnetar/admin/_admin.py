"""The administration clients: `Admin`, and `AsyncAdmin` for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from magnetar._connections.connection_pool import LazyGrpcTransport
from magnetar._connections.service_url import http_scheme
from magnetar._public_object import Unpicklable
from magnetar._threads.event_loop import background
from magnetar.admin._async_methods import (
    AsyncBrokers,
    AsyncClusters,
    AsyncNamespaces,
    AsyncReading,
    AsyncSchemas,
    AsyncSubscriptions,
    AsyncTenants,
    AsyncTopics,
)
from magnetar.admin._calls import AdminCalls
from magnetar.admin._sync_methods import Brokers, Clusters, Namespaces, Reading, Schemas, Subscriptions, Tenants, Topics
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = ["Admin", "AsyncAdmin"]


def _make_transport(service_url: str, ca_file: str) -> Transport:
    scheme = http_scheme(service_url)
    if not scheme:
        return LazyGrpcTransport()
    from magnetar.admin._http_transport import HttpTransport  # with ssl and http.client, which gRPC does not need

    return HttpTransport(tls=scheme == "https", ca_file=ca_file)


class AsyncAdmin(Unpicklable):
    """Administer a cluster through any of its brokers.

    async with AsyncAdmin("magnetar://localhost:6652") as admin:
        await admin.topics.create_partitioned("orders", 4)

    `service_url`: `magnetar://host:6652[,host:6652…]`, or `http://host:8080[,host:8080…]` for Pulsar's REST API, which
    brokers of Pulsar have, too; `https://` as well. `listener_name`: the listener of which plans name the bookies'
    addresses; empty: the internal one. `tls_trust_certs_file_path`: for `https://`, the certificates of the authorities
    to trust; empty: the system's.
    """

    def __init__(
        self,
        service_url: str,
        operation_timeout_seconds: float = 30,
        *,
        listener_name: str = "",
        tls_trust_certs_file_path: str = "",
        transport: Transport | None = None,
        _clock: Clock | None = None,
        _randomness: Randomness | None = None,
    ) -> None:
        self._url = service_url
        self._calls = AdminCalls(
            service_url,
            operation_timeout_seconds,
            lambda: transport or _make_transport(service_url, tls_trust_certs_file_path),
            _clock,
            _randomness,
            listener_name,
        )
        self.clusters = AsyncClusters(self._calls)
        self.tenants = AsyncTenants(self._calls)
        self.namespaces = AsyncNamespaces(self._calls)
        self.topics = AsyncTopics(self._calls)
        self.schemas = AsyncSchemas(self._calls)
        self.subscriptions = AsyncSubscriptions(self._calls)
        self.brokers = AsyncBrokers(self._calls)
        self.reading = AsyncReading(self._calls)

    def set_operation_timeout(self, seconds: float) -> None:
        """Set for how long operations that begin from now on are retried."""
        self._calls.set_operation_timeout(seconds)

    async def close(self) -> None:
        await self._calls.close()

    def __repr__(self) -> str:
        return f"AsyncAdmin({self._url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Admin(Unpicklable):
    """Administer a cluster through any of its brokers.

        with Admin("magnetar://localhost:6652") as admin:
            admin.topics.create_partitioned("orders", 4)

    Any thread may use it, and a process that was forked off goes on with it.
    """

    def __init__(
        self,
        service_url: str,
        operation_timeout_seconds: float = 30,
        *,
        listener_name: str = "",
        tls_trust_certs_file_path: str = "",
    ) -> None:
        asynchronous = AsyncAdmin(
            service_url,
            operation_timeout_seconds,
            listener_name=listener_name,
            tls_trust_certs_file_path=tls_trust_certs_file_path,
        )
        self._asynchronous = asynchronous
        self._closed = False
        background.enter(self)
        self.clusters = Clusters(asynchronous.clusters, background.run)
        self.tenants = Tenants(asynchronous.tenants, background.run)
        self.namespaces = Namespaces(asynchronous.namespaces, background.run)
        self.topics = Topics(asynchronous.topics, background.run)
        self.schemas = Schemas(asynchronous.schemas, background.run)
        self.subscriptions = Subscriptions(asynchronous.subscriptions, background.run)
        self.brokers = Brokers(asynchronous.brokers, background.run)
        self.reading = Reading(asynchronous.reading, background.run)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            background.run(self._asynchronous.close())
            background.leave(self)

    def __repr__(self) -> str:
        return f"Admin({self._asynchronous._url!r}{', closed' if self._closed else ''})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── around a fork: see magnetar/_threads/event_loop.py ──

    async def _suspend(self) -> None:
        await self._asynchronous._calls.suspend()

    def _resume(self) -> None:
        self._asynchronous._calls.resume()

    def _forked(self) -> None:
        """It has nothing but connections, so it goes on with others."""
        if not self._closed:
            self._asynchronous._calls.forked()
            background.enter(self)

    def _close_at_exit(self, timeout_s: float) -> None:
        if not self._closed:
            self._closed = True
            background.run(self._asynchronous.close(), timeout_s)
            background.leave(self)
