"""Convert between the messages of admin calls and the values that applications see (models.py, reading.py).

A field of a message and a field of a value with the same name are the same thing.
"""

from __future__ import annotations

import datetime
import functools
import logging
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message

from magnetar import schema as schemas
from magnetar.admin._policy_values import policies_message, policies_value
from magnetar.admin.models import (
    ActiveBroker,
    BrokerLoad,
    Cluster,
    NamespacePolicies,
    PeekedMessage,
    TenantSettings,
    TopicPolicies,
)
from magnetar.admin.reading import MessagePosition, Piece, PieceFragment, Plan
from magnetar.exceptions import InvalidArgument, UnknownError
from magnetar.schema import Schema, SchemaInfo
from magnetar_protos import admin_pb2 as pb
from magnetar_protos import reading_pb2 as reading
from magnetar_protos.admin_pb2 import PeekedEntry, SplitBy
from magnetar_protos.broker_pb2 import StartAt, StartMessageId
from magnetar_protos.catalog_pb2 import ClusterData, Policies
from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_protos.schema_pb2 import Schema as SchemaMessage
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.errors import WireError
from magnetar_wire.message_id import MessageId

__all__ = [
    "StartPoint",
    "make_request",
    "next_message",
    "partition_of",
    "peeked",
    "split_fields",
    "start_at",
    "value_of",
]

log = logging.getLogger("magnetar")

T = TypeVar("T")
_ALGORITHMS: Final = {
    "range_equally_divide": SplitBy.SPLIT_BY_RANGE,
    "topic_count_equally_divide": SplitBy.SPLIT_BY_TOPICS,
    "specified_positions_divide": SplitBy.SPLIT_BY_POSITION,
}
# A subscription's new position: `earliest` or `latest`, a message, or a time (ms since 1970, or a datetime).
StartPoint = MessageId | datetime.datetime | int


def make_request(call: AdminCall, fields: Mapping[str, Any]) -> Message:
    """Return the call's request. Fields that are None stay unset. Raises `InvalidArgument`."""
    known = call.request.DESCRIPTOR.fields_by_name
    try:
        return call.request(**{name: _to_field(known[name], value) for name, value in fields.items()})
    except InvalidArgument:
        raise
    except ValueError as error:
        raise InvalidArgument(f"{call.name}: {error}: use whole numbers from 0 on, within the field's range") from None


def _to_field(field: Any, value: Any) -> Any:
    kind = field.message_type
    if isinstance(value, Message):
        return value
    convert = _TO_MESSAGE.get(kind.full_name) if kind is not None else None
    # No start and no schema are the caller's mistake.
    if convert is None or (value is None and convert not in (_start_at, _schema_message)):
        return value
    return convert(value)


def value_of(kind: type[T], message: Message) -> T:
    """Return the dataclass or named tuple of the message's fields."""
    special = _FROM_MESSAGE.get(kind)
    if special is not None:
        return cast(T, special(message))
    return kind(**{name: _read(hint, message, name) for name, hint in _hints(cast(Any, kind))})


@functools.cache
def _hints(kind: Any) -> list[tuple[str, Any]]:
    return list(typing.get_type_hints(kind).items())


def _read(hint: Any, message: Message, name: str) -> Any:
    value = getattr(message, name)
    arguments: tuple[Any, ...] = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        field: Any = message.DESCRIPTOR.fields_by_name[name]
        if field.has_presence and not message.HasField(name):
            return None
        return value_of(arguments[0], value) if isinstance(value, Message) else value
    if isinstance(value, EntryPosition):
        return _message_id(value)
    if isinstance(value, Message):
        return value_of(hint, value)
    if len(arguments) == 1:
        return [value_of(arguments[0], one) if isinstance(one, Message) else one for one in value]
    return dict(value) if len(arguments) == 2 else value


def _message_id(position: EntryPosition | pb.MessagePositionInTopic) -> MessageId:
    if isinstance(position, EntryPosition):
        return MessageId(-1, position.ledger_id, position.entry_id)
    return MessageId(position.partition, position.ledger_id, position.entry_id, position.batch_index)


def _cluster_message(cluster: Cluster) -> ClusterData:
    given = {name: getattr(cluster, name) for name, _ in _hints(Cluster)}
    return ClusterData(**{name: value for name, value in given.items() if value})


