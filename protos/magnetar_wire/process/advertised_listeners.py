"""Parse the settings of listeners: the addresses that a broker or a bookie advertises, and those that it listens at.

    advertised_listeners   internal:magnetar://host:port,external:magnetar://host:port
    bind_addresses         external:magnetar://0.0.0.0:6653

A broker also advertises addresses of a second scheme, `internal:pulsar://host:port`, for clients of Pulsar's protocol.
A listener has at most one address of each scheme. The internal listener has one of `magnetar`, by which brokers
connect to each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from magnetar_wire.process.addresses import ANY_HOST, check_address

__all__ = [
    "INTERNAL",
    "MAGNETAR",
    "PULSAR",
    "AdvertisedListeners",
    "parse_advertised_listeners",
    "parse_bind_addresses",
    "parse_pulsar_advertised_listeners",
    "split_by_scheme",
]

# Names and addresses of listeners, the internal one first.
AdvertisedListeners = tuple[tuple[str, str], ...]

INTERNAL: Final = "internal"
MAGNETAR: Final = "magnetar"
PULSAR: Final = "pulsar"
_LISTENER: Final = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64}):(?P<scheme>[A-Za-z0-9+]+)://(?P<address>.+)")


def split_by_scheme(listeners: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return all others first, and those for clients of Pulsar's protocol second."""
    for_pulsar = [one for one in listeners if f":{PULSAR}://" in one]
    return [one for one in listeners if one not in for_pulsar], for_pulsar


def parse_advertised_listeners(
    listeners: Sequence[str], internal_name: str = "", address: str = "", listens_at: str = ""
) -> AdvertisedListeners:
    """Return the advertised addresses from the settings advertised_listeners, internal_listener_name and
    advertised_address. If none is set, return none: the process advertises `listens_at`. Raise `ValueError`."""
    if not listeners:
        if internal_name:
            raise ValueError(
                f"internal_listener_name is {internal_name!r}, but advertised_listeners is empty: set both, or neither"
            )
        _check_connectable(address or listens_at, "advertised_address")
        return ((INTERNAL, address),) if address else ()
    if address:
        raise ValueError("advertised_address and advertised_listeners are both set: set only one of them")
    found = _by_name(listeners, MAGNETAR)
    internal = internal_name or next(iter(found))
    if internal not in found:
        raise ValueError(
            f"internal_listener_name is {internal!r}, which is not in advertised_listeners: use one of "
            f"{', '.join(found)}"
        )
    return ((internal, found.pop(internal)), *found.items())


def parse_pulsar_advertised_listeners(
    listeners: Sequence[str], advertised: AdvertisedListeners, address: str, listens_at: str
) -> AdvertisedListeners:
    """Return the addresses for clients of Pulsar's protocol, by the names of `advertised` and of `listeners`.

    The internal listener has `address`. If it is empty, it has the host that is advertised to others, and port 0 for
    the one that the broker listens at for such clients; without such a host it has no address, which stands for
    `listens_at`. If `listens_at` is empty, the broker does not listen for them at the internal listener. Raise
    `ValueError`.
    """
    found = _by_name(listeners, PULSAR)
    if not listens_at:
        if address:
            raise ValueError(
                f"pulsar_advertised_address is {address}, but pulsar_listen_addresses is empty: set both, or neither"
            )
        return tuple(found.items())
    internal, internal_address = advertised[0] if advertised else (INTERNAL, "")
    if address and internal in found:
        raise ValueError(
            f"pulsar_advertised_address and a pulsar:// address of listener {internal!r} in "
            "advertised_listeners are both set: set only one of them"
        )
    host = internal_address.rpartition(":")[0]
    chosen = found.pop(internal, "") or address or (f"{host}:0" if host else "")
    _check_connectable(chosen or listens_at, "pulsar_advertised_address")
    return ((internal, chosen), *found.items())


def parse_bind_addresses(
    bound: Sequence[str], advertised: AdvertisedListeners, scheme: str = MAGNETAR
) -> AdvertisedListeners:
    """Return names of listeners and addresses to listen at; several may have one name. Raise `ValueError`."""
    found = tuple(_parse_listener("bind_addresses", one, scheme) for one in bound)
    names = [name for name, _ in advertised]
    for name, _ in found:
        if name not in names:
            there = f"has only {', '.join(names)}" if names else "has none"
            raise ValueError(
                f"bind_addresses names the listener {name!r}, but advertised_listeners {there} for {scheme}://: "
                "use the same names in both"
            )
    return found


def _by_name(listeners: Sequence[str], scheme: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in listeners:
        name, address = _parse_listener("advertised_listeners", one, scheme)
        if _is_any(address):
            raise ValueError(
                f"advertised_listeners has {one!r:.200}, which can't be advertised to other machines: use an "
                "address at which they reach this one"
            )
        if name in found:
            raise ValueError(
                f"advertised_listeners names the listener {name!r} twice for {scheme}://: use each name once"
            )
        found[name] = address
    return found


def _parse_listener(setting: str, listener: str, scheme: str) -> tuple[str, str]:
    parts = _LISTENER.fullmatch(listener)
    if parts is None or parts["scheme"] != scheme:
        raise ValueError(f"{setting} has {listener!r:.200}: use name:{scheme}://host:port")
    try:
        return parts["name"], check_address(parts["address"])
    except ValueError as error:
        raise ValueError(f"{setting} has {listener!r:.200}: {error}") from None


def _check_connectable(address: str, setting: str) -> None:
    if _is_any(address):
        raise ValueError(
            f"{address} can't be advertised to other machines: set {setting} to an address at which they reach this one"
        )


def _is_any(address: str) -> bool:
    return address.rpartition(":")[0] in ANY_HOST
