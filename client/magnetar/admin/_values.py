"""Between what travels (admin.proto) and what the application sees (models.py): fields of one name are one thing."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message

from magnetar.admin.models import ActiveBroker, BrokerLoad, NamespacePolicies, PeekedMessage
from magnetar.exceptions import InvalidArgument
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.admin_pb2 import PeekedEntry, Place, SplitBy
from magnetar_protos.broker_pb2 import MessagePlace, StartAt
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.errors import WireError
from magnetar_wire.message_id import MessageId

__all__ = ["StartPoint", "active_broker", "peeked", "policies_message", "split_request", "start_at", "value_of"]

log = logging.getLogger("magnetar")

T = TypeVar("T")
_ALGORITHMS: Final = {
    "range_equally_divide": SplitBy.SPLIT_BY_RANGE,
    "topic_count_equally_divide": SplitBy.SPLIT_BY_TOPICS,
    "specified_positions_divide": SplitBy.SPLIT_BY_POSITION,
}
# Where a subscription goes on: `earliest` or `latest`, with a message, or at a time (ms since 1970, or a datetime).
StartPoint = MessageId | datetime.datetime | int


def value_of(kind: type[T], message: Message) -> T:
    """The dataclass with what the message says under the same names."""
    return kind(**{name: _read(hint, message, name) for name, hint in _hints(cast(Any, kind))})


@functools.cache
def _hints(kind: Any) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


def _read(hint: Any, message: Message, name: str) -> Any:
    value = getattr(message, name)
    arguments: tuple[Any, ...] = typing.get_args(hint)
    if isinstance(value, Place):
        return MessageId(-1, value.ledger_id, value.entry_id)
    if isinstance(hint, types.UnionType):
        return value_of(arguments[0], value) if message.HasField(name) else None
    if isinstance(value, Message):
        return value_of(hint, value)
    if len(arguments) == 1:
        return [value_of(arguments[0], one) if isinstance(one, Message) else one for one in value]
    return dict(value) if len(arguments) == 2 else value


def policies_message(policies: NamespacePolicies) -> Policies:
    message = Policies()
    for policy in dataclasses.fields(policies):
        value = getattr(policies, policy.name)
        if value is not None:
            getattr(message, policy.name).SetInParent()
            for name, one in dataclasses.asdict(value).items():
                setattr(getattr(message, policy.name), name, one)
    return message


def start_at(point: StartPoint) -> StartAt:
    if isinstance(point, MessageId):
        if point == MessageId.earliest:
            return StartAt(earliest=True)
        if point == MessageId.latest:
            return StartAt(latest=True)
        place = MessagePlace(
            ledger_id=point.ledger_id(), entry_id=point.entry_id(), batch_index=point.batch_index(), inclusive=True
        )
        return StartAt(place=place)
    if isinstance(point, datetime.datetime):
        return StartAt(time_ms=max(1, int(point.timestamp() * 1000)))
    if isinstance(point, int) and not isinstance(point, bool) and point > 0:
        return StartAt(time_ms=point)
    raise InvalidArgument(
        f"{point!r:.100} is no place in a topic: give MessageId.earliest or latest, a message's id, a datetime, or ms "
        "since 1970"
    )


def peeked(entry: PeekedEntry) -> Iterator[PeekedMessage]:
    """Its messages, but those that are acknowledged. An entry that can't be opened here is named in the log."""
    try:
        opened = decode_entry(entry.stored)
        messages = decode_messages(opened)
    except WireError as error:
        log.error("%s:%s is not shown: %s", entry.ledger_id, entry.entry_id, error)
        return
    done = int.from_bytes(entry.acknowledged, "little")
    for index, payload in enumerate(messages.payloads):
        place = messages.batch_indexes[index] if messages.batch_indexes else index
        if done >> place & 1:
            continue
        batch = (place, len(messages.payloads)) if opened.is_batch else (-1, 0)
        yield PeekedMessage(
            message_id=MessageId(-1, entry.ledger_id, entry.entry_id, *batch),
            payload=payload,
            key=messages.keys[index] if messages.keys else None,
            properties=dict(messages.properties[index]) if messages.properties else {},
            producer_name=opened.metadata.producer_name,
            publish_time_ms=opened.metadata.publish_time,
            event_time_ms=messages.event_times[index] if messages.event_times else 0,
        )


def split_request(namespace: str, bundle: str, algorithm: str | None, at: int | None) -> pb.SplitBundleRequest:
    algorithm = algorithm or ("range_equally_divide" if at is None else "specified_positions_divide")
    if algorithm not in _ALGORITHMS:
        raise InvalidArgument(f"a bundle can't be split by {algorithm!r:.50}: use one of {', '.join(_ALGORITHMS)}")
    if (at is not None) != (algorithm == "specified_positions_divide"):
        raise InvalidArgument(f"`at` goes with specified_positions_divide, and with nothing else: not {algorithm}")
    if at is not None and not (isinstance(at, int) and 0 <= at <= 0xFFFF_FFFF):
        raise InvalidArgument(f"a bundle is split at a hash, 0 … 0xffffffff, and not at {at!r:.50}")
    return pb.SplitBundleRequest(namespace=namespace, bundle=bundle, by=_ALGORITHMS[algorithm], at=at or 0)


def active_broker(message: pb.ActiveBroker) -> ActiveBroker:
    return ActiveBroker(
        broker_id=message.broker_id,
        listeners={one.name: one.address for one in message.listeners if one.address},
        pulsar_listeners={one.name: one.pulsar_address for one in message.listeners if one.pulsar_address},
        http_address=message.http_address,
        version=message.version,
        started_ms=message.started_ms,
        load=value_of(BrokerLoad, message.load),
    )
