"""Admin calls on brokers."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.topics.topics import Topics
from magnetar_protos import admin_pb2 as pb

__all__ = ["BrokerCalls"]


class BrokerCalls:
    def __init__(
        self,
        topics: Topics,
        ownership: BundleOwnership,
        health: BrokerHealth,
        describe_broker: Callable[[], pb.BrokerAnswer],
    ) -> None:
        self._topics = topics
        self._ownership = ownership
        self._health = health
        self._describe_broker = describe_broker

    async def brokers(self, request: pb.BrokersRequest) -> pb.BrokersAnswer:
        answer = pb.BrokersAnswer()
        for broker_id, registered in await self._ownership.list_brokers():
            answer.brokers.add(
                broker_id=broker_id,
                listeners=registered.listeners,
                http_address=registered.http_address,
                version=registered.version,
                started_ms=registered.started_ms,
                load=registered.load,
            )
        return answer

    async def broker(self, request: pb.BrokerRequest) -> pb.BrokerAnswer:
        answer = self._describe_broker()
        answer.loaded_topics = len(self._topics)
        return answer

    async def health(self, request: pb.HealthRequest) -> pb.HealthAnswer:
        healthy, reasons = await self._health.check()
        return pb.HealthAnswer(healthy=healthy, reasons=reasons)
