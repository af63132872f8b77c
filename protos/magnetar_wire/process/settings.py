"""What can be set about a process' HTTP server. Apart from it: what speaks HTTP takes its time to be imported."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["HttpSettings"]


class HttpSettings(Configuration):
    """Each bounds what the network may take."""

    # Maximum number of HTTP connections. Further connections are closed.
    http_max_connections: int = Field(default=100, gt=0)
    # Maximum size, in bytes, of the request line and the headers together.
    http_max_head_bytes: int = Field(default=16_384, ge=1024)
    # Maximum size, in bytes, of a request's body.
    http_max_body_bytes: int = Field(default=65_536, ge=0)
    # Seconds that one request and its response may take together, counted from the previous response, or from the
    # connection's start. Then the connection is closed.
    http_exchange_timeout_s: float = Field(default=15.0, gt=0)
    # Seconds that the HTTP server, when it closes, waits for responses in flight.
    http_close_timeout_s: float = Field(default=2.0, ge=0)
