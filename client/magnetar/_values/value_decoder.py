"""From payloads to values: the decoders of a topic's schema versions.

Some schemas can decode a payload only if they know the schema by which it was encoded: the *writer*. Others refuse
messages of another type, which they would decode to wrong values. An entry has the number of the writer's version. So
the entries of a partition wait (`_consuming/entry_decoder.py`), in order, until the definition is known, and are handed
out with a `PayloadDecoder` that knows it. The payloads of an entry are decoded together, on the application's thread,
when it reads the first value.

**A definition that no broker answers** within the operation's timeout delays messages no longer: they are handed out,
and `value()` raises SchemaUnavailable. Each such call makes the loop try again, and a decoder that has got its
definition at last decodes all of its messages, also those that were handed out before. A schema that only compares
types does without the definition then, and also if the version does not exist. Definitions are fetched as soon as an
entry with a new version is delivered, so several that can't be fetched delay messages no longer than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar._client_core import ClientCore
from magnetar._connections.schema_cache import VersionKey
from magnetar.exceptions import DecodeError, NotFound, SchemaUnavailable
from magnetar.schema._decoding import choose_decoder
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType

__all__ = ["PayloadDecoder", "VersionDecoders"]

log = logging.getLogger("magnetar")

# How many versions of one partition have a decoder.
_MOST_DECODERS: Final = 100
# How many versions of one partition are fetched at a time before their entries are decoded.
_MOST_FETCHES_AHEAD: Final = 20
# How many decoders unpickled messages share.
_MOST_RESTORED: Final = 100
# After a definition could not be fetched, entries are handed out without it for this time.
_RETRY_S: Final = 1.0


class PayloadDecoder:
    """Decodes payloads that were encoded with one version. Any thread may use it."""

    __slots__ = ("_decode", "_failure", "_schema", "_writer", "error", "failed_at", "is_logged", "retry", "task")

    def __init__(self, schema: Schema[Any], writer: SchemaInfo | None, error: DecodeError | None = None) -> None:
        self._schema = schema
        self._writer = writer
        # Made when it is first used, not on the loop.
        self._decode: Decoder[Any] | None = None
        # Why payloads of the writer can't be decoded: they never can.
        self._failure: DecodeError | None = None
        # Why the writer is not known.
        self.error = error
        # When it could not be fetched; None: there was no attempt yet.
        self.failed_at: float | None = None
        # Fetches the writer.
        self.retry: Callable[[], object] | None = None
        self.task: asyncio.Task[None] | None = None
        # The reason why it can't decode anything was logged.
        self.is_logged = False

    @property
    def uses_key(self) -> bool:
        return self._schema.uses_key

    @property
    def may_get_writer(self) -> bool:
        """Whether another attempt to fetch the writer may succeed: no broker has answered, or has it yet."""
        error = self.error
        return isinstance(error, SchemaUnavailable) or (error is not None and isinstance(error.__cause__, NotFound))

    @property
    def must_wait(self) -> bool:
        """Whether entries wait for the writer: not after an attempt to which no broker has answered."""
        is_away = self.failed_at is not None and isinstance(self.error, SchemaUnavailable)
        return self.task is not None and not is_away

    def set_writer(self, writer: SchemaInfo | None) -> None:
        self._writer = writer
        self.error = None

    def decode(self, payloads: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> list[Any]:
        """Return the values; a DecodeError for each payload that can't be decoded, None for a null value.

        Raises DecodeError if none can, and SchemaUnavailable if none can at present.
        """
        error = self.error
        if error is not None:
            if isinstance(error, SchemaUnavailable) and self.retry is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self.retry()
            raise type(error)(*error.args) from error.__cause__
        if self._failure is not None:
            raise DecodeError(*self._failure.args) from self._failure.__cause__
        if self._decode is None:
            self._decode = self._make_decoder()
        if self.uses_key or None not in payloads:  # a key without a value is a value
            return self._decode_all(payloads, keys)  # type: ignore[arg-type]  # none is None
        rows = [row for row, payload in enumerate(payloads) if payload is not None]
        values: list[Any] = [None] * len(payloads)
        found = self._decode_all(
            [payloads[row] or b"" for row in rows], None if keys is None else [keys[row] for row in rows]
        )
        for row, value in zip(rows, found, strict=True):
            values[row] = value
        if keys is not None:
            self._decode_null_values(payloads, keys, values)
        return values

    def _decode_null_values(
        self, payloads: Sequence[bytes | None], keys: Sequence[bytes | None], values: list[Any]
    ) -> None:
        """Decode messages without a value: a pair whose key is the message's still has the key."""
        for row, payload in enumerate(payloads):
            if payload is None and keys[row] is not None:
                value = self._decode_one(None, keys[row])
                values[row] = None if isinstance(value, DecodeError) else value

    def _make_decoder(self) -> Decoder[Any]:
        try:
            return choose_decoder(self._schema, self._writer)
        except DecodeError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = DecodeError(f"{self._schema!r} can't read what was written with {self._writer!r}: {error}")
            raise self._failure from error

    def _decode_all(self, payloads: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[Any]:
        assert self._decode is not None
        try:
            values = self._decode(payloads, keys)
            if len(values) == len(payloads):
                return values
        except Exception as error:  # noqa: BLE001 (the payload that caused it gets it, below)
            log.debug("%r decodes payloads one by one: %s", self._schema, error)
        return [self._decode_one(payload, None if keys is None else keys[row]) for row, payload in enumerate(payloads)]

    def _decode_one(self, payload: bytes | None, key: bytes | None) -> Any:
        decode: Any = self._decode
        try:
            (value,) = decode([payload], [key] if self.uses_key else None)
        except Exception as error:  # noqa: BLE001 (the message's value raises it)
            failed = DecodeError(f"{self._schema!r} could not decode a payload of {len(payload or b'')} bytes: {error}")
            failed.__cause__ = error
            return failed
        return value

    def __reduce__(self) -> tuple[Callable[..., PayloadDecoder], tuple[Any, ...]]:
        writer = self._writer
        parts = writer and (writer.type.value, writer.name, writer.definition, tuple(writer.properties.items()))
        error = self.error
        return _restore, (self._schema, parts, None if error is None else (type(error), str(error)))


@functools.lru_cache(_MOST_RESTORED)
def _restore(
    schema: Schema[Any],
    writer: tuple[int, str, bytes, tuple[tuple[str, str], ...]] | None,
    error: tuple[Any, str] | None,
) -> PayloadDecoder:
    """Unpickle a decoder. The messages of one version share it."""
    info = None
    if writer is not None:
        number, name, definition, properties = writer
        info = SchemaInfo(SchemaType(number), name, definition, dict(properties))
    return PayloadDecoder(schema, info, None if error is None else error[0](error[1]))


class VersionDecoders:
    """The decoders of one topic's or partition's schema versions, on the client's loop."""

    def __init__(self, schema: Schema[Any], topic: str, client: ClientCore, on_ready: Callable[[], object]) -> None:
        """`on_ready` is called when a decoder that was not ready may be."""
        self._schema = schema
        self._topic = topic
        self._client = client
        self._on_ready = on_ready
        self._incarnation = ""
        self._without_version = PayloadDecoder(schema, None)
        # The last one was used last.
        self._decoders: OrderedDict[bytes, PayloadDecoder] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_ended = False

    def set_incarnation(self, incarnation: str) -> None:
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._decoders.clear()

    def find(self, version: bytes) -> PayloadDecoder | None:
        """Return the decoder of a version; empty: the entry has none. None: its definition is being fetched."""
        if not version or not (self._schema.needs_writer or self._schema.checks_writer):
            return self._without_version
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._add(version)
        else:
            self._decoders.move_to_end(version)
        if decoder.error is not None:
            self._retry(decoder, VersionKey(self._topic, self._incarnation, version))
        return None if decoder.must_wait else decoder

    def fetch_ahead(self, version: bytes) -> None:
        """Fetch the definition of an entry that will be decoded later."""
        uses_writer = self._schema.needs_writer or self._schema.checks_writer
        is_new = version and uses_writer and version not in self._decoders
        if is_new and len(self._tasks) < _MOST_FETCHES_AHEAD and len(self._decoders) < _MOST_DECODERS:
            self._add(version)

    def _add(self, version: bytes) -> PayloadDecoder:
        key = VersionKey(self._topic, self._incarnation, version)
        writer = self._client.schemas.find(key)
        decoder = self._decoders[version] = PayloadDecoder(self._schema, writer)
        if writer is None:
            decoder.retry = functools.partial(self._retry_soon, decoder, key)
            decoder.error = SchemaUnavailable(f"the schema version of a message of {self._topic} is not read yet")
            self._fetch(decoder, key)
        if len(self._decoders) > _MOST_DECODERS:
            self._decoders.popitem(last=False)
        return decoder

    def _retry_soon(self, decoder: PayloadDecoder, key: VersionKey) -> None:
        """Have the loop fetch the definition again. Any thread may call this, also in a child after a fork."""
        if not (self._has_ended or self._client.closed):
            self._client.call_soon(functools.partial(self._retry, decoder, key))

    def _retry(self, decoder: PayloadDecoder, key: VersionKey) -> None:
        """Fetch the definition again, but not too often, and not of a topic that was deleted: its name may have another
        definition now."""
        is_due = decoder.failed_at is None or self._client.clock.monotonic() >= decoder.failed_at + _RETRY_S
        if is_due and decoder.may_get_writer and decoder.task is None and key.incarnation == self._incarnation:
            self._fetch(decoder, key)

    def _fetch(self, decoder: PayloadDecoder, key: VersionKey) -> None:
        if not self._has_ended:
            task = decoder.task = asyncio.get_running_loop().create_task(self._fetch_writer(decoder, key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fetch_writer(self, decoder: PayloadDecoder, key: VersionKey) -> None:
        try:
            writer = await self._client.schemas.fetch(key)
            if key.incarnation == self._incarnation:  # else it may be that of the next topic
                decoder.set_writer(writer)
        except DecodeError as error:
            if self._schema.needs_writer:
                decoder.error, decoder.failed_at = error, self._client.clock.monotonic()
                log.warning("%s", error)
            else:
                decoder.set_writer(None)
                log.info("messages are decoded without a check of their type: %s", error)
        except Exception as error:  # entries would wait for ever
            decoder.error = DecodeError(f"a schema version of {self._topic} could not be read: {error!r:.500}")
            decoder.error.__cause__ = error
            log.exception("%s", decoder.error)
        finally:
            decoder.task = None
        self._on_ready()

    def end(self) -> None:
        """Fetch nothing any more."""
        self._has_ended = True
        for task in self._tasks:
            task.cancel()

    async def wait_ended(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
