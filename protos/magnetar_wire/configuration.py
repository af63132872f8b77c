"""Options: typed, checked when they are made, and frozen.

    class BrokerServiceSettings(Configuration):
        max_message_size: int = Field(default=5_242_880, gt=0)

    options = load(BrokerServiceSettings, file=path, environment=os.environ, flags=["max_message_size=1000000"])

A value comes from the file (TOML, `name = value`), is overridden by the environment (`MAGNETAR_` and the name in upper
case), and that by a flag (`name=value`). A name that is no option is an error that tells the nearest one that is,
wherever it stands: a misspelt option must not be a silent default. All that is wrong is told at once, each with where
it stands.

Names follow Pulsar's and BookKeeper's where those have the option, in snake case, units last. From the environment and
from flags a list is its elements with commas between, and a table is JSON. Kubernetes puts variables of its own into
the environment of every process, and their names begin like ours where a service is called `magnetar`: one that is no
option, and has the form of those, is passed over; so is what says to the command line's clients where the service is
(`MAGNETAR_URL`), which a shell that starts a server may have. This module needs the extra `server`.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, ValidationError

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Configuration",
    "InvalidConfiguration",
    "load",
    "problems_of",
    "select_settings",
    "suggest_nearest",
]

ENVIRONMENT_PREFIX: Final = "MAGNETAR_"
_PYDANTIC_PREFIX: Final = "Value error, "
_VARIABLE: Final = "environment variable"
_LISTS: Final = (list, tuple, set, frozenset)
_OF_KUBERNETES: Final = re.compile(r"(.*_)?(service_host|service_port(_.*)?|port|port_\d+_(tcp|udp|sctp)(_.*)?)")
_OF_CLIENTS: Final = frozenset({"url", "listener_name"})


class InvalidConfiguration(ValueError):
    """What is wrong with a configuration: one line each."""


class Configuration(BaseModel):
    """A set of options, all with defaults. Subclass it; combine several by inheriting from all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


C = TypeVar("C", bound=Configuration)


def load(
    kind: type[C],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] = (),
    prefix: str = ENVIRONMENT_PREFIX,
) -> C:
    """The options of `kind`, from the file, then the environment, then the flags."""
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    problems: list[str] = []
    for place, name, value in (
        *_from_file(file),
        *_from_environment(environment or {}, prefix),
        *_from_flags(flags),
    ):
        if name not in kind.model_fields:
            if place.startswith(_VARIABLE) and (name in _OF_CLIENTS or _OF_KUBERNETES.fullmatch(name)):
                continue
            problems.append(f"{place}: there is no option {name!r}{suggest_nearest(name, kind.model_fields)}")
            continue
        places[name] = place
        annotation = kind.model_fields[name].annotation
        if isinstance(value, bool) and bool not in _kinds(annotation):  # pydantic would take it for a number
            problems.append(f"{place}: {name} is true or false, and should be {_name(annotation)}")
            continue
        values[name] = _parse(annotation, value) if isinstance(value, str) and place != str(file) else value
    try:
        options = kind.model_validate(values)
    except ValidationError as error:
        problems += _told(error, kind, values, places)
    if problems:
        raise InvalidConfiguration("\n".join(problems))
    return options


def select_settings(kind: type[C], settings: Configuration) -> C:
    """Those of one part, out of the settings of a process that it runs in."""
    return kind.model_validate({name: getattr(settings, name) for name in kind.model_fields})


def _from_file(file: Path | None) -> list[tuple[str, str, Any]]:
    if file is None:
        return []
    try:
        with file.open("rb") as opened:
            table = tomllib.load(opened)
    except OSError as error:
        raise InvalidConfiguration(f"{file}: it can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"{file}: it is no TOML: {error}") from None
    return [(str(file), name, value) for name, value in table.items()]


def _from_environment(environment: Mapping[str, str], prefix: str) -> list[tuple[str, str, Any]]:
    ours = sorted(name for name in environment if name.startswith(prefix))
    return [(f"{_VARIABLE} {name}", name.removeprefix(prefix).lower(), environment[name]) for name in ours]


def _from_flags(flags: Iterable[str]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:  # not shown whole: it may be a secret's
            raise InvalidConfiguration(f"flag {flag.split()[0] if flag.split() else flag!r}: it is no name=value")
        found.append((f"flag {name.strip()}", name.strip(), value.strip()))
    return found


def _parse(annotation: Any, value: str) -> Any:
    """A list's elements or a table, where the option is one."""
    kinds = _kinds(annotation)
    if any(kind in kinds for kind in _LISTS):
        return [element.strip() for element in value.split(",") if element.strip()]
    if dict in kinds:
        try:
            return json.loads(value)
        except ValueError:
            return value  # which is refused as no table
    return value


def _kinds(annotation: Any) -> list[Any]:
    """All types that an annotation names: of `list[SecretStr] | None` list, SecretStr and NoneType."""
    arguments = [kind for argument in get_args(annotation) for kind in _kinds(argument)]
    return [get_origin(annotation) or annotation, *arguments]


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error's sentence about an unknown name: empty if no known name is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean {near[0]!r}?" if near else ""


def _told(
    error: ValidationError, kind: type[Configuration], values: Mapping[str, Any], places: Mapping[str, str]
) -> list[str]:
    """The validation's errors in the user's terms: where the value stands, and what it is unless it is a secret."""
    told = []
    for name, problem in problems_of(error):
        if name not in values:  # a rule between several options, or a default
            told.append(f"{name or kind.__name__}: {problem}")
            continue
        secret = any(one in _kinds(kind.model_fields[name].annotation) for one in (SecretStr, SecretBytes))
        shown = "" if secret else f" = {values[name]!r}"
        told.append(f"{places[name]}: {name}{shown}: {problem}")
    return told


def problems_of(error: ValidationError) -> list[tuple[str, str]]:
    """Return the option's name and the problem of each error. The name is empty for a rule between several options.

    pydantic puts a prefix before the text of a validator's ValueError, which says nothing to a user.
    """
    return [
        (str(one["loc"][0]) if one["loc"] else "", one["msg"].removeprefix(_PYDANTIC_PREFIX))
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]
