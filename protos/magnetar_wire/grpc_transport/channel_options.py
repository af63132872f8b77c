"""What gRPC's core is told by our options, and why.

Names of gRPC's that stand here are channel arguments of its C core. Those that matter for correctness:

- `grpc.enable_retries` off: gRPC would send again by itself what it believes was not done; whoever calls decides that.
- `grpc.use_local_subchannel_pool`: two connections to one address share no TCP connection and so no fate, nor back-off.
- `grpc.so_reuseport` off: a second server on a taken port would otherwise get half of its connections.
- keep-alive at both ends, without calls too; and a server that does not take our own pings for an attack, which it
  would by default (five minutes apart at least, or it hangs up).
- `grpc.enable_http_proxy` off: an `http_proxy` in the environment is not for bookies.
"""

from __future__ import annotations

from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import PIECE_BYTES
from magnetar_wire.transport import MAX_TRANSPORT_BYTES

__all__ = ["client_arguments", "server_arguments"]

Arguments = list[tuple[str, int | str]]


def client_arguments(options: GrpcSettings) -> Arguments:
    return [
        *_both(options),
        ("grpc.max_receive_message_length", MAX_TRANSPORT_BYTES),
        ("grpc.max_send_message_length", PIECE_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        # The core takes this for the time that an attempt may last as well.
        ("grpc.min_reconnect_backoff_ms", round(options.grpc_connect_timeout_seconds * 1000)),
        ("grpc.initial_reconnect_backoff_ms", options.grpc_reconnect_backoff_min_ms),
        ("grpc.max_reconnect_backoff_ms", options.grpc_reconnect_backoff_max_ms),
        # A bookie that comes back elsewhere under its name is looked up anew, not after 30 s.
        ("grpc.dns_min_time_between_resolutions_ms", options.grpc_reconnect_backoff_max_ms),
    ]


def server_arguments(options: GrpcSettings) -> Arguments:
    return [
        *_both(options),
        # For each stream that waits for a message it may hold one half-sent.
        ("grpc.max_receive_message_length", PIECE_BYTES),
        ("grpc.max_send_message_length", MAX_TRANSPORT_BYTES),
        # Nor may a stream's window grow with the bandwidth, up to megabytes that nobody has read.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 2 * PIECE_BYTES),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", options.grpc_max_connections),
        ("grpc.max_concurrent_streams", options.grpc_max_streams_per_connection),
        ("grpc.server_handshake_timeout_ms", options.grpc_handshake_timeout_ms),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", options.grpc_min_ping_interval_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", options.grpc_min_ping_interval_ms),
    ]


def _both(options: GrpcSettings) -> Arguments:
    return [
        # The first is where gRPC begins to refuse at random, the second where it always does: the same for us.
        ("grpc.max_metadata_size", options.grpc_max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", options.grpc_max_metadata_bytes),
        ("grpc.keepalive_time_ms", options.grpc_keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", options.grpc_keepalive_timeout_ms),
        # For pings that measure the bandwidth. A keep-alive that comes while one of them is out waits for that one, and
        # the minute that it has by default would count.
        ("grpc.http2.ping_timeout_ms", options.grpc_keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
