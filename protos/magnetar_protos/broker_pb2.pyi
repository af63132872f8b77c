from magnetar_protos import frame_pb2 as _frame_pb2
from magnetar_protos import schema_pb2 as _schema_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    UNKNOWN_ERROR: _ClassVar[ErrorCode]
    METADATA_ERROR: _ClassVar[ErrorCode]
    PERSISTENCE_ERROR: _ClassVar[ErrorCode]
    SERVICE_NOT_READY: _ClassVar[ErrorCode]
    CONSUMER_BUSY: _ClassVar[ErrorCode]
    PRODUCER_BUSY: _ClassVar[ErrorCode]
    PRODUCER_FENCED: _ClassVar[ErrorCode]
    TOPIC_NOT_FOUND: _ClassVar[ErrorCode]
    SUBSCRIPTION_NOT_FOUND: _ClassVar[ErrorCode]
    NOT_FOUND: _ClassVar[ErrorCode]
    ALREADY_EXISTS: _ClassVar[ErrorCode]
    INVALID_TOPIC_NAME: _ClassVar[ErrorCode]
    NOT_ALLOWED: _ClassVar[ErrorCode]
    INVALID_ARGUMENT: _ClassVar[ErrorCode]
    CHECKSUM_ERROR: _ClassVar[ErrorCode]
    MESSAGE_TOO_BIG: _ClassVar[ErrorCode]
    TOO_MANY_REQUESTS: _ClassVar[ErrorCode]
    INCARNATION_CHANGED: _ClassVar[ErrorCode]
    STALE_EPOCH: _ClassVar[ErrorCode]
    TOPIC_TERMINATED: _ClassVar[ErrorCode]
    UNSUPPORTED: _ClassVar[ErrorCode]
    INTERNAL_ERROR: _ClassVar[ErrorCode]
    CONFLICT: _ClassVar[ErrorCode]
    INCOMPATIBLE_SCHEMA: _ClassVar[ErrorCode]
    BACKLOG_QUOTA_HOLD: _ClassVar[ErrorCode]
    BACKLOG_QUOTA_EXCEEDED: _ClassVar[ErrorCode]
    CONSUMER_ASSIGN_ERROR: _ClassVar[ErrorCode]

class TopicsMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPICS_PERSISTENT: _ClassVar[TopicsMode]
    TOPICS_NON_PERSISTENT: _ClassVar[TopicsMode]
    TOPICS_ALL: _ClassVar[TopicsMode]

class ProducerAccessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_SHARED: _ClassVar[ProducerAccessMode]
    ACCESS_EXCLUSIVE: _ClassVar[ProducerAccessMode]
    ACCESS_WAIT_FOR_EXCLUSIVE: _ClassVar[ProducerAccessMode]
    ACCESS_EXCLUSIVE_WITH_FENCING: _ClassVar[ProducerAccessMode]

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCLUSIVE: _ClassVar[SubscriptionType]
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]
    KEY_SHARED: _ClassVar[SubscriptionType]

class KeySharedMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTO_SPLIT: _ClassVar[KeySharedMode]
    STICKY: _ClassVar[KeySharedMode]
ERROR_CODE_UNSPECIFIED: ErrorCode
UNKNOWN_ERROR: ErrorCode
METADATA_ERROR: ErrorCode
PERSISTENCE_ERROR: ErrorCode
SERVICE_NOT_READY: ErrorCode
CONSUMER_BUSY: ErrorCode
PRODUCER_BUSY: ErrorCode
PRODUCER_FENCED: ErrorCode
TOPIC_NOT_FOUND: ErrorCode
SUBSCRIPTION_NOT_FOUND: ErrorCode
NOT_FOUND: ErrorCode
ALREADY_EXISTS: ErrorCode
INVALID_TOPIC_NAME: ErrorCode
NOT_ALLOWED: ErrorCode
INVALID_ARGUMENT: ErrorCode
CHECKSUM_ERROR: ErrorCode
MESSAGE_TOO_BIG: ErrorCode
TOO_MANY_REQUESTS: ErrorCode
INCARNATION_CHANGED: ErrorCode
STALE_EPOCH: ErrorCode
TOPIC_TERMINATED: ErrorCode
UNSUPPORTED: ErrorCode
INTERNAL_ERROR: ErrorCode
CONFLICT: ErrorCode
INCOMPATIBLE_SCHEMA: ErrorCode
BACKLOG_QUOTA_HOLD: ErrorCode
BACKLOG_QUOTA_EXCEEDED: ErrorCode
CONSUMER_ASSIGN_ERROR: ErrorCode
TOPICS_PERSISTENT: TopicsMode
TOPICS_NON_PERSISTENT: TopicsMode
TOPICS_ALL: TopicsMode
ACCESS_SHARED: ProducerAccessMode
ACCESS_EXCLUSIVE: ProducerAccessMode
ACCESS_WAIT_FOR_EXCLUSIVE: ProducerAccessMode
ACCESS_EXCLUSIVE_WITH_FENCING: ProducerAccessMode
EXCLUSIVE: SubscriptionType
SHARED: SubscriptionType
FAILOVER: SubscriptionType
KEY_SHARED: SubscriptionType
AUTO_SPLIT: KeySharedMode
STICKY: KeySharedMode

