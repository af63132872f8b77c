"""Describes the public methods of the administration clients as text, for comparison with a recorded version."""

from __future__ import annotations

import inspect
import typing

from magnetar.admin import Admin, AsyncAdmin

__all__ = ["GROUPS", "describe_surface", "group_classes"]

GROUPS = ("clusters", "tenants", "namespaces", "topics", "schemas", "subscriptions", "brokers", "reading")


def group_classes(admin: Admin | AsyncAdmin) -> dict[str, type]:
    return {name: type(getattr(admin, name)) for name in GROUPS}


def describe_surface() -> str:
    """Return one line for each public method of both clients, with its types resolved."""
    with Admin("magnetar://localhost:1") as admin:
        kinds = {**{f"admin.{name}": kind for name, kind in group_classes(admin).items()}}
    kinds |= {f"async admin.{name}": kind for name, kind in group_classes(AsyncAdmin("magnetar://localhost:1")).items()}
    kinds |= {"Admin": Admin, "AsyncAdmin": AsyncAdmin}
    return "\n".join(line for name, kind in kinds.items() for line in _describe_class(name, kind)) + "\n"


def _describe_class(name: str, kind: type) -> list[str]:
    lines = [f"{name}: {kind.__name__}"]
    for method_name, method in sorted(inspect.getmembers(kind, inspect.isfunction)):
        if method_name.startswith("_") and method_name not in ("__init__", "__enter__", "__aenter__"):
            continue
        if method_name == "__init__" and kind not in (Admin, AsyncAdmin):
            continue
        hints = typing.get_type_hints(method)
        parameters = [
            one.replace(annotation=_type_name(hints[one.name]) if one.name in hints else one.empty)
            for one in inspect.signature(method).parameters.values()
        ]
        shown = str(inspect.Signature(parameters))
        how = "async " if inspect.iscoroutinefunction(method) else ""
        lines.append(f"    {how}{method_name}{shown} -> {_type_name(hints.get('return'))}")
    return lines


class _Shown(str):
    """A type's name that `inspect` prints without quotes."""

    __repr__ = str.__str__


def _type_name(hint: object) -> str:
    return _Shown(hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint))
