"""The transport between machines: gRPC with messages of plain bytes.

Reading order: `outcomes.py` (the meaning of a status), then `channel.py`, `connection.py` and `client_stream.py` for
the client, `listener.py`, `admission.py` and `served_stream.py` for the server. `channel_arguments.py` has gRPC's own
options, and why they are set.
"""

from __future__ import annotations

from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.transport import GrpcTransport

__all__ = ["GrpcSettings", "GrpcTransport"]
