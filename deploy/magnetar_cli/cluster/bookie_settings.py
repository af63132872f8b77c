"""A bookie's options, from the command line or a test into its file.

They are checked before anything is started, by the options' own types, so that a misspelt name is told at once and not
in a log. What stands in the file is what was set, and nothing that is a default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar_cli.cluster.errors import ClusterError

if TYPE_CHECKING:
    from magnetar_bookie.daemon.settings import BookieSettings

__all__ = ["checked", "from_flags", "write_settings"]

# The launcher sets these, each bookie's its own. Where the others are checked before that is known, these stand here.
_RESERVED: Final = {
    "bookie_id": "x",
    "data_folder": "/",
    "metadata": "zookeeper://127.0.0.1",
    "listen_address": "127.0.0.1:0",
    "http_address": "",
}


def from_flags(flags: Iterable[str]) -> dict[str, Any]:
    """`name=value` as it is typed. Raises `ClusterError`."""
    flags = list(flags)
    if not flags:
        return {}
    from magnetar_bookie.daemon.settings import BookieSettings
    from magnetar_wire.configuration import InvalidConfiguration, load

    names = _settable(flag.partition("=")[0].strip() for flag in flags)
    try:
        options = load(BookieSettings, flags=[*flags, *(f"{name}={value}" for name, value in _RESERVED.items())])
    except InvalidConfiguration as error:
        raise ClusterError(str(error)) from None
    return _plain(options, names)


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same for values that a program gives."""
    if not settings:
        return {}
    from magnetar_bookie.daemon.settings import BookieSettings  # what it needs takes its time to load

    names = _settable(settings)
    try:
        options = BookieSettings.model_validate({**settings, **_RESERVED})
    except ValueError as error:
        raise ClusterError(f"a bookie can't be set so: {error}") from None
    return _plain(options, names)


def _settable(names: Iterable[str]) -> list[str]:
    found = list(names)
    for name in found:
        if name in _RESERVED:
            raise ClusterError(f"{name} can't be set: the cluster chooses it for each bookie")
    return found


def _plain(options: BookieSettings, names: Iterable[str]) -> dict[str, Any]:
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
