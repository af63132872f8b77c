"""What can be set about the gRPC transport."""

from __future__ import annotations

from pydantic import Field, model_validator

from magnetar_wire.configuration import Configuration
from magnetar_wire.transport import MAX_TRANSPORT_BYTES

__all__ = ["GrpcSettings"]


class GrpcSettings(Configuration):
    """Names begin with `grpc_`, since a process has these among its other options."""

    # Seconds after which an attempt to connect has failed.
    grpc_connect_timeout_s: float = Field(default=5.0, gt=0)
    # Milliseconds for which calls fail at once after the first failed attempt to connect. The pause doubles with each
    # further failure, up to grpc_reconnect_backoff_max_ms. Minimum: 100.
    grpc_reconnect_backoff_min_ms: int = Field(default=100, ge=100)  # gRPC takes no less
    # Maximum pause between two attempts to connect, in milliseconds.
    grpc_reconnect_backoff_max_ms: int = Field(default=1_000, ge=100)
    # Milliseconds without received data after which a connection is pinged. Client and server both ping.
    grpc_keepalive_time_ms: int = Field(default=10_000, gt=0)
    # Milliseconds that the peer has to answer a keepalive ping. Then the connection is closed: a silent peer is
    # detected after grpc_keepalive_time_ms plus this time.
    grpc_keepalive_timeout_ms: int = Field(default=8_000, gt=0)
    # Minimum interval of a client's pings, in milliseconds. A server closes the connection of a client that repeatedly
    # pings more often.
    grpc_min_ping_interval_ms: int = Field(default=1_000, ge=0)

    # Maximum number of connections of a listener. Further connections are closed.
    grpc_max_connections: int = Field(default=1_000, gt=0)
    # Maximum number of concurrent calls and streams of one connection. The client queues further ones until others end.
    grpc_max_streams_per_connection: int = Field(default=4_096, gt=0)
    # Maximum number of calls and streams that a listener serves at a time, over all connections. Further ones are
    # refused.
    grpc_max_served: int = Field(default=16_384, gt=0)
    # Maximum number of calls and large messages that a listener receives at a time; each takes at most 9 MiB of memory.
    # When another arrives, the one that has been in reception for longest is cancelled, once it has had
    # grpc_receiving_grace_ms.
    grpc_max_receiving: int = Field(default=32, gt=0)
    # Milliseconds for which the reception of a call or a large message is not cancelled in favor of another one.
    grpc_receiving_grace_ms: int = Field(default=2_000, ge=0)
    # Milliseconds for which a large message that is received completely, and that the service has not processed yet, is
    # not cancelled in favor of another one.
    grpc_taking_grace_ms: int = Field(default=30_000, ge=0)
    # Maximum number of streams of a listener. Each takes up to 1.25 MiB of memory besides the messages in reception.
    # Further streams are refused.
    grpc_max_long_streams: int = Field(default=256, gt=0)
    # Maximum number of streams of one connection. Further streams are refused.
    grpc_max_long_streams_per_connection: int = Field(default=256, gt=0)
    # Memory, in bytes, of the messages that wait in all streams of a listener. At this bound each stream holds one
    # message at a time in each direction.
    grpc_max_stream_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    # Memory, in bytes, of all requests of a listener that are not answered yet. Further requests are refused.
    grpc_max_pending_bytes: int = Field(default=256 * 1024 * 1024, ge=MAX_TRANSPORT_BYTES)
    # Maximum size, in bytes, of the headers, and of the trailers, of a call.
    grpc_max_metadata_bytes: int = Field(default=16_384, ge=8_192)
    # Milliseconds that a new connection has to complete the HTTP/2 handshake. Then it is closed.
    grpc_handshake_timeout_ms: int = Field(default=10_000, gt=0)
    # Memory, in bytes, of the messages that wait in one direction of a stream, at each end. The message that passes the
    # bound is still accepted.
    grpc_stream_buffer_bytes: int = Field(default=1_048_576, gt=0)

    @model_validator(mode="after")
    def _backoff_in_order(self) -> GrpcSettings:
        if self.grpc_reconnect_backoff_max_ms < self.grpc_reconnect_backoff_min_ms:
            raise ValueError("grpc_reconnect_backoff_max_ms is below grpc_reconnect_backoff_min_ms")
        return self
