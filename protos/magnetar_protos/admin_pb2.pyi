from magnetar_protos import broker_pb2 as _broker_pb2
from magnetar_protos import catalog_pb2 as _catalog_pb2
from magnetar_protos import ledger_pb2 as _ledger_pb2
from magnetar_protos import ownership_pb2 as _ownership_pb2
from magnetar_protos import schema_pb2 as _schema_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SplitBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPLIT_BY_RANGE: _ClassVar[SplitBy]
    SPLIT_BY_TOPICS: _ClassVar[SplitBy]
    SPLIT_BY_POSITION: _ClassVar[SplitBy]
SPLIT_BY_RANGE: SplitBy
SPLIT_BY_TOPICS: SplitBy
SPLIT_BY_POSITION: SplitBy

class Done(_message.Message):
    __slots__ = ("problem",)
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ...) -> None: ...

class NamesRequest(_message.Message):
    __slots__ = ("within", "after", "limit", "include_system", "domain", "bundle")
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    within: str
    after: str
    limit: int
    include_system: bool
    domain: str
    bundle: str
    def __init__(self, within: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., include_system: bool = ..., domain: _Optional[str] = ..., bundle: _Optional[str] = ...) -> None: ...

class NamesAnswer(_message.Message):
    __slots__ = ("problem", "names", "more")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    names: _containers.RepeatedScalarFieldContainer[str]
    more: bool
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., names: _Optional[_Iterable[str]] = ..., more: bool = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("name", "force", "with_namespace")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    WITH_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    with_namespace: bool
    def __init__(self, name: _Optional[str] = ..., force: bool = ..., with_namespace: bool = ...) -> None: ...

class ClusterRequest(_message.Message):
    __slots__ = ("cluster", "data")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    data: _catalog_pb2.ClusterData
    def __init__(self, cluster: _Optional[str] = ..., data: _Optional[_Union[_catalog_pb2.ClusterData, _Mapping]] = ...) -> None: ...

class ClusterAnswer(_message.Message):
    __slots__ = ("problem", "data")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    data: _catalog_pb2.ClusterData
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., data: _Optional[_Union[_catalog_pb2.ClusterData, _Mapping]] = ...) -> None: ...

class ClusterChanged(_message.Message):
    __slots__ = ("problem", "warnings")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class TenantRequest(_message.Message):
    __slots__ = ("tenant", "settings", "needs_clusters")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    settings: TenantSettings
    needs_clusters: bool
    def __init__(self, tenant: _Optional[str] = ..., settings: _Optional[_Union[TenantSettings, _Mapping]] = ..., needs_clusters: bool = ...) -> None: ...

class TenantSettings(_message.Message):
    __slots__ = ("admin_roles", "allowed_clusters")
    ADMIN_ROLES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    admin_roles: _containers.RepeatedScalarFieldContainer[str]
    allowed_clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, admin_roles: _Optional[_Iterable[str]] = ..., allowed_clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class TenantAnswer(_message.Message):
    __slots__ = ("problem", "settings")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    settings: TenantSettings
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., settings: _Optional[_Union[TenantSettings, _Mapping]] = ...) -> None: ...

class NamespaceRequest(_message.Message):
    __slots__ = ("namespace", "policies", "bundles", "only", "boundaries")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    policies: _catalog_pb2.Policies
    bundles: int
    only: _containers.RepeatedScalarFieldContainer[str]
    boundaries: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., policies: _Optional[_Union[_catalog_pb2.Policies, _Mapping]] = ..., bundles: _Optional[int] = ..., only: _Optional[_Iterable[str]] = ..., boundaries: _Optional[_Iterable[str]] = ...) -> None: ...

