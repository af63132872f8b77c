"""The table of admin calls, by subject. `admin_call.py` explains the columns.

A new call takes a row here, a handler in `magnetar_broker/admin/`, and its messages in admin.proto if it needs new
ones: CONTRIBUTING.md, "Adding an admin call".
"""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos import reading_pb2 as reading
from magnetar_wire.admin_call import AdminCall, Method, Partitions, Role, Scope

__all__ = ["ADMIN_CALLS", "call_of_method"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_EACH: Final = Partitions.EACH
_SUPERUSER: Final = Role.SUPERUSER
_ADMIN: Final = Role.TENANT_ADMIN
_CONSUME: Final = Role.CONSUME
_USE: Final = Role.PRODUCE_OR_CONSUME

# fmt: off
_TENANTS: Final = (
    AdminCall("tenants", pb.NamesRequest, pb.NamesAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method("tenants.list() -> list[str]", "List all tenants."),
    )),
    AdminCall("tenant", pb.TenantRequest, pb.TenantAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("tenants.get(tenant: str) -> TenantSettings", "Return a tenant's settings.", result="settings"),
    )),
    AdminCall("create_tenant", pb.TenantRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("tenants.create(tenant: str, settings: TenantSettings | None = None) -> None", "Create a tenant."),
    )),
    AdminCall("update_tenant", pb.TenantRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("tenants.update(tenant: str, settings: TenantSettings) -> None", "Replace a tenant's settings."),
    )),
    AdminCall("delete_tenant", pb.DeleteRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method(
            "tenants.delete(tenant: str, force: bool = False) -> None",
            "Delete a tenant. One that has namespaces is refused, unless `force` deletes these with all their topics.",
            fields={"name": "tenant"},
        ),
    )),
)

_NAMESPACES: Final = (
    AdminCall("namespaces", pb.NamesRequest, pb.NamesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("namespaces.list(tenant: str) -> list[str]", "List a tenant's namespaces.", fields={"within": "tenant"}),
    )),
    AdminCall("namespace", pb.NamespaceRequest, pb.NamespaceAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "namespaces.policies(namespace: str) -> NamespacePolicies",
            "Return a namespace's policies.",
            result="policies",
        ),
    )),
    AdminCall("create_namespace", pb.NamespaceRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method("namespaces.create"),
    )),
    AdminCall("update_namespace", pb.NamespaceRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method(
            "namespaces.set_policies(namespace: str, policies: NamespacePolicies) -> tuple[str, ...]",
            "Replace all policies of a namespace.\n\n"
            "Returns a warning for each new policy that can't be met now, because too few bookies accept ledgers.",
            result="warnings",
        ),
    )),
    AdminCall("delete_namespace", pb.DeleteRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "namespaces.delete(namespace: str, force: bool = False) -> None",
            "Delete a namespace. One that has topics is refused, unless `force` deletes them, too.",
            fields={"name": "namespace"},
        ),
    )),
    AdminCall("bundles", pb.NamespaceRequest, pb.BundlesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "namespaces.bundles(namespace: str) -> list[Bundle]",
            "List a namespace's bundles in the order of their ranges, with their owners.",
            result="bundles",
        ),
    )),
    AdminCall("unload_namespace", pb.UnloadNamespaceRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("namespaces.unload"),
    )),
)

_BUNDLES: Final = (
    AdminCall("unload_bundle", pb.UnloadBundleRequest, pb.Done, Scope.BUNDLE, _SUPERUSER, repeated_at_owner=True,
              methods=(Method("namespaces.unload"),)),
    AdminCall("split_bundle", pb.SplitBundleRequest, pb.SplitBundleAnswer, Scope.BUNDLE, _SUPERUSER, methods=(
        Method("namespaces.split_bundle"),
    )),
    # The named broker claims a bundle that has no owner.
    AdminCall("take_bundle", pb.UnloadBundleRequest, pb.Done, Scope.NAMED_BROKER, Role.BROKER, idempotent=True),
)