def _tenant_message(settings: TenantSettings) -> pb.TenantSettings:
    return pb.TenantSettings(admin_roles=settings.admin_roles, allowed_clusters=settings.allowed_clusters)


def _position_message(position: MessagePosition) -> reading.MessagePosition:
    ledger_id, entry_id, skip_messages = position
    return reading.MessagePosition(ledger_id=ledger_id, entry_id=entry_id, skip_messages=skip_messages)


def _schema_info(message: SchemaMessage) -> SchemaInfo:
    try:
        return SchemaInfo.from_message(message)
    except ValueError as error:
        raise UnknownError(f"the broker has a schema that this client does not know: {error}") from None


def _schema_message(schema: Any) -> SchemaMessage:
    """Return the schema of a `SchemaInfo`, a schema, or a class. Raises `InvalidArgument`."""
    try:
        made = schemas.AvroSchema(schema) if isinstance(schema, type) else schema  # fastavro is imported only for this
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"no schema can be made of {schema!r:.100}: {error}") from error
    info = made.schema_info() if isinstance(made, Schema) else made
    if not isinstance(info, SchemaInfo):
        raise InvalidArgument(
            f"{schema!r:.100} is no schema: use a SchemaInfo, a schema of magnetar.schema, or a class"
        )
    return info.to_message()


def start_at(point: StartPoint, excluded: bool) -> StartAt:
    """Return the position at a point, or after it if it is a message that is excluded."""
    start = _start_at(point)
    if excluded and start.WhichOneof("at") != "message_id":
        raise InvalidArgument(f"{point!r:.100} can't be excluded: only a message can")
    if excluded:
        start.message_id.inclusive = False
    return start


def next_message(message: MessageId, excluded: bool) -> StartMessageId:
    """Return the position after a message, or of the message if it is excluded."""
    start = _start_at(message) if isinstance(message, MessageId) else StartAt()
    if start.WhichOneof("at") != "message_id":
        raise InvalidArgument(f"{message!r:.100} is not the id of a message")
    start.message_id.inclusive = excluded
    return start.message_id


def partition_of(point: object) -> int | None:
    """Return the partition that a message's id names; None: it names none, or it is no such id."""
    return point.partition() if isinstance(point, MessageId) and point.partition() >= 0 else None


def _start_at(point: StartPoint | StartAt) -> StartAt:
    if isinstance(point, StartAt):
        return point
    if isinstance(point, MessageId):
        if point == MessageId.earliest:
            return StartAt(earliest=True)
        if point == MessageId.latest:
            return StartAt(latest=True)
        message_id = StartMessageId(
            ledger_id=point.ledger_id(), entry_id=point.entry_id(), batch_index=point.batch_index(), inclusive=True
        )
        return StartAt(message_id=message_id)
    if isinstance(point, datetime.datetime):
        return StartAt(time_ms=max(1, int(point.timestamp() * 1000)))
    if isinstance(point, int) and not isinstance(point, bool) and point > 0:
        return StartAt(time_ms=point)
    raise InvalidArgument(
        f"{point!r:.100} is no position in a topic: give MessageId.earliest or latest, a message's id, a datetime, or "
        "ms since 1970"
    )


def peeked(entry: PeekedEntry) -> Iterator[PeekedMessage]:
    """Return the entry's messages that are not acknowledged. An entry that can't be decoded is logged."""
    try:
        opened = decode_entry(entry.stored)
        messages = decode_messages(opened)
    except WireError as error:
        log.error("entry %s:%s can't be decoded: %s", entry.ledger_id, entry.entry_id, error)
        return
    done = int.from_bytes(entry.acknowledged, "little")
    for index, payload in enumerate(messages.payloads):
        batch_index = messages.batch_indexes[index] if messages.batch_indexes else index
        if done >> batch_index & 1:
            continue
        batch = (batch_index, len(messages.payloads)) if opened.is_batch else (-1, 0)
        yield PeekedMessage(
            message_id=MessageId(-1, entry.ledger_id, entry.entry_id, *batch),
            payload=payload,
            key=messages.keys[index] if messages.keys else None,
            properties=dict(messages.properties[index]) if messages.properties else {},
            producer_name=opened.metadata.producer_name,
            publish_time_ms=opened.metadata.publish_time,
            event_time_ms=messages.event_times[index] if messages.event_times else 0,
        )


