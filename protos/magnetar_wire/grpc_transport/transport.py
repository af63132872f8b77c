"""The transport over gRPC: creates connections and listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_wire.grpc_transport.connection import GrpcConnection
from magnetar_wire.grpc_transport.connection_probe import refuses_connections
from magnetar_wire.grpc_transport.grpc_library import INSTALL_TESTED, grpc
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.transport import NotReached, Service

if TYPE_CHECKING:
    from magnetar_wire.grpc_transport.listener import GrpcListener

__all__ = ["GrpcTransport"]


class GrpcTransport:
    """A `Transport` over gRPC. It holds its settings only: connections and listeners are closed by their owners.

    They belong to the event loop of their first use. A process that has used gRPC must not be forked: start children as
    `subprocess` and multiprocessing's `spawn` do.
    """

    def __init__(self, settings: GrpcSettings | None = None) -> None:
        self._settings = settings or GrpcSettings()

    def connect(self, address: str) -> GrpcConnection:
        return GrpcConnection(address, self._settings)

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return await refuses_connections(address, timeout_s)

    async def listen(self, address: str, service: Service) -> GrpcListener:
        """Start a listener. Raises `NotReached`, also if this version of grpcio can't be used for a server."""
        # Imported late: a listener uses private parts of grpc.aio, which a client doesn't need.
        try:
            from magnetar_wire.grpc_transport.listener import listen
        except ImportError as error:
            raise NotReached(f"a server can't use grpcio {grpc.__version__}: {error}: {INSTALL_TESTED}") from error
        return await listen(address, service, self._settings)

    async def close(self) -> None:
        """Do nothing. It exists for owners that close any kind of transport."""
