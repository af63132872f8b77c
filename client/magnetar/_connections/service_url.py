"""The service URL, `magnetar://host:port[,host:port…]`: the brokers that a client connects to first.

Administration is also possible over HTTP, `http://host:port[,host:port…]` or `https://…`, at brokers of Pulsar, too.
"""

from __future__ import annotations

from typing import Final

from magnetar.exceptions import InvalidUrl

__all__ = ["DEFAULT_PORT", "http_scheme", "other_protocol_addresses", "parse_http_url", "parse_service_url"]

DEFAULT_PORT: Final = 6652
_SCHEME: Final = "magnetar://"
# Other protocols that a broker speaks, on other ports.
_OTHER_SCHEMES: Final = {
    **dict.fromkeys(
        ("pulsar", "pulsar+ssl"), f", but is for Pulsar's clients. The port here is {DEFAULT_PORT} by default"
    ),
    **dict.fromkeys(("http", "https"), f", but is for HTTP. The port here is {DEFAULT_PORT} by default"),
}
# Their default ports.
_OTHER_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}
_FORM: Final = "write magnetar://host:port[,host:port…]"


def parse_service_url(url: str) -> tuple[str, ...]:
    """Return the addresses, `host:port` each, without duplicates. Raises InvalidUrl."""
    if not isinstance(url, str):
        raise InvalidUrl(f"a service URL is a str, not {type(url).__name__}: {_FORM}")
    if not url.startswith(_SCHEME):
        scheme, _, _ = url.partition("://")
        raise InvalidUrl(f"{url!r} does not begin with {_SCHEME}{_OTHER_SCHEMES.get(scheme, '')}: {_FORM}")
    rest = url.removeprefix(_SCHEME).removesuffix("/")
    return tuple(dict.fromkeys(_address(part, url) for part in rest.split(",")))


def http_scheme(url: str) -> str:
    """Return "http" or "https" if the URL begins with that, else an empty text."""
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    return scheme if separator and scheme in ("http", "https") else ""


def parse_http_url(url: str) -> tuple[str, ...]:
    """Return the addresses of a URL that has a `http_scheme`. Raises InvalidUrl."""
    scheme, _, rest = url.partition("://")
    form = f"write {scheme}://host:port[,host:port…]"
    parts = rest.removesuffix("/").split(",")
    return tuple(dict.fromkeys(_address(part, url, _OTHER_PORTS[scheme], form) for part in parts))


def other_protocol_addresses(url: str) -> list[str]:
    """Return the addresses of a URL of another protocol of brokers, or an empty list if it is not one."""
    scheme, _, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if scheme not in _OTHER_PORTS:
        return []
    try:
        return [_address(part, url, _OTHER_PORTS[scheme]) for part in rest.removesuffix("/").split(",")]
    except InvalidUrl:
        return []


def _address(part: str, url: str, default_port: int = DEFAULT_PORT, form: str = _FORM) -> str:
    """Return `host:port` of one part of the URL. An IPv6 address is in brackets: `[::1]:6652`."""
    host, colon, port = part.rpartition(":")
    if not colon or (part.startswith("[") and part.endswith("]")):
        host, port = part, str(default_port)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(character in " /@?#[]" for character in bare) or (":" in bare and bare == host):
        raise InvalidUrl(f"{url!r} has no host in {part!r}: {form}")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
        raise InvalidUrl(f"{url!r} has the port {port!r} in {part!r}, which is not in 1 … 65535: {form}")
    return f"{host}:{port}"
