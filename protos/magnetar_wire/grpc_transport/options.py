"""What can be set about the gRPC transport."""

from __future__ import annotations

from pydantic import Field, model_validator

from magnetar_wire.configuration import Configuration
from magnetar_wire.transport import MAX_TRANSPORT_BYTES

__all__ = ["GrpcOptions"]


class GrpcOptions(Configuration):
    """Names begin with `grpc_`, since a process has these among its other options."""

    # An attempt to connect that takes longer has failed.
    grpc_connect_timeout_s: float = Field(default=5.0, gt=0)
    # After a failed attempt calls fail at once for so long, then the next one is made; it doubles up to the second.
    grpc_reconnect_backoff_min_ms: int = Field(default=100, ge=100)  # gRPC takes no less
    grpc_reconnect_backoff_max_ms: int = Field(default=1_000, ge=100)
    # A connection on which nothing has come for so long is asked whether it lives, and has so long to say so: a silent
    # end is found within the sum. Both ends ask.
    grpc_keepalive_time_ms: int = Field(default=10_000, gt=0)
    grpc_keepalive_timeout_ms: int = Field(default=8_000, gt=0)
    # A server hangs up on clients that ask more often than this, time and again.
    grpc_min_ping_interval_ms: int = Field(default=1_000, ge=0)

    # What a server takes. Further connections are closed.
    grpc_max_connections: int = Field(default=1_000, gt=0)
    # Calls and streams of one connection; a client keeps further ones to itself until others end.
    grpc_max_streams_per_connection: int = Field(default=4_096, gt=0)
    # Calls and streams of one connection, and of all of them, that are served at a time; further ones are refused.
    grpc_max_served: int = Field(default=16_384, gt=0)
    # Calls and large messages of streams that are being received at a time, which take as many times
    # MAX_TRANSPORT_BYTES at most. When another comes, the one that has been received for longest is broken off, unless
    # that is shorter than the grace; and one that is there, and that the service does not take, after the second.
    grpc_max_receiving: int = Field(default=32, gt=0)
    grpc_receiving_grace_ms: int = Field(default=2_000, ge=0)
    grpc_taking_grace_ms: int = Field(default=30_000, ge=0)
    # Streams from one server's clients at a time, and from one connection. Each may have 1.25 MiB in memory besides
    # what is being received; where all have more than the third, each has one message at a time each way.
    grpc_max_long_streams: int = Field(default=256, gt=0)
    grpc_max_long_streams_per_connection: int = Field(default=256, gt=0)
    grpc_max_stream_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    # The requests that wait for their answers, in all: further ones are refused.
    grpc_max_pending_bytes: int = Field(default=256 * 1024 * 1024, ge=MAX_TRANSPORT_BYTES)
    # What headers and trailers may take.
    grpc_max_metadata_bytes: int = Field(default=16_384, ge=8_192)
    # A connection that has not said that it speaks HTTP/2 for so long is closed.
    grpc_handshake_timeout_ms: int = Field(default=10_000, gt=0)
    # What one direction of a stream holds at either end; the message that passes it is still taken.
    grpc_stream_buffer_bytes: int = Field(default=1_048_576, gt=0)

    @model_validator(mode="after")
    def _backoff_in_order(self) -> GrpcOptions:
        if self.grpc_reconnect_backoff_max_ms < self.grpc_reconnect_backoff_min_ms:
            raise ValueError("grpc_reconnect_backoff_max_ms is below grpc_reconnect_backoff_min_ms")
        return self
