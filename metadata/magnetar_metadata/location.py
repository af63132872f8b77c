"""The location of a metadata store as one string of a configuration, and opening the store.

    zookeeper://host:port,host:port/chroot?session_timeout_seconds=10&connect_timeout_seconds=15
    embedded:///absolute/folder

ZooKeeper's default port is 2181. The chroot and the timeouts are optional. The embedded store is for the one process
that has opened its folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from magnetar_metadata.errors import InvalidLocation, InvalidPath
from magnetar_metadata.paths import ROOT, check_path
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock

__all__ = ["EmbeddedLocation", "Location", "ZooKeeperLocation", "open_metadata", "parse_location"]

_FORMS: Final = "use zookeeper://host:port,host:port/chroot or embedded:///folder"
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>\d{1,5}))?")
_MAX_PORT: Final = 65_535
_FORMER_NAMES: Final = {
    "session_timeout_s": "session_timeout_seconds",
    "connect_timeout_s": "connect_timeout_seconds",
}


@dataclass(frozen=True, slots=True)
class ZooKeeperLocation:
    # host:port,host:port,…: kazoo's format.
    hosts: str
    chroot: str = ROOT
    session_timeout_seconds: float = 10.0
    connect_timeout_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class EmbeddedLocation:
    folder: Path


Location = ZooKeeperLocation | EmbeddedLocation


def parse_location(location: str) -> Location:
    """Parse a location. Raises `InvalidLocation`."""
    try:
        parts = urlsplit(location)
    except ValueError as error:
        raise _invalid(location, str(error)) from None
    if parts.fragment:
        raise _invalid(location, "'#' is not allowed")
    if parts.scheme == "zookeeper":
        return _zookeeper(location, parts)
    if parts.scheme == "embedded":
        return _embedded(location, parts)
    raise _invalid(location, f"the scheme {parts.scheme!r} is unknown" if parts.scheme else "it has no scheme")


async def open_metadata(
    location: str, clock: Clock, *, subtree_roots: Sequence[str] = (), create: bool = True
) -> MetadataStore:
    """Open a session with the store at the location. Raises `InvalidLocation` and the store's errors.

    A store that does not exist is created, unless `create` is false: that raises `NoStore`.
    """
    parsed = parse_location(location)
    # Imported here, because a process needs only one of kazoo and rocksdict.
    if isinstance(parsed, EmbeddedLocation):
        from magnetar_metadata.embedded import open_embedded

        return await open_embedded(parsed.folder, clock, subtree_roots, create=create)
    from magnetar_metadata.zookeeper import open_zookeeper

    return await open_zookeeper(
        parsed.hosts,
        clock,
        chroot=parsed.chroot,
        subtree_roots=subtree_roots,
        session_timeout_s=parsed.session_timeout_seconds,
        connect_timeout_s=parsed.connect_timeout_seconds,
        create=create,
    )


def _zookeeper(location: str, parts: SplitResult) -> ZooKeeperLocation:
    if not parts.netloc:
        raise _invalid(location, "it has no server")
    for host in parts.netloc.split(","):
        found = _HOST.fullmatch(host)
        if found is None or not 0 < int(found["port"] or 1) <= _MAX_PORT:
            raise _invalid(location, f"{host!r} is not host:port")
    chroot = unquote(parts.path).rstrip("/") or ROOT
    try:
        check_path(chroot)
    except InvalidPath as error:
        raise _invalid(location, str(error)) from None
    seconds = {"session_timeout_seconds": 10.0, "connect_timeout_seconds": 15.0}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _FORMER_NAMES:
            raise _invalid(location, f"{name} was renamed: use {_FORMER_NAMES[name]}")
        if name not in seconds:
            raise _invalid(location, f"there is no parameter {name!r}: use {' or '.join(seconds)}")
        seconds[name] = _positive(location, name, value)
    return ZooKeeperLocation(parts.netloc, chroot, **seconds)


def _embedded(location: str, parts: SplitResult) -> EmbeddedLocation:
    if parts.netloc:
        raise _invalid(location, "a folder begins with a third '/', as in embedded:///folder")
    if parts.query:
        raise _invalid(location, "the embedded store has no parameters")
    folder = Path(unquote(parts.path))
    if not folder.is_absolute() or folder == Path("/") or "\0" in str(folder):
        raise _invalid(location, "it has no folder")
    return EmbeddedLocation(folder)


def _positive(location: str, name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        raise _invalid(location, f"{name} = {value!r} is not a number: set a number of seconds") from None
    if not 0 < seconds < float("inf"):
        raise _invalid(location, f"{name} = {value!r} is out of range: set a number of seconds above 0")
    return seconds


def _invalid(location: str, problem: str) -> InvalidLocation:
    return InvalidLocation(f"{location!r:.200} is not a metadata store: {problem} ({_FORMS})")
