"""The producers of a consumer's retry and dead letter topics.

A producer is opened when the first letter is sent. A letter has the schema of the message that it is made from, so
there is a producer for each schema, and one for messages without. Letters are sent one by one, as Pulsar's clients send
them, so each can be delayed, acknowledged and redelivered alone. A letter of a batch's message may have more metadata
than a single message, and is sent as a batch of one then. What waits is bounded: `send` waits for capacity.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from magnetar._client_core import ClientCore
from magnetar._connections.schema_cache import VersionKey
from magnetar._enums import CompressionType
from magnetar._message import Message
from magnetar._options import ProducerOptions, parse_topic_name
from magnetar._producing.batch import Waiter
from magnetar._producing.outgoing_message import OutgoingMessage, make_message
from magnetar._producing.topic_producer import TopicProducer
from magnetar.exceptions import (
    AlreadyClosed,
    DecodeError,
    MagnetarException,
    NotAllowedError,
    ProducerQueueIsFull,
    SchemaUnavailable,
    TopicNotFound,
)
from magnetar.schema._schema import Schema, SchemaInfo
from magnetar_wire.errors import WireError
from magnetar_wire.limits import MAX_RECORD_METADATA_BYTES
from magnetar_wire.message_id import MessageId

__all__ = ["LetterProducers", "get_properties"]

log = logging.getLogger("magnetar")

# Beyond this, the producer that was not used for longest is closed.
_MAX_PRODUCERS: Final = 16
# Characters of the consumer's name in the names of its producers, which brokers limit.
_MAX_NAME_LENGTH: Final = 100


class _LetterKind(NamedTuple):
    """Letters that share a producer."""

    topic: str
    initial_subscription: str
    compression: CompressionType
    # By value, since a SchemaInfo with its properties can't be hashed.
    schema: tuple[Any, ...]


class _StoredSchema(Schema[bytes]):
    """The schema by which payloads were encoded before."""

    def __init__(self, info: SchemaInfo) -> None:
        self._schema_info = info


class LetterProducers:
    def __init__(self, client: ClientCore, name: str, *, compression: CompressionType = CompressionType.NONE) -> None:
        """`name`: of the consumer and its subscription, for the producers' names."""
        self._client = client
        self._name = name
        # The last one was used last. A producer that can't be opened is removed.
        self._opening: OrderedDict[_LetterKind, asyncio.Task[TopicProducer]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._error: MagnetarException | None = None

    async def send(
        self, topic: str, message: Message[Any], properties: Mapping[str, str], initial_subscription: str = ""
    ) -> MessageId:
        """Store a letter. Returns when it is durable."""
        letter = _make_letter(message, properties)
        schema = await self._find_schema(message)
        kind = _LetterKind(
            topic, initial_subscription, CompressionType(message._entry.metadata.compression), _key_of(schema)
        )
        producer = await self._open(kind, schema)
        result: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        await self._put(kind, producer, letter, partial(_settle, result))
        return await result

    async def _put(self, kind: _LetterKind, producer: TopicProducer, letter: OutgoingMessage, waiter: Waiter) -> None:
        partition = producer.route(letter)
        if not partition.was_opened:
            await producer.open_partition(partition)
        letter = producer.check_size(partition, letter)
        while True:
            try:
                return partition.queue.add_message(letter, waiter=waiter)
            except ProducerQueueIsFull:
                await partition.queue.wait_for_capacity()
            except MagnetarException:
                # It has ended, since its topic was deleted, for example. The next letter opens another one.
                if (opening := self._opening.get(kind)) and opening.done() and opening.result() is producer:
                    del self._opening[kind]
                raise

    async def _find_schema(self, message: Message[Any]) -> SchemaInfo | None:
        """Return the schema by which the message was encoded; None: it has none, or nobody knows it."""
        entry = message._entry
        if not entry.metadata.schema_version:
            return None
        origin = entry.epoch.origin
        key = VersionKey(origin.topic, getattr(origin, "incarnation", ""), entry.metadata.schema_version)
        try:
            return await self._client.schemas.fetch(key)
        except SchemaUnavailable:
            raise
        except DecodeError as error:
            log.warning("%s, so the letter of %s has no schema", error, message.message_id())
            return None

    # Producers.

    async def _open(self, kind: _LetterKind, schema: SchemaInfo | None) -> TopicProducer:
        """Return the producer. Several letters may wait for the same opening."""
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        opening = self._opening.get(kind)
        if opening is None:
            opening = self._opening[kind] = asyncio.get_running_loop().create_task(self._create(kind, schema))
            opening.add_done_callback(partial(self._forget_failed, kind))
            self._close_unused()
        self._opening.move_to_end(kind)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():  # the consumer has ended
                raise AlreadyClosed("the consumer is closed") from None
            raise

    async def _create(self, kind: _LetterKind, schema: SchemaInfo | None) -> TopicProducer:
        given: dict[str, Any] = {"schema": None if schema is None else _StoredSchema(schema)}
        options = ProducerOptions(
            producer_name=f"{self._name[:_MAX_NAME_LENGTH]}-{self._client.randomness.token(5).hex()}",
            compression_type=kind.compression,
            batching_enabled=False,
            **given,
        )
        topic = parse_topic_name(kind.topic)
        producer = TopicProducer(self._client, topic, options, initial_subscription=kind.initial_subscription)
        try:
            await producer.open()
        except TopicNotFound as error:
            raise TopicNotFound(f"{error}; letters are stored in {kind.topic}: create it first") from error
        except NotAllowedError as error:
            raise NotAllowedError(f"letters can't be stored in {kind.topic}: {error}") from error
        return producer

    def _forget_failed(self, kind: _LetterKind, opening: asyncio.Task[TopicProducer]) -> None:
        if (opening.cancelled() or opening.exception() is not None) and self._opening.get(kind) is opening:
            del self._opening[kind]

    def _close_unused(self) -> None:
        for kind, opening in list(self._opening.items())[:-_MAX_PRODUCERS]:
            if opening.done():
                del self._opening[kind]
                closing = asyncio.get_running_loop().create_task(_close(opening))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Send what is pending, and close the producers."""
        self._error = AlreadyClosed("the consumer is closed")
        await asyncio.gather(*map(_close, self._opening.values()), *self._closing)

    def end(self, error: MagnetarException) -> None:
        """End the producers at once. Letters that are not known to be stored fail."""
        self._error = error
        for opening in self._opening.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().end(error)
            else:
                opening.cancel()

    async def wait_ended(self) -> None:
        """Return when the tasks of producers that were ended have ended."""
        openings = list(self._opening.values())
        if openings or self._closing:
            await asyncio.wait([*openings, *self._closing])
        for opening in openings:
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().wait_ended()


async def _close(opening: asyncio.Task[TopicProducer]) -> None:
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        await opening.result().close()
        await opening.result().wait_ended()


def _settle(result: asyncio.Future[MessageId], outcome: MessageId | MagnetarException) -> None:
    if result.done():  # cancelled
        return
    if isinstance(outcome, MagnetarException):
        result.set_exception(outcome)
    else:
        result.set_result(outcome)


def _make_letter(message: Message[Any], properties: Mapping[str, str]) -> OutgoingMessage:
    """Return what is sent. Raises TypeError, InvalidMessage or MessageTooBig for the application's properties."""
    entry, row = message._entry, message._row
    ordering_keys = entry.columns.ordering_keys
    return make_message(
        entry.columns.payloads[row],
        properties,
        entry.find_key(row),
        None if ordering_keys is None else ordering_keys[row],
        None,
        None,
        False,
        message.event_timestamp() or None,
        None,
        None,
        max_metadata_bytes=MAX_RECORD_METADATA_BYTES,
    )


def get_properties(message: Message[Any]) -> dict[str, str]:
    """Return the message's properties; none, if a producer wrote them so that they can't be read."""
    try:
        return message.properties()
    except WireError:
        return {}


def _key_of(schema: SchemaInfo | None) -> tuple[Any, ...]:
    if schema is None:
        return ()
    return schema.type, schema.name, schema.definition, tuple(sorted(schema.properties.items()))