_TOPICS: Final = (
    AdminCall("topics", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.list(namespace: str, include_system_topic: bool = False) -> list[str]",
            "List a namespace's topics: partitions, too, but not the partitioned topics that they belong to.",
            fields={"within": "namespace", "include_system": "include_system_topic"},
        ),
    )),
    AdminCall("partitioned_topics", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.list_partitioned(namespace: str, include_system_topic: bool = False) -> list[str]",
            "List a namespace's partitioned topics.",
            fields={"within": "namespace", "include_system": "include_system_topic"},
        ),
    )),
    AdminCall("create_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, methods=(
        Method("topics.create(topic: str) -> None", "Create a topic that is not partitioned."),
    )),
    AdminCall("delete_topic", pb.DeleteRequest, pb.Done, _TOPIC, _ADMIN, topic_field="name", methods=(
        Method(
            "topics.delete(topic: str, force: bool = False) -> None",
            "Delete a topic. One with producers or consumers is refused, unless by `force`.",
            fields={"name": "topic"},
        ),
    )),
    AdminCall("truncate_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, methods=(
        Method(
            "topics.truncate(topic: str) -> None",
            "Delete all messages that are stored now, acknowledged or not. Messages that a lease retains are deleted "
            "when it ends.",
        ),
    )),
    AdminCall("unload_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, repeated_at_owner=True,
              methods=(
        Method("topics.unload(topic: str) -> None", "Close a topic at its broker. It is loaded again when it is used."),
    )),
    AdminCall("topic_owners", pb.TopicOwnersRequest, pb.TopicOwnersAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("topics.lookup"),
        Method("topics.lookup_partitioned"),
        Method(
            'topics.owners(topic: str, listener_name: str = "") -> list[TopicOwner]',
            "Return the owner of a topic, or of each of its partitions in their order.",
            result="owners",
        ),
    )),
    AdminCall("topic_stats", pb.TopicRequest, pb.TopicStatsAnswer, _TOPIC, _USE, partitions=_EACH, idempotent=True,
              methods=(
        Method(
            "topics.stats(topic: str) -> TopicStats",
            "Return a topic's statistics; of a partitioned topic the sums over its partitions.",
            result="stats",
        ),
    )),
    AdminCall("internal_stats", pb.TopicRequest, pb.InternalStatsAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method(
            "topics.internal_stats(topic: str) -> InternalStats",
            "Return a topic's ledgers, cursors and leases.",
            result="stats",
        ),
    )),
    # Refused with NOT_ALLOWED if the topic has producers or consumers.
    AdminCall("check_unused", pb.TopicRequest, pb.Done, _TOPIC, Role.BROKER, idempotent=True),
)

_PARTITIONED_TOPICS: Final = (
    AdminCall("create_partitioned", pb.PartitionsRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.create_partitioned(topic: str, partitions: int, properties: Mapping[str, str] | None = None) "
            "-> None",
            "Create a partitioned topic.",
        ),
    )),
    AdminCall("partitioned_topic", pb.TopicRequest, pb.PartitionedTopicAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.get_partitioned(topic: str) -> PartitionedTopic",
            "Return a partitioned topic's number of partitions, and its properties.",
        ),
    )),
    AdminCall("grow_partitioned", pb.PartitionsRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.update_partitioned(topic: str, partitions: int) -> None",
            "Add partitions to a partitioned topic, up to this number. Its subscriptions get the new ones from their "
            "first message.",
        ),
    )),
    AdminCall("delete_partitioned", pb.DeleteRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.delete_partitioned(topic: str, force: bool = False) -> None",
            "Delete a partitioned topic with all its partitions. One with producers or consumers is refused, unless by "
            "`force`.",
            fields={"name": "topic"},
        ),
    )),
)