class NamespaceAnswer(_message.Message):
    __slots__ = ("problem", "policies", "warnings", "boundaries", "cluster")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    policies: _catalog_pb2.Policies
    warnings: _containers.RepeatedScalarFieldContainer[str]
    boundaries: _containers.RepeatedScalarFieldContainer[str]
    cluster: str
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., policies: _Optional[_Union[_catalog_pb2.Policies, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., boundaries: _Optional[_Iterable[str]] = ..., cluster: _Optional[str] = ...) -> None: ...

class NamespaceChanged(_message.Message):
    __slots__ = ("problem", "warnings")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangePoliciesRequest(_message.Message):
    __slots__ = ("namespace", "set", "remove")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    set: _catalog_pb2.Policies
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., set: _Optional[_Union[_catalog_pb2.Policies, _Mapping]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class NamespacePropertiesRequest(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class ChangeNamespacePropertiesRequest(_message.Message):
    __slots__ = ("namespace", "set", "remove", "remove_all", "set_key", "set_value")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ALL_FIELD_NUMBER: _ClassVar[int]
    SET_KEY_FIELD_NUMBER: _ClassVar[int]
    SET_VALUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    remove_all: bool
    set_key: str
    set_value: str
    def __init__(self, namespace: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ..., remove_all: bool = ..., set_key: _Optional[str] = ..., set_value: _Optional[str] = ...) -> None: ...

class NamespacePropertiesAnswer(_message.Message):
    __slots__ = ("problem", "properties", "value")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    properties: _containers.ScalarMap[str, str]
    value: str
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ..., value: _Optional[str] = ...) -> None: ...

class NamespaceSubscriptionRequest(_message.Message):
    __slots__ = ("namespace", "bundle", "subscription")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    subscription: str
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class NamespaceTopicsAnswer(_message.Message):
    __slots__ = ("problem", "subscriptions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    subscriptions: int
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., subscriptions: _Optional[int] = ...) -> None: ...

class TopicRequest(_message.Message):
    __slots__ = ("topic", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TopicPoliciesRequest(_message.Message):
    __slots__ = ("topic", "applied", "only")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    applied: bool
    only: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., applied: bool = ..., only: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicPoliciesAnswer(_message.Message):
    __slots__ = ("problem", "policies", "warnings")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    policies: _catalog_pb2.Policies
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., policies: _Optional[_Union[_catalog_pb2.Policies, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeTopicPoliciesRequest(_message.Message):
    __slots__ = ("topic", "set", "remove", "remove_all")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ALL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set: _catalog_pb2.Policies
    remove: _containers.RepeatedScalarFieldContainer[str]
    remove_all: bool
    def __init__(self, topic: _Optional[str] = ..., set: _Optional[_Union[_catalog_pb2.Policies, _Mapping]] = ..., remove: _Optional[_Iterable[str]] = ..., remove_all: bool = ...) -> None: ...

class TopicPoliciesChanged(_message.Message):
    __slots__ = ("problem", "warnings")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class StoredTopicPoliciesRequest(_message.Message):
    __slots__ = ("events", "topic", "known_version", "after")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    events: str
    topic: str
    known_version: bytes
    after: str
    def __init__(self, events: _Optional[str] = ..., topic: _Optional[str] = ..., known_version: _Optional[bytes] = ..., after: _Optional[str] = ...) -> None: ...

class StoredTopicPoliciesAnswer(_message.Message):
    __slots__ = ("problem", "version", "unchanged", "events", "more")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    version: bytes
    unchanged: bool
    events: _containers.RepeatedCompositeFieldContainer[_catalog_pb2.TopicPoliciesEvent]
    more: bool
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., version: _Optional[bytes] = ..., unchanged: bool = ..., events: _Optional[_Iterable[_Union[_catalog_pb2.TopicPoliciesEvent, _Mapping]]] = ..., more: bool = ...) -> None: ...

class StoreTopicPoliciesRequest(_message.Message):
    __slots__ = ("events", "change", "deleted")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    events: str
    change: ChangeTopicPoliciesRequest
    deleted: bool
    def __init__(self, events: _Optional[str] = ..., change: _Optional[_Union[ChangeTopicPoliciesRequest, _Mapping]] = ..., deleted: bool = ...) -> None: ...

class TerminationAnswer(_message.Message):
    __slots__ = ("problem", "last")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    last: _ledger_pb2.EntryPosition
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., last: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ...) -> None: ...

class PartitionTerminationsAnswer(_message.Message):
    __slots__ = ("problem", "partitions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionTermination]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionTermination, _Mapping]]] = ...) -> None: ...

class PartitionTermination(_message.Message):
    __slots__ = ("partition", "last")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    partition: int
    last: _ledger_pb2.EntryPosition
    def __init__(self, partition: _Optional[int] = ..., last: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ...) -> None: ...

class PartitionsRequest(_message.Message):
    __slots__ = ("topic", "partitions", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    properties: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TopicPartitionsRequest(_message.Message):
    __slots__ = ("topic", "create")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    create: bool
    def __init__(self, topic: _Optional[str] = ..., create: bool = ...) -> None: ...

class TopicPropertiesRequest(_message.Message):
    __slots__ = ("topic", "properties", "removed")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    properties: _containers.ScalarMap[str, str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., removed: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicPropertiesAnswer(_message.Message):
    __slots__ = ("problem", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    properties: _containers.ScalarMap[str, str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TopicOwnersRequest(_message.Message):
    __slots__ = ("topic", "listener_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    listener_name: str
    def __init__(self, topic: _Optional[str] = ..., listener_name: _Optional[str] = ...) -> None: ...

class TopicOwnersAnswer(_message.Message):
    __slots__ = ("problem", "owners", "partitions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    owners: _containers.RepeatedCompositeFieldContainer[TopicOwner]
    partitions: int
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., owners: _Optional[_Iterable[_Union[TopicOwner, _Mapping]]] = ..., partitions: _Optional[int] = ...) -> None: ...

class TopicOwner(_message.Message):
    __slots__ = ("topic", "broker_id", "address", "bundle", "pulsar_address", "http_address")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    PULSAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_id: str
    address: str
    bundle: str
    pulsar_address: str
    http_address: str
    def __init__(self, topic: _Optional[str] = ..., broker_id: _Optional[str] = ..., address: _Optional[str] = ..., bundle: _Optional[str] = ..., pulsar_address: _Optional[str] = ..., http_address: _Optional[str] = ...) -> None: ...

class LookupTopicRequest(_message.Message):
    __slots__ = ("topic", "listener_name", "needs_pulsar", "reached_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    NEEDS_PULSAR_FIELD_NUMBER: _ClassVar[int]
    REACHED_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    listener_name: str
    needs_pulsar: bool
    reached_at: str
    def __init__(self, topic: _Optional[str] = ..., listener_name: _Optional[str] = ..., needs_pulsar: bool = ..., reached_at: _Optional[str] = ...) -> None: ...

class LookupTopicAnswer(_message.Message):
    __slots__ = ("problem", "owner")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    owner: TopicOwner
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., owner: _Optional[_Union[TopicOwner, _Mapping]] = ...) -> None: ...

class TopicBundleAnswer(_message.Message):
    __slots__ = ("problem", "bundle")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    bundle: str
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., bundle: _Optional[str] = ...) -> None: ...

class PartitionedTopicAnswer(_message.Message):
    __slots__ = ("problem", "partitions", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    partitions: int
    properties: _containers.ScalarMap[str, str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CompactionStatusAnswer(_message.Message):
    __slots__ = ("problem", "status", "last_error")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    status: str
    last_error: str
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., status: _Optional[str] = ..., last_error: _Optional[str] = ...) -> None: ...

class FindMessageIdRequest(_message.Message):
    __slots__ = ("topic", "time_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    time_ms: int
    def __init__(self, topic: _Optional[str] = ..., time_ms: _Optional[int] = ...) -> None: ...

class MessageIdAnswer(_message.Message):
    __slots__ = ("problem", "message_id")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    message_id: MessagePositionInTopic
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., message_id: _Optional[_Union[MessagePositionInTopic, _Mapping]] = ...) -> None: ...

class MessagePositionInTopic(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "partition", "batch_index")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    partition: int
    batch_index: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., partition: _Optional[int] = ..., batch_index: _Optional[int] = ...) -> None: ...

class MessageAtRequest(_message.Message):
    __slots__ = ("topic", "ledger_id", "entry_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ledger_id: int
    entry_id: int
    def __init__(self, topic: _Optional[str] = ..., ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class ExamineMessageRequest(_message.Message):
    __slots__ = ("topic", "start", "number")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    start: str
    number: int
    def __init__(self, topic: _Optional[str] = ..., start: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class MessageAnswer(_message.Message):
    __slots__ = ("problem", "entry")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    entry: PeekedEntry
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., entry: _Optional[_Union[PeekedEntry, _Mapping]] = ...) -> None: ...

class SubscriptionRequest(_message.Message):
    __slots__ = ("topic", "subscription", "start", "properties", "partition", "replicated")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICATED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    start: _broker_pb2.StartAt
    properties: _containers.ScalarMap[str, str]
    partition: int
    replicated: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., start: _Optional[_Union[_broker_pb2.StartAt, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ..., partition: _Optional[int] = ..., replicated: bool = ...) -> None: ...

class SubscriptionPropertiesAnswer(_message.Message):
    __slots__ = ("problem", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    properties: _containers.ScalarMap[str, str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AnalyzeBacklogAnswer(_message.Message):
    __slots__ = ("problem", "entries", "messages", "aborted", "lost_entries", "first", "last")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    LOST_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    entries: int
    messages: int
    aborted: bool
    lost_entries: int
    first: _ledger_pb2.EntryPosition
    last: _ledger_pb2.EntryPosition
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., entries: _Optional[int] = ..., messages: _Optional[int] = ..., aborted: bool = ..., lost_entries: _Optional[int] = ..., first: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., last: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ...) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "subscription", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., force: bool = ...) -> None: ...

class SkipRequest(_message.Message):
    __slots__ = ("topic", "subscription", "entries", "all")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    entries: int
    all: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., entries: _Optional[int] = ..., all: bool = ...) -> None: ...

class SkippedAnswer(_message.Message):
    __slots__ = ("problem", "entries")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    entries: int
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., entries: _Optional[int] = ...) -> None: ...

class ExpireRequest(_message.Message):
    __slots__ = ("topic", "subscription", "older_than_s", "first_left", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEFT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    older_than_s: int
    first_left: _broker_pb2.StartMessageId
    partition: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., older_than_s: _Optional[int] = ..., first_left: _Optional[_Union[_broker_pb2.StartMessageId, _Mapping]] = ..., partition: _Optional[int] = ...) -> None: ...

class BacklogSizeRequest(_message.Message):
    __slots__ = ("topic", "after", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: _broker_pb2.StartMessageId
    partition: int
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[_Union[_broker_pb2.StartMessageId, _Mapping]] = ..., partition: _Optional[int] = ...) -> None: ...

class BacklogSizeAnswer(_message.Message):
    __slots__ = ("problem", "bytes")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    bytes: int
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., bytes: _Optional[int] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("topic", "subscription", "entries", "first")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    entries: int
    first: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., entries: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class PeekAnswer(_message.Message):
    __slots__ = ("problem", "entries")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    entries: _containers.RepeatedCompositeFieldContainer[PeekedEntry]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[PeekedEntry, _Mapping]]] = ...) -> None: ...

class PeekedEntry(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "stored", "acknowledged")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    stored: bytes
    acknowledged: bytes
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., stored: _Optional[bytes] = ..., acknowledged: _Optional[bytes] = ...) -> None: ...

class Rates(_message.Message):
    __slots__ = ("messages", "entries", "bytes", "messages_per_s", "bytes_per_s")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    messages: int
    entries: int
    bytes: int
    messages_per_s: float
    bytes_per_s: float
    def __init__(self, messages: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., messages_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ...) -> None: ...

class TopicStatsRequest(_message.Message):
    __slots__ = ("topic", "exclude_producers", "exclude_consumers", "per_partition", "precise_backlog", "subscription_backlog_size", "earliest_time_in_backlog", "without_partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    PER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRECISE_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_BACKLOG_SIZE_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_TIME_IN_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    exclude_producers: bool
    exclude_consumers: bool
    per_partition: bool
    precise_backlog: bool
    subscription_backlog_size: bool
    earliest_time_in_backlog: bool
    without_partitions: bool
    def __init__(self, topic: _Optional[str] = ..., exclude_producers: bool = ..., exclude_consumers: bool = ..., per_partition: bool = ..., precise_backlog: bool = ..., subscription_backlog_size: bool = ..., earliest_time_in_backlog: bool = ..., without_partitions: bool = ...) -> None: ...

class TopicStatsAnswer(_message.Message):
    __slots__ = ("problem", "stats")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    stats: TopicStats
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., stats: _Optional[_Union[TopicStats, _Mapping]] = ...) -> None: ...

class PartitionedStatsAnswer(_message.Message):
    __slots__ = ("problem", "stats", "partitions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    stats: TopicStats
    partitions: _containers.RepeatedCompositeFieldContainer[TopicStats]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., stats: _Optional[_Union[TopicStats, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[TopicStats, _Mapping]]] = ...) -> None: ...

class TopicStats(_message.Message):
    __slots__ = ("topic", "incarnation", "partitions", "received", "delivered", "refused_entries", "failed_entries", "storage_bytes", "stored_entries", "messages_ever", "pending_bytes", "waiting_for", "producers", "subscriptions", "owner_broker", "lost_entries", "lost", "last_publish_ms", "backlog_bytes", "chunks", "oldest_backlog_subscription", "oldest_backlog_ms", "oldest_backlog_age_s", "acknowledged_ranges", "not_in_effect", "owner_http_address", "backlog_quota_bytes", "backlog_quota_seconds", "evictions_by_size", "evictions_by_age", "publish_limited_times", "waiting_producers", "deduplication_status", "topic_epoch", "dropped_per_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FAILED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STORAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_EVER_FIELD_NUMBER: _ClassVar[int]
    PENDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    OWNER_BROKER_FIELD_NUMBER: _ClassVar[int]
    LOST_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LAST_PUBLISH_MS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_BACKLOG_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_BACKLOG_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_BACKLOG_AGE_S_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_RANGES_FIELD_NUMBER: _ClassVar[int]
    NOT_IN_EFFECT_FIELD_NUMBER: _ClassVar[int]
    OWNER_HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_QUOTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_QUOTA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_BY_SIZE_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_BY_AGE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_LIMITED_TIMES_FIELD_NUMBER: _ClassVar[int]
    WAITING_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DROPPED_PER_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    incarnation: str
    partitions: int
    received: Rates
    delivered: Rates
    refused_entries: int
    failed_entries: int
    storage_bytes: int
    stored_entries: int
    messages_ever: int
    pending_bytes: int
    waiting_for: str
    producers: _containers.RepeatedCompositeFieldContainer[ProducerStats]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionStats]
    owner_broker: str
    lost_entries: int
    lost: _containers.RepeatedCompositeFieldContainer[LostEntry]
    last_publish_ms: int
    backlog_bytes: int
    chunks: int
    oldest_backlog_subscription: str
    oldest_backlog_ms: int
    oldest_backlog_age_s: int
    acknowledged_ranges: int
    not_in_effect: _containers.RepeatedScalarFieldContainer[str]
    owner_http_address: str
    backlog_quota_bytes: int
    backlog_quota_seconds: int
    evictions_by_size: int
    evictions_by_age: int
    publish_limited_times: int
    waiting_producers: int
    deduplication_status: str
    topic_epoch: int
    dropped_per_s: float
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[str] = ..., partitions: _Optional[int] = ..., received: _Optional[_Union[Rates, _Mapping]] = ..., delivered: _Optional[_Union[Rates, _Mapping]] = ..., refused_entries: _Optional[int] = ..., failed_entries: _Optional[int] = ..., storage_bytes: _Optional[int] = ..., stored_entries: _Optional[int] = ..., messages_ever: _Optional[int] = ..., pending_bytes: _Optional[int] = ..., waiting_for: _Optional[str] = ..., producers: _Optional[_Iterable[_Union[ProducerStats, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionStats, _Mapping]]] = ..., owner_broker: _Optional[str] = ..., lost_entries: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LostEntry, _Mapping]]] = ..., last_publish_ms: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., chunks: _Optional[int] = ..., oldest_backlog_subscription: _Optional[str] = ..., oldest_backlog_ms: _Optional[int] = ..., oldest_backlog_age_s: _Optional[int] = ..., acknowledged_ranges: _Optional[int] = ..., not_in_effect: _Optional[_Iterable[str]] = ..., owner_http_address: _Optional[str] = ..., backlog_quota_bytes: _Optional[int] = ..., backlog_quota_seconds: _Optional[int] = ..., evictions_by_size: _Optional[int] = ..., evictions_by_age: _Optional[int] = ..., publish_limited_times: _Optional[int] = ..., waiting_producers: _Optional[int] = ..., deduplication_status: _Optional[str] = ..., topic_epoch: _Optional[int] = ..., dropped_per_s: _Optional[float] = ...) -> None: ...

class LostEntry(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "reason")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    reason: str
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ProducerStats(_message.Message):
    __slots__ = ("producer_name", "producer_id", "address", "connected_since_ms", "received", "properties", "client_version", "partial", "chunks_per_s", "access_mode")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    producer_id: int
    address: str
    connected_since_ms: int
    received: Rates
    properties: _containers.ScalarMap[str, str]
    client_version: str
    partial: bool
    chunks_per_s: float
    access_mode: str
    def __init__(self, producer_name: _Optional[str] = ..., producer_id: _Optional[int] = ..., address: _Optional[str] = ..., connected_since_ms: _Optional[int] = ..., received: _Optional[_Union[Rates, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ..., client_version: _Optional[str] = ..., partial: bool = ..., chunks_per_s: _Optional[float] = ..., access_mode: _Optional[str] = ...) -> None: ...

class SubscriptionStats(_message.Message):
    __slots__ = ("subscription", "type", "durable", "backlog_entries", "backlog_messages", "unacknowledged_messages", "to_be_redelivered", "blocked_by", "active_consumer", "delivered", "redelivered_messages", "acknowledged_entries", "expired_entries", "mark_delete", "consumers", "properties", "damaged", "backlog_bytes", "backlog_since_ms", "blocked_on_unacknowledged", "last_flow_ms", "last_delivered_ms", "last_acknowledged_ms", "last_advanced_ms", "last_expired_ms", "redelivered_per_s", "acknowledged_per_s", "expired_per_s", "acknowledged_ranges", "chunks_per_s", "throttled_messages_by_subscription", "throttled_bytes_by_subscription", "throttled_messages_by_topic", "throttled_bytes_by_topic", "throttled_messages_by_broker", "throttled_bytes_by_broker", "dropped_messages", "dropped_per_s", "reasons", "key_shared_mode", "allow_out_of_order_delivery", "draining_slots", "draining_entries", "drained_slots", "mixed_batches")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TO_BE_REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_BY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_ON_UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    LAST_FLOW_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_DELIVERED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ACKNOWLEDGED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ADVANCED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_EXPIRED_MS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_PER_S_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_RANGES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_PER_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_MESSAGES_BY_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_BYTES_BY_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_MESSAGES_BY_TOPIC_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_BYTES_BY_TOPIC_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_MESSAGES_BY_BROKER_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_BYTES_BY_BROKER_FIELD_NUMBER: _ClassVar[int]
    DROPPED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_PER_S_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARED_MODE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_OUT_OF_ORDER_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    DRAINING_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DRAINED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MIXED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    type: str
    durable: bool
    backlog_entries: int
    backlog_messages: int
    unacknowledged_messages: int
    to_be_redelivered: int
    blocked_by: str
    active_consumer: str
    delivered: Rates
    redelivered_messages: int
    acknowledged_entries: int
    expired_entries: int
    mark_delete: _ledger_pb2.EntryPosition
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerStats]
    properties: _containers.ScalarMap[str, str]
    damaged: bool
    backlog_bytes: int
    backlog_since_ms: int
    blocked_on_unacknowledged: bool
    last_flow_ms: int
    last_delivered_ms: int
    last_acknowledged_ms: int
    last_advanced_ms: int
    last_expired_ms: int
    redelivered_per_s: float
    acknowledged_per_s: float
    expired_per_s: float
    acknowledged_ranges: int
    chunks_per_s: float
    throttled_messages_by_subscription: int
    throttled_bytes_by_subscription: int
    throttled_messages_by_topic: int
    throttled_bytes_by_topic: int
    throttled_messages_by_broker: int
    throttled_bytes_by_broker: int
    dropped_messages: int
    dropped_per_s: float
    reasons: _containers.RepeatedCompositeFieldContainer[DeliveryReason]
    key_shared_mode: str
    allow_out_of_order_delivery: bool
    draining_slots: int
    draining_entries: int
    drained_slots: int
    mixed_batches: int
    def __init__(self, subscription: _Optional[str] = ..., type: _Optional[str] = ..., durable: bool = ..., backlog_entries: _Optional[int] = ..., backlog_messages: _Optional[int] = ..., unacknowledged_messages: _Optional[int] = ..., to_be_redelivered: _Optional[int] = ..., blocked_by: _Optional[str] = ..., active_consumer: _Optional[str] = ..., delivered: _Optional[_Union[Rates, _Mapping]] = ..., redelivered_messages: _Optional[int] = ..., acknowledged_entries: _Optional[int] = ..., expired_entries: _Optional[int] = ..., mark_delete: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., consumers: _Optional[_Iterable[_Union[ConsumerStats, _Mapping]]] = ..., properties: _Optional[_Mapping[str, str]] = ..., damaged: bool = ..., backlog_bytes: _Optional[int] = ..., backlog_since_ms: _Optional[int] = ..., blocked_on_unacknowledged: bool = ..., last_flow_ms: _Optional[int] = ..., last_delivered_ms: _Optional[int] = ..., last_acknowledged_ms: _Optional[int] = ..., last_advanced_ms: _Optional[int] = ..., last_expired_ms: _Optional[int] = ..., redelivered_per_s: _Optional[float] = ..., acknowledged_per_s: _Optional[float] = ..., expired_per_s: _Optional[float] = ..., acknowledged_ranges: _Optional[int] = ..., chunks_per_s: _Optional[float] = ..., throttled_messages_by_subscription: _Optional[int] = ..., throttled_bytes_by_subscription: _Optional[int] = ..., throttled_messages_by_topic: _Optional[int] = ..., throttled_bytes_by_topic: _Optional[int] = ..., throttled_messages_by_broker: _Optional[int] = ..., throttled_bytes_by_broker: _Optional[int] = ..., dropped_messages: _Optional[int] = ..., dropped_per_s: _Optional[float] = ..., reasons: _Optional[_Iterable[_Union[DeliveryReason, _Mapping]]] = ..., key_shared_mode: _Optional[str] = ..., allow_out_of_order_delivery: bool = ..., draining_slots: _Optional[int] = ..., draining_entries: _Optional[int] = ..., drained_slots: _Optional[int] = ..., mixed_batches: _Optional[int] = ...) -> None: ...

class DeliveryReason(_message.Message):
    __slots__ = ("code", "text", "action", "facts", "normal", "partitions")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NORMAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    action: str
    facts: _containers.ScalarMap[str, str]
    normal: bool
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., action: _Optional[str] = ..., facts: _Optional[_Mapping[str, str]] = ..., normal: bool = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ConsumerStats(_message.Message):
    __slots__ = ("consumer_name", "consumer_id", "address", "connected_since_ms", "priority_level", "permits", "unacknowledged_messages", "blocked_by", "delivered", "redelivered_messages", "acknowledged_entries", "properties", "client_version", "blocked_on_unacknowledged", "last_flow_ms", "last_delivered_ms", "last_acknowledged_ms", "redelivered_per_s", "acknowledged_per_s", "chunks_per_s", "reason", "key_ranges", "draining_slots", "draining_entries", "drained_slots", "draining")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_BY_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_ON_UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    LAST_FLOW_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_DELIVERED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ACKNOWLEDGED_MS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_PER_S_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_PER_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DRAINED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    consumer_id: int
    address: str
    connected_since_ms: int
    priority_level: int
    permits: int
    unacknowledged_messages: int
    blocked_by: str
    delivered: Rates
    redelivered_messages: int
    acknowledged_entries: int
    properties: _containers.ScalarMap[str, str]
    client_version: str
    blocked_on_unacknowledged: bool
    last_flow_ms: int
    last_delivered_ms: int
    last_acknowledged_ms: int
    redelivered_per_s: float
    acknowledged_per_s: float
    chunks_per_s: float
    reason: DeliveryReason
    key_ranges: _containers.RepeatedCompositeFieldContainer[_broker_pb2.SlotRange]
    draining_slots: int
    draining_entries: int
    drained_slots: int
    draining: _containers.RepeatedCompositeFieldContainer[DrainingSlot]
    def __init__(self, consumer_name: _Optional[str] = ..., consumer_id: _Optional[int] = ..., address: _Optional[str] = ..., connected_since_ms: _Optional[int] = ..., priority_level: _Optional[int] = ..., permits: _Optional[int] = ..., unacknowledged_messages: _Optional[int] = ..., blocked_by: _Optional[str] = ..., delivered: _Optional[_Union[Rates, _Mapping]] = ..., redelivered_messages: _Optional[int] = ..., acknowledged_entries: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., client_version: _Optional[str] = ..., blocked_on_unacknowledged: bool = ..., last_flow_ms: _Optional[int] = ..., last_delivered_ms: _Optional[int] = ..., last_acknowledged_ms: _Optional[int] = ..., redelivered_per_s: _Optional[float] = ..., acknowledged_per_s: _Optional[float] = ..., chunks_per_s: _Optional[float] = ..., reason: _Optional[_Union[DeliveryReason, _Mapping]] = ..., key_ranges: _Optional[_Iterable[_Union[_broker_pb2.SlotRange, _Mapping]]] = ..., draining_slots: _Optional[int] = ..., draining_entries: _Optional[int] = ..., drained_slots: _Optional[int] = ..., draining: _Optional[_Iterable[_Union[DrainingSlot, _Mapping]]] = ...) -> None: ...

class DrainingSlot(_message.Message):
    __slots__ = ("slot", "entries", "blocked")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    entries: int
    blocked: int
    def __init__(self, slot: _Optional[int] = ..., entries: _Optional[int] = ..., blocked: _Optional[int] = ...) -> None: ...

class InternalStatsAnswer(_message.Message):
    __slots__ = ("problem", "stats")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    stats: InternalStats
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., stats: _Optional[_Union[InternalStats, _Mapping]] = ...) -> None: ...

class PartitionedInternalStatsAnswer(_message.Message):
    __slots__ = ("problem", "partitions", "properties", "stats")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    partitions: int
    properties: _containers.ScalarMap[str, str]
    stats: _containers.RepeatedCompositeFieldContainer[PartitionInternalStats]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., partitions: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., stats: _Optional[_Iterable[_Union[PartitionInternalStats, _Mapping]]] = ...) -> None: ...

