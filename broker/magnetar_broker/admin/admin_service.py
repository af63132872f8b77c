"""Serve the admin calls of clients, `admin.<name>`, and those that other brokers forward, `here.<name>`.

Both are made from the table of admin calls (magnetar_wire/admin_calls.py). Each row has one handler, the method of its
name in one of the classes `TenantCalls`, `NamespaceCalls`, … A handler of a call with the scope

    ANY_BROKER, THIS_BROKER     runs here
    TOPIC                       runs at the topic's owner, with the loaded topic; topic_router.py forwards the call
    BUNDLE, NAMED_BROKER        forwards the call by itself; the owner's handler is in local_bundles.py

At start the handlers are compared with the rows: a row without a handler, or a handler without a row, is a ValueError.

Calls in flight are limited, so that an administrator's program that runs wild does not keep the broker from its
messages. A broker whose metadata session is suspended refuses all calls but those about itself: it could not read what
exists, and other brokers can. It still answers calls of other brokers about its open topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.broker_calls import BrokerCalls
from magnetar_broker.admin.bundle_calls import BundleCalls
from magnetar_broker.admin.bundle_owners import BundleOwners
from magnetar_broker.admin.call_server import CallServer, Handler, check_complete, find_handlers, refuse_call
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.admin.local_bundles import LocalBundles
from magnetar_broker.admin.local_calls import LocalCalls
from magnetar_broker.admin.local_topics import LocalTopics
from magnetar_broker.admin.namespace_calls import NamespaceCalls
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.partitioned_topic_calls import PartitionedTopicCalls
from magnetar_broker.admin.reading_calls import ReadingCalls
from magnetar_broker.admin.subscription_calls import SubscriptionCalls
from magnetar_broker.admin.subscription_lists import SubscriptionLists
from magnetar_broker.admin.tenant_calls import TenantCalls
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.admin.topic_router import TopicRouter
from magnetar_broker.core.concurrency_limit import ConcurrencyLimit
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.peers import PeersLike
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos import reading_pb2 as reading
from magnetar_wire.admin_call import Scope
from magnetar_wire.admin_calls import ADMIN_CALLS
from magnetar_wire.clock import Clock
from magnetar_wire.transport import Code, Refusal

__all__ = ["AdminService"]

_MAX_IN_FLIGHT: Final = 64
# Of the calls of reading.proto, counted apart: a query plans all partitions of its topics at a time.
_MAX_READERS_IN_FLIGHT: Final = 256


class AdminService:
    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        ownership: BundleOwnership,
        peers: PeersLike,
        clock: Clock,
        ledgers: LedgerClient,
        health: BrokerHealth,
        describe_broker: Callable[[], pb.BrokerAnswer],
        is_connected: Callable[[], bool],
    ) -> None:
        """`is_connected`: to the metadata store."""
        self._is_connected = is_connected

        def broker_id() -> str:
            return describe_broker().broker_id

        at_owner: list[object] = [
            TopicCalls(topics, catalog, ownership, broker_id),
            SubscriptionCalls(catalog.settings.admin_max_peeked_entries),
            ReadingCalls(catalog, ledgers),
        ]
        local_topics, local_bundles = LocalTopics(topics, ownership), LocalBundles(topics, ownership)
        self._local = LocalCalls(_local_handlers(at_owner, local_topics, local_bundles))
        owner_rpc = OwnerRpc(self._local, ownership, peers, clock, catalog.settings.admin_forward_timeout_seconds)
        bundle_owners = BundleOwners(ownership, owner_rpc, broker_id)
        deletions = Deletions(catalog, owner_rpc, bundle_owners)
        forwarding: list[object] = [
            TenantCalls(catalog, deletions),
            NamespaceCalls(catalog, deletions, bundle_owners, ledgers),
            PartitionedTopicCalls(catalog, owner_rpc, deletions),
            SubscriptionLists(catalog, owner_rpc),
            BundleCalls(catalog, owner_rpc, bundle_owners),
            BrokerCalls(topics, ownership, owner_rpc, bundle_owners, health, describe_broker),
        ]
        limit = ConcurrencyLimit(_MAX_IN_FLIGHT, refuse_call)
        reader_limit = ConcurrencyLimit(_MAX_READERS_IN_FLIGHT, refuse_call)
        self._server = CallServer(
            "admin",
            _client_handlers([*at_owner, *forwarding], TopicRouter(catalog, owner_rpc)),
            lambda call: reader_limit if call.request.DESCRIPTOR.file is reading.DESCRIPTOR else limit,
        )

    async def serve(self, name: str, request: bytes) -> bytes:
        """Serve `admin.<name>`. Raises `Refusal`."""
        call = ADMIN_CALLS.get(name)
        if call is not None and call.scope is not Scope.THIS_BROKER and not self._is_connected():
            raise Refusal(
                Code.UNAVAILABLE, "the broker's session with its metadata store is suspended: call it later, or another"
            )
        return await self._server.serve(name, request)

    async def serve_broker(self, name: str, request: bytes) -> bytes:
        """Serve `here.<name>`. Raises `Refusal`."""
        return await self._local.serve(name, request)


def _local_handlers(groups: Sequence[object], topics: LocalTopics, bundles: LocalBundles) -> dict[str, Handler]:
    """Return the handlers of `here.<name>`."""
    handlers: dict[str, Handler] = dict(find_handlers([bundles]))
    for name, method in find_handlers(groups).items():
        call = ADMIN_CALLS.get(name)
        if call is not None and call.scope is Scope.TOPIC:
            handlers[name] = topics.load_for(call, method)
    check_complete(handlers, [call for call in ADMIN_CALLS.values() if call.has_owner])
    return handlers


def _client_handlers(groups: Sequence[object], router: TopicRouter) -> dict[str, Handler]:
    """Return the handlers of `admin.<name>`."""
    handlers: dict[str, Handler] = {}
    for name, method in find_handlers(groups).items():
        call = ADMIN_CALLS.get(name)
        if call is None or not call.is_between_brokers:
            handlers[name] = router.forward(call, method) if call and call.scope is Scope.TOPIC else method
    check_complete(handlers, [call for call in ADMIN_CALLS.values() if not call.is_between_brokers])
    return handlers
