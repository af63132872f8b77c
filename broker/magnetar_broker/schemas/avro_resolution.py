"""Whether readers with one Avro schema can read what was written with another.

The rules are those by which Avro 1.11 for Java resolves a writer's and a reader's schema, since Pulsar decides by them:

- Records match by their fields, not by their names. Fields match by name, or by an alias of the reader's. A field
  that only the reader has needs a default.
- Enums and fixed types match by name without namespace, or by an alias of the reader's; fixed types by size, too. A
  symbol that only the writer has is no problem of the schemas, but of a message that has it.
- int becomes long, float and double; long becomes float and double; float becomes double; string and bytes become each
  other.
- Each branch of the writer's union must be readable. The reader's union reads with the branch of the same name, else a
  record whose fields match, else the first to which the type can be promoted.
- Logical types and other properties don't matter.

Named types refer to each other in any way, also in circles. So pairs of types wait in a list rather than on the stack,
and each pair of records is compared once: a pair that is met again is part of the same question. All that grows with
the schemas spends from one budget, because a union of thousands of records is compared with another one pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from magnetar_broker.schemas.avro_definitions import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from magnetar_broker.schemas.work_budget import WorkBudget, too_complex

__all__ = ["ReadProblem", "Rule", "find_read_problem"]

# What it costs to remember a pair of types: less time than memory.
_PAIR_STEPS: Final = 8
# Names that are compared in order for one step.
_SYMBOLS_PER_STEP: Final = 16
# Records in unions of records in unions, which only differ in name.
_MAX_TRIALS: Final = 50
# Characters of a path or a name in an error.
_MAX_SHOWN: Final = 200
# What a type can be read as. The order does not matter: the reader's union decides it.
_PROMOTIONS: Final[dict[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}


class Rule(Enum):
    # A field that only the reader has is without a default.
    DEFAULT = auto()
    TYPE = auto()
    NAME = auto()
    SIZE = auto()
    # The reader's union has no branch for the type.
    BRANCH = auto()
    # The reader's aliases give two fields of the writer one name.
    ALIASES = auto()


@dataclass(frozen=True, slots=True)
class ReadProblem:
    rule: Rule
    # Of the field or type in the schemas, from the root.
    path: str
    # What the writer and the reader have there, by the rule: names, sizes or types.
    writer: str = ""
    reader: str = ""


def find_read_problem(writer: AvroType, reader: AvroType, budget: WorkBudget) -> ReadProblem | None:
    """Return why a reader can't read all that the writer can write; None: it can."""
    return _Resolution(_Aliases(reader, budget), budget).find_problem(writer, reader)


@dataclass(slots=True)
class _Pair:
    writer: AvroType
    reader: AvroType
    # Parts of the path, from the last to the first.
    path: _Path


@dataclass(slots=True)
class _Path:
    before: _Path | None
    part: str

    def show(self) -> str:
        parts: list[str] = []
        path: _Path | None = self
        # A path through a chain of thousands of records is cut.
        while path is not None and len(parts) < 50:
            parts.append(path.part)
            path = path.before
        shown = ("…" if path else "") + "".join(reversed(parts))
        return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


class _Aliases:
    """Names of the writer's types and fields, as the reader calls them."""

    def __init__(self, reader: AvroType, budget: WorkBudget) -> None:
        self._budget = budget
        self._types: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        # By ids of the writer's records.
        self._renamed: dict[int, tuple[dict[str, Field], str]] = {}
        self._collect(reader)

    def _collect(self, reader: AvroType) -> None:
        waiting: list[AvroType] = [reader]
        seen: set[int] = set()
        while waiting:
            each = waiting.pop()
            self._budget.spend(1 + _size(each))
            if isinstance(each, NamedType):
                if id(each) in seen:
                    continue
                seen.add(id(each))
                self._budget.spend(len(each.aliases))
                self._types.update(dict.fromkeys(each.aliases, each.name))
            waiting += _children(each)
            if isinstance(each, RecordType):
                self._collect_fields(each)

    def _collect_fields(self, record: RecordType) -> None:
        aliases = {alias: each.name for each in record.fields.values() for alias in each.aliases}
        if aliases:
            self._fields[record.name] = aliases

    def name(self, written: NamedType) -> str:
        return self._types.get(written.name, written.name)

    def fields(self, written: RecordType) -> tuple[dict[str, Field], str]:
        """Return the fields by their names for the reader, and a name that two of them have."""
        aliases = self._fields.get(self.name(written))
        if not aliases:
            return written.fields, ""
        if id(written) not in self._renamed:
            self._budget.spend(_PAIR_STEPS + len(written.fields))
            self._renamed[id(written)] = _rename(written, aliases)
        return self._renamed[id(written)]


def _rename(written: RecordType, aliases: dict[str, str]) -> tuple[dict[str, Field], str]:
    renamed: dict[str, Field] = {}
    for each in written.fields.values():
        name = aliases.get(each.name, each.name)
        if name in renamed:
            return renamed, name
        renamed[name] = each
    return renamed, ""


