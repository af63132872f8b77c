"""The parts that the decoders of all schemas share: one payload that can't be decoded does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from magnetar.exceptions import DecodeError
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType

__all__ = ["check_writer", "choose_decoder", "decode_each"]


def choose_decoder(schema: Schema[Any], writer: SchemaInfo | None) -> Decoder[Any]:
    """Return the decoder of payloads that were encoded with `writer`. A subclass that overrides `decode` alone decodes
    each payload with it. Raises DecodeError."""
    if schema.decodes_alone:
        for kind in type(schema).__mro__:
            if "make_decoder" in vars(kind):
                break
            if "decode" in vars(kind):
                return decode_each(schema.decode, type(schema).__name__)
    return schema.make_decoder(writer)


def decode_each(
    read: Callable[[bytes], Any],
    type_name: str,
    make_all: Callable[[list[Any]], list[Any]] | None = None,
) -> Decoder[Any]:
    """Return a decoder that reads payloads one after the other. `make_all` then makes the values of all that could be
    read; None: what was read are the values."""

    def decode_payloads(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[Any]:
        values: list[Any] = []
        failed: list[tuple[int, DecodeError]] = []
        for row, payload in enumerate(payloads):
            try:
                values.append(read(payload))
            except DecodeError as error:
                failed.append((row, error))
            except Exception as error:  # noqa: BLE001 (it comes from a library, and the payload caused it)
                failed.append((row, _decode_error(payload, type_name, error)))
        if make_all is not None:
            values = make_all(values)
        for row, failure in failed:
            values.insert(row, failure)
        return values

    return decode_payloads


def _decode_error(payload: bytes, type_name: str, cause: Exception) -> DecodeError:
    error = DecodeError(f"a payload of {len(payload)} bytes is no valid {type_name}: {_explain(cause):.500}")
    error.__cause__ = cause
    return error


def _explain(cause: Exception) -> str:
    """Return the reason in plain words, for errors of libraries that have none."""
    if isinstance(cause, UnicodeDecodeError):
        return f"a string is not valid UTF-8, from byte {cause.start} on"
    if isinstance(cause, EOFError):
        return "it ends too early"
    if isinstance(cause, OverflowError):
        return f"a value is out of range ({cause})"
    if isinstance(cause, RecursionError):
        return "a value is too deep for the stack of this thread"
    if type(cause) is ValueError:
        return str(cause)
    return f"{type(cause).__name__}: {cause}"  # an application's own, which may mean little without the class


def check_writer(writer: SchemaInfo | None, *types: SchemaType) -> None:
    """Raise DecodeError for payloads of another type."""
    if writer is not None and writer.type not in types:
        raise DecodeError(f"the messages have a schema of type {writer.type.name}, and this schema is {types[0].name}")
