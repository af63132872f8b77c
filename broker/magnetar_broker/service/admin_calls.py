"""The calls `admin.<name>` of admin.proto: read, done, and answered.

What goes wrong with what was asked is told in the answer, with its code; a request that can't be read, or that nobody
knows, is refused by the transport. So many calls are served at a time, and more are refused: an administrator's tool
that runs wild must not keep the broker from its messages.

A broker whose metadata session is suspended takes none, but for those about itself: it could not find out what there
is, and others can. What other brokers ask of it about its open topics it answers all the same.

Whom it takes to do it is found in `admin/owner_calls.py`; what other brokers ask of this one comes as `here.<name>`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_broker.admin.bundle_calls import BundleCalls
from magnetar_broker.admin.bundle_owners import BundleOwners
from magnetar_broker.admin.bundles_here import BundlesHere
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.catalog_calls import CatalogCalls
from magnetar_broker.admin.here_calls import HereCalls
from magnetar_broker.admin.owner_calls import OwnerCalls
from magnetar_broker.admin.reading_calls import ReadingCalls
from magnetar_broker.admin.reading_here import ReadingHere
from magnetar_broker.admin.subscription_calls import SubscriptionCalls
from magnetar_broker.admin.subscriptions_here import SubscriptionsHere
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.admin.topics_here import TopicsHere
from magnetar_broker.errors import BrokerError
from magnetar_broker.peers import PeersLike
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos import reading_pb2 as reading
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.clock import Clock
from magnetar_wire.transport import Code, Refusal

__all__ = ["AdminCalls", "HealthLook"]

_log = logging.getLogger(__name__)
_AT_A_TIME: Final = 64
# Of those of reading.proto, counted apart: a query plans all its topics' partitions at a time, as often as it likes.
_READERS_AT_A_TIME: Final = 256
_ABOUT_ITSELF: Final = ("broker", "health")

_Handler = Callable[[Any], Awaitable[Message]]


class HealthLook(Protocol):
    async def look(self) -> tuple[bool, list[str]]:
        """Whether a message can go through, and if not, why."""


class AdminCalls:
    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        ownership: BundleOwners,
        peers: PeersLike,
        clock: Clock,
        about: Callable[[], pb.BrokerAnswer],
        ledgers: LedgerClient,
        health: HealthLook | None = None,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        """`about`: what the broker says of itself, its id among it. `connected`: with its metadata store."""
        self._topics = topics
        self._connected = connected
        self._about = about
        self._health = health
        # How many of administrators, and of readers.
        self._serving = self._serving_readers = 0

        def broker_id() -> str:
            return about().broker_id

        topics_here = TopicsHere(topics, catalog, ownership, broker_id)
        self.here = HereCalls(
            topics_here.calls()
            | SubscriptionsHere(topics_here).calls()
            | ReadingHere(topics_here, ledgers).calls()
            | BundlesHere(topics, ownership).calls()
        )
        owners = OwnerCalls(self.here, ownership, peers, clock, catalog.options.admin_forward_timeout_seconds)
        of_topics = TopicCalls(catalog, owners)
        of_subscriptions = SubscriptionCalls(of_topics, owners, catalog.options.admin_max_peeked_entries)
        of_bundles = BundleCalls(catalog, of_topics, ownership, owners, broker_id)
        of_logs = ReadingCalls(catalog, of_topics, owners)
        of_catalog = CatalogCalls(catalog, of_topics, of_bundles, ledgers)

        async def subscriptions(request: pb.NamesRequest) -> pb.NamesAnswer:
            return of_catalog.page(await of_subscriptions.names(request.within), request)

        self._calls: dict[str, tuple[type[Message], type[Message], _Handler]] = {
            "tenants": (pb.NamesRequest, pb.NamesAnswer, of_catalog.tenants),
            "tenant": (pb.TenantRequest, pb.TenantAnswer, of_catalog.tenant),
            "create_tenant": (pb.TenantRequest, pb.Done, of_catalog.create_tenant),
            "update_tenant": (pb.TenantRequest, pb.Done, of_catalog.update_tenant),
            "delete_tenant": (pb.DeleteRequest, pb.Done, of_catalog.delete_tenant),
            "namespaces": (pb.NamesRequest, pb.NamesAnswer, of_catalog.namespaces),
            "namespace": (pb.NamespaceRequest, pb.NamespaceAnswer, of_catalog.namespace),
            "create_namespace": (pb.NamespaceRequest, pb.NamespaceChanged, of_catalog.create_namespace),
            "update_namespace": (pb.NamespaceRequest, pb.NamespaceChanged, of_catalog.update_namespace),
            "delete_namespace": (pb.DeleteRequest, pb.Done, of_catalog.delete_namespace),
            "topics": (pb.NamesRequest, pb.NamesAnswer, of_catalog.topics),
            "partitioned_topics": (pb.NamesRequest, pb.NamesAnswer, of_catalog.partitioned_topics),
            "create_topic": (pb.TopicRequest, pb.Done, of_topics.create_topic),
            "delete_topic": (pb.DeleteRequest, pb.Done, of_topics.delete_topic),
            "truncate_topic": (pb.TopicRequest, pb.Done, of_topics.truncate_topic),
            "unload_topic": (pb.TopicRequest, pb.Done, of_topics.unload_topic),
            "topic_stats": (pb.TopicRequest, pb.TopicStatsAnswer, of_topics.topic_stats),
            "internal_stats": (pb.TopicRequest, pb.InternalStatsAnswer, of_topics.internal_stats),
            "create_partitioned": (pb.PartitionsRequest, pb.Done, of_topics.create_partitioned),
            "partitioned_topic": (pb.TopicRequest, pb.PartitionedTopicAnswer, of_topics.partitioned_topic),
            "grow_partitioned": (pb.PartitionsRequest, pb.Done, of_topics.grow_partitioned),
            "delete_partitioned": (pb.DeleteRequest, pb.Done, of_topics.delete_partitioned),
            "topic_homes": (pb.TopicHomesRequest, pb.TopicHomesAnswer, of_bundles.topic_homes),
            "bundles": (pb.NamespaceRequest, pb.BundlesAnswer, of_bundles.bundles),
            "unload_bundle": (pb.UnloadBundleRequest, pb.Done, of_bundles.unload_bundle),
            "unload_namespace": (pb.UnloadNamespaceRequest, pb.Done, of_bundles.unload_namespace),
            "split_bundle": (pb.SplitBundleRequest, pb.SplitBundleAnswer, of_bundles.split_bundle),
            "brokers": (pb.BrokersRequest, pb.BrokersAnswer, of_bundles.brokers),
            "owned_bundles": (pb.OwnedBundlesRequest, pb.OwnedBundlesAnswer, of_bundles.owned_bundles),
            "subscriptions": (pb.NamesRequest, pb.NamesAnswer, subscriptions),
            "create_subscription": (pb.SubscriptionRequest, pb.Done, of_subscriptions.create_subscription),
            "delete_subscription": (pb.DeleteSubscriptionRequest, pb.Done, of_subscriptions.delete_subscription),
            "reset_subscription": (pb.SubscriptionRequest, pb.Done, of_subscriptions.reset_subscription),
            "skip": (pb.SkipRequest, pb.SkippedAnswer, of_subscriptions.skip),
            "expire": (pb.ExpireRequest, pb.SkippedAnswer, of_subscriptions.expire),
            "peek": (pb.PeekRequest, pb.PeekAnswer, of_subscriptions.peek),
            "log_place": (reading.LogPlaceRequest, reading.LogPlaceAnswer, of_logs.log_place),
            "plan": (reading.PlanRequest, reading.PlanAnswer, of_logs.plan),
            "renew_lease": (reading.RenewLeaseRequest, pb.Done, of_logs.renew_lease),
            "finish_part": (reading.FinishPartRequest, pb.Done, of_logs.finish_part),
            "advance_progress": (
                reading.AdvanceProgressRequest,
                reading.AdvanceProgressAnswer,
                of_logs.advance_progress,
            ),
            "hold_namespace": (reading.HoldNamespaceRequest, reading.HoldNamespaceAnswer, of_logs.hold_namespace),
            "namespace_leases": (
                reading.NamespaceLeasesRequest,
                reading.NamespaceLeasesAnswer,
                of_logs.namespace_leases,
            ),
            "broker": (pb.BrokerRequest, pb.BrokerAnswer, self._broker),
            "health": (pb.HealthRequest, pb.HealthAnswer, self._look),
        }

    async def call(self, method: str, request: bytes) -> bytes:
        """`method` without its "admin."."""
        if method not in self._calls:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no call admin.{method!r:.100}")
        kind, answer_kind, handler = self._calls[method]
        try:
            asked = kind.FromString(request)
        except DecodeError as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the request for admin.{method} can't be read: {error}") from None
        reads = kind.DESCRIPTOR.file is reading.DESCRIPTOR
        serving, most = (self._serving_readers, _READERS_AT_A_TIME) if reads else (self._serving, _AT_A_TIME)
        if serving >= most:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"{most} administrative calls are being served: try again later")
        if not self._connected() and method not in _ABOUT_ITSELF:
            raise Refusal(
                Code.UNAVAILABLE, "the broker's session with its metadata store is suspended: ask it later, or another"
            )
        self._serving += not reads
        self._serving_readers += reads
        try:
            answer = await handler(asked)
        except BrokerError as error:
            answer = answer_kind(problem=error.problem)
        except Exception as error:  # noqa: BLE001 (a fault of ours, whose caller is told no more of it)
            _log.exception("admin.%s failed", method)
            problem = Problem(code=ErrorCode.INTERNAL_ERROR, text=f"the broker failed at it: {type(error).__name__}")
            answer = answer_kind(problem=problem)
        finally:
            self._serving -= not reads
            self._serving_readers -= reads
        return answer.SerializeToString()

    async def _broker(self, request: pb.BrokerRequest) -> pb.BrokerAnswer:
        answer = self._about()
        answer.loaded_topics = len(self._topics)
        return answer

    async def _look(self, request: pb.HealthRequest) -> pb.HealthAnswer:
        if self._health is None:
            raise BrokerError(ErrorCode.UNSUPPORTED, "this broker does not look at its health")
        healthy, reasons = await self._health.look()
        return pb.HealthAnswer(healthy=healthy, reasons=reasons)
