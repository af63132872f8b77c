"""Hostile definitions: what they cost in memory is bounded, and all work on them is counted (SCH-2)."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas import compatibility, protobuf_definitions
from magnetar_broker.schemas.avro_definitions import MAX_NAME_LENGTH, Field, RecordType
from magnetar_broker.schemas.avro_equality import describe_equality
from magnetar_broker.schemas.avro_resolution import find_read_problem
from magnetar_broker.schemas.definitions import examine, parse_avro_schema
from magnetar_broker.schemas.work_budget import WorkBudget
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema

_TOO_LONG: Final = f"and at most {MAX_NAME_LENGTH} are allowed"
_TOO_MUCH: Final = "names have more than 4194304 characters"


def _avro(definition: Any) -> Schema:
    return Schema(type="JSON", definition=json.dumps(definition).encode())


def _record(*fields: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def _field(name: str, field_type: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": field_type, **attributes}


def _fixed(name: str) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": 1}


def _native(file: FileDescriptorProto) -> Schema:
    encoded = base64.b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
    document = {"fileDescriptorSet": encoded, "rootMessageTypeName": "M", "rootFileDescriptorName": "f"}
    return Schema(type="PROTOBUF_NATIVE", definition=json.dumps(document).encode())


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        (_record(namespace="n" * 20_000), _TOO_LONG),
        (_record(namespace="n" * 900, aliases=["a" * 100]), _TOO_LONG),
        (_record(_field("f", _fixed("n" * 500)), namespace="n" * 500), _TOO_LONG),
        (_record(namespace="n" * 900, aliases=[f"a{number}" for number in range(5000)]), _TOO_MUCH),
        (_record(*(_field(f"f{n}", _fixed(f"x{n}")) for n in range(5000)), namespace="n" * 900), _TOO_MUCH),
        (_record(aliases=["a"] * 50_000), "more than 50000 types, fields, symbols, aliases"),
        (_record(_field("f", "int", aliases=["a"] * 50_000)), "more than 50000 types, fields, symbols, aliases"),
    ],
)
def test_names_with_their_namespaces_are_bounded(definition: Any, error: str) -> None:
    """(SCH-2) A namespace is part of each name: 216 kB would take gigabytes."""
    with pytest.raises(BrokerError, match=error):
        examine(_avro(definition))
    examine(_avro(_record(_field("f", _fixed("x" * 495)), namespace="n" * 495, aliases=["a" * 495])))


def test_references_do_not_repeat_a_long_name() -> None:
    """(SCH-2)"""
    definition = _record(*(_field(f"f{number}", "R") for number in range(500)), namespace="n" * 900)
    parsed = parse_avro_schema(_avro(definition))
    assert parsed is not None
    assert len(describe_equality(parsed, WorkBudget())) < 50_000


_LONG: Final = "n" * 900
_FIELDS: Final = DescriptorProto(name="M", field=[FieldDescriptorProto(name=f"f{number}") for number in range(5000)])


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (
            FileDescriptorProto(package=_LONG, message_type=[DescriptorProto(name=f"m{n}") for n in range(5000)]),
            _TOO_MUCH,
        ),
        (FileDescriptorProto(package=_LONG, message_type=[_FIELDS]), _TOO_MUCH),
        (FileDescriptorProto(package="p" * 20_000, message_type=[DescriptorProto(name="M")]), _TOO_LONG),
        (FileDescriptorProto(message_type=[DescriptorProto(name="M")] * 60_000), "more than 50000 messages"),
        (
            FileDescriptorProto(
                message_type=[DescriptorProto(name=_LONG, nested_type=[DescriptorProto(name="m" * 99)])]
            ),
            _TOO_LONG,
        ),
        (
            FileDescriptorProto(
                package=_LONG,
                enum_type=[
                    EnumDescriptorProto(name="E", value=[EnumValueDescriptorProto(name=f"v{n}") for n in range(5000)])
                ],
            ),
            _TOO_MUCH,
        ),
        (
            FileDescriptorProto(
                package=_LONG,
                service=[
                    ServiceDescriptorProto(name="S", method=[MethodDescriptorProto(name=f"m{n}") for n in range(5000)])
                ],
            ),
            _TOO_MUCH,
        ),
    ],
)
def test_names_with_their_package_are_bounded(
    file: FileDescriptorProto, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(SCH-2) Before descriptors are built, which have all full names."""
    monkeypatch.setattr(protobuf_definitions, "DescriptorPool", None)
    file.name = "f"
    with pytest.raises(BrokerError, match=error):
        examine(_native(file))


class _Counted(dict[str, Field]):
    """Counts the fields that a comparison looks at one by one."""

    seen = 0

    def values(self) -> Any:
        for each in super().values():
            self.seen += 1
            yield each


