"""Rows of the table of admin calls: schemas of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Object
from magnetar_wire.admin.json.schemas import (
    MAX_SCHEMA_BODY_BYTES,
    ONE_SCHEMA,
    POSTED_SCHEMA,
    SCHEMA_METADATA,
    SCHEMA_VERSION,
    SCHEMAS,
    CheckAnswer,
)

__all__ = ["SCHEMA_CALLS"]

_ANY: Final = Scope.ANY_BROKER
_ADMIN: Final = Role.TENANT_ADMIN
_USE: Final = Role.PRODUCE_OR_CONSUME
_TOPIC: Final = "/admin/v2/schemas/{topic:stored}"
# Of a schema that is not valid.
_STATUSES: Final[Mapping[int, int]] = {ErrorCode.INVALID_ARGUMENT: 422, ErrorCode.INCOMPATIBLE_SCHEMA: 409}

# fmt: off
SCHEMA_CALLS: Final = (
    AdminCall("schema", pb.TopicSchemaRequest, pb.TopicSchemaAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "schemas.get(topic: str, version: int | None = None) -> TopicSchema",
            "Return a version of a topic's schema; None: the last one. Raises NotFound if the topic has no schema, not "
            "this version, or if it is deleted.",
            result="schema",
        ),
    ), routes=(
        Route("GET", f"{_TOPIC}/schema", answer=ONE_SCHEMA, summary="Return the last version of a topic's schema."),
        Route("GET", f"{_TOPIC}/schema/{{version}}", answer=ONE_SCHEMA,
              summary="Return a version of a topic's schema."),
    )),
    AdminCall("schemas", pb.TopicSchemasRequest, pb.TopicSchemasAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("schemas.list"),
    ), routes=(
        Route("GET", f"{_TOPIC}/schemas", implied={"whole": True}, answer=SCHEMAS,
              summary="List all versions of a topic's schema that are not deleted, oldest first."),
    )),
    AdminCall("upload_schema", pb.SchemaDefinitionRequest, pb.SchemaVersionAnswer, _ANY, _ADMIN, idempotent=True,
              methods=(
        Method("schemas.upload"),
    ), routes=(
        Route("POST", f"{_TOPIC}/schema", body=POSTED_SCHEMA, needs_body=True, max_body_bytes=MAX_SCHEMA_BODY_BYTES,
              answer=Object({"version": Object({"version": SCHEMA_VERSION})}), statuses=_STATUSES,
              summary="Add a version to a topic's schema, unless it has one with this definition, and return its "
                      "number. A topic that does not exist is created, if first use by a client would create it."),
    )),
    AdminCall("check_schema", pb.SchemaDefinitionRequest, pb.SchemaCheckAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("schemas.check"),
    ), routes=(
        Route("POST", f"{_TOPIC}/compatibility", body=POSTED_SCHEMA, needs_body=True,
              max_body_bytes=MAX_SCHEMA_BODY_BYTES, answer=CheckAnswer(), statuses=_STATUSES,
              summary="Check whether a schema could become a topic's next version. If it could not, the answer has the "
                      "reason."),
    )),
    AdminCall("find_schema_version", pb.SchemaDefinitionRequest, pb.SchemaVersionAnswer, _ANY, _USE, idempotent=True,
              methods=(
        Method("schemas.find_version"),
    ), routes=(
        Route("POST", f"{_TOPIC}/version", body=POSTED_SCHEMA, needs_body=True, max_body_bytes=MAX_SCHEMA_BODY_BYTES,
              answer=Object({"version": SCHEMA_VERSION}), statuses=_STATUSES,
              summary="Return the version of a topic's schema that has this definition; -1: there is none."),
    )),
    AdminCall("delete_schema", pb.DeleteSchemaRequest, pb.SchemaVersionAnswer, _ANY, _ADMIN, methods=(
        Method("schemas.delete"),
    ), routes=(
        Route("DELETE", f"{_TOPIC}/schema", query={"force": "force"}, answer=Object({"version": SCHEMA_VERSION}),
              summary="Delete a topic's schema: a new version marks that. With `force` all versions are removed, so "
                      "that stored messages can't be decoded by them any more."),
    )),
    AdminCall("schema_metadata", pb.SchemaMetadataRequest, pb.SchemaMetadataAnswer, _ANY, _USE, idempotent=True,
              methods=(
        Method(
            "schemas.metadata(topic: str) -> list[StoredSchemaVersion]",
            "List where each version of a topic's schema is stored, deleted ones included; none: it has no schema.",
            result="versions",
        ),
    ), routes=(
        Route("GET", f"{_TOPIC}/metadata", answer=SCHEMA_METADATA, empty_status=200),
    )),
)
# fmt: on
