"""Admin calls on the policies of single topics. topic_policies/ stores them.

`TopicPolicyCalls` runs at any broker, which calls the owner of the namespace's events topic (topic_policy_rpc.py).
`StoredPolicyCalls` runs at that owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.names import parse_topic_name
from magnetar_broker.admin.topic_calls import check_not_system_topic
from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.admin.topic_router import TopicRoute, routed
from magnetar_broker.catalog.applied_policies import override_policies, remove_namespace_policies
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.catalog.policies import PolicyLimits, change_policies, find_unmet_policies
from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_broker.system_topics import events_topic, is_events_topic
from magnetar_broker.topic_policies.policy_log import PolicyLog
from magnetar_broker.topic_policies.policy_logs import PolicyLogs
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.policies import POLICIES, Level, find_missing_effects
from magnetar_wire.topic_name import TopicName

__all__ = ["StoredPolicyCalls", "TopicPolicyCalls"]

# Of events in one answer: the transport allows a megabyte.
_MAX_ANSWER_BYTES: Final = 524_288


class TopicPolicyCalls:
    def __init__(
        self, catalog: Catalog, rpc: TopicPolicyRpc, ledgers: LedgerClient, default_policies: Callable[[], Policies]
    ) -> None:
        """`default_policies`: those of the brokers' settings."""
        self._catalog = catalog
        self._rpc = rpc
        self._bookies = ledgers.bookies
        self._default_policies = default_policies

    async def topic_policies(self, request: pb.TopicPoliciesRequest) -> pb.TopicPoliciesAnswer:
        name = self._parse(request.topic)
        incarnation = await self._catalog.find_incarnation(name)
        policies = own = await self._rpc.read(name, incarnation)
        if request.applied:
            namespace = await self._catalog.get_namespace(name.namespace_name, fresh=True)
            policies = override_policies(self._default_policies(), namespace.node.policies, own)
            remove_namespace_policies(policies)
        return pb.TopicPoliciesAnswer(
            policies=_select(policies, request),
            warnings=find_missing_effects(_select(own, request), Level.TOPIC, is_persistent=name.is_persistent),
        )

    async def change_topic_policies(self, request: pb.ChangeTopicPoliciesRequest) -> pb.TopicPoliciesChanged:
        name = self._parse(request.topic)
        check_not_system_topic(name)
        _apply_change(request, Policies(), self._catalog.policy_limits)
        await self._catalog.find_incarnation(name)
        change = pb.ChangeTopicPoliciesRequest()
        change.CopyFrom(request)
        change.topic = str(name)
        await self._rpc.change(change)
        writable, registered = len(self._bookies.writable()), len(self._bookies.registered())
        warnings = find_unmet_policies(str(name), request.set, writable, registered)
        warnings += find_missing_effects(request.set, Level.TOPIC, is_persistent=name.is_persistent)
        return pb.TopicPoliciesChanged(warnings=warnings)

    def _parse(self, text: str) -> TopicName:
        """Return the name of a topic that may have policies. Raises `BrokerError`."""
        name = parse_topic_name(text)
        if not self._catalog.has_topic_policies:
            raise BrokerError(
                ErrorCode.UNSUPPORTED,
                "policies of single topics are switched off: set topic_level_policies_enabled and "
                "system_topic_enabled, or use policies of the namespace",
            )
        if name.is_partition:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} is a partition, which has the policies of its topic: use {name.base}"
            )
        return name


class StoredPolicyCalls:
    def __init__(self, catalog: Catalog, logs: PolicyLogs) -> None:
        self._catalog = catalog
        self._logs = logs

    @routed(TopicRoute(loads=False))
    async def stored_topic_policies(
        self, name: TopicName, request: pb.StoredTopicPoliciesRequest
    ) -> pb.StoredTopicPoliciesAnswer:
        log = await self._open(name, create=False)
        # So that a broker that has lost the topic, and does not know yet, does not answer what it knew.
        await log.topic.managed_ledger.check_current()
        answer = pb.StoredTopicPoliciesAnswer(version=log.version)
        if request.known_version == log.version:
            answer.unchanged = True
            return answer
        if request.topic:
            event = log.find_event(request.topic)
            answer.events.extend([event] if event is not None else [])
            return answer
        size_bytes = 0
        for event in log.list_events(request.after):
            size_bytes += event.ByteSize()
            if answer.events and size_bytes > _MAX_ANSWER_BYTES:
                answer.more = True
                break
            answer.events.append(event)
        return answer

    @routed(TopicRoute(loads=False))
    async def store_topic_policies(
        self, name: TopicName, request: pb.StoreTopicPoliciesRequest
    ) -> pb.TopicPoliciesChanged:
        change, topic = request.change, parse_topic_name(request.change.topic)
        if events_topic(topic.namespace_name) != name:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"the policies of {topic} are not stored in {name}")
        if request.deleted:
            await (await self._open(name, create=False)).remove_deleted(topic)
            return pb.TopicPoliciesChanged()
        limits = self._catalog.policy_limits
        log = await self._open(name, create=True)
        await log.change(topic, lambda policies: _apply_change(change, policies, limits))
        return pb.TopicPoliciesChanged()

    async def _open(self, name: TopicName, *, create: bool) -> PolicyLog:
        if not is_events_topic(name):
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{name} does not store the policies of topics")
        try:
            return await self._logs.open(name, create=create)
        except BrokerError as error:
            if error.code != ErrorCode.SERVICE_NOT_READY:
                raise
            raise RequestNotStarted(str(error)) from error


def _select(policies: Policies, request: pb.TopicPoliciesRequest) -> Policies:
    """Return the policies that the request names, those that are set."""
    selected = Policies()
    selected.CopyFrom(policies)
    for field, _ in policies.ListFields():
        if request.only and field.name not in request.only:
            selected.ClearField(field.name)
    return selected


def _apply_change(change: pb.ChangeTopicPoliciesRequest, policies: Policies, limits: PolicyLimits) -> None:
    """Make the change in `policies`. Raises `BrokerError` if it is not valid."""
    removed = list(change.remove)
    if change.remove_all:
        removed = [one.field for one in POLICIES if one.topic is not None and not change.set.HasField(one.field)]
    change_policies(policies, change.set, removed, limits, Level.TOPIC)
