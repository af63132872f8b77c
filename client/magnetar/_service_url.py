"""`magnetar://host:port[,host:port…]`: where the client begins to ask."""

from __future__ import annotations

from typing import Final

from magnetar.exceptions import InvalidUrl

__all__ = ["DEFAULT_PORT", "parse_service_url"]

DEFAULT_PORT: Final = 6652
_SCHEME: Final = "magnetar://"
# Other protocols that a broker speaks on ports of their own.
_OTHER_SCHEMES: Final = {
    **dict.fromkeys(
        ("pulsar", "pulsar+ssl"), f", but is for Pulsar's clients. The port here is {DEFAULT_PORT} by default"
    ),
    **dict.fromkeys(("http", "https"), f", but is for HTTP. The port here is {DEFAULT_PORT} by default"),
}
_FORM: Final = "write magnetar://host:port[,host:port…]"


def parse_service_url(url: str) -> tuple[str, ...]:
    """The addresses, `host:port` each. Raises InvalidUrl."""
    if not isinstance(url, str):
        raise InvalidUrl(f"a service's URL is text, not {type(url).__name__}: {_FORM}")
    if not url.startswith(_SCHEME):
        scheme, _, _ = url.partition("://")
        raise InvalidUrl(f"{url!r} does not begin with {_SCHEME}{_OTHER_SCHEMES.get(scheme, '')}: {_FORM}")
    rest = url.removeprefix(_SCHEME).removesuffix("/")
    return tuple(dict.fromkeys(_address(part, url) for part in rest.split(",")))


def _address(part: str, url: str) -> str:
    """`[::1]:6652` is an address of IPv6, whose colons are its own."""
    host, colon, port = part.rpartition(":")
    if not colon or (part.startswith("[") and part.endswith("]")):
        host, port = part, str(DEFAULT_PORT)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(character in " /@?#[]" for character in bare) or (":" in bare and bare == host):
        raise InvalidUrl(f"{url!r} has no host in {part!r}: {_FORM}")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
        raise InvalidUrl(f"{url!r} has the port {port!r} in {part!r}, which is not one of 1 … 65535: {_FORM}")
    return f"{host}:{port}"
