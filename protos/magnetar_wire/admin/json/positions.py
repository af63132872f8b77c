"""Positions in a topic as JSON: Pulsar's MessageId and ResetCursorData.

    {"ledgerId": 7, "entryId": 3, "partitionIndex": -1, "batchIndex": -1, "excluded": false}

`isExcluded`, the name of the field in Pulsar's source, is accepted, too: Pulsar's brokers ignore it.
A position below 0 is the earliest one, and one of the largest numbers the latest, as Pulsar's clients write them. The
texts "earliest" and "latest" are accepted, too. Without a partition, `partitionIndex` is -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import Message

from magnetar_wire.admin.json.parts import Field, Part, Schema
from magnetar_wire.admin.json.values import InvalidJson, format_value

__all__ = ["PositionPart", "StartPart"]

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_EARLIEST: Final = (-1, -1)
_LATEST: Final = (_INT64_MAX, _INT64_MAX)
_PROPERTIES: Final = Field("properties")
_SCHEMA: Final[Schema] = {
    "title": "ResetCursorData",
    "type": "object",
    "properties": {
        "ledgerId": {"type": "integer", "minimum": -1, "maximum": _INT64_MAX},
        "entryId": {"type": "integer", "minimum": -1, "maximum": _INT64_MAX},
        "partitionIndex": {"type": "integer", "minimum": -1, "maximum": _INT32_MAX},
        "batchIndex": {"type": "integer", "minimum": -1, "maximum": _INT32_MAX},
        "excluded": {"type": "boolean"},
        "properties": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["ledgerId", "entryId"],
}


class _Position(Part):
    def __init__(self, *, properties: bool = False) -> None:
        """`properties`: the request's field `properties` is in the same JSON object."""
        self._has_properties = properties

    def schema(self, descriptor: Any) -> Schema:
        return _SCHEMA

    def _read(self, message: Any, value: Any, where: str) -> tuple[int, int, int, bool]:
        """Return ledger id, entry id, batch index, and whether the position is excluded. Sets the request's partition
        and properties."""
        if value in ("earliest", "latest"):
            return (*(_EARLIEST if value == "earliest" else _LATEST), -1, False)
        if not isinstance(value, Mapping):
            raise InvalidJson(f"{where}: {format_value(value)} is no position: use an object with ledgerId, entryId")
        ledger_id = _number(value, "ledgerId", _INT64_MAX, where)
        entry_id = _number(value, "entryId", _INT64_MAX, where)
        partition = _number(value, "partitionIndex", _INT32_MAX, where, -1)
        batch_index = _number(value, "batchIndex", _INT32_MAX, where, -1)
        excluded = value.get("excluded", value.get("isExcluded")) or False
        if not isinstance(excluded, bool):
            raise InvalidJson(f"{where}.excluded: {format_value(excluded)} is not true or false")
        if partition >= 0:
            message.partition = partition
        if self._has_properties and value.get("properties") is not None:
            _PROPERTIES.fill(message, value["properties"], f"{where}.properties")
        return ledger_id, entry_id, batch_index, excluded

    def _write(self, message: Any, ledger_id: int, entry_id: int, batch_index: int, excluded: bool) -> dict[str, Any]:
        made: dict[str, Any] = {
            "ledgerId": ledger_id,
            "entryId": entry_id,
            "partitionIndex": message.partition if message.HasField("partition") else -1,
            "batchIndex": batch_index,
            "excluded": excluded,
        }
        return made | ({"properties": dict(message.properties)} if self._has_properties else {})


class StartPart(_Position):
    """The fields `start` (StartAt) and `partition` of a request; with `properties` that field, too."""

    def __init__(self, *, properties: bool = False) -> None:
        super().__init__(properties=properties)
        self.fields = frozenset(["start", "partition"] + (["properties"] if properties else []))

    def carries(self, message: Message) -> bool:
        request: Any = message
        at = request.start.WhichOneof("at")
        if at is None:
            return not any(request.HasField(name) for name in ("start", "partition")) and not (
                self._has_properties and request.properties
            )
        if at == "message_id":
            return _is_carried(request, request.start.message_id, lowest=0)
        return at != "time_ms" and bool(getattr(request.start, at)) and _is_carried(request)

    def to_json(self, message: Any) -> Any:
        at = message.start.WhichOneof("at")
        if at is None and not (self._has_properties and message.properties):
            return None
        if at == "earliest":
            return self._write(message, *_EARLIEST, -1, False)
        if at == "message_id":
            start = message.start.message_id
            return self._write(message, start.ledger_id, start.entry_id, start.batch_index, not start.inclusive)
        return self._write(message, *_LATEST, -1, False)

    def fill(self, message: Any, value: Any, where: str) -> None:
        ledger_id, entry_id, batch_index, excluded = self._read(message, value, where)
        if ledger_id < 0:
            message.start.earliest = True
        elif (ledger_id, entry_id) == _LATEST:
            message.start.latest = True
        else:
            start = message.start.message_id
            start.ledger_id, start.entry_id, start.batch_index = ledger_id, entry_id, batch_index
            start.inclusive = not excluded


class PositionPart(_Position):
    """The field `name` (StartMessageId) and `partition` of a request: the position after the named one, or with
    `excluded` the named one itself."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.fields = frozenset([name, "partition"])
        self._name = name

    def carries(self, message: Message) -> bool:
        request: Any = message
        if not request.HasField(self._name):
            return not request.HasField("partition")
        return _is_carried(request, getattr(request, self._name))

    def to_json(self, message: Any) -> Any:
        if not message.HasField(self._name):
            return None
        start = getattr(message, self._name)
        return self._write(message, start.ledger_id, start.entry_id, start.batch_index, start.inclusive)

    def fill(self, message: Any, value: Any, where: str) -> None:
        start = getattr(message, self._name)
        start.ledger_id, start.entry_id, start.batch_index, start.inclusive = self._read(message, value, where)


def _is_carried(request: Any, position: Any = None, lowest: int = -1) -> bool:
    """Whether JSON can have the numbers of a request with this position. `lowest`: of the ids."""
    if request.HasField("partition") and not 0 <= request.partition <= _INT32_MAX:
        return False
    if position is None:
        return True
    ids = (position.ledger_id, position.entry_id)
    return min(ids) >= lowest and ids != _LATEST and position.batch_index >= -1


def _number(value: Mapping[str, Any], name: str, highest: int, where: str, default: int | None = None) -> int:
    number = value.get(name)
    if number is None and default is not None:
        return default
    if number is None:
        raise InvalidJson(f"{where}: {name} is missing")
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= highest:
        raise InvalidJson(f"{where}.{name}: {format_value(number)} is not a whole number from -1 to {highest}")
    return number
