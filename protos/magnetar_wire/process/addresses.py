"""Addresses, `host:port`: those in settings, and those of clients."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ANY_HOST", "check_address", "get_host"]

# Hosts that stand for all addresses of a machine: a process can listen at them, and clients can't connect to them.
ANY_HOST: Final = ("0.0.0.0", "[::]")
_ADDRESS: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+")
_MAX_PORT: Final = 65_535


def check_address(value: str) -> str:
    """Return the address unchanged. Raises `ValueError` if it is not `host:port`."""
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found[1]) > _MAX_PORT:
        problem = "it has no port: " if _HOST.fullmatch(value) else ""
        raise ValueError(f"{problem}use host:port, or [host]:port for IPv6, with a port of at most {_MAX_PORT}")
    return value


def get_host(address: str) -> str:
    """Return the host of a client's address: 10.0.0.1:6650, [::1]:6650, ::1:6650. Without a port, all of it."""
    return address.rpartition(":")[0].strip("[]") or address
