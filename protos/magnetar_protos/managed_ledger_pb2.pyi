from magnetar_protos import ledger_pb2 as _ledger_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIVE: _ClassVar[TopicState]
    DELETING: _ClassVar[TopicState]
LIVE: TopicState
DELETING: TopicState

class ManagedLedgerNode(_message.Message):
    __slots__ = ("incarnation", "state", "owner_epoch", "ledgers", "pages", "first_ledger_id", "deleting", "next_index", "last_time_ms", "trimmed_up_to", "next_page", "properties", "floor", "leases", "unsubscribed_up_to", "terminated", "topic_epoch")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_UP_TO_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBED_UP_TO_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    state: TopicState
    owner_epoch: bytes
    ledgers: _containers.RepeatedCompositeFieldContainer[ListedLedger]
    pages: _containers.RepeatedCompositeFieldContainer[PageOfLedgers]
    first_ledger_id: int
    deleting: _containers.RepeatedScalarFieldContainer[int]
    next_index: int
    last_time_ms: int
    trimmed_up_to: _ledger_pb2.EntryPosition
    next_page: int
    properties: _containers.ScalarMap[str, bytes]
    floor: int
    leases: _containers.RepeatedCompositeFieldContainer[LedgerLease]
    unsubscribed_up_to: int
    terminated: bool
    topic_epoch: TopicEpoch
    def __init__(self, incarnation: _Optional[str] = ..., state: _Optional[_Union[TopicState, str]] = ..., owner_epoch: _Optional[bytes] = ..., ledgers: _Optional[_Iterable[_Union[ListedLedger, _Mapping]]] = ..., pages: _Optional[_Iterable[_Union[PageOfLedgers, _Mapping]]] = ..., first_ledger_id: _Optional[int] = ..., deleting: _Optional[_Iterable[int]] = ..., next_index: _Optional[int] = ..., last_time_ms: _Optional[int] = ..., trimmed_up_to: _Optional[_Union[_ledger_pb2.EntryPosition, _Mapping]] = ..., next_page: _Optional[int] = ..., properties: _Optional[_Mapping[str, bytes]] = ..., floor: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[LedgerLease, _Mapping]]] = ..., unsubscribed_up_to: _Optional[int] = ..., terminated: bool = ..., topic_epoch: _Optional[_Union[TopicEpoch, _Mapping]] = ...) -> None: ...

class TopicEpoch(_message.Message):
    __slots__ = ("number", "holder", "from_first_partition", "first_partition_number")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    FROM_FIRST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARTITION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    holder: str
    from_first_partition: bool
    first_partition_number: int
    def __init__(self, number: _Optional[int] = ..., holder: _Optional[str] = ..., from_first_partition: bool = ..., first_partition_number: _Optional[int] = ...) -> None: ...

class LedgerLease(_message.Message):
    __slots__ = ("lease_id", "from_ledger_id", "lease_ms", "written_ms", "holder", "shared")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    from_ledger_id: int
    lease_ms: int
    written_ms: int
    holder: str
    shared: bool
    def __init__(self, lease_id: _Optional[bytes] = ..., from_ledger_id: _Optional[int] = ..., lease_ms: _Optional[int] = ..., written_ms: _Optional[int] = ..., holder: _Optional[str] = ..., shared: bool = ...) -> None: ...

class NamespaceLeases(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[NamespaceLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[NamespaceLease, _Mapping]]] = ...) -> None: ...

class NamespaceLease(_message.Message):
    __slots__ = ("lease_id", "name_prefix", "lease_ms", "holder", "renewal")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    RENEWAL_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    name_prefix: str
    lease_ms: int
    holder: str
    renewal: bytes
    def __init__(self, lease_id: _Optional[bytes] = ..., name_prefix: _Optional[str] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[str] = ..., renewal: _Optional[bytes] = ...) -> None: ...

class LeasedRemains(_message.Message):
    __slots__ = ("topic", "incarnation", "ledger_ids", "lease_ms", "deleted_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    DELETED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    incarnation: str
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    lease_ms: int
    deleted_ms: int
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[str] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., lease_ms: _Optional[int] = ..., deleted_ms: _Optional[int] = ...) -> None: ...

class ListedLedger(_message.Message):
    __slots__ = ("ledger_id", "closed", "entries", "length_bytes", "last_index", "first_time_ms", "last_time_ms", "closed_ms", "chunks")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    closed: bool
    entries: int
    length_bytes: int
    last_index: int
    first_time_ms: int
    last_time_ms: int
    closed_ms: int
    chunks: bool
    def __init__(self, ledger_id: _Optional[int] = ..., closed: bool = ..., entries: _Optional[int] = ..., length_bytes: _Optional[int] = ..., last_index: _Optional[int] = ..., first_time_ms: _Optional[int] = ..., last_time_ms: _Optional[int] = ..., closed_ms: _Optional[int] = ..., chunks: bool = ...) -> None: ...

class PageOfLedgers(_message.Message):
    __slots__ = ("number", "last_ledger_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    last_ledger_id: int
    def __init__(self, number: _Optional[int] = ..., last_ledger_id: _Optional[int] = ...) -> None: ...

class LedgerPage(_message.Message):
    __slots__ = ("ledgers",)
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[ListedLedger]
    def __init__(self, ledgers: _Optional[_Iterable[_Union[ListedLedger, _Mapping]]] = ...) -> None: ...
