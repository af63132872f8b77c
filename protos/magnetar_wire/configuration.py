"""Load settings: typed, checked when they are loaded, and frozen. settings.py shows how they are declared.

    settings = load(BrokerSettings, file=path, environment=os.environ, flags=["max_message_size=1000000"])

A value comes from the file (TOML, `name = value`), is overridden by the environment (`MAGNETAR_` and the name in upper
case), and that by the command line (`name=value`). An unknown name is an error, since a misspelt setting must not be a
silent default; the error suggests the nearest name, or the new name of a renamed setting. All errors are reported
together, each with its source, the value, the bound and what to do.

From the environment and the command line a list is its elements separated by commas, and a table is JSON. Two kinds of
variables that begin like ours are ignored: Kubernetes sets some for every process if a service is called `magnetar`
(`MAGNETAR_PORT`), and the command line's clients read some (`MAGNETAR_URL`).

This module needs the extra `server`.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, ValidationError

from magnetar_wire.settings import bounds_text, former_names, settings_of, unit_of

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Configuration",
    "InvalidConfiguration",
    "check_settings",
    "load",
    "parse_text",
    "select_settings",
    "suggest_nearest",
]

ENVIRONMENT_PREFIX: Final = "MAGNETAR_"
# pydantic puts it before the text of a validator's ValueError.
_PYDANTIC_PREFIX: Final = "Value error, "
_VARIABLE: Final = "environment variable"
_COMMAND_LINE: Final = "command line"
_LISTS: Final = (list, tuple, set, frozenset)
_OF_KUBERNETES: Final = re.compile(r"(.*_)?(service_host|service_port(_.*)?|port|port_\d+_(tcp|udp|sctp)(_.*)?)")
_OF_CLIENTS: Final = frozenset({"url", "listener_name"})
# pydantic's types of errors.
_OUT_OF_RANGE: Final = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")
_NOT_A_NUMBER: Final = "int_type"
_NO_NUMBER: Final = (_NOT_A_NUMBER, "int_parsing", "int_from_float", "int_parsing_size", "float_parsing", "float_type")


class InvalidConfiguration(ValueError):
    """The errors of a configuration, one per line."""


class Configuration(BaseModel):
    """A set of settings. Subclass it; combine several by inheriting from all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)
    # Of a process: the names of the settings that are worth changing, the most important first.
    worth_changing: ClassVar[tuple[str, ...]] = ()


C = TypeVar("C", bound=Configuration)


