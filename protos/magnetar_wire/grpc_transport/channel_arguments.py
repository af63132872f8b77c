"""The options of gRPC's core, and why they are set.

Names that begin with `grpc.` are channel arguments of the C core. Those that matter for correctness:

- `grpc.enable_retries` off: gRPC would repeat requests that it believes were not done; the caller decides that.
- `grpc.use_local_subchannel_pool`: two connections to one address share no TCP connection, and so neither its failures
  nor its back-off.
- `grpc.so_reuseport` off: otherwise a second server on the same port would get half of the connections.
- keep-alive at both ends, also without calls. The server must accept our pings: by default it takes pings that come
  more often than every five minutes for an attack, and disconnects.
- `grpc.enable_http_proxy` off: an `http_proxy` in the environment is not for bookies.
"""

from __future__ import annotations

from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import PIECE_BYTES
from magnetar_wire.transport import MAX_TRANSPORT_BYTES

__all__ = ["client_arguments", "server_arguments"]

Arguments = list[tuple[str, int | str]]


def client_arguments(settings: GrpcSettings) -> Arguments:
    """Return the options of a channel."""
    return [
        *_both(settings),
        ("grpc.max_receive_message_length", MAX_TRANSPORT_BYTES),
        ("grpc.max_send_message_length", PIECE_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        # The core also uses this as the timeout of an attempt.
        ("grpc.min_reconnect_backoff_ms", round(settings.grpc_connect_timeout_seconds * 1000)),
        ("grpc.initial_reconnect_backoff_ms", settings.grpc_reconnect_backoff_min_ms),
        ("grpc.max_reconnect_backoff_ms", settings.grpc_reconnect_backoff_max_ms),
        # So a bookie that returns at another address is found at once, not after 30 s.
        ("grpc.dns_min_time_between_resolutions_ms", settings.grpc_reconnect_backoff_max_ms),
    ]


def server_arguments(settings: GrpcSettings) -> Arguments:
    """Return the options of a server."""
    return [
        *_both(settings),
        # The core may hold one incomplete message for each stream that waits for a message.
        ("grpc.max_receive_message_length", PIECE_BYTES),
        ("grpc.max_send_message_length", MAX_TRANSPORT_BYTES),
        # Otherwise a stream's window would grow with the bandwidth, up to megabytes of unread data.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 2 * PIECE_BYTES),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", settings.grpc_max_connections),
        ("grpc.max_concurrent_streams", settings.grpc_max_streams_per_connection),
        ("grpc.server_handshake_timeout_ms", settings.grpc_handshake_timeout_ms),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", settings.grpc_min_ping_interval_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", settings.grpc_min_ping_interval_ms),
    ]


def _both(settings: GrpcSettings) -> Arguments:
    return [
        # gRPC refuses headers at random above the first limit, and always above the second: they are equal here.
        ("grpc.max_metadata_size", settings.grpc_max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", settings.grpc_max_metadata_bytes),
        ("grpc.keepalive_time_ms", settings.grpc_keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", settings.grpc_keepalive_timeout_ms),
        # For pings that measure the bandwidth. A keep-alive waits for such a ping, so its default timeout of a minute
        # would apply.
        ("grpc.http2.ping_timeout_ms", settings.grpc_keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