def split_fields(algorithm: str | None, at: int | None) -> dict[str, int]:
    """Return the fields `by` and `at` of a `SplitBundleRequest`. Raises `InvalidArgument`."""
    algorithm = algorithm or ("range_equally_divide" if at is None else "specified_positions_divide")
    if algorithm not in _ALGORITHMS:
        raise InvalidArgument(f"a bundle can't be split by {algorithm!r:.50}: use one of {', '.join(_ALGORITHMS)}")
    if (at is not None) != (algorithm == "specified_positions_divide"):
        raise InvalidArgument(
            f"at = {at!r:.50} with the algorithm {algorithm}: only specified_positions_divide takes `at`, and needs it"
        )
    if at is not None and not (isinstance(at, int) and 0 <= at <= 0xFFFF_FFFF):
        raise InvalidArgument(f"at = {at!r:.50} is not a hash: use 0 … 0xffffffff")
    return {"by": _ALGORITHMS[algorithm], "at": at or 0}


def _active_broker(message: pb.ActiveBroker) -> ActiveBroker:
    return ActiveBroker(
        broker_id=message.broker_id,
        listeners={one.name: one.address for one in message.listeners if one.address},
        pulsar_listeners={one.name: one.pulsar_address for one in message.listeners if one.pulsar_address},
        http_address=message.http_address,
        version=message.version or None,
        started_ms=message.started_ms or None,
        load=value_of(BrokerLoad, message.load) if message.HasField("load") else None,
    )


def _position(message: reading.MessagePosition) -> MessagePosition:
    return MessagePosition(message.ledger_id, message.entry_id, message.skip_messages)


def _piece(message: reading.Piece) -> Piece:
    return Piece(
        message.ledger_id,
        message.first_entry_id,
        message.last_entry_id,
        message.skip_messages,
        message.stop_after_messages,
        message.bytes,
        message.messages,
        message.ensemble_size,
        message.write_quorum,
        message.ack_quorum,
        tuple(PieceFragment(one.first_entry_id, tuple(one.bookies)) for one in message.fragments),
        message.open,
    )


def _plan(answer: reading.PlanAnswer) -> Plan:
    return Plan(
        incarnation=answer.incarnation,
        start=_position(answer.start),
        stop=_position(answer.stop),
        pieces=[_piece(one) for one in answer.pieces],
        bookies={one.bookie_id: one.address for one in answer.bookies},
        messages=answer.messages,
        bytes=answer.bytes,
        other_incarnation=answer.other_incarnation,
        begins_in_deleted=answer.begins_in_deleted,
        first=_position(answer.first),
        end=_position(answer.end),
        messages_behind=answer.messages_behind,
        lease_until_ms=answer.lease_until_ms,
        retained=answer.retained,
        before=[_piece(one) for one in answer.before],
        at_limit=answer.at_limit,
        deleted_before=answer.deleted_before,
        needed_from=_position(answer.needed_from),
        end_index=answer.end_index,
        trimmed=answer.trimmed,
    )


_TO_MESSAGE: Final[Mapping[str, Callable[[Any], Message]]] = {
    StartAt.DESCRIPTOR.full_name: _start_at,
    Policies.DESCRIPTOR.full_name: policies_message,
    ClusterData.DESCRIPTOR.full_name: _cluster_message,
    pb.TenantSettings.DESCRIPTOR.full_name: _tenant_message,
    reading.MessagePosition.DESCRIPTOR.full_name: _position_message,
    SchemaMessage.DESCRIPTOR.full_name: _schema_message,
}
# Conversions that are not field by field, or that are written out because plans have many pieces.
_FROM_MESSAGE: Final[Mapping[type, Callable[[Any], Any]]] = {
    ActiveBroker: _active_broker,
    MessageId: _message_id,
    Plan: _plan,
    SchemaInfo: _schema_info,
    NamespacePolicies: functools.partial(policies_value, NamespacePolicies),
    TopicPolicies: functools.partial(policies_value, TopicPolicies),
}