_SUBSCRIPTIONS: Final = (
    AdminCall("subscriptions", pb.NamesRequest, pb.NamesAnswer, _ANY, _CONSUME, idempotent=True, methods=(
        Method(
            "subscriptions.list(topic: str) -> list[str]",
            "List a topic's durable subscriptions.",
            fields={"within": "topic"},
        ),
    )),
    AdminCall("create_subscription", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.create(topic: str, subscription: str, start: StartPoint = MessageId.latest, "
            "properties: Mapping[str, str] | None = None) -> None",
            "Create a subscription. Messages from `start` on are retained until it acknowledges them.",
        ),
    )),
    AdminCall("delete_subscription", pb.DeleteSubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH,
              methods=(
        Method(
            "subscriptions.delete(topic: str, subscription: str, force: bool = False) -> None",
            "Delete a subscription. One with consumers is refused, unless by `force`.",
        ),
    )),
    AdminCall("reset_subscription", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.reset(topic: str, subscription: str, to: StartPoint) -> None",
            "Move a subscription's cursor back or forth. If `to` is a message's id, that message is the next one.",
            fields={"start": "to"},
        ),
    )),
    AdminCall("skip", pb.SkipRequest, pb.SkippedAnswer, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.skip(topic: str, subscription: str, entries: int) -> int",
            "Acknowledge the oldest entries of the backlog, and return their number: fewer if the backlog is shorter."
            "\n\nA batch is one entry.",
            result="entries",
        ),
        Method(
            "subscriptions.skip_all(topic: str, subscription: str) -> int",
            "Acknowledge the whole backlog, and return its number of entries.",
            result="entries",
            fields={"all": "True"},
            aliases=("clear_backlog",),
        ),
    )),
    AdminCall("expire", pb.ExpireRequest, pb.SkippedAnswer, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.expire(topic: str, subscription: str, older_than_s: int) -> int",
            "Acknowledge the entries that a broker received longer ago than that, and return their number.",
            result="entries",
        ),
    )),
    AdminCall("peek", pb.PeekRequest, pb.PeekAnswer, _TOPIC, _CONSUME, partitions=Partitions.SINGLE, idempotent=True,
              methods=(Method("subscriptions.peek"),)),
    # The subscriptions that a new partition gets, and the names that `subscriptions` lists.
    AdminCall("durable_subscriptions", pb.TopicRequest, pb.DurableSubscriptionsAnswer, _TOPIC, Role.BROKER,
              idempotent=True),
)

_BROKERS: Final = (
    AdminCall("brokers", pb.BrokersRequest, pb.BrokersAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method(
            "brokers.list() -> list[ActiveBroker]",
            "List the brokers that serve topics, by their ids.",
            result="brokers",
        ),
    )),
    AdminCall("owned_bundles", pb.OwnedBundlesRequest, pb.OwnedBundlesAnswer, Scope.NAMED_BROKER, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.bundles(broker_id: str | None = None) -> list[OwnedBundle]",
            "List the bundles that a broker owns; None: the broker that answers.",
            result="bundles",
        ),
    )),
    AdminCall("broker", pb.BrokerRequest, pb.BrokerAnswer, Scope.THIS_BROKER, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.info() -> BrokerInfo", "Describe the broker that answers."),
    )),
    AdminCall("health", pb.HealthRequest, pb.HealthAnswer, Scope.THIS_BROKER, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.health() -> Health", "Let the broker that answers publish a message and read it back."),
    )),
)