class PartitionInternalStats(_message.Message):
    __slots__ = ("topic", "stats")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    stats: InternalStats
    def __init__(self, topic: _Optional[str] = ..., stats: _Optional[_Union[InternalStats, _Mapping]] = ...) -> None: ...

class InternalStats(_message.Message):
    __slots__ = ("incarnation", "state", "last", "ledgers", "more_ledgers", "cursors", "leases", "lapsed_leases", "added_entries", "stored_entries", "stored_bytes", "current_ledger_entries", "current_ledger_bytes", "pending_entries", "schema_ledgers")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    MORE_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    LAPSED_LEASES_FIELD_NUMBER: _ClassVar[int]
    ADDED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STORED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEDGER_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEDGER_BYTES_FIELD_NUMBER: _ClassVar[int]
    PENDING_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    state: str
    last: _ledger_pb2.EntryPosition
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerStats]
    more_ledgers: int
    cursors: _containers.RepeatedCompositeFieldContainer[CursorStats]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseStats]
    lapsed_leases: int
    added_entries: int
    stored_entries: int
    stored_bytes: int
    current_ledger_entries: int
    current_ledger_bytes: int
    pending_entries: int
    schema_ledgers: _containers.RepeatedCompositeFieldContainer[LedgerStats]
    def __init__(self, incarnation: _Optional[str] = ..., state: _Optional[str] = ..., last: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., ledgers: _Optional[_Iterable[_Union[LedgerStats, _Mapping]]] = ..., more_ledgers: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[CursorStats, _Mapping]]] = ..., leases: _Optional[_Iterable[_Union[LeaseStats, _Mapping]]] = ..., lapsed_leases: _Optional[int] = ..., added_entries: _Optional[int] = ..., stored_entries: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., current_ledger_entries: _Optional[int] = ..., current_ledger_bytes: _Optional[int] = ..., pending_entries: _Optional[int] = ..., schema_ledgers: _Optional[_Iterable[_Union[LedgerStats, _Mapping]]] = ...) -> None: ...

