from magnetar_protos import broker_pb2 as _broker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessagePosition(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "skip_messages")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    SKIP_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    skip_messages: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., skip_messages: _Optional[int] = ...) -> None: ...

class FindPositionRequest(_message.Message):
    __slots__ = ("topic", "at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    at: _broker_pb2.StartAt
    def __init__(self, topic: _Optional[str] = ..., at: _Optional[_Union[_broker_pb2.StartAt, _Mapping]] = ...) -> None: ...

class FindPositionAnswer(_message.Message):
    __slots__ = ("problem", "incarnation", "position", "retained")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    incarnation: str
    position: MessagePosition
    retained: bool
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., incarnation: _Optional[str] = ..., position: _Optional[_Union[MessagePosition, _Mapping]] = ..., retained: bool = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("topic", "incarnation", "start", "stop", "max_messages", "max_bytes", "lease_ms", "lease_id", "holder", "listener_name", "before_ledgers", "before_bytes", "fresh", "read_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    BEFORE_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    incarnation: str
    start: MessagePosition
    stop: MessagePosition
    max_messages: int
    max_bytes: int
    lease_ms: int
    lease_id: bytes
    holder: str
    listener_name: str
    before_ledgers: int
    before_bytes: int
    fresh: bool
    read_id: bytes
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[str] = ..., start: _Optional[_Union[MessagePosition, _Mapping]] = ..., stop: _Optional[_Union[MessagePosition, _Mapping]] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., lease_ms: _Optional[int] = ..., lease_id: _Optional[bytes] = ..., holder: _Optional[str] = ..., listener_name: _Optional[str] = ..., before_ledgers: _Optional[int] = ..., before_bytes: _Optional[int] = ..., fresh: bool = ..., read_id: _Optional[bytes] = ...) -> None: ...

class PlanAnswer(_message.Message):
    __slots__ = ("problem", "incarnation", "start", "stop", "pieces", "bookies", "messages", "bytes", "other_incarnation", "begins_in_deleted", "first", "end", "messages_behind", "lease_until_ms", "retained", "before", "at_limit", "deleted_before", "needed_from", "trimmed", "end_index")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OTHER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BEGINS_IN_DELETED_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DELETED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FROM_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    END_INDEX_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    incarnation: str
    start: MessagePosition
    stop: MessagePosition
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    bookies: _containers.RepeatedCompositeFieldContainer[BookieAddress]
    messages: int
    bytes: int
    other_incarnation: bool
    begins_in_deleted: bool
    first: MessagePosition
    end: MessagePosition
    messages_behind: int
    lease_until_ms: int
    retained: bool
    before: _containers.RepeatedCompositeFieldContainer[Piece]
    at_limit: bool
    deleted_before: bool
    needed_from: MessagePosition
    trimmed: bool
    end_index: int
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., incarnation: _Optional[str] = ..., start: _Optional[_Union[MessagePosition, _Mapping]] = ..., stop: _Optional[_Union[MessagePosition, _Mapping]] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ..., bookies: _Optional[_Iterable[_Union[BookieAddress, _Mapping]]] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., other_incarnation: bool = ..., begins_in_deleted: bool = ..., first: _Optional[_Union[MessagePosition, _Mapping]] = ..., end: _Optional[_Union[MessagePosition, _Mapping]] = ..., messages_behind: _Optional[int] = ..., lease_until_ms: _Optional[int] = ..., retained: bool = ..., before: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ..., at_limit: bool = ..., deleted_before: bool = ..., needed_from: _Optional[_Union[MessagePosition, _Mapping]] = ..., trimmed: bool = ..., end_index: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "last_entry_id", "skip_messages", "stop_after_messages", "bytes", "messages", "ensemble_size", "write_quorum", "ack_quorum", "fragments", "open")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    SKIP_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    STOP_AFTER_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ACK_QUORUM_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    skip_messages: int
    stop_after_messages: int
    bytes: int
    messages: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: _containers.RepeatedCompositeFieldContainer[PieceFragment]
    open: bool
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., skip_messages: _Optional[int] = ..., stop_after_messages: _Optional[int] = ..., bytes: _Optional[int] = ..., messages: _Optional[int] = ..., ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., ack_quorum: _Optional[int] = ..., fragments: _Optional[_Iterable[_Union[PieceFragment, _Mapping]]] = ..., open: bool = ...) -> None: ...

class PieceFragment(_message.Message):
    __slots__ = ("first_entry_id", "bookies")
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    first_entry_id: int
    bookies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, first_entry_id: _Optional[int] = ..., bookies: _Optional[_Iterable[str]] = ...) -> None: ...

class BookieAddress(_message.Message):
    __slots__ = ("bookie_id", "address")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    address: str
    def __init__(self, bookie_id: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("topic", "incarnation", "lease_id", "lease_ms", "read_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    incarnation: str
    lease_id: bytes
    lease_ms: int
    read_id: bytes
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[str] = ..., lease_id: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., read_id: _Optional[bytes] = ...) -> None: ...

class FinishPartRequest(_message.Message):
    __slots__ = ("topic", "lease_id", "read_id", "part", "parts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lease_id: bytes
    read_id: bytes
    part: int
    parts: int
    def __init__(self, topic: _Optional[str] = ..., lease_id: _Optional[bytes] = ..., read_id: _Optional[bytes] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class HoldNamespaceRequest(_message.Message):
    __slots__ = ("namespace", "name_prefix", "lease_id", "lease_ms", "holder")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name_prefix: str
    lease_id: bytes
    lease_ms: int
    holder: str
    def __init__(self, namespace: _Optional[str] = ..., name_prefix: _Optional[str] = ..., lease_id: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[str] = ...) -> None: ...

class HoldNamespaceAnswer(_message.Message):
    __slots__ = ("problem", "taken")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    taken: bool
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., taken: bool = ...) -> None: ...

class NamespaceLeasesRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class NamespaceLeasesAnswer(_message.Message):
    __slots__ = ("problem", "leases")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    leases: _containers.RepeatedCompositeFieldContainer[HeldNamespace]
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[HeldNamespace, _Mapping]]] = ...) -> None: ...

class HeldNamespace(_message.Message):
    __slots__ = ("name_prefix", "lease_id", "lease_ms", "holder")
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    name_prefix: str
    lease_id: bytes
    lease_ms: int
    holder: str
    def __init__(self, name_prefix: _Optional[str] = ..., lease_id: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[str] = ...) -> None: ...

class AdvanceProgressRequest(_message.Message):
    __slots__ = ("topic", "incarnation", "subscription", "to", "only_make", "owner", "owner_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    ONLY_MAKE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OWNER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    incarnation: str
    subscription: str
    to: MessagePosition
    only_make: bool
    owner: str
    owner_name: str
    def __init__(self, topic: _Optional[str] = ..., incarnation: _Optional[str] = ..., subscription: _Optional[str] = ..., to: _Optional[_Union[MessagePosition, _Mapping]] = ..., only_make: bool = ..., owner: _Optional[str] = ..., owner_name: _Optional[str] = ...) -> None: ...

class AdvanceProgressAnswer(_message.Message):
    __slots__ = ("problem", "position")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    position: MessagePosition
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., position: _Optional[_Union[MessagePosition, _Mapping]] = ...) -> None: ...
