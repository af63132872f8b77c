"""The fields of a dataclass or pydantic model, as its author has declared them."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AliasChoices, BaseModel, RootModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

__all__ = ["MISSING", "ModelField", "is_model", "list_fields", "read_config", "read_doc", "read_name"]

MISSING: Final = dataclasses.MISSING
# Avro's names.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ModelField(NamedTuple):
    name: str
    # Its name in payloads: its alias, if it has one.
    wire_name: str
    # With its `Annotated`.
    hint: Any
    # MISSING: there is none.
    default: Any
    doc: str
    # Other names by which it is read.
    aliases: Sequence[str]


def is_model(cls: type) -> bool:
    """Return whether a class is a dataclass or a pydantic model."""
    return dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel)


def list_fields(cls: type) -> list[ModelField]:
    """Raises TypeError for a class whose fields can't be found, or can't have these names."""
    fields = list(_of_model(cls) if issubclass(cls, BaseModel) else _of_dataclass(cls))
    for field in fields:
        if not _NAME.fullmatch(field.wire_name):
            raise TypeError(
                f"{cls.__name__}.{field.name} is called {field.wire_name!r} in payloads, and Avro allows a-z, A-Z, 0-9 "
                "and _ in a name, and no digit in front"
            )
    return fields


def read_config(cls: type) -> Mapping[str, Any]:
    """Return pydantic's configuration of the class."""
    return getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}


def read_name(cls: type) -> tuple[str, str]:
    """Return the name and namespace of a record or enum: those of the class, unless it has `_avro_name` and
    `_avro_namespace`. Subclasses don't inherit them."""
    name = re.sub(r"\W+", "_", cls.__name__).strip("_")  # a generic model is called Page[Item]
    return str(_read_own(cls, "_avro_name", name)), str(_read_own(cls, "_avro_namespace", ""))


def _read_own(cls: type, name: str, default: str) -> Any:
    """Return an attribute of the class itself. In a pydantic model without a ClassVar hint it is a private one."""
    if name in cls.__dict__:
        return cls.__dict__[name]
    private = getattr(cls, "__private_attributes__", {}).get(name)
    is_inherited = any(getattr(base, "__private_attributes__", {}).get(name) is private for base in cls.__bases__)
    return default if private is None or is_inherited else private.default


def read_doc(cls: type) -> str:
    """Return the docstring that the author wrote. Python gives dataclasses one of its own."""
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else " ".join(text.split())


def _of_model(cls: type[BaseModel]) -> Iterator[ModelField]:
    if issubclass(cls, RootModel):
        raise TypeError(f"{cls.__name__} is a RootModel, which has no fields: use a BaseModel")
    try:
        cls.model_rebuild()
    except Exception as error:
        raise TypeError(f"the fields of {cls.__name__} refer to something that can't be found: {error}") from error
    by_name = _is_read_by_name(cls)
    for name, info in cls.model_fields.items():
        if info.exclude is not True:
            yield _of_info(cls, name, info, by_name=by_name)
        else:
            _check_excluded(cls, name, info)


def _of_dataclass(cls: type) -> Iterator[ModelField]:
    infos: dict[str, FieldInfo] = getattr(cls, "__pydantic_fields__", {})
    by_name = _is_read_by_name(cls)
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the fields of {cls.__name__} refer to something that can't be found: {error}. Define dataclasses, and "
            "the types of their fields, at module level"
        ) from error
    _check_init_only(cls)
    for field in dataclasses.fields(cls):
        if not field.init:
            continue  # the class itself sets it
        info = infos.get(field.name)
        if info is None and isinstance(field.default, FieldInfo):
            info = FieldInfo.from_annotated_attribute(hints[field.name], field.default)
        if info is not None and info.exclude is True:
            _check_excluded(cls, field.name, info)
            continue
        if info is not None:
            yield _of_info(cls, field.name, info, by_name=by_name)
            continue
        default = field.default
        if field.default_factory is not MISSING:
            default = _call_factory(field.default_factory)
        doc = str(field.metadata.get("doc", ""))
        yield ModelField(field.name, field.name, hints[field.name], default, doc, ())


def _check_excluded(cls: type, name: str, info: FieldInfo) -> None:
    if info.is_required():
        raise TypeError(f"{cls.__name__}.{name} is excluded from payloads, and has no default to be read with")


def _check_init_only(cls: type) -> None:
    """Raise TypeError for an `InitVar` that is needed to make an instance: payloads don't have it."""
    for name, field in getattr(cls, "__dataclass_fields__", {}).items():
        is_init_only = isinstance(field.type, dataclasses.InitVar) or "InitVar" in str(field.type)
        if is_init_only and field.default is MISSING and field.default_factory is MISSING:
            raise TypeError(f"{cls.__name__}.{name} is an InitVar, which payloads don't have: give it a default")


def _of_info(cls: type, name: str, info: FieldInfo, *, by_name: bool) -> ModelField:
    wire_name = info.serialization_alias or name
    accepted = _read_names(cls, name, info)
    if by_name:
        accepted.append(name)
    if wire_name not in accepted:
        raise TypeError(
            f"{cls.__name__}.{name} is written as {wire_name!r} and read as {accepted}: give it one alias for both"
        )
    default = MISSING if info.default is PydanticUndefined else info.default
    if info.default_factory is not None:
        takes_data = getattr(info, "default_factory_takes_validated_data", False)
        default = MISSING if takes_data else _call_factory(info.default_factory)
    hint: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    aliases = [one for one in dict.fromkeys(accepted) if one != wire_name and _NAME.fullmatch(one)]
    return ModelField(name, wire_name, hint, default, info.description or "", aliases)


def _is_read_by_name(cls: type) -> bool:
    config = read_config(cls)
    return bool(config.get("populate_by_name") or config.get("validate_by_name"))


def _read_names(cls: type, name: str, info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    if alias is None:
        return [name]
    if read_config(cls).get("validate_by_alias") is False:
        return []
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    if not all(isinstance(choice, str) for choice in choices):
        raise TypeError(f"{cls.__name__}.{name} has an AliasPath: payloads have its fields at the top, so use a name")
    return [choice for choice in choices if isinstance(choice, str)]


def _call_factory(factory: Any) -> Any:
    """Return the value of a default factory that always makes the same one."""
    first, second = factory(), factory()
    return MISSING if first != second or isinstance(first, (date, time)) else first
