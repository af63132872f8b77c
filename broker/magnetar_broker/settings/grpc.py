"""How a broker's gRPC differs from a bookie's: it serves clients, of which there are many.

Each has a connection, and two streams on it.
"""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.grpc_transport.settings import GrpcSettings

__all__ = ["BrokerGrpcSettings"]


class BrokerGrpcSettings(GrpcSettings):
    grpc_max_connections: int = Field(default=4_096, gt=0)
    grpc_max_long_streams: int = Field(default=4_096, gt=0)
    grpc_max_long_streams_per_connection: int = Field(default=16, gt=0)
