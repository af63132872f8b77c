"""Rows of the table of admin calls: brokers."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope

__all__ = ["BROKERS"]

_ANY: Final = Scope.ANY_BROKER
_SUPERUSER: Final = Role.SUPERUSER

# fmt: off
BROKERS: Final = (
    AdminCall("brokers", pb.BrokersRequest, pb.BrokersAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method(
            "brokers.list() -> list[ActiveBroker]",
            "List the brokers that serve topics, by their ids.",
            result="brokers",
        ),
    )),
    AdminCall("owned_bundles", pb.OwnedBundlesRequest, pb.OwnedBundlesAnswer, Scope.NAMED_BROKER, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.bundles(broker_id: str | None = None) -> list[OwnedBundle]",
            "List the bundles that a broker owns; None: the broker that answers.",
            result="bundles",
        ),
    )),
    AdminCall("broker", pb.BrokerRequest, pb.BrokerAnswer, Scope.THIS_BROKER, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.info() -> BrokerInfo", "Describe the broker that answers."),
    )),
    AdminCall("health", pb.HealthRequest, pb.HealthAnswer, Scope.THIS_BROKER, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.health() -> Health", "Let the broker that answers publish a message and read it back."),
    )),
)
# fmt: on