class LeaseStats(_message.Message):
    __slots__ = ("holder", "from_ledger_id", "left_ms", "lease_ms", "lease_id")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    FROM_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    holder: str
    from_ledger_id: int
    left_ms: int
    lease_ms: int
    lease_id: bytes
    def __init__(self, holder: _Optional[str] = ..., from_ledger_id: _Optional[int] = ..., left_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., lease_id: _Optional[bytes] = ...) -> None: ...

class LedgerStats(_message.Message):
    __slots__ = ("ledger_id", "entries", "bytes", "closed")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entries: int
    bytes: int
    closed: bool
    def __init__(self, ledger_id: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., closed: bool = ...) -> None: ...

class CursorStats(_message.Message):
    __slots__ = ("name", "mark_delete", "saved_mark_delete", "open_entries", "entries_after_mark_delete", "acknowledged_ranges", "first_acknowledged", "active", "ledger_id", "properties", "read_position")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    SAVED_MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    OPEN_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_AFTER_MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_RANGES_FIELD_NUMBER: _ClassVar[int]
    FIRST_ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    READ_POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    mark_delete: _ledger_pb2.EntryPosition
    saved_mark_delete: _ledger_pb2.EntryPosition
    open_entries: int
    entries_after_mark_delete: int
    acknowledged_ranges: int
    first_acknowledged: _containers.RepeatedScalarFieldContainer[str]
    active: bool
    ledger_id: int
    properties: _containers.ScalarMap[str, str]
    read_position: _ledger_pb2.EntryPosition
    def __init__(self, name: _Optional[str] = ..., mark_delete: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., saved_mark_delete: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., open_entries: _Optional[int] = ..., entries_after_mark_delete: _Optional[int] = ..., acknowledged_ranges: _Optional[int] = ..., first_acknowledged: _Optional[_Iterable[str]] = ..., active: bool = ..., ledger_id: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., read_position: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ...) -> None: ...

