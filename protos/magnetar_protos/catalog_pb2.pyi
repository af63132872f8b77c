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
DELETION_NONE: Deletion
DELETION_IF_EMPTY: Deletion
DELETION_BEGUN: Deletion

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
    __slots__ = ("incarnation", "partitioned_made", "deletion", "policies", "marks_taken_away", "bundle_starts")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_MADE_FIELD_NUMBER: _ClassVar[int]
    DELETION_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    MARKS_TAKEN_AWAY_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_STARTS_FIELD_NUMBER: _ClassVar[int]
    incarnation: bytes
    partitioned_made: int
    deletion: Deletion
    policies: Policies
    marks_taken_away: int
    bundle_starts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, incarnation: _Optional[bytes] = ..., partitioned_made: _Optional[int] = ..., deletion: _Optional[_Union[Deletion, str]] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ..., marks_taken_away: _Optional[int] = ..., bundle_starts: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionedTopicNode(_message.Message):
    __slots__ = ("incarnation", "partitions", "deletion", "properties", "growing_to")
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
    incarnation: bytes
    partitions: int
    deletion: Deletion
    properties: _containers.ScalarMap[str, str]
    growing_to: int
    def __init__(self, incarnation: _Optional[bytes] = ..., partitions: _Optional[int] = ..., deletion: _Optional[_Union[Deletion, str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., growing_to: _Optional[int] = ...) -> None: ...

class Policies(_message.Message):
    __slots__ = ("persistence", "auto_topic_creation", "auto_subscription_creation")
    PERSISTENCE_FIELD_NUMBER: _ClassVar[int]
    AUTO_TOPIC_CREATION_FIELD_NUMBER: _ClassVar[int]
    AUTO_SUBSCRIPTION_CREATION_FIELD_NUMBER: _ClassVar[int]
    persistence: Persistence
    auto_topic_creation: AutoTopicCreation
    auto_subscription_creation: AutoSubscriptionCreation
    def __init__(self, persistence: _Optional[_Union[Persistence, _Mapping]] = ..., auto_topic_creation: _Optional[_Union[AutoTopicCreation, _Mapping]] = ..., auto_subscription_creation: _Optional[_Union[AutoSubscriptionCreation, _Mapping]] = ...) -> None: ...

class Persistence(_message.Message):
    __slots__ = ("ensemble_size", "write_quorum", "ack_quorum")
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ACK_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    def __init__(self, ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., ack_quorum: _Optional[int] = ...) -> None: ...

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
