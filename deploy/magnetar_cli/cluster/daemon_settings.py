"""A bookie's or a broker's options, from the command line or a test into its file.

They are checked before anything is started, by the options' own types, so that a misspelt name is told at once and not
in a log. What stands in the file is what was set, and nothing that is a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar_cli.cluster.errors import ClusterError

if TYPE_CHECKING:
    from magnetar_wire.configuration import Configuration

__all__ = ["BOOKIES", "BROKERS", "Daemons", "checked", "from_flags", "write_settings"]


@dataclass(frozen=True)
class Daemons:
    """The options of one kind of process."""

    name: str
    # What they are; called when there is something to check, since what that needs takes its time to load.
    kind: Callable[[], type[Configuration]]
    # The launcher sets these, each process' its own. Where the others are checked before that is known, these stand
    # here.
    reserved: Mapping[str, Any]


def _of_bookies() -> type[Configuration]:
    from magnetar_bookie.settings.process import BookieSettings

    return BookieSettings


def _of_brokers() -> type[Configuration]:
    from magnetar_broker.settings.process import BrokerSettings

    return BrokerSettings


_METADATA: Final = "zookeeper://127.0.0.1"
BOOKIES: Final = Daemons(
    "bookie",
    _of_bookies,
    {
        "bookie_id": "x",
        "data_folder": "/",
        "metadata": _METADATA,
        "listen_address": "127.0.0.1:0",
        "http_address": "",
    },
)
BROKERS: Final = Daemons(
    "broker",
    _of_brokers,
    {
        "broker_id": "x",
        "metadata": _METADATA,
        "listen_addresses": "127.0.0.1:0",
        "pulsar_listen_addresses": "127.0.0.1:0",
        "http_address": "",
    },
)


def from_flags(of: Daemons, flags: Iterable[str]) -> dict[str, Any]:
    """`name=value` as it is typed. Raises `ClusterError`."""
    flags = list(flags)
    if not flags:
        return {}
    from magnetar_wire.configuration import InvalidConfiguration, load

    names = _settable(of, (flag.partition("=")[0].strip() for flag in flags))
    try:
        options = load(of.kind(), flags=[*flags, *(f"{name}={value}" for name, value in of.reserved.items())])
    except InvalidConfiguration as error:
        raise ClusterError(str(error)) from None
    return _plain(options, names)


def checked(of: Daemons, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same for values that a program gives."""
    if not settings:
        return {}
    from pydantic import ValidationError

    from magnetar_wire.configuration import problems_of

    names = _settable(of, settings)
    try:
        options = of.kind().model_validate({**settings, **of.reserved})
    except ValidationError as error:
        problems = "; ".join(f"{name}: {problem}" if name else problem for name, problem in problems_of(error))
        raise ClusterError(f"invalid settings of a {of.name}: {problems}") from None
    return _plain(options, names)


def _settable(of: Daemons, names: Iterable[str]) -> list[str]:
    found = list(names)
    for name in found:
        if name in of.reserved:
            raise ClusterError(f"{name} can't be set: the cluster chooses it for each {of.name}")
    return found


def _plain(options: Configuration, names: Iterable[str]) -> dict[str, Any]:
    plain: dict[str, Any] = options.model_dump(mode="json", include=set(names))
    return plain


def write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """As TOML."""
    file.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in settings.items() if value is not None))


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)} = {_toml(one)}' for name, one in value.items())}}}"
    # Of these JSON's form is TOML's too: numbers, true and false, and text, as JSON's escapes are all TOML's.
    return json.dumps(value, ensure_ascii=False)
