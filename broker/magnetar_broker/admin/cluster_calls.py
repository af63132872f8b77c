"""Admin calls on clusters: each broker knows its own only."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.admin.names import cut_page
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["ClusterCalls"]


class ClusterCalls:
    def __init__(self, ownership: BundleOwnership, describe_broker: Callable[[], pb.BrokerAnswer]) -> None:
        self._ownership = ownership
        self._describe_broker = describe_broker

    async def clusters(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        return cut_page([self._describe_broker().cluster], request)

    async def cluster(self, request: pb.ClusterRequest) -> pb.ClusterAnswer:
        own = self._describe_broker()
        if request.cluster != own.cluster:
            raise BrokerError(
                ErrorCode.NOT_FOUND,
                f"there is no cluster {request.cluster!r:.100}: this one is {own.cluster!r}, and others are not known",
            )
        registered = await self._ownership.find_broker(own.broker_id)
        http_address = registered.http_address if registered is not None else ""
        return pb.ClusterAnswer(described=pb.Cluster(http_address=http_address, pulsar_address=own.pulsar_address))
