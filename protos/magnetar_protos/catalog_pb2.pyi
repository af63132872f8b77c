from magnetar_protos import broker_pb2 as _broker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Deletion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELETION_NONE: _ClassVar[Deletion]
    DELETION_IF_EMPTY: _ClassVar[Deletion]
    DELETION_BEGUN: _ClassVar[Deletion]

class BacklogPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRODUCER_REQUEST_HOLD: _ClassVar[BacklogPolicy]
    PRODUCER_EXCEPTION: _ClassVar[BacklogPolicy]
    CONSUMER_BACKLOG_EVICTION: _ClassVar[BacklogPolicy]

class InactiveTopicDeleteMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELETE_WHEN_NO_SUBSCRIPTIONS: _ClassVar[InactiveTopicDeleteMode]
    DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP: _ClassVar[InactiveTopicDeleteMode]

class SchemaCompatibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNDEFINED: _ClassVar[SchemaCompatibility]
    ALWAYS_INCOMPATIBLE: _ClassVar[SchemaCompatibility]
    ALWAYS_COMPATIBLE: _ClassVar[SchemaCompatibility]
    BACKWARD: _ClassVar[SchemaCompatibility]
    FORWARD: _ClassVar[SchemaCompatibility]
    FULL: _ClassVar[SchemaCompatibility]
    BACKWARD_TRANSITIVE: _ClassVar[SchemaCompatibility]
    FORWARD_TRANSITIVE: _ClassVar[SchemaCompatibility]
    FULL_TRANSITIVE: _ClassVar[SchemaCompatibility]

class SchemaAutoUpdate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTO_UPDATE_DISABLED: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_BACKWARD: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_FORWARD: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_FULL: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_ALWAYS_COMPATIBLE: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_BACKWARD_TRANSITIVE: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_FORWARD_TRANSITIVE: _ClassVar[SchemaAutoUpdate]
    AUTO_UPDATE_FULL_TRANSITIVE: _ClassVar[SchemaAutoUpdate]

class SubscriptionAuthMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTH_MODE_NONE: _ClassVar[SubscriptionAuthMode]
    AUTH_MODE_PREFIX: _ClassVar[SubscriptionAuthMode]
DELETION_NONE: Deletion
DELETION_IF_EMPTY: Deletion
DELETION_BEGUN: Deletion
PRODUCER_REQUEST_HOLD: BacklogPolicy
PRODUCER_EXCEPTION: BacklogPolicy
CONSUMER_BACKLOG_EVICTION: BacklogPolicy
DELETE_WHEN_NO_SUBSCRIPTIONS: InactiveTopicDeleteMode
DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP: InactiveTopicDeleteMode
UNDEFINED: SchemaCompatibility
ALWAYS_INCOMPATIBLE: SchemaCompatibility
ALWAYS_COMPATIBLE: SchemaCompatibility
BACKWARD: SchemaCompatibility
FORWARD: SchemaCompatibility
FULL: SchemaCompatibility
BACKWARD_TRANSITIVE: SchemaCompatibility
FORWARD_TRANSITIVE: SchemaCompatibility
FULL_TRANSITIVE: SchemaCompatibility
AUTO_UPDATE_DISABLED: SchemaAutoUpdate
AUTO_UPDATE_BACKWARD: SchemaAutoUpdate
AUTO_UPDATE_FORWARD: SchemaAutoUpdate
AUTO_UPDATE_FULL: SchemaAutoUpdate
AUTO_UPDATE_ALWAYS_COMPATIBLE: SchemaAutoUpdate
AUTO_UPDATE_BACKWARD_TRANSITIVE: SchemaAutoUpdate
AUTO_UPDATE_FORWARD_TRANSITIVE: SchemaAutoUpdate
AUTO_UPDATE_FULL_TRANSITIVE: SchemaAutoUpdate
AUTH_MODE_NONE: SubscriptionAuthMode
AUTH_MODE_PREFIX: SubscriptionAuthMode

