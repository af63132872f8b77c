"""Convert between JSON values and protobuf messages, in both directions, from one declaration.

A `Part` declares which part of a message a JSON value stands for:

    Field("settings.admin_roles")            a field: a number, a text, a list, a map with text keys …
    Field("ledgers", of=LEDGER)              a repeated message: a JSON array
    Field("subscriptions", of=SUBSCRIPTION, key="subscription")     … or an object whose names are a field of each
    Object({"adminRoles": "admin_roles"})    a JSON object; a text stands for the `Field` of that name
    Converted("at", to_json, from_json)      a field whose JSON value is written in another way
    Defaulted(Field("size"), -1)             a part that is written with this value if it is absent
    QueryText(Field("size"))                 a number or truth value that is a text, as in the query of a path
    Either(Field("partitions"), Object(…))   an object, or a shorter value that carries less

The broker reads requests and writes answers with it, the client writes requests and reads answers, and the
description of the HTTP API (`schema`) is made from it, so they can't differ.

JSON from the network is checked here: a value of the wrong type, or a number out of the field's range, is an
`InvalidJson` that names the value. Names of an object that are not declared are ignored, as Pulsar does. `null` is the
same as absent.
"""

from __future__ import annotations

import base64
import json
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from magnetar_wire.admin.json.values import (
    InvalidJson,
    OutOfRange,
    check_not_null,
    check_text,
    check_type,
    decode_base64,
    format_value,
    join_path,
    parse_json,
)

__all__ = [
    "Converted",
    "Defaulted",
    "Either",
    "Field",
    "Object",
    "Part",
    "QueryText",
]

Schema: TypeAlias = dict[str, Any]

_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS: Final = {
    FieldDescriptor.CPPTYPE_DOUBLE: sys.float_info.max,
    FieldDescriptor.CPPTYPE_FLOAT: (2 - 2**-23) * 2.0**127,
}


# What converting functions raise for a value that does not fit, those of numbers and protobuf among them.
_WRONG_VALUES: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)


class Part:
    """A part of a message that is one JSON value."""

    # The fields of the message that it stands for, by their first names.
    fields: frozenset[str]

    def to_json(self, message: Message) -> Any:
        """Return the JSON value; None: there is none."""
        raise NotImplementedError

    def fill(self, message: Message, value: Any, where: str) -> None:
        """Set the fields from the JSON value, which is not None. Raises InvalidJson."""
        raise NotImplementedError

    def schema(self, descriptor: Any) -> Schema:
        """Return the JSON schema of the value, for a message of this descriptor."""
        raise NotImplementedError

    def carries(self, message: Message) -> bool:
        """Whether the JSON value has everything that the message has in these fields."""
        return True


