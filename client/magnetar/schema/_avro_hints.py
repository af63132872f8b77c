"""Type hints of dataclasses and models for types that Python does not distinguish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

__all__ = ["AvroType", "Float32", "Int32"]


@dataclass(frozen=True)
class AvroType:
    """Names the primitive type of Avro to use, inside an `Annotated` hint."""

    name: str


# An `int` is Avro's long, and a `float` its double, unless they have these hints.
Int32 = Annotated[int, AvroType("int")]
Float32 = Annotated[float, AvroType("float")]
