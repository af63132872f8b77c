"""Admin calls on brokers."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.admin.bundle_owners import BundleOwners
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb

__all__ = ["BrokerCalls"]


class BrokerCalls:
    def __init__(
        self,
        topics: Topics,
        ownership: BundleOwnership,
        owner_rpc: OwnerRpc,
        bundle_owners: BundleOwners,
        health: BrokerHealth,
        describe_broker: Callable[[], pb.BrokerAnswer],
    ) -> None:
        self._topics = topics
        self._ownership = ownership
        self._owner_rpc = owner_rpc
        self._bundle_owners = bundle_owners
        self._health = health
        self._describe_broker = describe_broker

    async def brokers(self, request: pb.BrokersRequest) -> pb.BrokersAnswer:
        answer = pb.BrokersAnswer()
        for broker_id, registered in await self._ownership.brokers():
            answer.brokers.add(
                broker_id=broker_id,
                listeners=registered.listeners,
                http_address=registered.http_address,
                version=registered.version,
                started_ms=registered.started_ms,
                load=registered.load,
            )
        return answer

    async def owned_bundles(self, request: pb.OwnedBundlesRequest) -> pb.OwnedBundlesAnswer:
        broker_id = request.broker_id or self._describe_broker().broker_id
        answer: pb.OwnedBundlesAnswer = await self._owner_rpc.call_owner(
            lambda: self._bundle_owners.find_broker(broker_id), "owned_bundles", request
        )
        return answer

    async def broker(self, request: pb.BrokerRequest) -> pb.BrokerAnswer:
        answer = self._describe_broker()
        answer.loaded_topics = len(self._topics)
        return answer

    async def health(self, request: pb.HealthRequest) -> pb.HealthAnswer:
        healthy, reasons = await self._health.check()
        return pb.HealthAnswer(healthy=healthy, reasons=reasons)