class Field(Part):
    """A field, or one of a nested message: "received.messages"."""

    def __init__(
        self,
        path: str,
        of: Part | None = None,
        *,
        key: str = "",
        names: Mapping[str, int] | None = None,
        absent_if_empty: bool = False,
    ) -> None:
        """`of`: the part of the field's message. `key`: its field, a text or a number, with the names of a JSON object.
        `names`: of the values of an enumeration, if they are not those of the .proto file in lower case.
        `absent_if_empty`: an empty list or map, 0 and so on is no value."""
        self.fields = frozenset([path.partition(".")[0]])
        *self._parents, self._name = path.split(".")
        self._of = of
        self._key = key
        self._names = names
        self._absent_if_empty = absent_if_empty
        # By the class of the field's message: whether the field has presence, and what converts its value. Statistics
        # have a hundred fields, and looking up their descriptors each time took half of the time of an answer.
        self._writers: dict[type, tuple[bool, Callable[[Any], Any]]] = {}

    def to_json(self, message: Message) -> Any:
        owner: Any = message
        for name in self._parents:
            if not owner.HasField(name):
                return None
            owner = getattr(owner, name)
        kind = type(owner)
        writer = self._writers.get(kind)
        if writer is None:
            field = owner.DESCRIPTOR.fields_by_name[self._name]
            writer = self._writers[kind] = field.has_presence, self._make_writer(field)
        has_presence, write = writer
        if has_presence and not owner.HasField(self._name):
            return None
        value = getattr(owner, self._name)
        return None if self._absent_if_empty and not value else write(value)

    def fill(self, message: Message, value: Any, where: str) -> None:
        owner = message
        for name in self._parents:
            owner = getattr(owner, name)
        field = owner.DESCRIPTOR.fields_by_name[self._name]
        if _is_map(field):
            target = getattr(owner, self._name)
            for name, one in check_type(value, dict, "an object", where).items():
                path = join_path(where, name)
                target[name] = check_text(one, path)
        elif not field.is_repeated:
            self._fill_one(owner, field, value, where)
        elif self._key:
            for name, one in check_type(value, dict, "an object", where).items():
                path = join_path(where, name)
                added = getattr(owner, self._name).add()
                self._part.fill(added, check_not_null(one, path), path)
                _set_key(added, self._key, name, where)
        else:
            target = getattr(owner, self._name)
            for index, one in enumerate(check_type(value, list, "an array", where)):
                path = f"{where}[{index}]"
                if field.message_type is not None:
                    self._part.fill(target.add(), check_not_null(one, path), path)
                else:
                    target.append(self._scalar(field, check_not_null(one, path), path))

    def schema(self, descriptor: Any) -> Schema:
        for name in self._parents:
            descriptor = descriptor.fields_by_name[name].message_type
        field = descriptor.fields_by_name[self._name]
        if _is_map(field):
            return {"type": "object", "additionalProperties": {"type": "string"}}
        one = self._part.schema(field.message_type) if field.message_type else self._scalar_schema(field)
        if not field.is_repeated:
            return one
        return {"type": "object", "additionalProperties": one} if self._key else {"type": "array", "items": one}

    def carries(self, message: Message) -> bool:
        field, owner = self._locate(message)
        if self._of is None or owner is None or field.is_repeated or not owner.HasField(self._name):
            return True
        value = getattr(owner, self._name)
        return {one.name for one, _ in value.ListFields()} <= self._of.fields and self._of.carries(value)

    @property
    def _part(self) -> Part:
        assert self._of is not None, f"the field {self._name} is a message: say its part"
        return self._of

    def _locate(self, message: Message) -> tuple[Any, Any]:
        """Return the field's descriptor, and its message; None if that is absent."""
        owner = message
        for name in self._parents:
            if not owner.HasField(name):
                return None, None
            owner = getattr(owner, name)
        return owner.DESCRIPTOR.fields_by_name[self._name], owner

    def find_plain(self, descriptor: Any) -> _Plain | None:
        """Return the field, if its value is always there and is that of JSON; it is the message's own, or one of a
        nested message."""
        if len(self._parents) > 1 or self._absent_if_empty or type(self).to_json is not Field.to_json:
            return None
        for name in self._parents:
            descriptor = descriptor.fields_by_name[name].message_type
        field = descriptor.fields_by_name[self._name]
        is_number = field.cpp_type in _INTEGERS or field.cpp_type in _FLOATS
        is_plain = is_number or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BOOL)
        if field.is_repeated or field.has_presence or not is_plain:
            return None
        return _Plain("".join(self._parents), self._name, field.cpp_type in _FLOATS)

    def _make_writer(self, field: Any) -> Callable[[Any], Any]:
        """Return what makes the JSON value of the field's value."""
        if _is_map(field):
            return dict
        write_one = self._make_writer_of_one(field)
        if not field.is_repeated:
            return write_one
        if not self._key:
            return lambda values: [write_one(one) for one in values]

        def write_object(values: Any) -> dict[str, Any]:
            found = {str(getattr(one, self._key)): write_one(one) for one in values}
            return {name: one for name, one in found.items() if one is not None}

        return write_object

    def _make_writer_of_one(self, field: Any) -> Callable[[Any], Any]:
        if field.message_type is not None:
            return self._part.to_json
        if field.enum_type is not None:
            names = {number: name for name, number in reversed(list(self._enum(field).items()))}
            return lambda number: names.get(number, str(number))
        if field.cpp_type in _FLOATS:
            return lambda value: value if math.isfinite(value) else 0.0
        if field.type == FieldDescriptor.TYPE_BYTES:
            return lambda value: base64.b64encode(value).decode()
        return lambda value: value

    def _fill_one(self, owner: Any, field: Any, value: Any, where: str) -> None:
        if field.message_type is not None:
            target = getattr(owner, self._name)
            target.SetInParent()
            self._part.fill(target, value, where)
        else:
            setattr(owner, self._name, self._scalar(field, value, where))

    def _scalar(self, field: Any, value: Any, where: str) -> Any:
        if field.enum_type is not None:
            known = self._enum(field)
            if not isinstance(value, str) or value not in known:
                raise InvalidJson(f"{where}: {format_value(value)} is none of {', '.join(known)}")
            return known[value]
        if field.cpp_type in _INTEGERS:
            lowest, highest = _INTEGERS[field.cpp_type]
            if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
                error = InvalidJson if isinstance(value, bool) or not isinstance(value, int) else OutOfRange
                raise error(f"{where}: {format_value(value)} is not a whole number from {lowest} to {highest}")
            return value
        if field.cpp_type in _FLOATS:
            largest = _FLOATS[field.cpp_type]
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= largest:
                raise InvalidJson(f"{where}: {format_value(value)} is not a number up to {largest:.3g}")
            return float(value)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return check_type(value, bool, "true or false", where)
        text = check_text(value, where)
        return text if field.type != FieldDescriptor.TYPE_BYTES else decode_base64(text, where)

    def _scalar_schema(self, field: Any) -> Schema:
        if field.enum_type is not None:
            return {"type": "string", "enum": list(self._enum(field))}
        if field.cpp_type in _INTEGERS:
            lowest, highest = _INTEGERS[field.cpp_type]
            return {"type": "integer", "minimum": lowest, "maximum": highest}
        if field.cpp_type in _FLOATS:
            return {"type": "number", "minimum": -_FLOATS[field.cpp_type], "maximum": _FLOATS[field.cpp_type]}
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {"type": "string", "contentEncoding": "base64"}
        return {"type": "boolean" if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else "string"}

    def _enum(self, field: Any) -> Mapping[str, int]:
        if self._names is None:
            self._names = {value.name.lower(): value.number for value in field.enum_type.values}
        return self._names


