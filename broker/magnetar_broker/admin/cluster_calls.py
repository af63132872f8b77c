"""Admin calls on clusters. Brokers serve their own; data of others are stored, and have no effect yet."""

from __future__ import annotations

from typing import Final

from magnetar_broker.admin.names import cut_page
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import ClusterData

__all__ = ["ClusterCalls"]

_STORE_TYPE: Final = "JKS"


class ClusterCalls:
    def __init__(self, catalog: Catalog, ownership: BundleOwnership) -> None:
        self._clusters = catalog.clusters
        self._tenants = catalog.tenants
        self._ownership = ownership

    async def clusters(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        return cut_page(await self._clusters.list_names(), request)

    async def cluster(self, request: pb.ClusterRequest) -> pb.ClusterAnswer:
        data = await self._clusters.find_data(request.cluster)
        return pb.ClusterAnswer(data=data if data is not None else await self._describe_own())

    async def _describe_own(self) -> ClusterData:
        """Return URLs with the addresses of all brokers."""
        registered = [one for _, one in await self._ownership.list_brokers()]
        addresses = [AdvertisedAddresses.decode(one.listeners) for one in registered]
        # The defaults of Pulsar's tools.
        data = ClusterData(broker_client_tls_trust_store_type=_STORE_TYPE, broker_client_tls_key_store_type=_STORE_TYPE)
        if http := [one.http_address for one in registered if one.http_address]:
            data.service_url = f"http://{','.join(http)}"
        if pulsar := [one.internal_pulsar for one in addresses if one.listeners and one.internal_pulsar]:
            data.broker_service_url = f"pulsar://{','.join(pulsar)}"
        return data

    async def create_cluster(self, request: pb.ClusterRequest) -> pb.ClusterChanged:
        await self._clusters.create(request.cluster, request.data)
        return self._warn(request)

    async def update_cluster(self, request: pb.ClusterRequest) -> pb.ClusterChanged:
        await self._clusters.update(request.cluster, request.data)
        return self._warn(request)

    def _warn(self, request: pb.ClusterRequest) -> pb.ClusterChanged:
        if request.cluster == self._clusters.own:
            return pb.ClusterChanged()
        return pb.ClusterChanged(
            warnings=[
                f"the data of cluster {request.cluster} are stored, not yet in effect: there is no geo-replication"
            ]
        )

    async def delete_cluster(self, request: pb.ClusterRequest) -> pb.Done:
        # A tenant that is created in the meantime may name it, which has no effect.
        for tenant in await self._tenants.list_names():
            try:
                allowed = (await self._tenants.get_settings(tenant)).allowed_clusters
            except BrokerError as error:
                if error.code != ErrorCode.NOT_FOUND:
                    raise
                continue
            if request.cluster in allowed and request.cluster != self._clusters.own:
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED, f"tenant {tenant} allows cluster {request.cluster}: change the tenant first"
                )
        await self._clusters.delete(request.cluster)
        return pb.Done()
