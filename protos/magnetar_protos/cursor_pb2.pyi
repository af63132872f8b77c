from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CursorTableNode(_message.Message):
    __slots__ = ("owner_epoch",)
    OWNER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    owner_epoch: bytes
    def __init__(self, owner_epoch: _Optional[bytes] = ...) -> None: ...

class CursorNode(_message.Message):
    __slots__ = ("incarnation", "mark_delete", "ledger_id", "deleting", "properties", "deleted", "moves", "take_overs", "attachment", "unused_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVERS_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    UNUSED_MS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    mark_delete: CursorPosition
    ledger_id: int
    deleting: _containers.RepeatedScalarFieldContainer[int]
    properties: _containers.ScalarMap[str, str]
    deleted: bool
    moves: int
    take_overs: int
    attachment: bytes
    unused_ms: int
    def __init__(self, incarnation: _Optional[str] = ..., mark_delete: _Optional[_Union[CursorPosition, _Mapping]] = ..., ledger_id: _Optional[int] = ..., deleting: _Optional[_Iterable[int]] = ..., properties: _Optional[_Mapping[str, str]] = ..., deleted: bool = ..., moves: _Optional[int] = ..., take_overs: _Optional[int] = ..., attachment: _Optional[bytes] = ..., unused_ms: _Optional[int] = ...) -> None: ...

class CursorPosition(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class CursorRecord(_message.Message):
    __slots__ = ("reset", "mark_delete", "entries", "messages", "moves", "take_overs", "attachment")
    RESET_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVERS_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    reset: bool
    mark_delete: CursorPosition
    entries: _containers.RepeatedCompositeFieldContainer[AcknowledgedEntries]
    messages: _containers.RepeatedCompositeFieldContainer[AcknowledgedMessages]
    moves: int
    take_overs: int
    attachment: bytes
    def __init__(self, reset: bool = ..., mark_delete: _Optional[_Union[CursorPosition, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[AcknowledgedEntries, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[AcknowledgedMessages, _Mapping]]] = ..., moves: _Optional[int] = ..., take_overs: _Optional[int] = ..., attachment: _Optional[bytes] = ...) -> None: ...

class AcknowledgedEntries(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "bits", "runs")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    bits: bytes
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., bits: _Optional[bytes] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class AcknowledgedMessages(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "bits", "batch_size")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    bits: bytes
    batch_size: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., bits: _Optional[bytes] = ..., batch_size: _Optional[int] = ...) -> None: ...

class DeduplicationSnapshot(_message.Message):
    __slots__ = ("producers",)
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[StoredProducerIds]
    def __init__(self, producers: _Optional[_Iterable[_Union[StoredProducerIds, _Mapping]]] = ...) -> None: ...

class StoredProducerIds(_message.Message):
    __slots__ = ("producer_name", "last_sequence_id", "sequence_id", "used_ms", "chunk")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    last_sequence_id: int
    sequence_id: int
    used_ms: int
    chunk: StoredChunk
    def __init__(self, producer_name: _Optional[str] = ..., last_sequence_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., used_ms: _Optional[int] = ..., chunk: _Optional[_Union[StoredChunk, _Mapping]] = ...) -> None: ...

class StoredChunk(_message.Message):
    __slots__ = ("sequence_id", "message", "chunk_id")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    message: int
    chunk_id: int
    def __init__(self, sequence_id: _Optional[int] = ..., message: _Optional[int] = ..., chunk_id: _Optional[int] = ...) -> None: ...