class Converted(Part):
    """A field of the message whose JSON value is made by functions of the field's value."""

    def __init__(
        self,
        name: str,
        to_json: Callable[[Any], Any],
        from_json: Callable[[Any], Any] | None = None,
        schema: Schema | None = None,
    ) -> None:
        """`from_json` raises ValueError for a wrong value; None: what is read is ignored."""
        self.fields = frozenset([name])
        # By the message's class: looking up the descriptor takes longer than most conversions.
        self._has_presence: dict[type, bool] = {}
        self._name = name
        self._to_json = to_json
        self._from_json = from_json
        self._schema = schema or {}

    def to_json(self, message: Message) -> Any:
        kind = type(message)
        has_presence = self._has_presence.get(kind)
        if has_presence is None:
            has_presence = self._has_presence[kind] = message.DESCRIPTOR.fields_by_name[self._name].has_presence
        if has_presence and not message.HasField(self._name):
            return None
        return self._to_json(getattr(message, self._name))

    def fill(self, message: Message, value: Any, where: str) -> None:
        if self._from_json is None:
            return
        try:
            made = self._from_json(value)
            if isinstance(made, Message):
                getattr(message, self._name).CopyFrom(made)
            elif isinstance(made, list):
                getattr(message, self._name).extend(made)
            else:
                setattr(message, self._name, made)
        except InvalidJson:
            raise
        except _WRONG_VALUES as error:
            # Its text is Python's.
            raise InvalidJson(f"{where}: {format_value(value)} has not the right form: see /openapi.json") from error

    def schema(self, descriptor: Any) -> Schema:
        return self._schema


class _PlainFields:
    """Fields of one message whose values are those of JSON. Reading them together takes a third of the time: most
    properties of a topic's statistics are such fields."""

    def __init__(self, parent: str, is_float: bool, names: Sequence[tuple[str, str]]) -> None:
        """`parent`: the field with their message; empty: they are the message's own. `names`: in JSON, and theirs."""
        self._parent = parent
        self._is_float = is_float
        self._names = [name for name, _ in names]
        # With one name alone it would return no tuple.
        self._read: Callable[[Any], tuple[Any, ...]] = operator.attrgetter(*[name for _, name in names], names[0][1])

    def write(self, message: Any, found: dict[str, Any]) -> None:
        owner = message
        if self._parent:
            if not message.HasField(self._parent):
                return
            owner = getattr(message, self._parent)
        values = self._read(owner)
        if self._is_float and not math.isfinite(sum(values)):
            values = tuple(value if math.isfinite(value) else 0.0 for value in values)
        found.update(zip(self._names, values, strict=False))


class _Plain(NamedTuple):
    parent: str
    name: str
    is_float: bool


