"""Serve the admin calls of clients, `admin.<name>`, and those that other brokers forward, `here.<name>`.

Both are made from the table of admin calls (magnetar_wire/admin/calls.py). Each row has one handler, the method of its
name in one of the classes `TenantCalls`, `NamespaceCalls`, … A handler of a call with the scope

    ANY_BROKER, THIS_BROKER     runs here
    TOPIC                       runs at the topic's owner, with the loaded topic; topic_router.py forwards the call
    BUNDLE, NAMED_BROKER        forwards the call by itself; the owner's handler is in `OwnerBundleCalls`

At start the handlers are compared with the rows: a row without a handler, or a handler without a row, is a ValueError.

A call passes through `CallServer`: the request is decoded, the handler runs, and the response is encoded. A
`BrokerError` and an unexpected exception become the response's `problem`. A request that can't be decoded is refused by
the transport: nothing was done. A request with fields that this broker does not know is answered with UNSUPPORTED,
since what they ask for would not be done. Calls in flight are limited, so that an administrator's program that runs
wild does not keep the broker from its messages.

A call that is not idempotent is carried out to its end though the client has disconnected, or its time is over: half of
a change would serve nobody. It counts as in flight until then. A call that is idempotent is cancelled. The end of the
broker's session cancels all, which leaves what a crash would leave.

Another broker sends the messages that its client sent, and this broker never forwards a call that it gets as
`here.<name>`: it refuses it as UNAVAILABLE if it does not own the topic or bundle, and the other one looks up the owner
again. So two brokers never send a call back and forth, whichever of them each believes to be the owner.

A broker whose metadata session is suspended refuses all calls of clients but those about itself: it could not read what
exists, and other brokers can. It still answers calls of other brokers about its open topics.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.broker_calls import BrokerCalls
from magnetar_broker.admin.broker_stats_calls import BrokerStatsCalls
from magnetar_broker.admin.bundle_calls import BundleCalls, BundleOwners, OwnerBundleCalls
from magnetar_broker.admin.calling_client import calling
from magnetar_broker.admin.catalog_calls import NamespaceCalls, TenantCalls
from magnetar_broker.admin.cluster_calls import ClusterCalls
from magnetar_broker.admin.configuration_calls import ConfigurationCalls
from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.dynamic_configuration import DynamicConfiguration
from magnetar_broker.admin.explain_calls import ExplainCalls, StoredSubscriptions, SubscriptionExplanations
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.admin.lookup_calls import LookupCalls
from magnetar_broker.admin.message_calls import MessageCalls
from magnetar_broker.admin.namespace_topic_calls import NamespaceTopicCalls
from magnetar_broker.admin.owner_rpc import Handler, OwnerRpc
from magnetar_broker.admin.partitioned_topic_calls import PartitionedTopicCalls
from magnetar_broker.admin.reading_calls import ReadingCalls
from magnetar_broker.admin.schema_calls import SchemaCalls
from magnetar_broker.admin.subscription_calls import SubscriptionCalls, SubscriptionLists
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.admin.topic_policy_calls import StoredPolicyCalls, TopicPolicyCalls
from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.admin.topic_router import TopicLoader, TopicRouter
from magnetar_broker.begun_changes import watch_changes
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.concurrency_limit import ConcurrencyLimit
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_broker.owned_tasks import OwnedTasks
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.peers import Peers
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.topic_policies.policy_logs import PolicyLogs
from magnetar_broker.topics.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos import reading_pb2 as reading
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.call import AdminCall, Scope
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Refusal

__all__ = [
    "AdminService",
    "CallServer",
    "build_broker_call_server",
    "check_complete",
    "check_known_fields",
    "find_handlers",
    "refuse_excess_call",
]

_log = logging.getLogger(__name__)
_MAX_IN_FLIGHT: Final = 64
# Calls of reading.proto, which are counted apart: a query plans all partitions of its topics at a time.
_MAX_READERS_IN_FLIGHT: Final = 256
# Calls of other brokers, which are counted apart, so that brokers that are busy with calls of clients still answer each
# other.
_MAX_BROKER_CALLS_IN_FLIGHT: Final = 256


class AdminService:
    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        ownership: BundleOwnership,
        peers: Peers,
        clock: Clock,
        ledgers: LedgerClient,
        health: BrokerHealth,
        describe_broker: Callable[[], pb.BrokerAnswer],
        is_connected: Callable[[], bool],
        dynamic: DynamicConfiguration,
        describe_settings: Callable[[], dict[str, str]],
        counters: BrokerCounters,
        policy_logs: PolicyLogs,
        default_policies: Callable[[], Policies],
        schemas: SchemaRegistry,
        read_schema_rules: Callable[[TopicName], Awaitable[SchemaRules]],
    ) -> None:
        """`is_connected`: to the metadata store. `describe_settings`: see `ConfigurationCalls`. `default_policies`: the
        policies of topics by the brokers' settings. `read_schema_rules`: see `SchemaCalls`."""
        self._is_connected = is_connected

        # It does not change, and a description of the broker is expensive.
        @functools.cache
        def broker_id() -> str:
            return describe_broker().broker_id

        stored = StoredSubscriptions(catalog, ledgers)
        at_owner: list[object] = [
            TopicCalls(
                topics,
                catalog,
                ownership,
                describe_broker,
                lambda name: self.topic_policy_rpc.forget(name),
                schemas,
            ),
            SubscriptionCalls(catalog.settings, clock),
            ExplainCalls(topics, stored, describe_broker),
            MessageCalls(),
            ReadingCalls(catalog, ledgers),
            StoredPolicyCalls(catalog, policy_logs),
        ]
        local_handlers = _owner_handlers(at_owner, TopicLoader(topics, ownership), OwnerBundleCalls(topics, ownership))
        owner_rpc = OwnerRpc(local_handlers, ownership, peers, clock, catalog.settings.admin_forward_timeout_seconds)
        self.topic_policy_rpc = TopicPolicyRpc(catalog, owner_rpc)
        bundle_owners = BundleOwners(ownership, owner_rpc, broker_id)
        deletions = self._deletions = Deletions(catalog, owner_rpc, bundle_owners, schemas)
        forwarding: list[object] = [
            ClusterCalls(catalog, ownership),
            TenantCalls(catalog, deletions),
            NamespaceCalls(catalog, deletions, ledgers),
            NamespaceTopicCalls(catalog, owner_rpc),
            PartitionedTopicCalls(catalog, owner_rpc, deletions, clock, self.topic_policy_rpc.forget),
            TopicPolicyCalls(catalog, self.topic_policy_rpc, ledgers, default_policies),
            SchemaCalls(catalog, schemas, owner_rpc, read_schema_rules),
            SubscriptionLists(catalog, owner_rpc),
            SubscriptionExplanations(catalog, stored, owner_rpc),
            BundleCalls(catalog, ownership, owner_rpc, bundle_owners, broker_id),
            LookupCalls(catalog, ownership, describe_broker, counters),
            BrokerStatsCalls(topics, ownership, ledgers, describe_broker),
            ConfigurationCalls(dynamic, describe_settings),
            BrokerCalls(topics, ownership, health, describe_broker),
        ]
        limit = ConcurrencyLimit(_MAX_IN_FLIGHT, refuse_excess_call)
        reader_limit = ConcurrencyLimit(_MAX_READERS_IN_FLIGHT, refuse_excess_call)
        router = TopicRouter(catalog, owner_rpc, lambda name: topics.get_loaded(name) is not None)
        self._clients = CallServer(
            "admin",
            _client_handlers([*at_owner, *forwarding], router),
            lambda call: reader_limit if call.request.DESCRIPTOR.file is reading.DESCRIPTOR else limit,
            find_max_names=lambda: catalog.settings.admin_max_names,
        )
        self._brokers = build_broker_call_server(local_handlers)

    async def serve_client(self, name: str, request: bytes, address: str = "") -> bytes:
        """Serve `admin.<name>`. `address`: of the client. Raises `Refusal`."""
        self._check_connected(name)
        with calling(address):
            return await self._clients.serve(name, request)

    async def call(self, name: str, request: Message, address: str = "") -> Any:
        """Carry out a client's call that did not come over gRPC. `address`: of the client. Raises `Refusal`."""
        self._check_connected(name)
        with calling(address):
            return await self._clients.call(name, request)

    async def delete_empty_partitioned(self, name: TopicName) -> None:
        """Delete a partitioned topic of which no partition exists. Raises `BrokerError`."""
        if await self._deletions.delete_empty_partitioned(name):
            await self.topic_policy_rpc.forget(name)
            _log.info("Deleted %s, whose partitions were all inactive", name)

    async def close(self) -> None:
        """Cancel the changes in flight."""
        await self._clients.close()
        await self._brokers.close()

    def _check_connected(self, name: str) -> None:
        call = ADMIN_CALLS.get(name)
        if call is not None and call.scope is not Scope.THIS_BROKER and not self._is_connected():
            raise Refusal(
                Code.UNAVAILABLE, "the broker's session with its metadata store is suspended: call it later, or another"
            )

    async def serve_broker(self, name: str, request: bytes) -> bytes:
        """Serve `here.<name>`. Raises `Refusal`."""
        return await self._brokers.serve(name, request)


