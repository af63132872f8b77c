"""Rows of the table of admin calls: policies of topics."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.policies import Level
from magnetar_wire.admin.policy_routes import change_routes, read_routes

__all__ = ["TOPIC_POLICIES"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_ADMIN: Final = Role.TENANT_ADMIN
_BROKER: Final = Role.BROKER
_EVENTS: Final = "events"

# fmt: off
TOPIC_POLICIES: Final = (
    AdminCall("topic_policies", pb.TopicPoliciesRequest, pb.TopicPoliciesAnswer, _ANY, _ADMIN, idempotent=True,
              methods=(
        Method("topics.policies"),
        Method("topics.policy_warnings"),
    ), routes=read_routes(Level.TOPIC)),
    # Not repeated: another change may have come after it.
    AdminCall("change_topic_policies", pb.ChangeTopicPoliciesRequest, pb.TopicPoliciesChanged, _ANY, _ADMIN, methods=(
        Method("topics.change_policies"),
    ), routes=(
        *change_routes(Level.TOPIC),
        Route("DELETE", f"{Level.TOPIC.base}/policies", fixed={"remove_all": True},
              summary="Remove all policies of a topic."),
    )),
    AdminCall("stored_topic_policies", pb.StoredTopicPoliciesRequest, pb.StoredTopicPoliciesAnswer, _TOPIC, _BROKER,
              idempotent=True, topic_field=_EVENTS),
    AdminCall("store_topic_policies", pb.StoreTopicPoliciesRequest, pb.TopicPoliciesChanged, _TOPIC, _BROKER,
              topic_field=_EVENTS),
)
# fmt: on