class BundlesAnswer(_message.Message):
    __slots__ = ("problem", "bundles")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    bundles: _containers.RepeatedCompositeFieldContainer[Bundle]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., bundles: _Optional[_Iterable[_Union[Bundle, _Mapping]]] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ("bundle", "broker_id", "address")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    broker_id: str
    address: str
    def __init__(self, bundle: _Optional[str] = ..., broker_id: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class UnloadBundleRequest(_message.Message):
    __slots__ = ("namespace", "bundle", "destination")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    destination: str
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., destination: _Optional[str] = ...) -> None: ...

class UnloadNamespaceRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class SplitBundleRequest(_message.Message):
    __slots__ = ("namespace", "bundle", "by", "at", "positions", "unload")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    UNLOAD_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    by: SplitBy
    at: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    unload: bool
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., by: _Optional[_Union[SplitBy, str]] = ..., at: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ..., unload: bool = ...) -> None: ...

class SplitBundleAnswer(_message.Message):
    __slots__ = ("problem", "lower", "upper")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    lower: str
    upper: str
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., lower: _Optional[str] = ..., upper: _Optional[str] = ...) -> None: ...

class TopicHashesRequest(_message.Message):
    __slots__ = ("namespace", "bundle", "topics")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicHashesAnswer(_message.Message):
    __slots__ = ("problem", "namespace", "bundle", "topics")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    namespace: str
    bundle: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicHash]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicHash, _Mapping]]] = ...) -> None: ...

