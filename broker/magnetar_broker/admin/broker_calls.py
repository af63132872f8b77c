"""Admin calls on brokers."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.ownership.registered_brokers import choose_leader
from magnetar_broker.topics.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["BrokerCalls", "check_own_cluster"]


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
        check_own_cluster(request.cluster, self._describe_broker().cluster)
        return pb.BrokersAnswer(brokers=await self._list())

    async def leader_broker(self, request: pb.BrokersRequest) -> pb.LeaderBrokerAnswer:
        brokers = await self._list()
        if not brokers:
            raise BrokerError(ErrorCode.NOT_FOUND, "no broker is registered now: try again later")
        leader = choose_leader([(one.broker_id, one) for one in brokers])
        return pb.LeaderBrokerAnswer(broker=next(one for one in brokers if one.broker_id == leader))

    async def _list(self) -> list[pb.ActiveBroker]:
        return [
            pb.ActiveBroker(
                broker_id=broker_id,
                listeners=registered.listeners,
                http_address=registered.http_address,
                version=registered.version,
                started_ms=registered.started_ms,
                load=registered.load,
            )
            for broker_id, registered in await self._ownership.list_brokers()
        ]

    async def broker(self, request: pb.BrokerRequest) -> pb.BrokerAnswer:
        answer = self._describe_broker()
        answer.loaded_topics = len(self._topics)
        return answer

    async def health(self, request: pb.HealthRequest) -> pb.HealthAnswer:
        healthy, reasons = await self._health.check()
        return pb.HealthAnswer(healthy=healthy, reasons=reasons)

    async def check_backlog_quotas(self, request: pb.BrokerRequest) -> pb.Done:
        for topic in self._topics.loaded():
            if topic.ended is None:
                await topic.quotas.enforce()
        return pb.Done()


def check_own_cluster(given: str, own: str) -> None:
    """Raise NOT_FOUND unless the cluster is this broker's; empty: it is."""
    if given and given != own:
        raise BrokerError(
            ErrorCode.NOT_FOUND, f"the brokers of cluster {given!r:.100} are not known here: this cluster is {own!r}"
        )