class TenantNode(_message.Message):
    __slots__ = ("incarnation", "namespaces_made", "admin_roles", "allowed_clusters")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_MADE_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ROLES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    incarnation: bytes
    namespaces_made: int
    admin_roles: _containers.RepeatedScalarFieldContainer[str]
    allowed_clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incarnation: _Optional[bytes] = ..., namespaces_made: _Optional[int] = ..., admin_roles: _Optional[_Iterable[str]] = ..., allowed_clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class NamespaceNode(_message.Message):
    __slots__ = ("incarnation", "partitioned_made", "deletion", "policies", "marks_taken_away", "bundle_starts", "counted_creations")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_MADE_FIELD_NUMBER: _ClassVar[int]
    DELETION_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    MARKS_TAKEN_AWAY_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_STARTS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_CREATIONS_FIELD_NUMBER: _ClassVar[int]
    incarnation: bytes
    partitioned_made: int
    deletion: Deletion
    policies: Policies
    marks_taken_away: int
    bundle_starts: _containers.RepeatedScalarFieldContainer[int]
    counted_creations: int
    def __init__(self, incarnation: _Optional[bytes] = ..., partitioned_made: _Optional[int] = ..., deletion: _Optional[_Union[Deletion, str]] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ..., marks_taken_away: _Optional[int] = ..., bundle_starts: _Optional[_Iterable[int]] = ..., counted_creations: _Optional[int] = ...) -> None: ...

