"""Where others are told to reach a broker or a bookie: `internal:magnetar://host:port,external:magnetar://host:port`;
and where it listens for those who come to one of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from magnetar_wire.process.addresses import ANY_HOST, check_address

__all__ = ["INTERNAL", "AdvertisedAt", "advertised_listeners", "bind_addresses"]

# Listeners' names and addresses, the internal one first.
AdvertisedAt = tuple[tuple[str, str], ...]

INTERNAL: Final = "internal"
_LISTENER: Final = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64}):(?P<scheme>[A-Za-z0-9+]+)://(?P<address>.+)")
_SCHEME: Final = "magnetar"
_FORM: Final = f"a listener is name:{_SCHEME}://host:port"


def advertised_listeners(
    listeners: Sequence[str], internal_name: str = "", address: str = "", listens_at: str = ""
) -> AdvertisedAt:
    """What the settings of these names come to; empty: where it listens is what others are told, and `listens_at` has
    to be good for that. Raises `ValueError`."""
    if not listeners:
        if internal_name:
            raise ValueError(f"internal_listener_name is {internal_name!r}, and there are no advertised_listeners")
        told = address or listens_at
        if told.rpartition(":")[0] in ANY_HOST:
            raise ValueError(f"nobody can be told {told} to reach it at: set advertised_address")
        return ((INTERNAL, address),) if address else ()
    if address:
        raise ValueError("advertised_address and advertised_listeners say the same: set one of them")
    found: dict[str, str] = {}
    for one in listeners:
        name, where = _taken_apart("advertised_listeners", one)
        if where.rpartition(":")[0] in ANY_HOST:
            raise ValueError(f"advertised_listeners has {one!r:.200}: nobody can be told that to reach it at")
        if name in found:
            raise ValueError(f"advertised_listeners has two of the name {name!r}")
        found[name] = where
    internal = internal_name or next(iter(found))
    if internal not in found:
        raise ValueError(f"internal_listener_name is {internal!r}, which is none of {', '.join(found)}")
    return ((internal, found.pop(internal)), *found.items())


def bind_addresses(bound: Sequence[str], advertised: AdvertisedAt) -> AdvertisedAt:
    """Names of listeners and addresses to listen at, of which several may have one name. Raises `ValueError`."""
    found = tuple(_taken_apart("bind_addresses", one) for one in bound)
    names = [name for name, _ in advertised]
    for name, _ in found:
        if name not in names:
            there = f"has {', '.join(names)}" if names else "is not set"
            raise ValueError(f"bind_addresses names the listener {name!r}, and advertised_listeners {there}")
    return found


def _taken_apart(setting: str, listener: str) -> tuple[str, str]:
    parts = _LISTENER.fullmatch(listener)
    if parts is None or parts["scheme"] != _SCHEME:
        raise ValueError(f"{setting} has {listener!r:.200}: {_FORM}")
    try:
        return parts["name"], check_address(parts["address"])
    except ValueError as error:
        raise ValueError(f"{setting} has {listener!r:.200}: {error}") from None