def load(
    kind: type[C],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] = (),
    prefix: str = ENVIRONMENT_PREFIX,
) -> C:
    """Return the settings from the file, the environment and the command line. Raise `InvalidConfiguration`."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: list[str] = []
    for source, name, value in (
        *_read_file(file),
        *_read_environment(environment or {}, prefix),
        *_read_flags(flags),
    ):
        if name not in kind.model_fields:
            if source.startswith(_VARIABLE) and (name in _OF_CLIENTS or _OF_KUBERNETES.fullmatch(name)):
                continue
            problems.append(f"{source}: {_describe_unknown(kind, name)}")
            continue
        sources[name] = f"{source}: "
        values[name] = (
            _parse(kind.model_fields[name].annotation, value)
            if isinstance(value, str) and source != str(file)
            else value
        )
    return _make_settings(kind, values, sources, problems)


def check_settings(kind: type[C], values: Mapping[str, Any]) -> C:
    """Return the settings that a program gives by name. Raise `InvalidConfiguration`."""
    known = {name: value for name, value in values.items() if name in kind.model_fields}
    return _make_settings(kind, known, {}, [_describe_unknown(kind, name) for name in values if name not in known])


def select_settings(kind: type[C], settings: Configuration) -> C:
    """Return the settings of one part, from those of a process that it is in."""
    return kind.model_validate({name: getattr(settings, name) for name in kind.model_fields})


def parse_text(kind: type[Configuration], name: str, text: str) -> Any:
    """Return the value, not checked yet, that a text on the command line or in the environment stands for."""
    return _parse(kind.model_fields[name].annotation, text)


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error's sentence about an unknown name: empty if no known name is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean {near[0]!r}?" if near else ""


def _read_file(file: Path | None) -> list[tuple[str, str, Any]]:
    if file is None:
        return []
    try:
        with file.open("rb") as opened:
            table = tomllib.load(opened)
    except OSError as error:
        raise InvalidConfiguration(f"{file}: can't be read: {error.strerror}: give another file to --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"{file}: is not TOML: {error}: write one `name = value` per line") from None
    return [(str(file), name, value) for name, value in table.items()]


def _read_environment(environment: Mapping[str, str], prefix: str) -> list[tuple[str, str, Any]]:
    ours = sorted(name for name in environment if name.startswith(prefix))
    return [(f"{_VARIABLE} {name}", name.removeprefix(prefix).lower(), environment[name]) for name in ours]


def _read_flags(flags: Iterable[str]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:  # it may end in a secret, so only its beginning is shown
            shown = flag.split()[0] if flag.split() else flag
            raise InvalidConfiguration(f"{_COMMAND_LINE}: {shown!r} has no value: write name=value")
        found.append((_COMMAND_LINE, name.strip(), value.strip()))
    return found


def _parse(annotation: Any, value: str) -> Any:
    """Split a list at its commas, and read a table as JSON."""
    kinds = _kinds(annotation)
    if any(kind in kinds for kind in _LISTS):
        return [element.strip() for element in value.split(",") if element.strip()]
    if dict in kinds:
        try:
            return json.loads(value)
        except ValueError:
            return value  # pydantic refuses it, as it is no table
    return value


def _kinds(annotation: Any) -> list[Any]:
    """Return all types in an annotation: of `list[SecretStr] | None` list, SecretStr and NoneType."""
    arguments = [kind for argument in get_args(annotation) for kind in _kinds(argument)]
    return [get_origin(annotation) or annotation, *arguments]


def _make_settings(kind: type[C], values: Mapping[str, Any], sources: Mapping[str, str], problems: list[str]) -> C:
    # pydantic would accept true as the number 1.
    switches = [
        name
        for name, value in values.items()
        if isinstance(value, bool) and bool not in _kinds(kind.model_fields[name].annotation)
    ]
    for name in switches:
        accepted = _describe_accepted(kind, name, _NOT_A_NUMBER) or "is neither text nor a list: set one of them"
        problems.append(f"{sources.get(name, '')}{name} = {str(values[name]).lower()} {accepted}")
    try:
        settings = kind.model_validate({name: value for name, value in values.items() if name not in switches})
    except ValidationError as error:
        problems += _describe_errors(error, kind, values, sources, switches)
    if problems:
        raise InvalidConfiguration("\n".join(problems))
    return settings


def _describe_unknown(kind: type[Configuration], name: str) -> str:
    renamed = former_names(kind).get(name)
    if renamed:
        return f"{name} was renamed: use {renamed}"
    return f"there is no setting {name!r}{suggest_nearest(name, kind.model_fields)}"


def _describe_errors(
    error: ValidationError,
    kind: type[Configuration],
    values: Mapping[str, Any],
    sources: Mapping[str, str],
    reported: Iterable[str],
) -> Iterator[str]:
    """Yield each of pydantic's errors in the user's terms. The value of a secret is not shown."""
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(one["loc"][0]) if one["loc"] else ""
        problem = one["msg"].removeprefix(_PYDANTIC_PREFIX)
        if name in reported:
            continue
        if one["type"] == "missing":
            variable = f"{ENVIRONMENT_PREFIX}{name.upper()}"
            yield f"{name} is required: set it in the file of --config, by --set {name}=… or by {variable}"
        elif name not in values:  # a rule between several settings, or a default
            yield f"{name}: {problem}" if name else problem
        else:
            secret = not {SecretStr, SecretBytes}.isdisjoint(_kinds(kind.model_fields[name].annotation))
            shown = sources.get(name, "") + (name if secret else f"{name} = {values[name]!r}")
            accepted = _describe_accepted(kind, name, one["type"])
            yield f"{shown} {accepted}" if accepted else f"{shown}: {problem}"


def _describe_accepted(kind: type[Configuration], name: str, error_type: str) -> str:
    """Return the end of an error's sentence: the problem, and which values are accepted. Empty: use pydantic's text."""
    annotation = kind.model_fields[name].annotation
    if annotation is bool:
        return "is neither true nor false: set one of them"
    if get_origin(annotation) is Literal:
        return f"is none of {', '.join(map(str, get_args(annotation)))}: set one of them"
    if annotation not in (int, float) or error_type not in (*_OUT_OF_RANGE, *_NO_NUMBER):
        return ""
    number = "a whole number" if annotation is int else "a number"
    declared = settings_of(kind)[name]
    accepted = " ".join(part for part in (number, bounds_text(declared.bounds)) if part)
    unit = unit_of(name, declared)
    problem = "is out of range" if error_type in _OUT_OF_RANGE else f"is not {number}"
    return f"{problem}: set {accepted}{f' ({unit})' if unit else ''}"
