"""What is asked of any broker by those who read a topic's log from the bookies: it is the topic's own that answers
(reading_here.py).

All of it may be done twice without harm: a plan's lease is the same one, and a subscription never goes back.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.names import namespace_named, topic_named
from magnetar_broker.admin.owner_calls import OwnerCalls
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.core.policies import check_known
from magnetar_broker.errors import BrokerError
from magnetar_protos import reading_pb2 as pb
from magnetar_protos.admin_pb2 import Done
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["ReadingCalls"]

A = TypeVar("A", bound=Message)


class ReadingCalls:
    def __init__(self, catalog: Catalog, topics: TopicCalls, owners: OwnerCalls) -> None:
        self._catalog = catalog
        self._topics = topics
        self._owners = owners

    async def log_place(self, request: pb.LogPlaceRequest) -> pb.LogPlaceAnswer:
        return await self._asked("log_place", request.topic, request, pb.LogPlaceAnswer)

    async def plan(self, request: pb.PlanRequest) -> pb.PlanAnswer:
        return await self._asked("plan", request.topic, request, pb.PlanAnswer)

    async def renew_lease(self, request: pb.RenewLeaseRequest) -> Done:
        return await self._asked("renew_lease", request.topic, request, Done)

    async def finish_part(self, request: pb.FinishPartRequest) -> Done:
        return await self._asked("finish_part", request.topic, request, Done)

    async def advance_progress(self, request: pb.AdvanceProgressRequest) -> pb.AdvanceProgressAnswer:
        return await self._asked("advance_progress", request.topic, request, pb.AdvanceProgressAnswer)

    async def hold_namespace(self, request: pb.HoldNamespaceRequest) -> pb.HoldNamespaceAnswer:
        check_known(request, "hold_namespace")
        name = namespace_named(request.namespace)
        leases = self._catalog.namespace_leases
        try:
            incarnation = (await self._catalog.namespaces.get(name)).node.incarnation
        except BrokerError as error:
            if error.code != ErrorCode.NOT_FOUND or request.lease_ms:
                raise
            return pb.HoldNamespaceAnswer()  # the leases were deleted with it
        if not request.lease_ms:
            await leases.end(name, incarnation, request.lease_id)
            return pb.HoldNamespaceAnswer()
        taken = await leases.hold(
            name, incarnation, request.name_prefix, request.lease_id, request.lease_ms, request.holder
        )
        return pb.HoldNamespaceAnswer(taken=taken)

    async def namespace_leases(self, request: pb.NamespaceLeasesRequest) -> pb.NamespaceLeasesAnswer:
        name = namespace_named(request.namespace)
        await self._catalog.namespaces.get(name)
        return pb.NamespaceLeasesAnswer(
            leases=[
                pb.HeldNamespace(
                    name_prefix=lease.name_prefix,
                    lease_id=lease.lease_id,
                    lease_ms=lease.lease_ms,
                    holder=lease.holder,
                )
                for lease in await self._catalog.namespace_leases.list(name)
            ]
        )

    async def _asked(self, call: str, topic: str, request: Message, answer: type[A]) -> A:
        check_known(request, call)
        name = topic_named(topic)
        try:
            return await self._owners.of_topic(name, call, request, answer, harmless=True)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_NOT_FOUND or name.is_partition:
                raise
            parts = await self._topics.names(name)
            if parts == [name]:
                raise
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} has partitions: ask each of them, {parts[0]} and so on"
            ) from error