def _size(avro_type: AvroType) -> int:
    """Return how many types `_children` returns."""
    if isinstance(avro_type, RecordType):
        return len(avro_type.fields)
    return len(avro_type.branches) if isinstance(avro_type, UnionType) else isinstance(avro_type, ArrayType | MapType)


def _children(avro_type: AvroType) -> list[AvroType]:
    if isinstance(avro_type, RecordType):
        return [each.type for each in avro_type.fields.values()]
    if isinstance(avro_type, UnionType):
        return avro_type.branches
    if isinstance(avro_type, ArrayType):
        return [avro_type.items]
    return [avro_type.values] if isinstance(avro_type, MapType) else []


@dataclass(slots=True)
class _Resolution:
    aliases: _Aliases
    budget: WorkBudget
    waiting: list[_Pair] = field(default_factory=list)
    # By ids of writer and reader: records that wait or were compared.
    compared: set[tuple[int, int]] = field(default_factory=set)
    # Of two records: the name of a field that has no value or two, and the rule.
    broken: dict[tuple[int, int], tuple[Rule, str] | None] = field(default_factory=dict)
    # Whether the fields of two records match, as far as it was found out.
    matching: dict[tuple[int, int], bool] = field(default_factory=dict)
    equal: set[tuple[int, int]] = field(default_factory=set)
    different: set[tuple[int, int]] = field(default_factory=set)
    trials: int = 0

    def find_problem(self, writer: AvroType, reader: AvroType) -> ReadProblem | None:
        root = reader.short_name if isinstance(reader, NamedType) else ""
        self.budget.spend()
        self.waiting.append(_Pair(writer, reader, _Path(None, root)))
        while self.waiting:
            pair = self.waiting.pop()
            problem = self._compare(pair)
            if problem is not None:
                return problem
        return None

    def _compare(self, pair: _Pair) -> ReadProblem | None:
        writer, reader = pair.writer, pair.reader
        if isinstance(writer, UnionType):
            if not self._are_equal(writer, reader):
                self._add_all(_Pair(branch, reader, pair.path) for branch in writer.branches)
            return None
        if isinstance(reader, UnionType) and type(writer) is not UnionType:
            branch = self._choose_branch(writer, reader)
            if branch is None:
                return _problem(Rule.BRANCH, pair)
            return self._compare(_Pair(writer, branch, pair.path))
        if isinstance(writer, RecordType) and isinstance(reader, RecordType):
            return self._compare_records(pair, writer, reader)
        if isinstance(writer, ArrayType) and isinstance(reader, ArrayType):
            self._add_all((_Pair(writer.items, reader.items, _Path(pair.path, "[]")),))
            return None
        if isinstance(writer, MapType) and isinstance(reader, MapType):
            self._add_all((_Pair(writer.values, reader.values, _Path(pair.path, "{}")),))
            return None
        rule = self._find_broken_rule(writer, reader)
        return None if rule is None else _problem(rule, pair)

    def _add_all(self, pairs: Iterable[_Pair]) -> None:
        """Let pairs wait. The first one is compared first."""
        added = list(pairs)
        self.budget.spend(len(added))
        self.waiting += reversed(added)

    def _compare_records(self, pair: _Pair, writer: RecordType, reader: RecordType) -> ReadProblem | None:
        key = (id(writer), id(reader))
        if key in self.compared:
            return None
        self.compared.add(key)
        self.budget.spend(_PAIR_STEPS + len(writer.fields))
        broken = self._find_broken_field(writer, reader)
        if broken is not None:
            rule, name = broken
            return ReadProblem(rule, _Path(pair.path, f".{name}").show())
        self._add_all(
            _Pair(each.type, reader.fields[name].type, _Path(pair.path, f".{name}"))
            for name, each in self.aliases.fields(writer)[0].items()
            if name in reader.fields
        )
        return None

    def _find_broken_field(self, writer: RecordType, reader: RecordType) -> tuple[Rule, str] | None:
        """Return the rule and name of a field that has no value for the reader, or two."""
        key = (id(writer), id(reader))
        if key not in self.broken:
            self.budget.spend(_PAIR_STEPS + len(reader.fields))
            written, twice = self.aliases.fields(writer)
            missing = "" if twice else _find_missing(written, reader)
            self.broken[key] = (Rule.ALIASES, twice) if twice else (Rule.DEFAULT, missing) if missing else None
        return self.broken[key]

    def _have_same_name(self, writer: NamedType, reader: NamedType) -> bool:
        return self.aliases.name(writer).rpartition(".")[2] == reader.short_name

    def _find_broken_rule(self, writer: AvroType, reader: AvroType) -> Rule | None:
        """Compare types without content."""
        if isinstance(writer, PrimitiveType) and isinstance(reader, PrimitiveType):
            can_read = writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())
            return None if can_read else Rule.TYPE
        if type(writer) is not type(reader):
            return Rule.TYPE
        if isinstance(writer, NamedType) and isinstance(reader, NamedType) and not self._have_same_name(writer, reader):
            return Rule.NAME
        if isinstance(writer, FixedType) and isinstance(reader, FixedType) and writer.size != reader.size:
            return Rule.SIZE
        return None

    def _choose_branch(self, writer: AvroType, reader: UnionType) -> AvroType | None:
        self.budget.spend(len(reader.branches))
        name = self.aliases.name(writer) if isinstance(writer, NamedType) else writer.label
        by_structure: RecordType | None = None
        for branch in reader.branches:
            if type(branch) is not type(writer):
                continue
            if branch.label == name:
                return branch
            if isinstance(writer, RecordType) and isinstance(branch, RecordType) and self._do_match(writer, branch):
                # Among those whose fields match, one of the same name without namespace, else the first.
                by_structure = branch if by_structure is None or self._have_same_name(writer, branch) else by_structure
        if by_structure is not None:
            return by_structure
        for branch in reader.branches:
            if isinstance(branch, PrimitiveType) and branch.kind in _PROMOTIONS.get(writer.label, ()):
                return branch
        return None

    def _do_match(self, writer: RecordType, reader: RecordType) -> bool:
        """Return whether a union's record is for the writer's: by defaults and types of fields, but not by what is in
        arrays, maps and records of these fields."""
        key = (id(writer), id(reader))
        if key not in self.matching:
            self.budget.spend(_PAIR_STEPS + len(writer.fields))
            # A record that contains itself matches, unless something else is found.
            self.matching[key] = True
            self.trials += 1
            if self.trials > _MAX_TRIALS:
                raise too_complex(f"records in unions of records are nested deeper than {_MAX_TRIALS} levels")
            self.matching[key] = self._do_fields_match(writer, reader)
            self.trials -= 1
        return self.matching[key]

    def _do_fields_match(self, writer: RecordType, reader: RecordType) -> bool:
        if self._find_broken_field(writer, reader) is not None:
            return False
        written, _ = self.aliases.fields(writer)
        return not any(
            self._is_mismatch(each.type, reader.fields[name].type)
            for name, each in written.items()
            if name in reader.fields
        )

    def _is_mismatch(self, writer: AvroType, reader: AvroType) -> bool:
        if isinstance(writer, UnionType):
            return False
        if isinstance(reader, UnionType):
            branch = self._choose_branch(writer, reader)
            return branch is None
        if isinstance(writer, RecordType) and isinstance(reader, RecordType):
            return self._find_broken_field(writer, reader) is not None
        return self._find_broken_rule(writer, reader) is not None

    def _are_equal(self, writer: AvroType, reader: AvroType) -> bool:
        """Return whether two unions are the same, but for namespaces: then each branch is read by the one in its
        position."""
        if not isinstance(reader, UnionType):
            return False
        waiting: list[tuple[AvroType, AvroType]] = [(writer, reader)]
        seen: set[tuple[int, int]] = set()
        while waiting:
            one, other = waiting.pop()
            self.budget.spend()
            key = (id(one), id(other))
            if key in seen or key in self.equal:
                continue
            if key in self.different or not self._look_equal(one, other):
                self.budget.spend(2 * _PAIR_STEPS)
                self.different |= {key, (id(writer), id(reader))}
                return False
            self.budget.spend(_PAIR_STEPS + _size(one))
            seen.add(key)
            waiting += zip(_children(one), _children(other), strict=True)
        self.equal |= seen
        return True

    def _look_equal(self, one: AvroType, other: AvroType) -> bool:
        if type(one) is not type(other):
            return False
        if isinstance(one, NamedType) and isinstance(other, NamedType) and not self._have_same_name(one, other):
            return False
        if isinstance(one, PrimitiveType) and isinstance(other, PrimitiveType):
            return one.kind == other.kind
        if isinstance(one, FixedType) and isinstance(other, FixedType):
            return one.size == other.size
        if isinstance(one, EnumType) and isinstance(other, EnumType):
            self.budget.spend(len(one.symbols) // _SYMBOLS_PER_STEP)
            return len(one.symbols) == len(other.symbols) and list(one.symbols) == list(other.symbols)
        if isinstance(one, RecordType) and isinstance(other, RecordType):
            self.budget.spend(len(one.fields) // _SYMBOLS_PER_STEP)
            written, twice = self.aliases.fields(one)
            return not twice and len(written) == len(other.fields) and list(written) == list(other.fields)
        return _size(one) == _size(other)


def _find_missing(written: dict[str, Field], reader: RecordType) -> str:
    """Return the first field that only the reader has, and that has no default."""
    return next((each.name for each in reader.fields.values() if each.name not in written and not each.has_default), "")


def _problem(rule: Rule, pair: _Pair) -> ReadProblem:
    if rule is Rule.SIZE:
        assert isinstance(pair.writer, FixedType)
        assert isinstance(pair.reader, FixedType)
        return ReadProblem(rule, pair.path.show(), str(pair.writer.size), str(pair.reader.size))
    return ReadProblem(rule, pair.path.show(), _describe(pair.writer), _describe(pair.reader))


def _describe(avro_type: AvroType) -> str:
    if isinstance(avro_type, UnionType):
        shown = ", ".join(branch.label for branch in avro_type.branches[:10])[:_MAX_SHOWN]
        return f"[{shown}{', …' if len(avro_type.branches) > 10 else ''}]"
    return avro_type.label[:_MAX_SHOWN]