class Object(Part):
    """A JSON object."""

    def __init__(
        self,
        properties: Mapping[str, Part | str],
        *,
        constants: Mapping[str, Any] | None = None,
        required: str = "",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """`constants`: properties that are written with this value always, and not read. `required`: names, separated
        by spaces, of those that must be there. `defaults`: values of properties that are missing in what is read."""
        self._parts = {name: part if isinstance(part, Part) else Field(part) for name, part in properties.items()}
        self._constants = dict(constants or {})
        self._required = required.split()
        self._defaults = dict(defaults or {})
        self.fields = frozenset(name for part in self._parts.values() for name in part.fields)
        # What writes a message of a class: groups of fields whose values are those of JSON, and the other parts.
        self._writers: dict[type, tuple[list[_PlainFields], list[tuple[str, Part]]]] = {}

    def to_json(self, message: Message) -> Any:
        kind = type(message)
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = self._make_writer(message.DESCRIPTOR)
        groups, others = writer
        found: dict[str, Any] = {}
        for group in groups:
            group.write(message, found)
        for name, part in others:
            value = part.to_json(message)
            if value is not None:
                found[name] = value
        found.update(self._constants)
        return found

    def _make_writer(self, descriptor: Any) -> tuple[list[_PlainFields], list[tuple[str, Part]]]:
        groups: dict[tuple[str, bool], list[tuple[str, str]]] = {}
        others: list[tuple[str, Part]] = []
        for name, part in self._parts.items():
            plain = part.find_plain(descriptor) if isinstance(part, Field) else None
            if plain is None:
                others.append((name, part))
            else:
                groups.setdefault((plain.parent, plain.is_float), []).append((name, plain.name))
        return [_PlainFields(*group, names) for group, names in groups.items()], others

    def fill(self, message: Message, value: Any, where: str) -> None:
        given = check_type(value, dict, "an object", where)
        for name in self._required:
            if given.get(name) is None:
                raise InvalidJson(f"{where}: {name} is missing")
        for name, part in self._parts.items():
            one = given.get(name)
            if one is None:
                one = self._defaults.get(name)
            if one is not None:
                part.fill(message, one, f"{where}.{name}")

    def carries(self, message: Message) -> bool:
        return all(part.carries(message) for part in self._parts.values())

    def schema(self, descriptor: Any) -> Schema:
        made: Schema = {
            "title": descriptor.name,
            "type": "object",
            "properties": {
                name: part.schema(descriptor) | ({"default": self._defaults[name]} if name in self._defaults else {})
                for name, part in self._parts.items()
            }
            | {name: {"const": value} for name, value in self._constants.items()},
        }
        return made | ({"required": self._required} if self._required else {})


class Defaulted(Part):
    """A part that is written with a default if it is absent."""

    def __init__(self, part: Part, default: Any) -> None:
        self.fields = part.fields
        self._of = part
        self._default = default

    def to_json(self, message: Message) -> Any:
        value = self._of.to_json(message)
        return self._default if value is None else value

    def fill(self, message: Message, value: Any, where: str) -> None:
        self._of.fill(message, value, where)

    def schema(self, descriptor: Any) -> Schema:
        return self._of.schema(descriptor)

    def carries(self, message: Message) -> bool:
        return self._of.carries(message)


class QueryText(Part):
    """A part whose number or truth value is a text of the query."""

    def __init__(self, part: Part) -> None:
        self.fields = part.fields
        self._of = part

    def to_json(self, message: Message) -> Any:
        value = self._of.to_json(message)
        return None if value is None else json.dumps(value)

    def fill(self, message: Message, value: Any, where: str) -> None:
        text = check_text(value, where)
        scalar = len(text) <= 20 and text.isascii() and (text in ("true", "false") or text.lstrip("-").isdigit())
        self._of.fill(message, parse_json(text.encode()) if scalar else text, where)

    def schema(self, descriptor: Any) -> Schema:
        return self._of.schema(descriptor)

    def carries(self, message: Message) -> bool:
        return self._of.carries(message)


class Either(Part):
    """A JSON object, or a shorter value for messages with some of its fields only."""

    def __init__(self, short: Part, whole: Object) -> None:
        self.fields = whole.fields
        self._short = short
        self._whole = whole

    def to_json(self, message: Message) -> Any:
        given = {field.name for field, _ in message.ListFields()}
        longer = given & self.fields - self._short.fields
        return (self._whole if longer else self._short).to_json(message)

    def fill(self, message: Message, value: Any, where: str) -> None:
        (self._whole if isinstance(value, dict) else self._short).fill(message, value, where)

    def schema(self, descriptor: Any) -> Schema:
        return {"anyOf": [self._short.schema(descriptor), self._whole.schema(descriptor)]}


def _set_key(message: Message, name: str, text: str, where: str) -> None:
    """Set a field, a text or a number, from the name in an object."""
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.cpp_type not in _INTEGERS:
        setattr(message, name, text)
        return
    lowest, highest = _INTEGERS[field.cpp_type]
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 21 and lowest <= int(text) <= highest):
        raise InvalidJson(f"{where}: {format_value(text)} is not a whole number from {lowest} to {highest}")
    setattr(message, name, int(text))


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