def test_fields_that_are_looked_at_are_counted() -> None:
    """(SCH-2) Each record of two unions has a field of a large record: that is compared with the other one once."""

    def make(prefix: str, *more: Any) -> RecordType:
        numbers = [_field(f"g{number}", "int", default=0) for number in range(500)]
        large = _record(*numbers, *more, name=f"{prefix}Large")
        branches = [_record(_field("x", f"{prefix}Large"), name=f"{prefix}{number}") for number in range(20)]
        parsed = parse_avro_schema(
            _avro(_record(_field(f"large{prefix}", large, default={"z": 0}), _field("u", branches)))
        )
        assert isinstance(parsed, RecordType)
        return parsed

    reader = make("B", _field("z", "int"))
    large = reader.fields["largeB"].type
    assert isinstance(large, RecordType)
    counted = large.fields = _Counted(large.fields)
    budget = WorkBudget()
    assert find_read_problem(make("A"), reader, budget) is not None
    assert counted.seen <= budget.spent < 20_000


def _compare_enums(symbols: list[str], others: list[str]) -> int:
    """Return how much work it is to compare ten unions with the same enum."""
    unions = [_field(f"f{number}", ["null", "E"]) for number in range(10)]
    writer, reader = (
        parse_avro_schema(_avro(_record(_field("e", {"type": "enum", "name": "E", "symbols": each}), *unions)))
        for each in (symbols, others)
    )
    assert writer is not None
    assert reader is not None
    budget = WorkBudget()
    assert find_read_problem(writer, reader, budget) is None
    return budget.spent


def _compare(writer: Any, reader: Any) -> int:
    """Return how much work it is to find whether the reader can read what the writer writes."""
    budget = WorkBudget()
    types = parse_avro_schema(_avro(writer)), parse_avro_schema(_avro(reader))
    assert types[0] is not None
    assert types[1] is not None
    find_read_problem(types[0], types[1], budget)
    return budget.spent


_MANY: Final = [_field(f"f{number}", "int") for number in range(1000)]
_ENUMS: Final = [{"type": "enum", "name": f"E{number}", "symbols": []} for number in range(1000)]


@pytest.mark.parametrize(
    ("writer", "reader", "steps"),
    [
        # The reader's fields are listed and seen for aliases, and looked for in the writer's record.
        (_record(), _record(*_MANY), 2000 + 1000),
        # The writer's are looked for in the reader's record, perhaps renamed before, and compared.
        (_record(*_MANY), _record(), 1000),
        (_record(*_MANY), _record(_field("a", "int", aliases=["f0"])), 1000 + 1000),
        (_record(*_MANY), _record(*_MANY), 2000 + 1000 + 1000 + 1000),
        (_record(_field("u", _ENUMS)), _record(_field("u", "int")), 1000),
        (_record(_field("u", "int")), _record(_field("u", _ENUMS)), 2000 + 1000),
        # Of unions that are equal, pairs of types are listed, seen and remembered, and names compared.
        (_ENUMS, _ENUMS, 2000 + 1000 + 1000 + 8000),
        ([_record(*_MANY)], [_record(*_MANY)], 2000 + 1000 + 1000 + 8000 + 1000 // 16),
        (_record(), _record(aliases=["a"] * 1000), 1000),
    ],
)
def test_all_that_is_looked_at_is_counted(writer: Any, reader: Any, steps: int) -> None:
    """(SCH-2)"""
    assert steps <= _compare(writer, reader) < steps + 40


def test_symbols_that_are_compared_are_counted_once() -> None:
    """(SCH-2) Also if they differ."""
    symbols = [f"s{number}" for number in range(1600)]
    for others, few in ((symbols, symbols[:1]), ([*symbols[:-1], "other"], ["other"])):
        assert _compare_enums(symbols, others) - _compare_enums(symbols[:1], few) == 100


def test_bytes_of_definitions_are_counted() -> None:
    """(SCH-2) There may be many versions."""
    for definition in (_record(doc="x" * 8000), {"type": "object", "x": ["x" * 8000]}):
        for work in (examine, parse_avro_schema):
            budget = WorkBudget()
            work(Schema(type="JSON", definition=json.dumps(definition).encode()), budget)
            assert 2000 <= budget.spent < 2100
    budget = WorkBudget()
    with pytest.raises(BrokerError):
        examine(Schema(type="PROTOBUF_NATIVE", definition=json.dumps("x" * 8000).encode()), budget)
    assert budget.spent >= 2000


def test_parts_of_definitions_are_counted() -> None:
    """(SCH-2)"""
    message = DescriptorProto(name="M", nested_type=[DescriptorProto(name=f"m{number}") for number in range(1000)])
    # Fields are parsed and described, messages counted before they are built.
    for schema, parts in (
        (_avro(_record(*_MANY)), 2000),
        (_native(FileDescriptorProto(name="f", message_type=[message])), 1000),
    ):
        budget = WorkBudget()
        examine(schema, budget)
        assert 0 <= budget.spent - len(schema.definition) // 4 - parts < 40


def test_cancelled_work_ends() -> None:
    """No caller waits any more: what is done for it in a thread ends."""
    schema, other = _avro(_record()), _avro(_record(name="S"))
    budget = WorkBudget()
    budget.cancel()
    for work in (
        lambda: examine(schema, budget),
        lambda: compatibility.check_compatible(schema, [(0, other)], SchemaCompatibility.FULL, budget),
        lambda: compatibility.check_readable(schema, [(0, other)], SchemaCompatibility.FULL, budget),
    ):
        with pytest.raises(BrokerError) as raised:
            work()
        assert raised.value.code == ErrorCode.SERVICE_NOT_READY
