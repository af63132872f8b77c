"""Options for the policies of namespaces and topics, made from the table of policies.

`policy_options` returns one option for each policy, and `--remove`; `read_policies` makes the policies of the values
that a command got. A policy that is not a single value is written as `time_minutes=60,size_mb=-1`, a list
as `Shared,Failover`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from magnetar_cli.administration.policy_list import POLICY_ROWS, PolicyRow
from magnetar_cli.administration.simple_command import Argument
from magnetar_cli.output import print_rows

__all__ = ["find_without_effect", "policy_options", "print_policies", "read_policies"]

P = TypeVar("P")
_BOOLEANS: Final = {"true": True, "false": False}
# What fits a part of a value, by its type.
_NEEDED: Final[dict[type, str]] = {int: "a whole number", float: "a number", bool: "true or false"}
_PARTITIONS: Final = "partitions"
_REMOVE: Final = "remove"
_EVERY: Final = "every"
# What a namespace without these has. No setting of the brokers stands for them.
_UNSET: Final = {
    "properties": "none",
    "replication_clusters": "the brokers' own cluster",
    "allowed_clusters": "those of its tenant",
}


def policy_options(*, of_topics: bool = False) -> list[Argument]:
    """Return the options of a command that sets the policies of namespaces, or of topics."""
    rows = [row for row in POLICY_ROWS if (row.of_topics if of_topics else row.of_namespaces)]
    options = [_make_option(row) for row in rows]
    if not of_topics:
        help = "Partitions of topics created on first use; 0: not partitioned."
        option = typer.Option(min=0, help=help, show_default=False)
        options.append(Argument(_PARTITIONS, Annotated[int | None, option], None))
    names = "Policy to remove, e.g. retention. It can be repeated."
    option = typer.Option(metavar="POLICY", help=names, show_default=False)
    listed = typer.Option("--all", help="List the policies that are not set, too.")
    return [
        *options,
        Argument(_REMOVE, Annotated[list[str] | None, option], None),
        Argument(_EVERY, Annotated[bool, listed], False),
    ]


def _make_option(row: PolicyRow) -> Argument:
    if row.kind == "bool":
        annotation: Any = Annotated[bool | None, typer.Option(help=row.help, show_default=False)]
    elif row.kind == "int":
        annotation = Annotated[int | None, typer.Option(help=row.help, show_default=False)]
    else:
        help = f"{row.help} {row.parts}" if row.parts else row.help
        annotation = Annotated[str | None, typer.Option(metavar=row.metavar, help=help, show_default=False)]
    return Argument(row.field, annotation, None)


def read_policies(kind: type[P], values: Mapping[str, Any]) -> tuple[P, list[str]]:
    """Return the policies that the options set, and the fields of those that they remove. Raises BadParameter."""
    hints = typing.get_type_hints(kind)
    given = {name: value for name, value in values.items() if value is not None and name in hints}
    partitions = values.get(_PARTITIONS)
    if partitions is not None and not given.get("auto_topic_creation"):
        raise typer.BadParameter("it needs --auto-topic-creation: give both", param_hint="--partitions")
    parsed = {name: _parse(name, typing.get_args(hints[name])[0], value, partitions) for name, value in given.items()}
    return kind(**parsed), [_check_removed(name, hints) for name in values.get(_REMOVE) or ()]


def _check_removed(name: str, hints: Mapping[str, Any]) -> str:
    field = name.replace("-", "_")
    if field not in hints:
        text = f"{name!r} is no policy: use one of {', '.join(hints)}"
        raise typer.BadParameter(text, param_hint=f"--{_REMOVE}")
    return field


def _parse(name: str, kind: Any, value: Any, partitions: int | None) -> Any:
    if name == "auto_topic_creation":
        return kind(value, partitions or 0)
    if name == "auto_subscription_creation":
        return kind(value)
    if not isinstance(value, str):
        return value
    option = f"--{name.replace('_', '-')}"
    if name == "persistence" and "=" not in value:
        return kind(*_parse_quorums(value))
    if dataclasses.is_dataclass(kind):
        return _parse_parts(kind, value, option)
    if kind is str:
        return value
    items = [item for item in value.split(",") if item]
    if name == "properties":
        return dict(_split_pair(item, option, "write e.g. team=storage,stage=test") for item in items)
    return tuple(items)


def _parse_parts(kind: Any, text: str, option: str) -> Any:
    hints = typing.get_type_hints(kind)
    parts: dict[str, Any] = {}
    for item in text.split(","):
        name, value = _split_pair(item, option, f"write {','.join(f'{one}=…' for one in hints)}")
        if name not in hints:
            raise typer.BadParameter(f"{name!r} is unknown: use {', '.join(hints)}", param_hint=option)
        try:
            parts[name] = _BOOLEANS[value.lower()] if hints[name] is bool else hints[name](value)
        except (KeyError, ValueError):
            needed = _NEEDED[hints[name]]
            raise typer.BadParameter(f"{name} = {value!r}: use {needed}", param_hint=option) from None
    try:
        return kind(**parts)
    except TypeError:
        missing = [one.name for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING]
        given = ",".join(f"{name}=…" for name in missing)
        raise typer.BadParameter(f"{text!r} is not enough: give at least {given}", param_hint=option) from None


def _split_pair(item: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{item!r} is not NAME=VALUE: {example}", param_hint=option)
    return name.strip().replace("-", "_") if option != "--properties" else name, value.strip()


def _parse_quorums(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not three numbers: use ensemble size, write quorum and ack quorum, e.g. 3,3,2",
            param_hint="--persistence",
        )
    ensemble, write, ack = map(int, parts)
    return ensemble, write, ack


def print_policies(
    policies: Any, warnings: Iterable[str], unset: str, removed: Sequence[str] = (), *, every: bool
) -> None:
    """Print the policies that are set, and those that were just removed; or `every` one. `unset`: what one is that is
    not set."""
    names = [one.name for one in dataclasses.fields(policies)]
    shown = [name for name in names if every or getattr(policies, name) is not None or name in removed]
    if shown:
        print_rows(("policy", "value"), _format_policies(policies, shown, warnings, unset), as_json=False)
    if len(shown) < len(names):
        others = "no policy is set" if not shown else "no other policy is set"
        print(f"{others}: they are {unset} (--all lists them)")


def _format_policies(policies: Any, names: Sequence[str], warnings: Iterable[str], unset: str) -> list[tuple[str, str]]:
    """Return a row for each policy: its name, and its value with a note if it has no effect by the warnings."""
    without_effect = find_without_effect(warnings)
    rows = []
    for policy in dataclasses.fields(policies):
        if policy.name not in names:
            continue
        value = getattr(policies, policy.name)
        shown = _UNSET.get(policy.name, unset) if value is None else _format(value)
        if value is not None and policy.name in without_effect:
            shown += f" (stored, {without_effect[policy.name]} in effect)"
        rows.append((policy.name.replace("_", " "), shown))
    return rows


def find_without_effect(warnings: Iterable[str]) -> dict[str, str]:
    """Return the fields of the policies that have no effect by the warnings, with "not yet" or "not"."""
    texts = list(warnings)
    return {
        one.field: words
        for one in POLICY_ROWS
        for words in ("not yet", "not")
        if any(text.startswith(f"{one.name} is stored, and {words} in effect") for text in texts)
    }


def _format(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{name.replace('_', ' ')} {one}" for name, one in dataclasses.asdict(value).items())
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(value) or "none"
    return str(value)
