"""Check the settings of a local cluster's bookies and brokers, and write them to a process's file.

They are checked before anything is started, so that an error appears in the terminal and not in a log. The file has the
settings that were set, and no defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar_cli.cluster.errors import ClusterError
from magnetar_cli.toml_text import toml_text

if TYPE_CHECKING:
    from magnetar_wire.configuration import Configuration

__all__ = [
    "BOOKIES",
    "BROKERS",
    "DaemonKind",
    "check_daemon_settings",
    "parse_settings",
    "rename_former",
    "write_settings",
]


@dataclass(frozen=True)
class DaemonKind:
    """A kind of process, and its settings."""

    name: str
    # Imports the settings' class. It is called when there are settings to check, since the import takes long.
    settings: Callable[[], type[Configuration]]
    # Settings that the cluster chooses for each process, with values that pass the check.
    reserved: Mapping[str, Any]


def _bookie_settings() -> type[Configuration]:
    from magnetar_bookie.settings.process import BookieSettings

    return BookieSettings


def _broker_settings() -> type[Configuration]:
    from magnetar_broker.settings.process import BrokerSettings

    return BrokerSettings


_METADATA: Final = "zookeeper://127.0.0.1"
BOOKIES: Final = DaemonKind(
    "bookie",
    _bookie_settings,
    {
        "bookie_id": "x",
        "data_folder": "/",
        "metadata": _METADATA,
        "listen_address": "127.0.0.1:0",
        "http_address": "",
    },
)
BROKERS: Final = DaemonKind(
    "broker",
    _broker_settings,
    {
        "broker_id": "x",
        "metadata": _METADATA,
        "listen_addresses": "127.0.0.1:0",
        "pulsar_listen_addresses": "127.0.0.1:0",
        "http_address": "",
    },
)


def parse_settings(kind: DaemonKind, flags: Iterable[str]) -> dict[str, Any]:
    """Return the settings in `name=value` flags. Raise `ClusterError`."""
    flags = list(flags)
    if not flags:
        return {}
    from magnetar_wire.configuration import InvalidConfiguration, load

    names = _check_names(kind, (flag.partition("=")[0].strip() for flag in flags))
    try:
        settings = load(kind.settings(), flags=[*flags, *(f"{name}={value}" for name, value in kind.reserved.items())])
    except InvalidConfiguration as error:
        raise ClusterError(str(error)) from None
    return _plain(settings, names)


def check_daemon_settings(kind: DaemonKind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a program gives by name. Raise `ClusterError`."""
    if not values:
        return {}
    from magnetar_wire.configuration import InvalidConfiguration, check_settings

    names = _check_names(kind, values)
    try:
        settings = check_settings(kind.settings(), {**values, **kind.reserved})
    except InvalidConfiguration as error:
        problems = "; ".join(str(error).splitlines())
        raise ClusterError(f"invalid settings of a {kind.name}: {problems}") from None
    return _plain(settings, names)


def rename_former(kind: DaemonKind, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by their present names. An earlier version may have stored former names."""
    if not stored:
        return {}
    from magnetar_wire.settings import former_names

    renamed = former_names(kind.settings())
    return {renamed.get(name, name): value for name, value in stored.items()}


def write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings as TOML."""
    file.write_text("".join(f"{name} = {toml_text(value)}\n" for name, value in settings.items() if value is not None))


def _check_names(kind: DaemonKind, names: Iterable[str]) -> list[str]:
    found = list(names)
    for name in found:
        if name in kind.reserved:
            raise ClusterError(f"{name} can't be set: the cluster chooses it for each {kind.name}")
    return found


def _plain(settings: Configuration, names: Iterable[str]) -> dict[str, Any]:
    plain: dict[str, Any] = settings.model_dump(mode="json", include=set(names))
    return plain