# All of these may be repeated: a plan's lease is the same one, and a progress subscription never moves back.
_READING: Final = (
    AdminCall("find_position", reading.FindPositionRequest, reading.FindPositionAnswer, _TOPIC, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.find_position(log: str, start: StartPoint) -> LogPosition",
            "Return the position of `start` in the log, or the next one that the log has.",
            fields={"topic": "log", "at": "start"},
        ),
    )),
    AdminCall("plan", reading.PlanRequest, reading.PlanAnswer, _TOPIC, _CONSUME, idempotent=True, methods=(
        Method(
            'reading.plan(log: str, *, incarnation: str = "", start: MessagePosition, '
            'stop: MessagePosition | None = None, max_messages: int = 0, max_bytes: int = 0, '
            'lease_ms: int = 0, lease_id: bytes = b"", holder: str = "", '
            'listener_name: str = "", before_ledgers: int = 0, before_bytes: int = 0, fresh: bool = False, '
            'read_id: bytes = b"") -> Plan',
            "Return what lies between the two positions, up to the limits, and which bookies store it. With `lease_ms` "
            "it is retained for that time. The plan may end before `stop`: plan on from its own `stop`. A plan without "
            "pieces that ends where it begins says that there is nothing more now.\n\n"
            "A plan ends before the message with which it would have more than `max_messages`, and before the entry "
            "with which it would have more than `max_bytes`, unless that is its first.",
            fields={"topic": "log", "listener_name": "listener_name or self._calls.listener_name"},
        ),
    )),
    AdminCall("renew_lease", reading.RenewLeaseRequest, pb.Done, _TOPIC, _CONSUME, idempotent=True, methods=(
        Method(
            "reading.renew_lease(log: str, incarnation: str, lease_id: bytes, lease_ms: int, *, "
            'read_id: bytes = b"") -> None',
            "Let the lease last for this time from now on; 0 ends it. One that has ended is refused with `NotFound`."
            "\n\n"
            "`read_id`: which of the reads that share the lease; without it a lease ends for all of them.",
            fields={"topic": "log"},
        ),
        Method(
            'reading.end_lease(log: str, lease_id: bytes, *, read_id: bytes = b"") -> None',
            "End a lease, so that the messages that it retains can be deleted, even if a reader still reads them. A "
            "lease that does not exist has ended.",
            fields={"topic": "log"},
        ),
    )),
    AdminCall("finish_part", reading.FinishPartRequest, pb.Done, _TOPIC, _CONSUME, idempotent=True, methods=(
        Method(
            "reading.finish_part(log: str, lease_id: bytes, read_id: bytes, part: int, parts: int) -> None",
            "Report that one of `parts` parts of the read is finished.\n\n"
            "When all are, the read's messages are retained for a quarter of the lease's time more, and for half of it "
            "from each renewal on.",
            fields={"topic": "log"},
        ),
    )),
    AdminCall("advance_progress", reading.AdvanceProgressRequest, reading.AdvanceProgressAnswer, _TOPIC, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.advance_progress(log: str, incarnation: str, subscription: str, to: MessagePosition, *, "
            'only_make: bool = False, owner: str = "", owner_name: str = "") -> MessagePosition',
            "Acknowledge everything before `to` on a progress subscription, which is created if it does not exist. It "
            "never moves back, so the call may be repeated. Return the position of the first entry that is not "
            "acknowledged whole.\n\n"
            "`only_make`: create the subscription at `to`. One that has an owner stays where it is; one that has none "
            "is moved back to `to` if it is ahead of that, also without `only_make` if an `owner` is given.\n"
            "`owner`: the id of the reader whose progress it is, drawn at random. The first one becomes the "
            "subscription's.\n"
            "`owner_name`: a description of the owner for people.\n\n"
            "Raises `ConsumerBusy` if the subscription has another owner, and `NotAllowedError` if it is not a "
            "progress subscription: one that consumers or administrators created is refused whether or not it has "
            "consumers.",
            result="position",
            fields={"topic": "log"},
        ),
    )),
    AdminCall("hold_namespace", reading.HoldNamespaceRequest, reading.HoldNamespaceAnswer, _ANY, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.hold_namespace(namespace: str, name_prefix: str, lease_id: bytes, lease_ms: int, *, "
            'holder: str = "") -> bool',
            "Take or renew a lease on the topics that will be created in the namespace with names that begin with the "
            "prefix. Each of them gets a lease with this id, for `lease_ms`, from its first message on. Return whether "
            "there was no such lease: topics created until then have none by it.",
            result="taken",
        ),
        Method(
            "reading.end_namespace_lease(namespace: str, lease_id: bytes) -> None",
            "End a lease on a namespace. Leases on topics stay. A lease that does not exist has ended.",
        ),
    )),
    AdminCall("namespace_leases", reading.NamespaceLeasesRequest, reading.NamespaceLeasesAnswer, _ANY, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.namespace_leases(namespace: str) -> list[NamespaceLease]",
            "List the leases on a namespace.",
            result="leases",
        ),
    )),
)
# fmt: on

ADMIN_CALLS: Final = {
    call.name: call
    for calls in (_TENANTS, _NAMESPACES, _BUNDLES, _TOPICS, _PARTITIONED_TOPICS, _SUBSCRIPTIONS, _BROKERS, _READING)
    for call in calls
}


def call_of_method(name: str) -> AdminCall:
    """Return the call that a method of `magnetar.admin` makes, e.g. "topics.truncate". Raises KeyError."""
    for call in ADMIN_CALLS.values():
        if any(method.name == name for method in call.methods):
            return call
    raise KeyError(name)
