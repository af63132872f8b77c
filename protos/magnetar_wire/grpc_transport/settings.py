"""Settings of the gRPC transport. Names begin with `grpc_`, since a process has these among its other settings."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, check_order, setting
from magnetar_wire.transport import MAX_TRANSPORT_BYTES

__all__ = ["GrpcSettings"]


class GrpcSettings(Configuration):
    """Names begin with `grpc_`, since a process has these among its other settings."""

    grpc_connect_timeout_seconds: float = setting(
        5.0,
        "Seconds after which an attempt to connect has failed.",
        subject=Subject.GRPC,
        gt=0,
        formerly="grpc_connect_timeout_s",
    )
    grpc_reconnect_backoff_min_ms: int = setting(
        100,
        "Pause, in milliseconds, after the first failed attempt to connect. Calls fail at once during the pause. The "
        "pause doubles with each further failure, up to grpc_reconnect_backoff_max_ms. Minimum: 100.",
        subject=Subject.GRPC,
        ge=100,
    )
    grpc_reconnect_backoff_max_ms: int = setting(
        1_000,
        "Maximum pause between two attempts to connect, in milliseconds.",
        subject=Subject.GRPC,
        ge=100,
    )
    grpc_keepalive_time_ms: int = setting(
        10_000,
        "Milliseconds without received data after which a connection is pinged. Client and server both ping.",
        subject=Subject.GRPC,
        ge=1,
    )
    grpc_keepalive_timeout_ms: int = setting(
        8_000,
        "Milliseconds that the peer has to answer a keepalive ping. Then the connection is closed: a silent peer "
        "is detected after grpc_keepalive_time_ms plus this time.",
        subject=Subject.GRPC,
        ge=1,
    )
    grpc_min_ping_interval_ms: int = setting(
        1_000,
        "Minimum interval of a client's pings, in milliseconds. A server closes the connection of a client that "
        "repeatedly pings more often.",
        subject=Subject.GRPC,
        ge=0,
    )
    grpc_max_connections: int = setting(
        1_000,
        "Maximum number of connections of a listener. Further connections are closed.",
        subject=Subject.GRPC,
        unit="connections",
        ge=1,
    )
    grpc_max_streams_per_connection: int = setting(
        4_096,
        "Maximum number of concurrent calls and streams of one connection. The client queues further ones until "
        "others end.",
        subject=Subject.GRPC,
        unit="calls and streams",
        ge=1,
    )
    grpc_max_served: int = setting(
        16_384,
        "Maximum number of calls and streams that a listener serves at a time, over all connections. Further ones "
        "are refused.",
        subject=Subject.GRPC,
        unit="calls and streams",
        ge=1,
    )
    grpc_max_receiving: int = setting(
        32,
        "Maximum number of calls and large messages that a listener receives at a time. Each takes at most 9 MiB of "
        "memory. When another one arrives, the listener cancels the one that it has been receiving for longest, but "
        "not before grpc_receiving_grace_ms.",
        subject=Subject.GRPC,
        unit="calls and messages",
        ge=1,
    )
    grpc_receiving_grace_ms: int = setting(
        2_000,
        "Milliseconds for which the reception of a call or a large message is not cancelled in favor of another one.",
        subject=Subject.GRPC,
        ge=0,
    )
    grpc_processing_grace_ms: int = setting(
        30_000,
        "Milliseconds for which a large message is not cancelled in favor of another one after it was received "
        "completely, while the service has not processed it yet.",
        subject=Subject.GRPC,
        ge=0,
        formerly="grpc_taking_grace_ms",
    )
    grpc_max_long_streams: int = setting(
        256,
        "Maximum number of streams of a listener. Each takes up to 1.25 MiB of memory besides the messages in "
        "reception. Further streams are refused.",
        subject=Subject.GRPC,
        unit="streams",
        ge=1,
    )
    grpc_max_long_streams_per_connection: int = setting(
        256,
        "Maximum number of streams of one connection. Further streams are refused.",
        subject=Subject.GRPC,
        unit="streams",
        ge=1,
    )
    grpc_max_stream_bytes: int = setting(
        256 * 1024 * 1024,
        "Maximum memory, in bytes, of the messages that wait in all streams of a listener. At this bound each stream "
        "holds one message at a time in each direction.",
        subject=Subject.GRPC,
        ge=0,
    )
    grpc_max_pending_bytes: int = setting(
        256 * 1024 * 1024,
        "Maximum memory, in bytes, of all requests of a listener that are not answered yet. Further requests are "
        "refused.",
        subject=Subject.GRPC,
        ge=MAX_TRANSPORT_BYTES,
    )
    grpc_max_metadata_bytes: int = setting(
        16_384,
        "Maximum size, in bytes, of the headers, and of the trailers, of a call.",
        subject=Subject.GRPC,
        ge=8_192,
    )
    grpc_handshake_timeout_ms: int = setting(
        10_000,
        "Milliseconds that a new connection has to complete the HTTP/2 handshake. Then it is closed.",
        subject=Subject.GRPC,
        ge=1,
    )
    grpc_stream_buffer_bytes: int = setting(
        1_048_576,
        "Maximum memory, in bytes, of the messages that wait in one direction of a stream, at each end. The message "
        "that passes the bound is still accepted.",
        subject=Subject.GRPC,
        ge=1,
    )

    @model_validator(mode="after")
    def _check_backoff(self) -> Self:
        check_order(self, "grpc_reconnect_backoff_min_ms", "grpc_reconnect_backoff_max_ms")
        return self
