"""The transport's face: what makes gRPC connections and takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_wire.grpc_transport.connection import GrpcConnection
from magnetar_wire.grpc_transport.connection_probe import refuses_connections
from magnetar_wire.grpc_transport.quiet_grpc import INSTALL_TESTED, grpc
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.transport import NotReached, Service

if TYPE_CHECKING:
    from magnetar_wire.grpc_transport.listener import GrpcListener

__all__ = ["GrpcTransport"]


class GrpcTransport:
    """Holds nothing but its options: connections and listeners are closed by who made them.

    They belong to the loop that they were first used on. A process that has used gRPC may not be forked: children are
    started anew, as `subprocess` and multiprocessing's `spawn` do.
    """

    def __init__(self, options: GrpcSettings | None = None) -> None:
        self._options = options or GrpcSettings()

    def connect(self, address: str) -> GrpcConnection:
        return GrpcConnection(address, self._options)

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return await refuses_connections(address, timeout_s)

    async def listen(self, address: str, service: Service) -> GrpcListener:
        """Raises `NotReached`, also where this grpcio can't be used for a server."""
        # Imported here: a listener needs private parts of grpc.aio, which a client does without.
        try:
            from magnetar_wire.grpc_transport.listener import listen
        except ImportError as error:
            raise NotReached(f"a server can't use grpcio {grpc.__version__}: {error}: {INSTALL_TESTED}") from error
        return await listen(address, service, self._options)

    async def close(self) -> None:
        """There is nothing to close yet, and those who own a transport need not know."""
