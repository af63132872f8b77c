from magnetar_protos import frame_pb2 as _frame_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_UNSPECIFIED: _ClassVar[Status]
    OK: _ClassVar[Status]
    FENCED: _ClassVar[Status]
    DELETED: _ClassVar[Status]
    READ_ONLY: _ClassVar[Status]
    WRONG_KEY: _ClassVar[Status]
    BAD_RECORD: _ClassVar[Status]
    CONFLICT: _ClassVar[Status]
    LIMBO: _ClassVar[Status]

class LedgerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEDGER_STATE_UNSPECIFIED: _ClassVar[LedgerState]
    OPEN: _ClassVar[LedgerState]
    IN_RECOVERY: _ClassVar[LedgerState]
    CLOSED: _ClassVar[LedgerState]
    TOMBSTONE: _ClassVar[LedgerState]
STATUS_UNSPECIFIED: Status
OK: Status
FENCED: Status
DELETED: Status
READ_ONLY: Status
WRONG_KEY: Status
BAD_RECORD: Status
CONFLICT: Status
LIMBO: Status
LEDGER_STATE_UNSPECIFIED: LedgerState
OPEN: LedgerState
IN_RECOVERY: LedgerState
CLOSED: LedgerState
TOMBSTONE: LedgerState

class AddRequest(_message.Message):
    __slots__ = ("frame", "runs")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    frame: _frame_pb2.Frame
    runs: _containers.RepeatedCompositeFieldContainer[AddRun]
    def __init__(self, frame: _Optional[_Union[_frame_pb2.Frame, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[AddRun, _Mapping]]] = ...) -> None: ...

class AddRun(_message.Message):
    __slots__ = ("master_key", "recovery")
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    master_key: bytes
    recovery: bool
    def __init__(self, master_key: _Optional[bytes] = ..., recovery: bool = ...) -> None: ...

class AddAnswers(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[AddAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[AddAnswer, _Mapping]]] = ...) -> None: ...

class AddAnswer(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "count", "status")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    count: int
    status: Status
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., count: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "last_entry_id", "step", "max_bytes", "fence", "master_key")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    step: int
    max_bytes: int
    fence: bool
    master_key: bytes
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., step: _Optional[int] = ..., max_bytes: _Optional[int] = ..., fence: bool = ..., master_key: _Optional[bytes] = ...) -> None: ...

