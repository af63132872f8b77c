"""The calls `admin.<name>` of admin.proto: read, done, and answered.

What goes wrong with what was asked is told in the answer, with its code; a request that can't be read, or that nobody
knows, is refused by the transport. So many calls are served at a time, and more are refused: an administrator's tool
that runs wild must not keep the broker from its messages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.catalog_calls import CatalogCalls
from magnetar_broker.admin.subscription_calls import SubscriptionCalls
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.errors import BrokerError
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.transport import Code, Refusal

__all__ = ["AdminCalls", "HealthLook"]

_log = logging.getLogger(__name__)
_AT_A_TIME: Final = 64

_Handler = Callable[[Any], Awaitable[Message]]


class HealthLook(Protocol):
    async def look(self) -> tuple[bool, list[str]]:
        """Whether a message can go through, and if not, why."""


class AdminCalls:
    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        about: Callable[[], pb.BrokerAnswer],
        health: HealthLook | None = None,
    ) -> None:
        """`about`: what the broker says of itself."""
        self._topics = topics
        self._about = about
        self._health = health
        self._serving = 0
        of_topics = TopicCalls(topics, catalog)
        of_subscriptions = SubscriptionCalls(of_topics, catalog.options.admin_max_peeked_entries)
        of_catalog = CatalogCalls(catalog, of_topics)

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
            "create_namespace": (pb.NamespaceRequest, pb.Done, of_catalog.create_namespace),
            "update_namespace": (pb.NamespaceRequest, pb.Done, of_catalog.update_namespace),
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
            "subscriptions": (pb.NamesRequest, pb.NamesAnswer, subscriptions),
            "create_subscription": (pb.SubscriptionRequest, pb.Done, of_subscriptions.create_subscription),
            "delete_subscription": (pb.DeleteSubscriptionRequest, pb.Done, of_subscriptions.delete_subscription),
            "reset_subscription": (pb.SubscriptionRequest, pb.Done, of_subscriptions.reset_subscription),
            "skip": (pb.SkipRequest, pb.Done, of_subscriptions.skip),
            "expire": (pb.ExpireRequest, pb.Done, of_subscriptions.expire),
            "peek": (pb.PeekRequest, pb.PeekAnswer, of_subscriptions.peek),
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
        if self._serving >= _AT_A_TIME:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED, f"{_AT_A_TIME} administrative calls are being served: try again later"
            )
        self._serving += 1
        try:
            answer = await handler(asked)
        except BrokerError as error:
            answer = answer_kind(problem=error.problem)
        except Exception as error:  # noqa: BLE001 (a fault of ours, whose caller is told no more of it)
            _log.exception("admin.%s failed", method)
            problem = Problem(code=ErrorCode.UNKNOWN_ERROR, text=f"the broker failed at it: {type(error).__name__}")
            answer = answer_kind(problem=problem)
        finally:
            self._serving -= 1
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
