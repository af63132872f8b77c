"""The transport between machines: gRPC, whose messages are bytes from end to end.

Read `outcomes.py` (what a status means), then `connection.py` and `client_stream.py` for the client's side,
`listener.py` and `served_stream.py` for the server's. `channel_arguments.py` has gRPC's arguments, with reasons.
"""

from __future__ import annotations

from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.transport import GrpcTransport

__all__ = ["GrpcSettings", "GrpcTransport"]