class PartitionedTopicNode(_message.Message):
    __slots__ = ("incarnation", "partitions", "deletion", "properties", "growing_to", "has_no_partitions")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DELETION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    GROWING_TO_FIELD_NUMBER: _ClassVar[int]
    HAS_NO_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    incarnation: bytes
    partitions: int
    deletion: Deletion
    properties: _containers.ScalarMap[str, str]
    growing_to: int
    has_no_partitions: bool
    def __init__(self, incarnation: _Optional[bytes] = ..., partitions: _Optional[int] = ..., deletion: _Optional[_Union[Deletion, str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., growing_to: _Optional[int] = ..., has_no_partitions: bool = ...) -> None: ...

class ClusterData(_message.Message):
    __slots__ = ("service_url", "service_url_tls", "broker_service_url", "broker_service_url_tls", "proxy_service_url", "proxy_protocol", "authentication_plugin", "authentication_parameters", "listener_name", "broker_client_tls_trust_store_type", "broker_client_tls_trust_store", "broker_client_tls_trust_store_password", "broker_client_tls_key_store_type", "broker_client_tls_key_store", "broker_client_tls_key_store_password", "broker_client_trust_certs_file_path", "broker_client_certificate_file_path", "broker_client_key_file_path", "broker_client_ssl_factory_plugin", "broker_client_ssl_factory_plugin_params", "broker_client_tls_enabled", "tls_allow_insecure_connection", "broker_client_tls_enabled_with_key_store", "peer_cluster_names")
    SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    SERVICE_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    BROKER_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    BROKER_SERVICE_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    PROXY_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    PROXY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATION_PLUGIN_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATION_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_TRUST_STORE_TYPE_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_TRUST_STORE_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_TRUST_STORE_PASSWORD_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_KEY_STORE_TYPE_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_KEY_STORE_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_KEY_STORE_PASSWORD_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TRUST_CERTS_FILE_PATH_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_CERTIFICATE_FILE_PATH_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_KEY_FILE_PATH_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_SSL_FACTORY_PLUGIN_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_SSL_FACTORY_PLUGIN_PARAMS_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_ENABLED_FIELD_NUMBER: _ClassVar[int]
    TLS_ALLOW_INSECURE_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    BROKER_CLIENT_TLS_ENABLED_WITH_KEY_STORE_FIELD_NUMBER: _ClassVar[int]
    PEER_CLUSTER_NAMES_FIELD_NUMBER: _ClassVar[int]
    service_url: str
    service_url_tls: str
    broker_service_url: str
    broker_service_url_tls: str
    proxy_service_url: str
    proxy_protocol: str
    authentication_plugin: str
    authentication_parameters: str
    listener_name: str
    broker_client_tls_trust_store_type: str
    broker_client_tls_trust_store: str
    broker_client_tls_trust_store_password: str
    broker_client_tls_key_store_type: str
    broker_client_tls_key_store: str
    broker_client_tls_key_store_password: str
    broker_client_trust_certs_file_path: str
    broker_client_certificate_file_path: str
    broker_client_key_file_path: str
    broker_client_ssl_factory_plugin: str
    broker_client_ssl_factory_plugin_params: str
    broker_client_tls_enabled: bool
    tls_allow_insecure_connection: bool
    broker_client_tls_enabled_with_key_store: bool
    peer_cluster_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, service_url: _Optional[str] = ..., service_url_tls: _Optional[str] = ..., broker_service_url: _Optional[str] = ..., broker_service_url_tls: _Optional[str] = ..., proxy_service_url: _Optional[str] = ..., proxy_protocol: _Optional[str] = ..., authentication_plugin: _Optional[str] = ..., authentication_parameters: _Optional[str] = ..., listener_name: _Optional[str] = ..., broker_client_tls_trust_store_type: _Optional[str] = ..., broker_client_tls_trust_store: _Optional[str] = ..., broker_client_tls_trust_store_password: _Optional[str] = ..., broker_client_tls_key_store_type: _Optional[str] = ..., broker_client_tls_key_store: _Optional[str] = ..., broker_client_tls_key_store_password: _Optional[str] = ..., broker_client_trust_certs_file_path: _Optional[str] = ..., broker_client_certificate_file_path: _Optional[str] = ..., broker_client_key_file_path: _Optional[str] = ..., broker_client_ssl_factory_plugin: _Optional[str] = ..., broker_client_ssl_factory_plugin_params: _Optional[str] = ..., broker_client_tls_enabled: bool = ..., tls_allow_insecure_connection: bool = ..., broker_client_tls_enabled_with_key_store: bool = ..., peer_cluster_names: _Optional[_Iterable[str]] = ...) -> None: ...

class ClusterNode(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: ClusterData
    def __init__(self, data: _Optional[_Union[ClusterData, _Mapping]] = ...) -> None: ...

class DynamicConfigurationNode(_message.Message):
    __slots__ = ("overrides",)
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    overrides: _containers.ScalarMap[str, str]
    def __init__(self, overrides: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TopicPoliciesEvent(_message.Message):
    __slots__ = ("topic", "incarnation", "policies")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    incarnation: str
    policies: Policies
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[str] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ...) -> None: ...

class Policies(_message.Message):
    __slots__ = ("persistence", "auto_topic_creation", "auto_subscription_creation", "retention", "message_ttl_seconds", "subscription_expiration_minutes", "backlog_quota_size", "backlog_quota_age", "deduplication", "deduplication_snapshot_entries", "compaction_threshold_bytes", "delayed_delivery", "inactive_topics", "publish_rate", "dispatch_rate", "subscription_dispatch_rate", "replicator_dispatch_rate", "subscribe_rate", "max_producers_per_topic", "max_consumers_per_topic", "max_consumers_per_subscription", "max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription", "max_subscriptions_per_topic", "max_topics_per_namespace", "max_message_size_bytes", "schema_compatibility", "schema_auto_update", "allow_schema_auto_update", "schema_validation_enforced", "encryption_required", "subscription_auth_mode", "subscription_types_enabled", "dispatcher_pause_on_ack_state", "properties", "replication_clusters", "allowed_clusters")
    PERSISTENCE_FIELD_NUMBER: _ClassVar[int]
    AUTO_TOPIC_CREATION_FIELD_NUMBER: _ClassVar[int]
    AUTO_SUBSCRIPTION_CREATION_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_QUOTA_SIZE_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_QUOTA_AGE_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_SNAPSHOT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_THRESHOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELAYED_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_RATE_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_RATE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_DISPATCH_RATE_FIELD_NUMBER: _ClassVar[int]
    REPLICATOR_DISPATCH_RATE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_PRODUCERS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSUMERS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSUMERS_PER_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_MESSAGES_PER_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBSCRIPTIONS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_TOPICS_PER_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_AUTO_UPDATE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SCHEMA_AUTO_UPDATE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VALIDATION_ENFORCED_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_AUTH_MODE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_TYPES_ENABLED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_PAUSE_ON_ACK_STATE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    persistence: Persistence
    auto_topic_creation: AutoTopicCreation
    auto_subscription_creation: AutoSubscriptionCreation
    retention: Retention
    message_ttl_seconds: int
    subscription_expiration_minutes: int
    backlog_quota_size: BacklogQuota
    backlog_quota_age: BacklogQuota
    deduplication: bool
    deduplication_snapshot_entries: int
    compaction_threshold_bytes: int
    delayed_delivery: DelayedDelivery
    inactive_topics: InactiveTopics
    publish_rate: PublishRate
    dispatch_rate: DispatchRate
    subscription_dispatch_rate: DispatchRate
    replicator_dispatch_rate: DispatchRate
    subscribe_rate: SubscribeRate
    max_producers_per_topic: int
    max_consumers_per_topic: int
    max_consumers_per_subscription: int
    max_unacked_messages_per_consumer: int
    max_unacked_messages_per_subscription: int
    max_subscriptions_per_topic: int
    max_topics_per_namespace: int
    max_message_size_bytes: int
    schema_compatibility: SchemaCompatibility
    schema_auto_update: SchemaAutoUpdate
    allow_schema_auto_update: bool
    schema_validation_enforced: bool
    encryption_required: bool
    subscription_auth_mode: SubscriptionAuthMode
    subscription_types_enabled: SubscriptionTypes
    dispatcher_pause_on_ack_state: bool
    properties: Properties
    replication_clusters: Clusters
    allowed_clusters: Clusters
    def __init__(self, persistence: _Optional[_Union[Persistence, _Mapping]] = ..., auto_topic_creation: _Optional[_Union[AutoTopicCreation, _Mapping]] = ..., auto_subscription_creation: _Optional[_Union[AutoSubscriptionCreation, _Mapping]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., message_ttl_seconds: _Optional[int] = ..., subscription_expiration_minutes: _Optional[int] = ..., backlog_quota_size: _Optional[_Union[BacklogQuota, _Mapping]] = ..., backlog_quota_age: _Optional[_Union[BacklogQuota, _Mapping]] = ..., deduplication: bool = ..., deduplication_snapshot_entries: _Optional[int] = ..., compaction_threshold_bytes: _Optional[int] = ..., delayed_delivery: _Optional[_Union[DelayedDelivery, _Mapping]] = ..., inactive_topics: _Optional[_Union[InactiveTopics, _Mapping]] = ..., publish_rate: _Optional[_Union[PublishRate, _Mapping]] = ..., dispatch_rate: _Optional[_Union[DispatchRate, _Mapping]] = ..., subscription_dispatch_rate: _Optional[_Union[DispatchRate, _Mapping]] = ..., replicator_dispatch_rate: _Optional[_Union[DispatchRate, _Mapping]] = ..., subscribe_rate: _Optional[_Union[SubscribeRate, _Mapping]] = ..., max_producers_per_topic: _Optional[int] = ..., max_consumers_per_topic: _Optional[int] = ..., max_consumers_per_subscription: _Optional[int] = ..., max_unacked_messages_per_consumer: _Optional[int] = ..., max_unacked_messages_per_subscription: _Optional[int] = ..., max_subscriptions_per_topic: _Optional[int] = ..., max_topics_per_namespace: _Optional[int] = ..., max_message_size_bytes: _Optional[int] = ..., schema_compatibility: _Optional[_Union[SchemaCompatibility, str]] = ..., schema_auto_update: _Optional[_Union[SchemaAutoUpdate, str]] = ..., allow_schema_auto_update: bool = ..., schema_validation_enforced: bool = ..., encryption_required: bool = ..., subscription_auth_mode: _Optional[_Union[SubscriptionAuthMode, str]] = ..., subscription_types_enabled: _Optional[_Union[SubscriptionTypes, _Mapping]] = ..., dispatcher_pause_on_ack_state: bool = ..., properties: _Optional[_Union[Properties, _Mapping]] = ..., replication_clusters: _Optional[_Union[Clusters, _Mapping]] = ..., allowed_clusters: _Optional[_Union[Clusters, _Mapping]] = ...) -> None: ...

class Persistence(_message.Message):
    __slots__ = ("ensemble_size", "write_quorum", "ack_quorum", "max_mark_delete_rate")
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ACK_QUORUM_FIELD_NUMBER: _ClassVar[int]
    MAX_MARK_DELETE_RATE_FIELD_NUMBER: _ClassVar[int]
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    max_mark_delete_rate: float
    def __init__(self, ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., ack_quorum: _Optional[int] = ..., max_mark_delete_rate: _Optional[float] = ...) -> None: ...

class AutoTopicCreation(_message.Message):
    __slots__ = ("allowed", "partitions")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    partitions: int
    def __init__(self, allowed: bool = ..., partitions: _Optional[int] = ...) -> None: ...

class AutoSubscriptionCreation(_message.Message):
    __slots__ = ("allowed",)
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    def __init__(self, allowed: bool = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("time_minutes", "size_mb")
    TIME_MINUTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_MB_FIELD_NUMBER: _ClassVar[int]
    time_minutes: int
    size_mb: int
    def __init__(self, time_minutes: _Optional[int] = ..., size_mb: _Optional[int] = ...) -> None: ...

class BacklogQuota(_message.Message):
    __slots__ = ("limit_size_bytes", "limit_time_seconds", "policy")
    LIMIT_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    limit_size_bytes: int
    limit_time_seconds: int
    policy: BacklogPolicy
    def __init__(self, limit_size_bytes: _Optional[int] = ..., limit_time_seconds: _Optional[int] = ..., policy: _Optional[_Union[BacklogPolicy, str]] = ...) -> None: ...

class DelayedDelivery(_message.Message):
    __slots__ = ("active", "tick_time_ms", "max_delay_ms")
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    TICK_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    active: bool
    tick_time_ms: int
    max_delay_ms: int
    def __init__(self, active: bool = ..., tick_time_ms: _Optional[int] = ..., max_delay_ms: _Optional[int] = ...) -> None: ...

class InactiveTopics(_message.Message):
    __slots__ = ("delete_while_inactive", "delete_mode", "max_inactive_seconds")
    DELETE_WHILE_INACTIVE_FIELD_NUMBER: _ClassVar[int]
    DELETE_MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_INACTIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    delete_while_inactive: bool
    delete_mode: InactiveTopicDeleteMode
    max_inactive_seconds: int
    def __init__(self, delete_while_inactive: bool = ..., delete_mode: _Optional[_Union[InactiveTopicDeleteMode, str]] = ..., max_inactive_seconds: _Optional[int] = ...) -> None: ...

class PublishRate(_message.Message):
    __slots__ = ("messages_per_s", "bytes_per_s")
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    messages_per_s: int
    bytes_per_s: int
    def __init__(self, messages_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ...) -> None: ...

class DispatchRate(_message.Message):
    __slots__ = ("messages", "bytes", "period_seconds", "relative_to_publish_rate")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_TO_PUBLISH_RATE_FIELD_NUMBER: _ClassVar[int]
    messages: int
    bytes: int
    period_seconds: int
    relative_to_publish_rate: bool
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ..., period_seconds: _Optional[int] = ..., relative_to_publish_rate: bool = ...) -> None: ...

class SubscribeRate(_message.Message):
    __slots__ = ("per_consumer", "period_seconds")
    PER_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    per_consumer: int
    period_seconds: int
    def __init__(self, per_consumer: _Optional[int] = ..., period_seconds: _Optional[int] = ...) -> None: ...

class SubscriptionTypes(_message.Message):
    __slots__ = ("types",)
    TYPES_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[_broker_pb2.SubscriptionType]
    def __init__(self, types: _Optional[_Iterable[_Union[_broker_pb2.SubscriptionType, str]]] = ...) -> None: ...

class Properties(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Clusters(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...
