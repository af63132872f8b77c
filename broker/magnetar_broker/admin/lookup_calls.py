"""Admin calls that look up a topic for clients that use HTTP. No call is forwarded: any broker finds the owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from magnetar_broker.admin.names import parse_topic_name
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.ownership.namespace_bundles import decode_bundle_at
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.bundles import bundle_hash
from magnetar_wire.topic_name import TopicName

__all__ = ["LookupCalls"]


# A host as a client may write it in a URL, with or without a port.
_HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")


class LookupCalls:
    def __init__(
        self,
        catalog: Catalog,
        ownership: BundleOwnership,
        describe_broker: Callable[[], pb.BrokerAnswer],
        counters: BrokerCounters,
    ) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._describe_broker = describe_broker
        self._counters = counters

    async def lookup_topic(self, request: pb.LookupTopicRequest) -> pb.LookupTopicAnswer:
        self._counters.lookups += 1
        try:
            return await self._look_up(request)
        except BrokerError:
            self._counters.lookups_failed += 1
            raise

    async def _look_up(self, request: pb.LookupTopicRequest) -> pb.LookupTopicAnswer:
        name = parse_topic_name(request.topic)
        await self._catalog.check_lookup(name)
        owner = await self._ownership.find_owner(name)
        self._counters.lookups_elsewhere += not owner.is_local
        registered = await self._ownership.find_broker(owner.broker_id)
        address, pulsar_address = _find_addresses(owner.addresses, request)
        found = pb.TopicOwner(
            topic=str(name),
            broker_id=owner.broker_id,
            address=address,
            pulsar_address=pulsar_address,
            bundle=await self._find_bundle(name),
            http_address=registered.http_address if registered is not None else "",
        )
        if owner.is_local and not request.listener_name and self._describe_broker().advertises_reached_address:
            _set_reached_host(found, request.reached_at)
        return pb.LookupTopicAnswer(owner=found)

    async def topic_bundle(self, request: pb.TopicRequest) -> pb.TopicBundleAnswer:
        return pb.TopicBundleAnswer(bundle=await self._find_bundle(parse_topic_name(request.topic)))

    async def _find_bundle(self, name: TopicName) -> str:
        namespace = await self._catalog.get_namespace(name.namespace_name, fresh=True)
        return str(decode_bundle_at(namespace.node.bundle_starts, bundle_hash(name)))


def _find_addresses(addresses: AdvertisedAddresses, request: pb.LookupTopicRequest) -> tuple[str, str]:
    """Return the listener's address, and its address for clients of Pulsar's protocol. One of them may be empty.

    Raises `BrokerError` if that is the one that is needed.
    """
    listener = request.listener_name or addresses.listeners[0][0]
    if listener not in dict(addresses.pulsar):
        addresses.find(listener)  # refuses a name that no listener has
    if request.needs_pulsar:
        return dict(addresses.listeners).get(listener, ""), addresses.find_pulsar(listener)
    return addresses.find(listener), dict(addresses.pulsar).get(listener, "")


def _set_reached_host(owner: pb.TopicOwner, reached_at: str) -> None:
    """Replace the host of the owner's addresses by that at which the client reached the broker."""
    reached = _HOST.fullmatch(reached_at)
    if reached is not None:
        for name in ("pulsar_address", "http_address"):
            address = getattr(owner, name)
            if address:
                setattr(owner, name, f"{reached['host']}:{address.rpartition(':')[2]}")
