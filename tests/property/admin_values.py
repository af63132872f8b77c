"""Hypothesis strategies for the admin API: messages from their descriptors, and JSON values from their schemas."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from magnetar_protos.admin_pb2 import PeekedEntry
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.http.route import Route
from magnetar_wire.entry import encode_entry

__all__ = ["JSON", "json_values", "messages", "requests"]

_MAX_DEPTH: Final = 4
_NAMES: Final = st.sampled_from(["a", "acme", "x-1", "0", "true", "ünïcode", "a b", "50%", "a+b&c=d", "?#", ".."])
_TEXTS: Final = _NAMES | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_DOMAINS: Final = st.sampled_from(["persistent", "non-persistent"])
# The names of a path: not empty, and no slash, which no name has.
_SEGMENTS: Final = _TEXTS.map(lambda text: text.replace("/", "_") or "n").map(lambda text: f"n{text}")

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _entries(draw: st.DrawFn) -> bytes:
    """A stored entry, with any metadata that a producer can write."""
    metadata = draw(messages(MessageMetadata))
    for name in ("producer_name", "sequence_id", "publish_time"):
        if not metadata.HasField(name):
            setattr(metadata, name, draw(_scalars(metadata.DESCRIPTOR.fields_by_name[name])))
    metadata.ClearField("compression")
    payload = draw(st.binary(max_size=4))
    return encode_entry(metadata, payload) if metadata.IsInitialized() else b""


def _scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.full_name == PeekedEntry.DESCRIPTOR.fields_by_name["stored"].full_name:
        return _entries()
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=4)
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _TEXTS
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return st.floats(-1e9, 1e9, width=32 if kind == FieldDescriptor.CPPTYPE_FLOAT else 64)
    bits = 32 if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], only: frozenset[str] | None = None, depth: int = 0) -> Any:
    """A message of this type, with some of its fields; `only`: of these names."""
    message: Any = kind()
    _fill(draw, message, only, depth)
    return message


def _fill(draw: st.DrawFn, message: Any, only: frozenset[str] | None, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if (only is not None and field.name not in only) or draw(st.integers(0, 2)) < (1 if depth == 0 else 2):
            continue
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, field.name).extend(draw(st.lists(_scalars(field), max_size=2)))
            else:
                setattr(message, field.name, draw(_scalars(field)))
        elif depth < _MAX_DEPTH:
            _fill_messages(draw, message, field, depth)


def _fill_messages(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    target = getattr(message, field.name)
    kind: Any = field.message_type
    if kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        for name in draw(st.lists(_scalars(key), max_size=2)):
            if value.message_type is None:
                target[name] = draw(_scalars(value))
            else:
                _fill(draw, target[name], None, depth + 1)
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 2))):
            _fill(draw, target.add(), None, depth + 1)
    else:
        target.SetInParent()
        _fill(draw, target, None, depth + 1)


def requests(call: AdminCall, route: Route) -> st.SearchStrategy[Any]:
    """Requests of the call, with fields that the route has."""

    # Without arguments, which Hypothesis would print: a row is very long.
    @st.composite
    def make(draw: st.DrawFn) -> Any:
        return _draw_request(draw, call, route)

    return make()


def _draw_request(draw: st.DrawFn, call: AdminCall, route: Route) -> Any:
    carried = {name for part in route.query.values() for name in _fields(part)}
    carried |= route.body.fields if route.body is not None else frozenset()
    placeholders = {name for name, _ in route.placeholders}
    message = draw(messages(call.request, frozenset(carried - placeholders - set(route.fixed) - set(route.implied))))
    for name, kind in route.placeholders:
        *parents, last = name.split(".")
        owner = message
        for parent in parents:
            owner = getattr(owner, parent)
        field = owner.DESCRIPTOR.fields_by_name[last]
        value = draw(_placeholder(field, kind))
        if field.is_repeated:
            getattr(owner, last)[:] = [value]
        else:
            setattr(owner, last, value)
    for name, value in {**route.fixed, **route.implied}.items():
        if isinstance(value, Message):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, list | tuple):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    if "schema" in placeholders | carried:
        message.schema.ClearField("name")  # Pulsar's API has none
    return message


def _fields(part: Any) -> frozenset[str]:
    return frozenset([part]) if isinstance(part, str) else part.fields


def _placeholder(field: FieldDescriptor, kind: str) -> st.SearchStrategy[Any]:
    if kind == "stored":
        return st.builds("persistent://{}/{}/{}".format, _SEGMENTS, _SEGMENTS, _SEGMENTS)
    if kind == "topic":
        return st.builds("{}://{}/{}/{}".format, _DOMAINS, _SEGMENTS, _SEGMENTS, _SEGMENTS)
    if kind == "namespace":
        return st.builds("{}/{}".format, _SEGMENTS, _SEGMENTS)
    return _SEGMENTS if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else _scalars(field)


def json_values(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a JSON schema, as json/parts.py makes it, mostly valid."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return st.one_of([json_values(one) for one in schema[several]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([json_values({**schema, "type": one}) for one in kind])
    if kind == "object":
        properties = {name: json_values(one) for name, one in schema.get("properties", {}).items()}
        required = {name: properties.pop(name) for name in schema.get("required", ())}
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            return st.dictionaries(_TEXTS, json_values(more), max_size=2)
        return st.fixed_dictionaries(required, optional=properties)
    if kind == "array":
        return st.lists(json_values(schema.get("items", {})), max_size=2)
    if kind == "integer":
        return st.integers(schema.get("minimum", -(2**70)), schema.get("maximum", 2**70))
    if kind == "number":
        return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "null":
        return st.none()
    return _TEXTS if kind == "string" else JSON
