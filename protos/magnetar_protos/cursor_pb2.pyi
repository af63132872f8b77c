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
    __slots__ = ("incarnation", "mark_delete", "ledger_id", "deleting", "properties", "deleted", "moves", "take_overs", "used_until_ms")
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
    USED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    mark_delete: CursorPosition
    ledger_id: int
    deleting: _containers.RepeatedScalarFieldContainer[int]
    properties: _containers.ScalarMap[str, str]
    deleted: bool
    moves: int
    take_overs: int
    used_until_ms: int
    def __init__(self, incarnation: _Optional[str] = ..., mark_delete: _Optional[_Union[CursorPosition, _Mapping]] = ..., ledger_id: _Optional[int] = ..., deleting: _Optional[_Iterable[int]] = ..., properties: _Optional[_Mapping[str, str]] = ..., deleted: bool = ..., moves: _Optional[int] = ..., take_overs: _Optional[int] = ..., used_until_ms: _Optional[int] = ...) -> None: ...

class CursorPosition(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class CursorRecord(_message.Message):
    __slots__ = ("reset", "mark_delete", "entries", "messages", "moves", "take_overs")
    RESET_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVERS_FIELD_NUMBER: _ClassVar[int]
    reset: bool
    mark_delete: CursorPosition
    entries: _containers.RepeatedCompositeFieldContainer[AcknowledgedEntries]
    messages: _containers.RepeatedCompositeFieldContainer[AcknowledgedMessages]
    moves: int
    take_overs: int
    def __init__(self, reset: bool = ..., mark_delete: _Optional[_Union[CursorPosition, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[AcknowledgedEntries, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[AcknowledgedMessages, _Mapping]]] = ..., moves: _Optional[int] = ..., take_overs: _Optional[int] = ...) -> None: ...

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
