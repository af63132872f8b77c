"""Declare settings: a setting is one typed field with its default, description, unit, bounds and subject.

    class TopicSettings(Configuration):
        topic_close_timeout_seconds: float = setting(
            10.0,
            "Seconds that closing a topic waits for operations in flight. The next opening recovers the rest.",
            subject=Subject.TOPICS,
            gt=0,
            formerly="topic_close_timeout_s",
        )

All else is read from the field: the check of a value and the errors (configuration.py), the lists that `--options`
prints, and the reference page deploy/settings.md.

- The unit is the last part of the name: `_ms`, `_seconds`, `_minutes`, `_bytes`, `_mb` (MiB); `_per_…` may follow it. A
  name that is Pulsar's or BookKeeper's, in snake case, keeps their spelling, and has `named_by`. A count or a ratio
  gives its `unit`.
- A setting that several processes have is declared in one class that all of them inherit from. `change_default` gives
  one of them another default, with the reason.
- A renamed setting is refused by its former name, with the new one: `formerly`.
- A setting of brokers that can be changed while they run is `dynamic`: all code reads it where it needs it, from the
  settings object that it was given, and copies it nowhere (broker/magnetar_broker/settings/dynamic.py).

This module needs the extra `server`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

__all__ = [
    "MAX_COUNT",
    "REQUIRED",
    "Setting",
    "Subject",
    "amount_text",
    "bounds_text",
    "change_default",
    "check_order",
    "former_names",
    "public_name",
    "setting",
    "settings_of",
    "unit_of",
]

# The default of a setting that has none: the process does not start without a value.
REQUIRED: Final[Any] = ...
# The upper bound of counts that have no other one.
MAX_COUNT: Final = 2**31 - 1
_FACTS: Final = "setting"
_UNITS: Final = {
    "bytes_per_second": "bytes per second",
    "ms": "milliseconds",
    "seconds": "seconds",
    "minutes": "minutes",
    "bytes": "bytes",
    "mb": "MiB",
    # These are Pulsar's spellings only.
    "millis": "milliseconds",
    "secs": "seconds",
    "percentage": "percent",
}
_BYTES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LARGER: Final = {"bytes": _BYTES, "bytes per second": tuple((size, f"{name}/s") for size, name in _BYTES)} | {
    "seconds": ((86_400, "day"),),
    "minutes": ((1440, "day"),),
}
_UNIT: Final = re.compile(rf"_({'|'.join(_UNITS)})(_per_(?!second)[a-z_]+)?$")
# Words that Pulsar writes in capitals.
_CAPITALS: Final = {"mb": "MB", "ttl": "TTL"}
_PULSAR_UNITS: Final = frozenset({"millis", "secs", "percentage"})
NamedBy = Literal["", "Pulsar", "BookKeeper"]


class Subject(enum.Enum):
    """Heading of related settings, in the order in which they are listed."""

    ADDRESSES = "Names, addresses and folders"
    METADATA = "Metadata store"
    PUBLISHING = "Publishing"
    DELIVERY = "Delivery, subscriptions and cursors"
    READING = "Caches and reads of entries"
    TOPICS = "Topics"
    SCHEMAS = "Schemas"
    RETENTION = "Rollover, retention and leases of ledgers"
    REPLICATION = "Ledgers and replication"
    BUNDLES = "Bundles and lookups"
    ADMIN = "Administration"
    PULSAR = "Clients of Pulsar's protocol"
    BOOKIE = "Bookie: requests and memory"
    STORAGE = "Bookie: disk"
    RECOVERY = "Auto-recovery"
    GRPC = "gRPC"
    HTTP = "HTTP and metrics"
    HEALTH = "Health"
    SHUTDOWN = "Shutdown"
    LOGS = "Logs"


@dataclass(frozen=True)
class Setting:
    """A setting's declaration, without its type."""

    default: Any
    description: str
    subject: Subject
    # Unit of a number whose name does not end in one.
    unit: str = ""
    # Arguments of pydantic's Field: ge, gt, le, lt, pattern, min_length, max_length.
    bounds: Mapping[str, Any] = field(default_factory=dict)
    named_by: NamedBy = ""
    formerly: str = ""
    # Why the default differs from the one that other processes have.
    default_because: str = ""
    # It can be changed while brokers run.
    dynamic: bool = False