class ReadAnswer(_message.Message):
    __slots__ = ("status", "records", "absent", "unknown", "damaged", "next_entry_id", "last_add_confirmed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    records: _containers.RepeatedScalarFieldContainer[bytes]
    absent: _containers.RepeatedScalarFieldContainer[int]
    unknown: _containers.RepeatedScalarFieldContainer[int]
    damaged: _containers.RepeatedScalarFieldContainer[int]
    next_entry_id: int
    last_add_confirmed: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., records: _Optional[_Iterable[bytes]] = ..., absent: _Optional[_Iterable[int]] = ..., unknown: _Optional[_Iterable[int]] = ..., damaged: _Optional[_Iterable[int]] = ..., next_entry_id: _Optional[int] = ..., last_add_confirmed: _Optional[int] = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ("ledger_id", "master_key", "read_entries", "max_bytes")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    READ_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    master_key: bytes
    read_entries: int
    max_bytes: int
    def __init__(self, ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., read_entries: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FenceAnswer(_message.Message):
    __slots__ = ("status", "last_add_confirmed", "read")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    status: Status
    last_add_confirmed: int
    read: ReadAnswer
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., last_add_confirmed: _Optional[int] = ..., read: _Optional[_Union[ReadAnswer, _Mapping]] = ...) -> None: ...

class LastAddConfirmedRequest(_message.Message):
    __slots__ = ("ledger_id", "above", "wait_ms")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    above: int
    wait_ms: int
    def __init__(self, ledger_id: _Optional[int] = ..., above: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class LastAddConfirmedAnswer(_message.Message):
    __slots__ = ("status", "last_add_confirmed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    last_add_confirmed: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., last_add_confirmed: _Optional[int] = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ("ledger_id", "master_key", "last_add_confirmed")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    master_key: bytes
    last_add_confirmed: int
    def __init__(self, ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., last_add_confirmed: _Optional[int] = ...) -> None: ...

class ConfirmAnswer(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, str]] = ...) -> None: ...

class InventoryRequest(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "last_entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ...) -> None: ...

class InventoryAnswer(_message.Message):
    __slots__ = ("status", "held", "next_entry_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    NEXT_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    status: Status
    held: _containers.RepeatedCompositeFieldContainer[EntryRange]
    next_entry_id: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., held: _Optional[_Iterable[_Union[EntryRange, _Mapping]]] = ..., next_entry_id: _Optional[int] = ...) -> None: ...

class EntryRange(_message.Message):
    __slots__ = ("first_entry_id", "last_entry_id")
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    first_entry_id: int
    last_entry_id: int
    def __init__(self, first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ...) -> None: ...

class EntryPosition(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class LedgerMetadata(_message.Message):
    __slots__ = ("state", "ensemble_size", "write_quorum", "ack_quorum", "master_key", "fragments", "last_entry_id", "length_bytes", "created_ms", "closed_ms", "wanted_ensemble_size", "former_bookies", "holders", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ACK_QUORUM_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_MS_FIELD_NUMBER: _ClassVar[int]
    WANTED_ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FORMER_BOOKIES_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    state: LedgerState
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    master_key: bytes
    fragments: _containers.RepeatedCompositeFieldContainer[Fragment]
    last_entry_id: int
    length_bytes: int
    created_ms: int
    closed_ms: int
    wanted_ensemble_size: int
    former_bookies: _containers.RepeatedScalarFieldContainer[str]
    holders: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, bytes]
    def __init__(self, state: _Optional[_Union[LedgerState, str]] = ..., ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., ack_quorum: _Optional[int] = ..., master_key: _Optional[bytes] = ..., fragments: _Optional[_Iterable[_Union[Fragment, _Mapping]]] = ..., last_entry_id: _Optional[int] = ..., length_bytes: _Optional[int] = ..., created_ms: _Optional[int] = ..., closed_ms: _Optional[int] = ..., wanted_ensemble_size: _Optional[int] = ..., former_bookies: _Optional[_Iterable[str]] = ..., holders: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Fragment(_message.Message):
    __slots__ = ("first_entry_id", "bookies")
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    first_entry_id: int
    bookies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, first_entry_id: _Optional[int] = ..., bookies: _Optional[_Iterable[str]] = ...) -> None: ...

class LedgerIntent(_message.Message):
    __slots__ = ("created_ms", "purpose", "sweeping")
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    SWEEPING_FIELD_NUMBER: _ClassVar[int]
    created_ms: int
    purpose: str
    sweeping: bool
    def __init__(self, created_ms: _Optional[int] = ..., purpose: _Optional[str] = ..., sweeping: bool = ...) -> None: ...

class LedgerIdCounter(_message.Message):
    __slots__ = ("last_ledger_id",)
    LAST_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    last_ledger_id: int
    def __init__(self, last_ledger_id: _Optional[int] = ...) -> None: ...

class Cookie(_message.Message):
    __slots__ = ("bookie_id", "instance_id", "decommission_mark")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    DECOMMISSION_MARK_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    instance_id: bytes
    decommission_mark: bytes
    def __init__(self, bookie_id: _Optional[str] = ..., instance_id: _Optional[bytes] = ..., decommission_mark: _Optional[bytes] = ...) -> None: ...

class BookieRecord(_message.Message):
    __slots__ = ("cookie", "member", "limbo_below", "limbo_generation", "read_only", "scrub")
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    LIMBO_BELOW_FIELD_NUMBER: _ClassVar[int]
    LIMBO_GENERATION_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    cookie: Cookie
    member: bool
    limbo_below: int
    limbo_generation: int
    read_only: bool
    scrub: ScrubPosition
    def __init__(self, cookie: _Optional[_Union[Cookie, _Mapping]] = ..., member: bool = ..., limbo_below: _Optional[int] = ..., limbo_generation: _Optional[int] = ..., read_only: bool = ..., scrub: _Optional[_Union[ScrubPosition, _Mapping]] = ...) -> None: ...

class ScrubPosition(_message.Message):
    __slots__ = ("began_ms", "ledger_id", "entry_id", "done")
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    began_ms: int
    ledger_id: int
    entry_id: int
    done: bool
    def __init__(self, began_ms: _Optional[int] = ..., ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., done: bool = ...) -> None: ...

class BookieRegistration(_message.Message):
    __slots__ = ("address", "instance_id", "read_only", "http_address", "listeners")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    address: str
    instance_id: bytes
    read_only: bool
    http_address: str
    listeners: _containers.RepeatedCompositeFieldContainer[BookieListener]
    def __init__(self, address: _Optional[str] = ..., instance_id: _Optional[bytes] = ..., read_only: bool = ..., http_address: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[BookieListener, _Mapping]]] = ...) -> None: ...

class BookieListener(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Decommission(_message.Message):
    __slots__ = ("asked_ms", "ledgers_left", "done", "mark")
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    asked_ms: int
    ledgers_left: int
    done: bool
    mark: bytes
    def __init__(self, asked_ms: _Optional[int] = ..., ledgers_left: _Optional[int] = ..., done: bool = ..., mark: _Optional[bytes] = ...) -> None: ...

class RepairTask(_message.Message):
    __slots__ = ("found_ms", "lost_bookies", "entries_copied", "entries_total", "stuck", "tried_ms")
    FOUND_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_BOOKIES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_COPIED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    TRIED_MS_FIELD_NUMBER: _ClassVar[int]
    found_ms: int
    lost_bookies: _containers.RepeatedScalarFieldContainer[str]
    entries_copied: int
    entries_total: int
    stuck: str
    tried_ms: int
    def __init__(self, found_ms: _Optional[int] = ..., lost_bookies: _Optional[_Iterable[str]] = ..., entries_copied: _Optional[int] = ..., entries_total: _Optional[int] = ..., stuck: _Optional[str] = ..., tried_ms: _Optional[int] = ...) -> None: ...