def _owner_handlers(groups: Sequence[object], topics: TopicLoader, bundles: OwnerBundleCalls) -> dict[str, Handler]:
    """Return the handlers of calls at the owner."""
    handlers: dict[str, Handler] = dict(find_handlers([bundles]))
    for name, method in find_handlers(groups).items():
        call = ADMIN_CALLS.get(name)
        if call is not None and call.scope is Scope.TOPIC:
            handlers[name] = topics.load_for(call, method)
    check_complete(handlers, [call for call in ADMIN_CALLS.values() if call.has_owner])
    return handlers


def _client_handlers(groups: Sequence[object], router: TopicRouter) -> dict[str, Handler]:
    """Return the handlers of calls at the broker that the client called."""
    handlers: dict[str, Handler] = {}
    for name, method in find_handlers(groups).items():
        call = ADMIN_CALLS.get(name)
        if call is None or not call.is_between_brokers:
            handlers[name] = router.forward(call, method) if call and call.scope is Scope.TOPIC else method
    check_complete(handlers, [call for call in ADMIN_CALLS.values() if not call.is_between_brokers])
    return handlers


def find_handlers(groups: Iterable[object]) -> dict[str, Callable[..., Any]]:
    """Return the public methods of the groups. Raises ValueError if two groups have one of the same name."""
    found: dict[str, Callable[..., Any]] = {}
    for group in groups:
        for name in vars(type(group)):
            if name.startswith("_"):
                continue
            if name in found:
                raise ValueError(f"the call {name} has two handlers, one of them in {type(group).__name__}")
            found[name] = getattr(group, name)
    return found