class Problem(_message.Message):
    __slots__ = ("code", "text", "about")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    text: str
    about: str
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., text: _Optional[str] = ..., about: _Optional[str] = ...) -> None: ...

class PartitionsRequest(_message.Message):
    __slots__ = ("topic", "create")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    create: bool
    def __init__(self, topic: _Optional[str] = ..., create: bool = ...) -> None: ...

class PartitionsAnswer(_message.Message):
    __slots__ = ("problem", "partitions")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    problem: Problem
    partitions: int
    def __init__(self, problem: _Optional[_Union[Problem, _Mapping]] = ..., partitions: _Optional[int] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("topic", "listener_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    listener_name: str
    def __init__(self, topic: _Optional[str] = ..., listener_name: _Optional[str] = ...) -> None: ...

class LookupAnswer(_message.Message):
    __slots__ = ("problem", "address")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    problem: Problem
    address: str
    def __init__(self, problem: _Optional[_Union[Problem, _Mapping]] = ..., address: _Optional[str] = ...) -> None: ...

class LastMessageRequest(_message.Message):
    __slots__ = ("topic", "find_first_chunk")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FIND_FIRST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    find_first_chunk: bool
    def __init__(self, topic: _Optional[str] = ..., find_first_chunk: bool = ...) -> None: ...

class LastMessageAnswer(_message.Message):
    __slots__ = ("problem", "last", "incarnation")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    problem: Problem
    last: LastMessage
    incarnation: str
    def __init__(self, problem: _Optional[_Union[Problem, _Mapping]] = ..., last: _Optional[_Union[LastMessage, _Mapping]] = ..., incarnation: _Optional[str] = ...) -> None: ...

class LastMessage(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "batch_size", "first_chunk")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    FIRST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    batch_size: int
    first_chunk: FirstChunk
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., batch_size: _Optional[int] = ..., first_chunk: _Optional[_Union[FirstChunk, _Mapping]] = ...) -> None: ...

class FirstChunk(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class SchemaRequest(_message.Message):
    __slots__ = ("topic", "schema_version", "incarnation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    schema_version: bytes
    incarnation: str
    def __init__(self, topic: _Optional[str] = ..., schema_version: _Optional[bytes] = ..., incarnation: _Optional[str] = ...) -> None: ...

class SchemaAnswer(_message.Message):
    __slots__ = ("problem", "schema", "schema_version")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    problem: Problem
    schema: _schema_pb2.Schema
    schema_version: bytes
    def __init__(self, problem: _Optional[_Union[Problem, _Mapping]] = ..., schema: _Optional[_Union[_schema_pb2.Schema, _Mapping]] = ..., schema_version: _Optional[bytes] = ...) -> None: ...

class WatchTopicsRequest(_message.Message):
    __slots__ = ("watch", "close")
    WATCH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    watch: _containers.RepeatedCompositeFieldContainer[WatchTopics]
    close: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, watch: _Optional[_Iterable[_Union[WatchTopics, _Mapping]]] = ..., close: _Optional[_Iterable[int]] = ...) -> None: ...

class WatchTopics(_message.Message):
    __slots__ = ("watch_id", "namespace", "pattern", "mode", "hash", "once")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    namespace: str
    pattern: str
    mode: TopicsMode
    hash: str
    once: bool
    def __init__(self, watch_id: _Optional[int] = ..., namespace: _Optional[str] = ..., pattern: _Optional[str] = ..., mode: _Optional[_Union[TopicsMode, str]] = ..., hash: _Optional[str] = ..., once: bool = ...) -> None: ...

class WatchTopicsAnswer(_message.Message):
    __slots__ = ("updates",)
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[TopicsUpdate]
    def __init__(self, updates: _Optional[_Iterable[_Union[TopicsUpdate, _Mapping]]] = ...) -> None: ...

class TopicsUpdate(_message.Message):
    __slots__ = ("watch_id", "problem", "is_list", "deleted", "added", "hash", "time_ms", "namespace_missing")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IS_LIST_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_MISSING_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    problem: Problem
    is_list: bool
    deleted: _containers.RepeatedScalarFieldContainer[str]
    added: _containers.RepeatedScalarFieldContainer[str]
    hash: str
    time_ms: int
    namespace_missing: bool
    def __init__(self, watch_id: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., is_list: bool = ..., deleted: _Optional[_Iterable[str]] = ..., added: _Optional[_Iterable[str]] = ..., hash: _Optional[str] = ..., time_ms: _Optional[int] = ..., namespace_missing: bool = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("open", "frame", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: _containers.RepeatedCompositeFieldContainer[OpenProducer]
    frame: _frame_pb2.Frame
    close: _containers.RepeatedCompositeFieldContainer[CloseProducer]
    def __init__(self, open: _Optional[_Iterable[_Union[OpenProducer, _Mapping]]] = ..., frame: _Optional[_Union[_frame_pb2.Frame, _Mapping]] = ..., close: _Optional[_Iterable[_Union[CloseProducer, _Mapping]]] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ("producer_id", "topic", "producer_name", "instance", "connection_epoch", "incarnation", "properties", "client_version", "partial", "schema", "access_mode", "topic_epoch", "initial_subscription")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    topic: str
    producer_name: str
    instance: bytes
    connection_epoch: int
    incarnation: str
    properties: _containers.ScalarMap[str, str]
    client_version: str
    partial: bool
    schema: _schema_pb2.Schema
    access_mode: ProducerAccessMode
    topic_epoch: int
    initial_subscription: str
    def __init__(self, producer_id: _Optional[int] = ..., topic: _Optional[str] = ..., producer_name: _Optional[str] = ..., instance: _Optional[bytes] = ..., connection_epoch: _Optional[int] = ..., incarnation: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., client_version: _Optional[str] = ..., partial: bool = ..., schema: _Optional[_Union[_schema_pb2.Schema, _Mapping]] = ..., access_mode: _Optional[_Union[ProducerAccessMode, str]] = ..., topic_epoch: _Optional[int] = ..., initial_subscription: _Optional[str] = ...) -> None: ...

class CloseProducer(_message.Message):
    __slots__ = ("producer_id",)
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    def __init__(self, producer_id: _Optional[int] = ...) -> None: ...

class ProduceAnswer(_message.Message):
    __slots__ = ("opened", "receipts", "refused", "ended", "flow", "grown", "queued")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    opened: _containers.RepeatedCompositeFieldContainer[ProducerOpened]
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    refused: _containers.RepeatedCompositeFieldContainer[EntryRefused]
    ended: _containers.RepeatedCompositeFieldContainer[ProducerEnded]
    flow: _containers.RepeatedCompositeFieldContainer[ProducerFlow]
    grown: _containers.RepeatedCompositeFieldContainer[TopicGrown]
    queued: _containers.RepeatedCompositeFieldContainer[ProducerQueued]
    def __init__(self, opened: _Optional[_Iterable[_Union[ProducerOpened, _Mapping]]] = ..., receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[EntryRefused, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[ProducerEnded, _Mapping]]] = ..., flow: _Optional[_Iterable[_Union[ProducerFlow, _Mapping]]] = ..., grown: _Optional[_Iterable[_Union[TopicGrown, _Mapping]]] = ..., queued: _Optional[_Iterable[_Union[ProducerQueued, _Mapping]]] = ...) -> None: ...

class ProducerQueued(_message.Message):
    __slots__ = ("producer_id",)
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    def __init__(self, producer_id: _Optional[int] = ...) -> None: ...

class TopicGrown(_message.Message):
    __slots__ = ("channel_id", "partitions")
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    channel_id: int
    partitions: int
    def __init__(self, channel_id: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class ProducerOpened(_message.Message):
    __slots__ = ("producer_id", "producer_name", "incarnation", "last_sequence_id", "max_message_bytes", "schema_version", "topic_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_name: str
    incarnation: str
    last_sequence_id: int
    max_message_bytes: int
    schema_version: bytes
    topic_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., incarnation: _Optional[str] = ..., last_sequence_id: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., schema_version: _Optional[bytes] = ..., topic_epoch: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("producer_id", "first", "count", "ledger_id", "first_entry_id", "duplicates")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first: int
    count: int
    ledger_id: int
    first_entry_id: int
    duplicates: int
    def __init__(self, producer_id: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., duplicates: _Optional[int] = ...) -> None: ...

class EntryRefused(_message.Message):
    __slots__ = ("producer_id", "number", "problem")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    number: int
    problem: Problem
    def __init__(self, producer_id: _Optional[int] = ..., number: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class ProducerEnded(_message.Message):
    __slots__ = ("producer_id", "problem", "topic_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    problem: Problem
    topic_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., topic_epoch: _Optional[int] = ...) -> None: ...

class ProducerFlow(_message.Message):
    __slots__ = ("producer_id", "paused", "waiting_for")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    paused: bool
    waiting_for: str
    def __init__(self, producer_id: _Optional[int] = ..., paused: bool = ..., waiting_for: _Optional[str] = ...) -> None: ...

class SlotRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class KeySharedOptions(_message.Message):
    __slots__ = ("mode", "ranges", "allow_out_of_order_delivery")
    MODE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_OUT_OF_ORDER_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    mode: KeySharedMode
    ranges: _containers.RepeatedCompositeFieldContainer[SlotRange]
    allow_out_of_order_delivery: bool
    def __init__(self, mode: _Optional[_Union[KeySharedMode, str]] = ..., ranges: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ..., allow_out_of_order_delivery: bool = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("open", "acknowledge", "redeliver", "seek", "flow", "unsubscribe", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: _containers.RepeatedCompositeFieldContainer[OpenConsumer]
    acknowledge: _containers.RepeatedCompositeFieldContainer[Acknowledge]
    redeliver: _containers.RepeatedCompositeFieldContainer[Redeliver]
    seek: _containers.RepeatedCompositeFieldContainer[Seek]
    flow: _containers.RepeatedCompositeFieldContainer[Flow]
    unsubscribe: _containers.RepeatedCompositeFieldContainer[Unsubscribe]
    close: _containers.RepeatedCompositeFieldContainer[CloseConsumer]
    def __init__(self, open: _Optional[_Iterable[_Union[OpenConsumer, _Mapping]]] = ..., acknowledge: _Optional[_Iterable[_Union[Acknowledge, _Mapping]]] = ..., redeliver: _Optional[_Iterable[_Union[Redeliver, _Mapping]]] = ..., seek: _Optional[_Iterable[_Union[Seek, _Mapping]]] = ..., flow: _Optional[_Iterable[_Union[Flow, _Mapping]]] = ..., unsubscribe: _Optional[_Iterable[_Union[Unsubscribe, _Mapping]]] = ..., close: _Optional[_Iterable[_Union[CloseConsumer, _Mapping]]] = ...) -> None: ...

class OpenConsumer(_message.Message):
    __slots__ = ("consumer_id", "topic", "subscription", "type", "consumer_name", "priority_level", "durable", "start", "broker_metadata", "incarnation", "properties", "subscription_properties", "read_compacted", "client_version", "schema", "key_shared", "must_exist", "accepts_gaps")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SubscriptionPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    BROKER_METADATA_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    READ_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARED_FIELD_NUMBER: _ClassVar[int]
    MUST_EXIST_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_GAPS_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    topic: str
    subscription: str
    type: SubscriptionType
    consumer_name: str
    priority_level: int
    durable: bool
    start: StartAt
    broker_metadata: bool
    incarnation: str
    properties: _containers.ScalarMap[str, str]
    subscription_properties: _containers.ScalarMap[str, str]
    read_compacted: bool
    client_version: str
    schema: _schema_pb2.Schema
    key_shared: KeySharedOptions
    must_exist: bool
    accepts_gaps: bool
    def __init__(self, consumer_id: _Optional[int] = ..., topic: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., consumer_name: _Optional[str] = ..., priority_level: _Optional[int] = ..., durable: bool = ..., start: _Optional[_Union[StartAt, _Mapping]] = ..., broker_metadata: bool = ..., incarnation: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., subscription_properties: _Optional[_Mapping[str, str]] = ..., read_compacted: bool = ..., client_version: _Optional[str] = ..., schema: _Optional[_Union[_schema_pb2.Schema, _Mapping]] = ..., key_shared: _Optional[_Union[KeySharedOptions, _Mapping]] = ..., must_exist: bool = ..., accepts_gaps: bool = ...) -> None: ...

class StartAt(_message.Message):
    __slots__ = ("earliest", "latest", "message_id", "time_ms")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    message_id: StartMessageId
    time_ms: int
    def __init__(self, earliest: bool = ..., latest: bool = ..., message_id: _Optional[_Union[StartMessageId, _Mapping]] = ..., time_ms: _Optional[int] = ...) -> None: ...

class StartMessageId(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "batch_index", "inclusive")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    batch_index: int
    inclusive: bool
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., batch_index: _Optional[int] = ..., inclusive: bool = ...) -> None: ...

class EntryRange(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "last_entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ...) -> None: ...

class BatchMessages(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "messages", "batch_size")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    messages: bytes
    batch_size: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., messages: _Optional[bytes] = ..., batch_size: _Optional[int] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("consumer_id", "request_id", "epoch", "cumulative", "entries", "messages")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    epoch: int
    cumulative: bool
    entries: _containers.RepeatedCompositeFieldContainer[EntryRange]
    messages: _containers.RepeatedCompositeFieldContainer[BatchMessages]
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., epoch: _Optional[int] = ..., cumulative: bool = ..., entries: _Optional[_Iterable[_Union[EntryRange, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[BatchMessages, _Mapping]]] = ...) -> None: ...

class Redeliver(_message.Message):
    __slots__ = ("consumer_id", "epoch", "entries")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    epoch: int
    entries: _containers.RepeatedCompositeFieldContainer[EntryRange]
    def __init__(self, consumer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[EntryRange, _Mapping]]] = ...) -> None: ...

class Seek(_message.Message):
    __slots__ = ("consumer_id", "request_id", "to", "moves")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    to: StartAt
    moves: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., to: _Optional[_Union[StartAt, _Mapping]] = ..., moves: _Optional[int] = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ("consumer_id", "epoch", "permits")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    epoch: int
    permits: int
    def __init__(self, consumer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., permits: _Optional[int] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("consumer_id", "request_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ...) -> None: ...

class CloseConsumer(_message.Message):
    __slots__ = ("consumer_id",)
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    def __init__(self, consumer_id: _Optional[int] = ...) -> None: ...

class ConsumeAnswer(_message.Message):
    __slots__ = ("opened", "epochs", "active", "frame", "deliveries", "done", "ended", "reached_end", "grown")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    REACHED_END_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    opened: _containers.RepeatedCompositeFieldContainer[ConsumerOpened]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochBegan]
    active: _containers.RepeatedCompositeFieldContainer[ActiveChanged]
    frame: _frame_pb2.Frame
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    done: _containers.RepeatedCompositeFieldContainer[Done]
    ended: _containers.RepeatedCompositeFieldContainer[ConsumerEnded]
    reached_end: _containers.RepeatedCompositeFieldContainer[ReachedEnd]
    grown: _containers.RepeatedCompositeFieldContainer[TopicGrown]
    def __init__(self, opened: _Optional[_Iterable[_Union[ConsumerOpened, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[EpochBegan, _Mapping]]] = ..., active: _Optional[_Iterable[_Union[ActiveChanged, _Mapping]]] = ..., frame: _Optional[_Union[_frame_pb2.Frame, _Mapping]] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., done: _Optional[_Iterable[_Union[Done, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[ConsumerEnded, _Mapping]]] = ..., reached_end: _Optional[_Iterable[_Union[ReachedEnd, _Mapping]]] = ..., grown: _Optional[_Iterable[_Union[TopicGrown, _Mapping]]] = ...) -> None: ...

class ConsumerOpened(_message.Message):
    __slots__ = ("consumer_id", "consumer_name", "incarnation", "epoch", "active", "moves", "behind")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    consumer_name: str
    incarnation: str
    epoch: int
    active: bool
    moves: int
    behind: StartMessageId
    def __init__(self, consumer_id: _Optional[int] = ..., consumer_name: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., active: bool = ..., moves: _Optional[int] = ..., behind: _Optional[_Union[StartMessageId, _Mapping]] = ...) -> None: ...

class EpochBegan(_message.Message):
    __slots__ = ("consumer_id", "epoch", "acknowledged_from", "moves", "behind")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FROM_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    epoch: int
    acknowledged_from: int
    moves: int
    behind: StartMessageId
    def __init__(self, consumer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., acknowledged_from: _Optional[int] = ..., moves: _Optional[int] = ..., behind: _Optional[_Union[StartMessageId, _Mapping]] = ...) -> None: ...

class ActiveChanged(_message.Message):
    __slots__ = ("consumer_id", "active")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    active: bool
    def __init__(self, consumer_id: _Optional[int] = ..., active: bool = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "epoch", "redelivery_count", "acknowledged", "gaps")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    epoch: int
    redelivery_count: int
    acknowledged: bytes
    gaps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., epoch: _Optional[int] = ..., redelivery_count: _Optional[int] = ..., acknowledged: _Optional[bytes] = ..., gaps: _Optional[_Iterable[int]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("consumer_id", "request_id", "problem")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    problem: Problem
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class ReachedEnd(_message.Message):
    __slots__ = ("consumer_id", "epoch")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    epoch: int
    def __init__(self, consumer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ConsumerEnded(_message.Message):
    __slots__ = ("consumer_id", "problem")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    problem: Problem
    def __init__(self, consumer_id: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...
