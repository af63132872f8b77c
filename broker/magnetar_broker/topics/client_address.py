"""The host of a client's address, as limits for clients of the same host need it."""

from __future__ import annotations

__all__ = ["get_host"]


def get_host(address: str) -> str:
    """Return the address without its port: 10.0.0.1:6650, [::1]:6650 or, as gRPC writes it, ipv4:10.0.0.1:6650."""
    return address.rpartition(":")[0] or address