def check_complete(handlers: Mapping[str, Handler], calls: Iterable[AdminCall]) -> None:
    """Raise ValueError unless each of the calls has a handler, and each handler a call."""
    names = [call.name for call in calls]
    missing = [name for name in names if name not in handlers]
    unknown = [name for name in handlers if name not in names]
    if missing or unknown:
        raise ValueError(
            f"admin calls without a handler: {missing}; handlers without a row in the table of admin calls: {unknown}"
        )


class CallServer:
    def __init__(
        self,
        prefix: str,
        handlers: Mapping[str, Handler],
        limit_of: Callable[[AdminCall], ConcurrencyLimit],
        *,
        find_max_names: Callable[[], int] | None = None,
        refuses_not_started: bool = False,
    ) -> None:
        """`prefix`: "admin" or "here". `find_max_names` returns the maximum number of names in one encoded answer;
        None: any number. `refuses_not_started`: a call that was not started is refused as UNAVAILABLE."""
        self._prefix = prefix
        self._find_max_names = find_max_names
        self._handlers = handlers
        self._limits = {name: limit_of(ADMIN_CALLS[name]) for name in handlers}
        self._refuses_not_started = refuses_not_started
        # Changes in flight: they are finished though the client disconnects.
        self._changes = OwnedTasks(lambda error: None)

    async def serve(self, name: str, request: bytes) -> bytes:
        """Raises `Refusal`."""
        if name not in self._handlers:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no call {self._prefix}.{name!r:.100}")
        call = ADMIN_CALLS[name]
        try:
            decoded = call.request.FromString(request)
        except DecodeError as error:
            text = f"the request of {self._prefix}.{name} can't be decoded: {error}"
            raise Refusal(Code.INVALID_ARGUMENT, text) from None
        if self._find_max_names is not None and isinstance(decoded, pb.NamesRequest):
            # The answer is one message. Callers in this process get all names at once.
            maximum = self._find_max_names()
            decoded.limit = min(decoded.limit or maximum, maximum)
        return (await self.call(name, decoded)).SerializeToString()

    async def call(self, name: str, request: Message) -> Message:
        """Return the response to a decoded request. Raises `Refusal`."""
        call = ADMIN_CALLS[name]
        if call.idempotent:
            return await self._run_limited(call, request)
        try:
            return await self._changes.shielded(self._run_limited(call, request))
        except BrokerError as error:  # the session has ended
            return _fail(call, error.problem)

    async def _run_limited(self, call: AdminCall, request: Message) -> Message:
        with self._limits[call.name].hold():
            return await self._run(call, self._handlers[call.name], request)

    async def close(self) -> None:
        """Cancel the changes in flight, as at the end of the process."""
        await self._changes.close(
            BrokerError(ErrorCode.UNKNOWN_ERROR, "the broker shuts down: whether it was done is unknown, check it")
        )

    async def _run(self, call: AdminCall, handler: Handler, request: Message) -> Message:
        with watch_changes() as begun:
            try:
                check_known_fields(request, call.name)
                return await handler(request)
            except Refusal:
                raise
            except BrokerError as error:
                reported = begun.describe_failure(error)
                if self._refuses_not_started and isinstance(reported, RequestNotStarted):
                    raise Refusal(Code.UNAVAILABLE, str(error)) from None
                problem = reported.problem
            except Exception as error:  # noqa: BLE001 (a bug of this broker: the log has the traceback)
                _log.exception("%s.%s failed", self._prefix, call.name)
                problem = Problem(code=ErrorCode.INTERNAL_ERROR, text=f"the broker failed: {type(error).__name__}")
        return _fail(call, problem)


def _fail(call: AdminCall, problem: Problem) -> Message:
    response: Any = call.response
    failed: Message = response(problem=problem)
    return failed


def build_broker_call_server(handlers: Mapping[str, Handler]) -> CallServer:
    """Return the server of `here.<name>`."""
    limit = ConcurrencyLimit(_MAX_BROKER_CALLS_IN_FLIGHT, refuse_excess_call)
    return CallServer("here", handlers, lambda call: limit, refuses_not_started=True)


def refuse_excess_call(maximum: int) -> Refusal:
    return Refusal(Code.RESOURCE_EXHAUSTED, f"{maximum} administrative calls are being served: try again later")


def check_known_fields(message: Message, what: str) -> None:
    """Raise `BrokerError` if the message has a field that this broker does not know, at any depth."""
    unknown = [field.field_number for field in iter(UnknownFieldSet(message))]
    if unknown:
        raise BrokerError(
            ErrorCode.UNSUPPORTED,
            f"{what}: this broker does not know field {unknown[0]} of {message.DESCRIPTOR.full_name}, so it "
            "could not apply it: upgrade the broker, or leave the field out",
        )
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else [value]:
            check_known_fields(one, what)
