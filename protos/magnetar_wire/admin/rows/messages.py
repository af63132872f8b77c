"""Rows of the table of admin calls: stored messages, of a topic without partitions or of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.message_answer import MessageEntryAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Converted, Object
from magnetar_wire.admin.json.values import InvalidJson, format_value

__all__ = ["MESSAGES"]

_TOPIC: Final = Scope.TOPIC
_USE: Final = Role.PRODUCE_OR_CONSUME
_PATH: Final = "/admin/v2/{topic}"
# A partitioned topic is refused.
_STATUSES: Final[Mapping[int, int]] = {ErrorCode.NOT_ALLOWED: 405}
# Of Pulsar's MessageIdImpl, and what its BatchMessageIdImpl has besides.
_FIELDS: Final = {
    "ledgerId": "ledger_id",
    "entryId": "entry_id",
    "partitionIndex": "partition",
    "batchIndex": "batch_index",
}
_OF_BATCH: Final = {"outstandingAcksInSameBatch": 0, "originalBatchSize": 0}


def _id_to_json(position: Any) -> dict[str, int]:
    found = {name: getattr(position, field) for name, field in _FIELDS.items()} | {"batchSize": 0}
    return found if position.batch_index < 0 else found | _OF_BATCH


def _id_from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        raise InvalidJson(f"{format_value(value)} is not the id of a message")
    return pb.MessagePositionInTopic(**{field: value.get(name, -1) for name, field in _FIELDS.items()})


_INTEGER: Final = {"type": "integer"}
_MESSAGE_ID: Final = Converted(
    "message_id",
    _id_to_json,
    _id_from_json,
    {
        "title": "MessageId",
        "type": "object",
        "properties": dict.fromkeys([*_FIELDS, "batchSize", *_OF_BATCH], _INTEGER),
    },
)
_ENTRY: Final = MessageEntryAnswer("entry")

# fmt: off
MESSAGES: Final = (
    AdminCall("last_message_id", pb.TopicRequest, pb.MessageIdAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method(
            "topics.last_message_id(topic: str) -> MessageId",
            "Return the id of a topic's last message; the entry id -1 if it has none.",
            result="message_id",
        ),
    ), routes=(Route("GET", f"{_PATH}/lastMessageId", answer=_MESSAGE_ID, statuses={ErrorCode.NOT_ALLOWED: 404}),)),
    AdminCall("find_message_id", pb.FindMessageIdRequest, pb.MessageIdAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method(
            "topics.find_message_id(topic: str, time_ms: int) -> MessageId",
            "Return the id of the first entry that a broker received at this time or later; the position after the "
            "last one if there is none.",
            result="message_id",
        ),
    ), routes=(Route("GET", f"{_PATH}/messageid/{{time_ms=timestamp}}", answer=_MESSAGE_ID, statuses=_STATUSES),)),
    AdminCall("message_at", pb.MessageAtRequest, pb.MessageAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method("topics.messages_at"),
    ), routes=(
        Route("GET", f"{_PATH}/ledger/{{ledger_id=ledgerId}}/entry/{{entry_id=entryId}}", answer=_ENTRY,
              statuses=_STATUSES, summary="Return the messages of a stored entry, acknowledged or not."),
    )),
    AdminCall("compaction_status", pb.TopicRequest, pb.CompactionStatusAnswer, Scope.ANY_BROKER, _USE, idempotent=True,
              methods=(
        Method(
            "topics.compaction_status(topic: str) -> str",
            "Return the state of a topic's compaction: always NOT_RUN, since there is none yet.",
            result="status",
        ),
    ), routes=(
        Route("GET", f"{_PATH}/compaction", answer=Object({"status": "status", "lastError": "last_error"}),
              statuses={ErrorCode.NOT_ALLOWED: 404}),
    )),
    AdminCall("examine_message", pb.ExamineMessageRequest, pb.MessageAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method("topics.examine_messages"),
    ), routes=(
        Route("GET", f"{_PATH}/examinemessage", query={"initialPosition": "start", "messagePosition": "number"},
              answer=_ENTRY, statuses=_STATUSES,
              summary="Return the messages of the entry with this number, counted from the first or the last one."),
    )),
)
# fmt: on
