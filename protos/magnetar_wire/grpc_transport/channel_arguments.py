"""Channel arguments of gRPC's C core: those that follow from settings, and those that correctness depends on.

- `grpc.enable_retries` off: gRPC would resend a call that it takes for not done. Only the caller can decide that.
- `grpc.use_local_subchannel_pool`: two connections to one address share neither a TCP connection nor a back-off.
- `grpc.so_reuseport` off: a second server on the same port would otherwise get half of the connections.
- Keepalive at both ends, without calls too. By default a server takes our pings for an attack, and disconnects a client
  that pings more often than every five minutes.
- `grpc.enable_http_proxy` off: an `http_proxy` in the environment is not for bookies.
"""

from __future__ import annotations

from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import PIECE_BYTES
from magnetar_wire.transport import MAX_TRANSPORT_BYTES

__all__ = ["client_arguments", "server_arguments"]

Arguments = list[tuple[str, int | str]]


def client_arguments(settings: GrpcSettings) -> Arguments:
    """Return the arguments of a client's channel."""
    return [
        *_common_arguments(settings),
        ("grpc.max_receive_message_length", MAX_TRANSPORT_BYTES),
        ("grpc.max_send_message_length", PIECE_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        # The core also uses this as the time-out of an attempt to connect.
        ("grpc.min_reconnect_backoff_ms", round(settings.grpc_connect_timeout_seconds * 1000)),
        ("grpc.initial_reconnect_backoff_ms", settings.grpc_reconnect_backoff_min_ms),
        ("grpc.max_reconnect_backoff_ms", settings.grpc_reconnect_backoff_max_ms),
        # The name of a bookie that has moved is resolved again at once; the default is after 30 s.
        ("grpc.dns_min_time_between_resolutions_ms", settings.grpc_reconnect_backoff_max_ms),
    ]


def server_arguments(settings: GrpcSettings) -> Arguments:
    """Return the arguments of a listener."""
    return [
        *_common_arguments(settings),
        # A listener may hold one partly received message for each stream that waits for one.
        ("grpc.max_receive_message_length", PIECE_BYTES),
        ("grpc.max_send_message_length", MAX_TRANSPORT_BYTES),
        # A stream's window must not grow with the bandwidth, to megabytes of unread messages.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 2 * PIECE_BYTES),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", settings.grpc_max_connections),
        ("grpc.max_concurrent_streams", settings.grpc_max_streams_per_connection),
        ("grpc.server_handshake_timeout_ms", settings.grpc_handshake_timeout_ms),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", settings.grpc_min_ping_interval_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", settings.grpc_min_ping_interval_ms),
    ]


def _common_arguments(settings: GrpcSettings) -> Arguments:
    return [
        # gRPC refuses at random above the first and always above the second: here they are the same.
        ("grpc.max_metadata_size", settings.grpc_max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", settings.grpc_max_metadata_bytes),
        ("grpc.keepalive_time_ms", settings.grpc_keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", settings.grpc_keepalive_timeout_ms),
        # Time-out of pings that measure the bandwidth, one minute by default. A keepalive ping waits for the answer to
        # such a ping, so the time-outs must be the same.
        ("grpc.http2.ping_timeout_ms", settings.grpc_keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
