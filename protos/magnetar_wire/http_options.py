"""What can be set about a process' HTTP server. Apart from it: what speaks HTTP takes its time to be imported."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["HttpOptions"]


class HttpOptions(Configuration):
    """Each bounds what the network may take."""

    # At a time. Further ones are closed.
    http_max_connections: int = Field(default=100, gt=0)
    # The request line and the headers together.
    http_max_head_bytes: int = Field(default=16_384, ge=1024)
    # What a request carries besides.
    http_max_body_bytes: int = Field(default=65_536, ge=0)
    # From the end of one answer, or the connection's beginning, to the end of the next.
    http_exchange_timeout_s: float = Field(default=15.0, gt=0)
    # How long closing waits for what is being answered.
    http_close_timeout_s: float = Field(default=2.0, ge=0)