def setting(
    default: Any,
    description: str,
    *,
    subject: Subject,
    unit: str = "",
    named_by: NamedBy = "",
    formerly: str = "",
    dynamic: bool = False,
    **bounds: Any,
) -> Any:
    """Declare a setting as a field of a `Configuration`. `REQUIRED` as the default means that it must be set."""
    return _field(Setting(default, description, subject, unit, bounds, named_by, formerly, dynamic=dynamic))


def change_default(kind: type[BaseModel], name: str, default: Any, because: str) -> Any:
    """Declare a setting of `kind` again, with another default."""
    return _field(replace(settings_of(kind)[name], default=default, default_because=because))


def settings_of(kind: type[BaseModel]) -> dict[str, Setting]:
    """Return the declarations of all settings, by name."""
    return {name: _facts(info) for name, info in kind.model_fields.items()}


def check_order(settings: BaseModel, lower: str, upper: str, because: str = "") -> None:
    """Raise `ValueError` if the setting `lower` is above the setting `upper`. `because` is the reason of the rule."""
    low, high = getattr(settings, lower), getattr(settings, upper)
    if low > high:
        reason = f"; {because}" if because else ""
        raise ValueError(
            f"{lower} is {low:.15g}, above {upper}, which is {high:.15g}: lower {lower} or raise {upper}{reason}"
        )


def former_names(kind: type[BaseModel]) -> dict[str, str]:
    """Return the names of renamed settings, by the former name."""
    return dict(_former_names(kind))


def public_name(name: str, declared: Setting) -> str:
    """Return the name in Pulsar's REST API: Pulsar's own spelling if the name is Pulsar's."""
    if declared.named_by != "Pulsar":
        return name
    first, *words = name.split("_")
    return first + "".join(_CAPITALS.get(word, word.capitalize()) for word in words)


def unit_of(name: str, declared: Setting) -> str:
    """Return the unit of a setting. It is empty for text, switches and lists."""
    found = _UNIT.search(name)
    if declared.unit or found is None or (found[1] in _PULSAR_UNITS and declared.named_by != "Pulsar"):
        return declared.unit
    return _UNITS[found[1]]


def bounds_text(bounds: Mapping[str, Any]) -> str:
    """Return the bounds of a number in words: "at least 1", "from 0 to 65535". It is empty if there are none."""
    if {"ge", "le"} <= bounds.keys():
        return f"from {bounds['ge']} to {bounds['le']}"
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return ", ".join(f"{word} {bounds[name]}" for name, word in words.items() if name in bounds)


def amount_text(value: Any, unit: str) -> str:
    """Return a large default in a larger unit: "64 MiB" or "7 days". It is empty if there is none that fits."""
    for size, larger in _LARGER.get(unit, ()):
        if isinstance(value, (int, float)) and value >= size and value % size == 0:
            return f"{value // size:g} {larger}{'s' if larger == 'day' and value > size else ''}"
    return ""


def _field(declared: Setting) -> Any:
    extra: Any = {_FACTS: declared}
    return Field(declared.default, description=declared.description, json_schema_extra=extra, **declared.bounds)


def _facts(info: FieldInfo) -> Setting:
    extra: Any = info.json_schema_extra
    declared = extra.get(_FACTS) if isinstance(extra, dict) else None
    if not isinstance(declared, Setting):
        raise TypeError(f"a field of settings is declared by setting(…), not by {info!r}")
    return declared


def _former_names(kind: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, declared in settings_of(kind).items():
        if declared.formerly:
            yield declared.formerly, name
