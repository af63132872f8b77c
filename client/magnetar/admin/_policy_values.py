"""Convert between the message of policies and their values (policies.py).

A field has the same name in both. The texts of choices, and the message that holds a list or map, are those of the
table of policies (magnetar_wire/admin/policies.py).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message

from magnetar.admin.models import NamespacePolicies, TopicPolicies
from magnetar.exceptions import InvalidArgument
from magnetar_protos import catalog_pb2 as catalog
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.json.policies import AUTH_MODES, SCHEMA_AUTO_UPDATE, SCHEMA_COMPATIBILITY, SUBSCRIPTION_TYPES

__all__ = ["policies_message", "policies_value"]

P = TypeVar("P", NamespacePolicies, TopicPolicies)
_CHOICES: Final[Mapping[str, Mapping[str, int]]] = {
    **{
        kind.DESCRIPTOR.full_name: {value.name.lower(): value.number for value in kind.DESCRIPTOR.values}
        for kind in (catalog.BacklogPolicy, catalog.InactiveTopicDeleteMode)
    },
    catalog.SchemaCompatibility.DESCRIPTOR.full_name: SCHEMA_COMPATIBILITY,
    catalog.SchemaAutoUpdate.DESCRIPTOR.full_name: SCHEMA_AUTO_UPDATE,
    catalog.SubscriptionAuthMode.DESCRIPTOR.full_name: AUTH_MODES,
    SubscriptionType.DESCRIPTOR.full_name: SUBSCRIPTION_TYPES,
}
# Messages with one field, which holds a list or map.
_HOLDERS: Final = {
    catalog.SubscriptionTypes.DESCRIPTOR.full_name: "types",
    catalog.Clusters.DESCRIPTOR.full_name: "names",
    catalog.Properties.DESCRIPTOR.full_name: "values",
}


def policies_message(policies: NamespacePolicies | TopicPolicies) -> Policies:
    """Return the message of the policies that are not None. Raises `InvalidArgument`."""
    message = Policies()
    for policy in dataclasses.fields(policies):
        value = getattr(policies, policy.name)
        if value is not None:
            _write(message, policy.name, value)
    return message


def _write(message: Any, name: str, value: Any) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    try:
        if field.message_type is None:
            setattr(message, name, _number(field, name, value))
            return
        target = getattr(message, name)
        target.SetInParent()
        holder = _HOLDERS.get(field.message_type.full_name)
        if holder is None:
            for part in dataclasses.fields(value):
                _write(target, part.name, getattr(value, part.name))
        elif isinstance(value, Mapping):
            getattr(target, holder).update(value)
        else:
            held = field.message_type.fields_by_name[holder]
            getattr(target, holder).extend(_number(held, name, one) for one in value)
    except InvalidArgument:  # of a part
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name} = {value!r:.100}: {error}") from None


def _number(field: Any, name: str, value: Any) -> Any:
    """Return the number of a choice; another value as it is."""
    if field.enum_type is None:
        return value
    choices = _CHOICES[field.enum_type.full_name]
    if value not in choices:
        raise InvalidArgument(f"{name} = {value!r:.100} is none of {', '.join(choices)}")
    return choices[value]


def policies_value(kind: type[P], message: Message) -> P:
    """Return the policies of the message."""
    hints = _hints(cast(Any, kind))
    return kind(**{field.name: _read(hints[field.name], field, value) for field, value in _known(message, hints)})


def _known(message: Message, hints: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return [(field, value) for field, value in message.ListFields() if field.name in hints]


def _read(hint: Any, field: Any, value: Any) -> Any:
    if field.message_type is None:
        return _text(field, value)
    holder = _HOLDERS.get(field.message_type.full_name)
    if holder is None:
        kind = next(one for one in typing.get_args(hint) if one is not types.NoneType)
        parts = value.DESCRIPTOR.fields_by_name
        return kind(
            **{part.name: _text(parts[part.name], getattr(value, part.name)) for part in dataclasses.fields(kind)}
        )
    held = getattr(value, holder)
    return (
        dict(held)
        if isinstance(held, Mapping)
        else tuple(_text(field.message_type.fields_by_name[holder], one) for one in held)
    )


def _text(field: Any, value: Any) -> Any:
    """Return the text of a choice, also of one that a newer broker knows; another value as it is."""
    if field.enum_type is None:
        return value
    choices = _CHOICES[field.enum_type.full_name]
    return next((text for text, number in choices.items() if number == value), str(value))


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
