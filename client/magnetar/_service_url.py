"""`magnetar://host:port[,host:port…]`: where the client begins to ask."""

from __future__ import annotations

from typing import Final

from magnetar.exceptions import InvalidUrl

__all__ = ["DEFAULT_PORT", "check_service_url", "parse_service_url"]

DEFAULT_PORT: Final = 6652
_SCHEME: Final = "magnetar://"
# Other protocols that a broker speaks on ports of their own.
_OTHER_SCHEMES: Final = {
    **dict.fromkeys(
        ("pulsar", "pulsar+ssl"), f", but is for Pulsar's clients. The port here is {DEFAULT_PORT} by default"
    ),
    **dict.fromkeys(("http", "https"), f", but is for HTTP. The port here is {DEFAULT_PORT} by default"),
}
# Their ports by default.
_OTHER_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}
# A URL of theirs is refused at once, but for a look at what listens there.
_PROBE_TIMEOUT_S: Final = 0.4
_PROBE_LIMIT_S: Final = 1.0
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


def check_service_url(url: str) -> None:
    """Raise InvalidUrl. For a URL of another protocol of brokers, the error says what listens at its addresses, and
    with it what the user meant: Pulsar's listener, a broker's HTTP port, its own port, or nothing at all. On a thread
    that runs an event loop nothing is probed, since the loop would stand still meanwhile."""
    try:
        parse_service_url(url)
    except InvalidUrl as error:
        found = _describe_other_url(url)
        if found:
            raise InvalidUrl(f"{error}. {found}") from None
        raise


def _describe_other_url(url: str) -> str:
    """What listens at the addresses of a URL of another scheme; empty: it is none, or nobody knows."""
    scheme, _, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if scheme not in _OTHER_PORTS:
        return ""
    try:
        addresses = [_address(part, url, _OTHER_PORTS[scheme]) for part in rest.removesuffix("/").split(",")]
    except InvalidUrl:
        return ""
    import asyncio  # where it is needed: it takes its time

    from magnetar._endpoint_probe import describe_endpoints_blocking

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # none runs on this thread
        return describe_endpoints_blocking(addresses, _PROBE_TIMEOUT_S, _PROBE_LIMIT_S)
    return ""


def _address(part: str, url: str, default_port: int = DEFAULT_PORT) -> str:
    """`[::1]:6652` is an address of IPv6, whose colons are its own."""
    host, colon, port = part.rpartition(":")
    if not colon or (part.startswith("[") and part.endswith("]")):
        host, port = part, str(default_port)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(character in " /@?#[]" for character in bare) or (":" in bare and bare == host):
        raise InvalidUrl(f"{url!r} has no host in {part!r}: {_FORM}")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
        raise InvalidUrl(f"{url!r} has the port {port!r} in {part!r}, which is not one of 1 … 65535: {_FORM}")
    return f"{host}:{port}"
