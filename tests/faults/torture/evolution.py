"""The schema of the typed workload, which evolves: a record whose optional fields change every few seconds.

Any two of its definitions are compatible in both directions, since they share their required fields, and a name always
has the same type and default. So registrations that race can't make one another incompatible. All processes of a run
change to the next definition at the same moment, and a definition may return. An incompatible one is never used again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from pydantic import BaseModel, create_model

from magnetar.schema import AvroSchema

__all__ = ["NEWER", "OLDER", "Definition", "current", "incompatible", "name_of", "of_generation"]

_GENERATION_S: Final = 4.0
# One choice in five is an earlier definition, of this many generations ago at most.
_OLDEST: Final = 8
_OLD_EVERY: Final = 5


class Position(BaseModel):
    x: float
    y: float


def _text(chance: Random) -> str:
    return chance.choice(["", "plain", "süß", "x" * chance.randrange(200)])


def _position(chance: Random) -> Position:
    return Position(x=chance.random(), y=-chance.random())


# By name: the type, the default, and how a value is made.
_REQUIRED: Final[dict[str, tuple[Any, Callable[[Random], Any]]]] = {
    "count": (int, lambda chance: chance.randrange(-(1 << 62), 1 << 62)),
    "text": (str, _text),
}
_OPTIONAL: Final[dict[str, tuple[Any, Any, Callable[[Random], Any]]]] = {
    "flag": (bool, True, lambda chance: chance.random() < 0.5),
    "level": (int, 7, lambda chance: chance.randrange(1 << 30)),
    "label": (str | None, None, lambda chance: chance.choice([None, "red", "grün"])),
    "numbers": (list[int], [], lambda chance: [chance.randrange(1 << 10) for _ in range(chance.randrange(4))]),
    "position": (Position | None, None, lambda chance: chance.choice([None, _position(chance)])),
    "ratio": (float, 0.5, lambda chance: chance.random()),
    "shares": (dict[str, float], {}, lambda chance: {f"s{n}": chance.random() for n in range(chance.randrange(3))}),
    "status": (str, "new", _text),
}
# What the newest reader has, and no writer.
_UNWRITTEN: Final = ("unwritten", str, "nobody wrote it")


@dataclass(frozen=True, eq=False)
class Definition:
    model: type[BaseModel]
    schema: AvroSchema[Any]
    compatible: bool = True

    @functools.cached_property
    def name(self) -> str:
        return name_of(self.schema.schema_info().definition)

    @functools.cached_property
    def fields(self) -> dict[str, list[Any]]:
        """By name: the default, if the field has one."""
        return {name: [] if field.is_required() else [field.default] for name, field in self.model.model_fields.items()}

    def make_value(self, chance: Random) -> BaseModel:
        makers = {name: maker for name, (_, maker) in _REQUIRED.items()}
        makers |= {name: maker for name, (_, _, maker) in _OPTIONAL.items()}
        return self.model(**{name: makers[name](chance) for name in self.model.model_fields})


def name_of(definition: bytes) -> str:
    """Return a name that equal definitions share."""
    canonical = json.dumps(json.loads(definition), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def current(seed: str, chance: Random) -> tuple[Definition, float]:
    """Return a definition to write with, and until when."""
    generation, now = int(time.monotonic() / _GENERATION_S), time.monotonic()
    if not chance.randrange(_OLD_EVERY):
        return of_generation(seed, generation - 1 - chance.randrange(_OLDEST)), now + _GENERATION_S
    return of_generation(seed, generation), (generation + 1) * _GENERATION_S


def incompatible(chance: Random) -> Definition:
    """Return a new definition that the topic must refuse."""
    number = chance.getrandbits(48)
    if chance.random() < 0.5:
        # This reader can't read what was written before.
        model = _model({**_required(), f"must_{number}": (int, ...)})
    else:
        model = _model({**_required(), "count": (str, ...), f"may_{number}": (int, 0)})
    return Definition(model, AvroSchema(model), compatible=False)


def of_generation(seed: str, generation: int) -> Definition:
    chance = Random(f"{seed} {generation}")
    return _compatible(frozenset(name for name in _OPTIONAL if chance.random() < 0.5))


@functools.cache
def _compatible(optional: frozenset[str], *, unwritten: bool = False) -> Definition:
    fields = _required()
    fields |= {name: (type_, default) for name, (type_, default, _) in _OPTIONAL.items() if name in optional}
    if unwritten:
        name, type_, default = _UNWRITTEN
        fields[name] = (type_, default)
    model = _model(fields)
    return Definition(model, AvroSchema(model))


def _required() -> dict[str, Any]:
    return {name: (type_, ...) for name, (type_, _) in _REQUIRED.items()}


def _model(fields: Mapping[str, Any]) -> type[BaseModel]:
    # All definitions have the record's name.
    model: type[BaseModel] = create_model("Reading", **fields)
    return model


# Of readers: one lacks most of what writers write, and one has more.
OLDER: Final = _compatible(frozenset({"label"}))
NEWER: Final = _compatible(frozenset(_OPTIONAL), unwritten=True)
