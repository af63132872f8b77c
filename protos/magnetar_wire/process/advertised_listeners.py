"""Where others are told to reach a broker or a bookie: `internal:magnetar://host:port,external:magnetar://host:port`;
and where it listens for those who come to one of these.

A broker has addresses of a second scheme, `internal:pulsar://host:port`, for clients of Pulsar's protocol. A listener
may have one address of each; the internal one has one of `magnetar`, by which brokers reach each other.
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

# Listeners' names and addresses, the internal one first.
AdvertisedListeners = tuple[tuple[str, str], ...]

INTERNAL: Final = "internal"
MAGNETAR: Final = "magnetar"
PULSAR: Final = "pulsar"
_LISTENER: Final = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64}):(?P<scheme>[A-Za-z0-9+]+)://(?P<address>.+)")


def split_by_scheme(listeners: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those for clients of Pulsar's protocol come second, and whatever else there is first."""
    of_pulsar = [one for one in listeners if f":{PULSAR}://" in one]
    return [one for one in listeners if one not in of_pulsar], of_pulsar


def parse_advertised_listeners(
    listeners: Sequence[str], internal_name: str = "", address: str = "", listens_at: str = ""
) -> AdvertisedListeners:
    """What the settings of these names come to; empty: where it listens is what others are told, and `listens_at` has
    to be good for that. Raises `ValueError`."""
    if not listeners:
        if internal_name:
            raise ValueError(
                f"internal_listener_name is {internal_name!r}, but advertised_listeners is empty: set both, or neither"
            )
        told = address or listens_at
        if _is_any(told):
            raise ValueError(
                f"{told} can't be advertised to other machines: set advertised_address to an address at which "
                "they reach this one"
            )
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
    """What clients of Pulsar's protocol are told, by the names of `advertised` and of `listeners`, and for the internal
    listener by `address`. Where neither says it, that is the host that others are told, with the port at which it
    listens for such clients, or just where it listens. Empty `listens_at`: it listens for the internal one's nowhere.
    Raises `ValueError`."""
    found = _by_name(listeners, PULSAR)
    if not listens_at:
        if address:
            raise ValueError(
                f"pulsar_advertised_address is {address}, but pulsar_listen_addresses is empty: set both, or neither"
            )
        return tuple(found.items())
    internal, reached_at = advertised[0] if advertised else (INTERNAL, "")
    if address and internal in found:
        raise ValueError(
            f"pulsar_advertised_address and a pulsar:// address of listener {internal!r} in "
            "advertised_listeners are both set: set only one of them"
        )
    told = found.pop(internal, "") or address or (f"{reached_at.rpartition(':')[0]}:0" if reached_at else "")
    if _is_any(told or listens_at):
        raise ValueError(
            f"{told or listens_at} can't be advertised to other machines: set pulsar_advertised_address to an "
            "address at which they reach this one"
        )
    return ((internal, told), *found.items())


def parse_bind_addresses(
    bound: Sequence[str], advertised: AdvertisedListeners, scheme: str = MAGNETAR
) -> AdvertisedListeners:
    """Names of listeners and addresses to listen at, of which several may have one name. Raises `ValueError`."""
    found = tuple(_taken_apart("parse_bind_addresses", one, scheme) for one in bound)
    names = [name for name, _ in advertised]
    for name, _ in found:
        if name not in names:
            there = f"has only {', '.join(names)}" if names else "has none"
            raise ValueError(
                f"bind_addresses names the listener {name!r}, but advertised_listeners {there} for "
                f"{scheme}://: use the same names in both"
            )
    return found


def _by_name(listeners: Sequence[str], scheme: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in listeners:
        name, where = _taken_apart("parse_advertised_listeners", one, scheme)
        if _is_any(where):
            raise ValueError(
                f"advertised_listeners has {one!r:.200}, which can't be advertised to other machines: use an "
                "address at which they reach this one"
            )
        if name in found:
            raise ValueError(
                f"advertised_listeners names the listener {name!r} twice for {scheme}://: use each name once"
            )
        found[name] = where
    return found


def _taken_apart(setting: str, listener: str, scheme: str) -> tuple[str, str]:
    parts = _LISTENER.fullmatch(listener)
    if parts is None or parts["scheme"] != scheme:
        raise ValueError(f"{setting} has {listener!r:.200}: use name:{scheme}://host:port")
    try:
        return parts["name"], check_address(parts["address"])
    except ValueError as error:
        raise ValueError(f"{setting} has {listener!r:.200}: {error}") from None


def _is_any(address: str) -> bool:
    return address.rpartition(":")[0] in ANY_HOST