class TopicHash(_message.Message):
    __slots__ = ("topic", "hash")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    hash: int
    def __init__(self, topic: _Optional[str] = ..., hash: _Optional[int] = ...) -> None: ...

class BrokersRequest(_message.Message):
    __slots__ = ("cluster",)
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    def __init__(self, cluster: _Optional[str] = ...) -> None: ...

class BrokersAnswer(_message.Message):
    __slots__ = ("problem", "brokers")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    brokers: _containers.RepeatedCompositeFieldContainer[ActiveBroker]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., brokers: _Optional[_Iterable[_Union[ActiveBroker, _Mapping]]] = ...) -> None: ...

class ActiveBroker(_message.Message):
    __slots__ = ("broker_id", "listeners", "http_address", "version", "started_ms", "load")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    listeners: _containers.RepeatedCompositeFieldContainer[_ownership_pb2.Listener]
    http_address: str
    version: str
    started_ms: int
    load: _ownership_pb2.LoadReport
    def __init__(self, broker_id: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[_ownership_pb2.Listener, _Mapping]]] = ..., http_address: _Optional[str] = ..., version: _Optional[str] = ..., started_ms: _Optional[int] = ..., load: _Optional[_Union[_ownership_pb2.LoadReport, _Mapping]] = ...) -> None: ...

