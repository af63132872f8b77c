"""The settings of listeners: the addresses that a broker or a bookie advertises, and those at which it listens.

An advertised listener is `internal:magnetar://host:port` or `external:magnetar://host:port`. A broker also has
addresses of the scheme `internal:pulsar://host:port`, for clients of Pulsar's protocol. A listener may have one address
of each scheme. The internal listener has one of `magnetar`, with which brokers connect to each other.
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
    """Split the listeners into those of other schemes, and those for clients of Pulsar's protocol."""
    of_pulsar = [one for one in listeners if f":{PULSAR}://" in one]
    return [one for one in listeners if one not in of_pulsar], of_pulsar


def parse_advertised_listeners(
    listeners: Sequence[str], internal_name: str = "", address: str = "", listens_at: str = ""
) -> AdvertisedListeners:
    """Return the advertised listeners of these settings. Raises `ValueError`.

    If the result is empty, the process advertises the address at which it listens, `listens_at`, which must be valid
    for that.
    """
    if not listeners:
        if internal_name:
            raise ValueError(
                f"internal_listener_name is {internal_name!r}, but advertised_listeners is empty: set both, or neither"
            )
        advertised_address = address or listens_at
        if _is_any(advertised_address):
            raise ValueError(
                f"{advertised_address} can't be advertised to other machines: set advertised_address to an address at "
                "which they reach this one"
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
    """Return the addresses for clients of Pulsar's protocol. Raises `ValueError`.

    The names are those of `advertised` and of `listeners`. The address of the internal listener is `address`. If
    neither setting has it, it is the host of the internal listener's other address, with the port at which the process
    listens for such clients, or just that address. If `listens_at` is empty, the process listens at no internal
    address.
    """
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
    advertised_address = (
        found.pop(internal, "") or address or (f"{reached_at.rpartition(':')[0]}:0" if reached_at else "")
    )
    if _is_any(advertised_address or listens_at):
        raise ValueError(
            f"{advertised_address or listens_at} can't be advertised to other machines: set pulsar_advertised_address "
            "to an address at which they reach this one"
        )
    return ((internal, advertised_address), *found.items())


def parse_bind_addresses(
    bound: Sequence[str], advertised: AdvertisedListeners, scheme: str = MAGNETAR
) -> AdvertisedListeners:
    """Return the names and addresses to listen at. Several addresses may have the same name. Raises `ValueError`."""
    found = tuple(_parse_listener("bind_addresses", one, scheme) for one in bound)
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
        name, where = _parse_listener("advertised_listeners", one, scheme)
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


def _parse_listener(setting: str, listener: str, scheme: str) -> tuple[str, str]:
    parts = _LISTENER.fullmatch(listener)
    if parts is None or parts["scheme"] != scheme:
        raise ValueError(f"{setting} has {listener!r:.200}: use name:{scheme}://host:port")
    try:
        return parts["name"], check_address(parts["address"])
    except ValueError as error:
        raise ValueError(f"{setting} has {listener!r:.200}: {error}") from None


def _is_any(address: str) -> bool:
    return address.rpartition(":")[0] in ANY_HOST
