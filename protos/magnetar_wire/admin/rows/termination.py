"""Rows of the table of admin calls: the end of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Partitions, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Field, Object

__all__ = ["TERMINATION"]

# Pulsar's MessageIdImpl, of a whole entry.
_MESSAGE_ID: Final = Object(
    {"ledgerId": "ledger_id", "entryId": "entry_id"},
    constants={"partitionIndex": -1, "batchSize": 0, "batchIndex": -1},
)
_STATUSES: Final[Mapping[int, int]] = {ErrorCode.NOT_ALLOWED: 405}

# fmt: off
TERMINATION: Final = (
    AdminCall("terminate_topic", pb.TopicRequest, pb.TerminationAnswer, Scope.TOPIC, Role.TENANT_ADMIN, idempotent=True,
              methods=(
        Method(
            "topics.terminate(topic: str) -> MessageId",
            "Have a topic, or one partition, accept no more messages, for good. Return the id of its last message.",
            result="last",
        ),
    ), routes=(
        Route("POST", "/admin/v2/{topic}/terminate", answer=Field("last", of=_MESSAGE_ID), statuses=_STATUSES),
    )),
    AdminCall("terminate_partitioned", pb.TopicRequest, pb.PartitionTerminationsAnswer, Scope.TOPIC, Role.TENANT_ADMIN,
              partitions=Partitions.EACH, repeated_at_owner=True, methods=(
        Method(
            "topics.terminate_partitioned(topic: str) -> list[PartitionTermination]",
            "Have all partitions of a topic accept no more messages, for good. Return the ids of their last messages.",
            result="partitions",
        ),
    ), routes=(
        Route(
            "POST", "/admin/v2/{topic}/terminate/partitions",
            answer=Field("partitions", of=Field("last", of=_MESSAGE_ID), key="partition"),
            statuses={**_STATUSES, ErrorCode.TOPIC_NOT_FOUND: 405},
        ),
    )),
)
# fmt: on