class LeaderBrokerAnswer(_message.Message):
    __slots__ = ("problem", "broker")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    broker: ActiveBroker
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., broker: _Optional[_Union[ActiveBroker, _Mapping]] = ...) -> None: ...

class OwnedBundlesRequest(_message.Message):
    __slots__ = ("broker_id", "cluster")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    cluster: str
    def __init__(self, broker_id: _Optional[str] = ..., cluster: _Optional[str] = ...) -> None: ...

class OwnedBundlesAnswer(_message.Message):
    __slots__ = ("problem", "bundles")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    bundles: _containers.RepeatedCompositeFieldContainer[OwnedBundle]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., bundles: _Optional[_Iterable[_Union[OwnedBundle, _Mapping]]] = ...) -> None: ...

class OwnedBundle(_message.Message):
    __slots__ = ("namespace", "bundle", "topics")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    topics: int
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., topics: _Optional[int] = ...) -> None: ...

class BrokerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerAnswer(_message.Message):
    __slots__ = ("problem", "version", "address", "cluster", "started_ms", "loaded_topics", "broker_id", "pulsar_address", "advertises_reached_address", "http_address")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LOADED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    PULSAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ADVERTISES_REACHED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    version: str
    address: str
    cluster: str
    started_ms: int
    loaded_topics: int
    broker_id: str
    pulsar_address: str
    advertises_reached_address: bool
    http_address: str
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., cluster: _Optional[str] = ..., started_ms: _Optional[int] = ..., loaded_topics: _Optional[int] = ..., broker_id: _Optional[str] = ..., pulsar_address: _Optional[str] = ..., advertises_reached_address: bool = ..., http_address: _Optional[str] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthAnswer(_message.Message):
    __slots__ = ("problem", "healthy", "reasons")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    healthy: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., healthy: bool = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class BrokerStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerTopicStatsAnswer(_message.Message):
    __slots__ = ("problem", "topics")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    topics: _containers.RepeatedCompositeFieldContainer[BrokerTopic]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[BrokerTopic, _Mapping]]] = ...) -> None: ...

class BrokerTopic(_message.Message):
    __slots__ = ("namespace", "bundle", "stats")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    stats: TopicStats
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., stats: _Optional[_Union[TopicStats, _Mapping]] = ...) -> None: ...

class LoadReportAnswer(_message.Message):
    __slots__ = ("problem", "broker", "bundles")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    broker: ActiveBroker
    bundles: _containers.RepeatedCompositeFieldContainer[BundleLoad]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., broker: _Optional[_Union[ActiveBroker, _Mapping]] = ..., bundles: _Optional[_Iterable[_Union[BundleLoad, _Mapping]]] = ...) -> None: ...

class BundleLoad(_message.Message):
    __slots__ = ("namespace", "bundle", "topics", "producers", "consumers", "subscriptions", "messages_in_per_s", "bytes_in_per_s", "messages_out_per_s", "bytes_out_per_s", "backlog_entries", "storage_bytes")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STORAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    topics: int
    producers: int
    consumers: int
    subscriptions: int
    messages_in_per_s: float
    bytes_in_per_s: float
    messages_out_per_s: float
    bytes_out_per_s: float
    backlog_entries: int
    storage_bytes: int
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ..., topics: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., subscriptions: _Optional[int] = ..., messages_in_per_s: _Optional[float] = ..., bytes_in_per_s: _Optional[float] = ..., messages_out_per_s: _Optional[float] = ..., bytes_out_per_s: _Optional[float] = ..., backlog_entries: _Optional[int] = ..., storage_bytes: _Optional[int] = ...) -> None: ...

class BookiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BookiesAnswer(_message.Message):
    __slots__ = ("problem", "bookies")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    bookies: _containers.RepeatedCompositeFieldContainer[RegisteredBookie]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., bookies: _Optional[_Iterable[_Union[RegisteredBookie, _Mapping]]] = ...) -> None: ...

class RegisteredBookie(_message.Message):
    __slots__ = ("bookie_id", "address", "writable")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    address: str
    writable: bool
    def __init__(self, bookie_id: _Optional[str] = ..., address: _Optional[str] = ..., writable: bool = ...) -> None: ...

class TopicSchemaRequest(_message.Message):
    __slots__ = ("topic", "version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    version: int
    def __init__(self, topic: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class TopicSchemaAnswer(_message.Message):
    __slots__ = ("problem", "schema")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    schema: TopicSchema
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ...) -> None: ...

class TopicSchema(_message.Message):
    __slots__ = ("version", "schema", "created_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    schema: _schema_pb2.Schema
    created_ms: int
    def __init__(self, version: _Optional[int] = ..., schema: _Optional[_Union[_schema_pb2.Schema, _Mapping]] = ..., created_ms: _Optional[int] = ...) -> None: ...

class TopicSchemasRequest(_message.Message):
    __slots__ = ("topic", "after", "whole")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: int
    whole: bool
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[int] = ..., whole: bool = ...) -> None: ...

class TopicSchemasAnswer(_message.Message):
    __slots__ = ("problem", "schemas", "more")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    schemas: _containers.RepeatedCompositeFieldContainer[TopicSchema]
    more: bool
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., schemas: _Optional[_Iterable[_Union[TopicSchema, _Mapping]]] = ..., more: bool = ...) -> None: ...

class SchemaDefinitionRequest(_message.Message):
    __slots__ = ("topic", "schema")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    schema: _schema_pb2.Schema
    def __init__(self, topic: _Optional[str] = ..., schema: _Optional[_Union[_schema_pb2.Schema, _Mapping]] = ...) -> None: ...

class DeleteSchemaRequest(_message.Message):
    __slots__ = ("topic", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., force: bool = ...) -> None: ...

class SchemaVersionAnswer(_message.Message):
    __slots__ = ("problem", "version")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    version: int
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class SchemaCheckAnswer(_message.Message):
    __slots__ = ("problem", "is_compatible", "reason", "strategy")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IS_COMPATIBLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    is_compatible: bool
    reason: str
    strategy: _catalog_pb2.SchemaCompatibility
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., is_compatible: bool = ..., reason: _Optional[str] = ..., strategy: _Optional[_Union[_catalog_pb2.SchemaCompatibility, str]] = ...) -> None: ...

class SchemaMetadataRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class SchemaMetadataAnswer(_message.Message):
    __slots__ = ("problem", "versions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    versions: _containers.RepeatedCompositeFieldContainer[StoredSchemaVersion]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., versions: _Optional[_Iterable[_Union[StoredSchemaVersion, _Mapping]]] = ...) -> None: ...

class StoredSchemaVersion(_message.Message):
    __slots__ = ("version", "ledger_id", "created_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    ledger_id: int
    created_ms: int
    def __init__(self, version: _Optional[int] = ..., ledger_id: _Optional[int] = ..., created_ms: _Optional[int] = ...) -> None: ...

class ConfigurationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConfigurationAnswer(_message.Message):
    __slots__ = ("problem", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    values: _containers.ScalarMap[str, str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DynamicSettingsAnswer(_message.Message):
    __slots__ = ("problem", "settings")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    settings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., settings: _Optional[_Iterable[str]] = ...) -> None: ...

class DynamicSettingRequest(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class SubscriptionExplanationAnswer(_message.Message):
    __slots__ = ("problem", "explanation")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    explanation: SubscriptionExplanation
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., explanation: _Optional[_Union[SubscriptionExplanation, _Mapping]] = ...) -> None: ...

class SubscriptionExplanation(_message.Message):
    __slots__ = ("topic", "subscription", "reasons", "parts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    reasons: _containers.RepeatedCompositeFieldContainer[DeliveryReason]
    parts: _containers.RepeatedCompositeFieldContainer[PartExplanation]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., reasons: _Optional[_Iterable[_Union[DeliveryReason, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[PartExplanation, _Mapping]]] = ...) -> None: ...

class PartExplanation(_message.Message):
    __slots__ = ("topic", "owner_broker", "loaded", "reasons", "stats", "last", "last_publish_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OWNER_BROKER_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LAST_PUBLISH_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    owner_broker: str
    loaded: bool
    reasons: _containers.RepeatedCompositeFieldContainer[DeliveryReason]
    stats: SubscriptionStats
    last: _ledger_pb2.EntryPosition
    last_publish_ms: int
    def __init__(self, topic: _Optional[str] = ..., owner_broker: _Optional[str] = ..., loaded: bool = ..., reasons: _Optional[_Iterable[_Union[DeliveryReason, _Mapping]]] = ..., stats: _Optional[_Union[SubscriptionStats, _Mapping]] = ..., last: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., last_publish_ms: _Optional[int] = ...) -> None: ...

class DurableSubscriptionsAnswer(_message.Message):
    __slots__ = ("problem", "subscriptions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    subscriptions: _containers.RepeatedCompositeFieldContainer[DurableSubscription]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., subscriptions: _Optional[_Iterable[_Union[DurableSubscription, _Mapping]]] = ...) -> None: ...

class DurableSubscription(_message.Message):
    __slots__ = ("subscription", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, subscription: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...
