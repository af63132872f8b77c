"""What the decoders of all schemas share: one payload that can't be decoded does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.exceptions import DecodeError
from magnetar.schema._schema import Decoder, SchemaInfo, SchemaType, T

__all__ = ["check_writer", "decode_each"]


def decode_each(decode: Callable[[bytes], T], type_name: str) -> Decoder[T]:
    """Return a decoder of payloads, one after the other."""

    def decode_payloads(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[T | DecodeError]:
        values: list[T | DecodeError] = []
        for payload in payloads:
            try:
                values.append(decode(payload))
            except DecodeError as error:
                values.append(error)
            except Exception as error:  # noqa: BLE001 (it comes from a library, and the payload caused it)
                values.append(_decode_error(payload, type_name, error))
        return values

    return decode_payloads


def _decode_error(payload: bytes, type_name: str, cause: Exception) -> DecodeError:
    error = DecodeError(
        f"a payload of {len(payload)} bytes is no valid {type_name}: {type(cause).__name__}: {cause!s:.500}"
    )
    error.__cause__ = cause
    return error


def check_writer(writer: SchemaInfo | None, *types: SchemaType) -> None:
    """Raise DecodeError for payloads of another type."""
    if writer is not None and writer.type not in types:
        raise DecodeError(f"the messages have a schema of type {writer.type.name}, and this schema is {types[0].name}")
