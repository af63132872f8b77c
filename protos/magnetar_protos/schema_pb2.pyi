from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SchemaType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BYTES: _ClassVar[SchemaType]
    STRING: _ClassVar[SchemaType]
    JSON: _ClassVar[SchemaType]
    PROTOBUF: _ClassVar[SchemaType]
    AVRO: _ClassVar[SchemaType]
    BOOLEAN: _ClassVar[SchemaType]
    INT8: _ClassVar[SchemaType]
    INT16: _ClassVar[SchemaType]
    INT32: _ClassVar[SchemaType]
    INT64: _ClassVar[SchemaType]
    FLOAT: _ClassVar[SchemaType]
    DOUBLE: _ClassVar[SchemaType]
    DATE: _ClassVar[SchemaType]
    TIME: _ClassVar[SchemaType]
    TIMESTAMP: _ClassVar[SchemaType]
    KEY_VALUE: _ClassVar[SchemaType]
    INSTANT: _ClassVar[SchemaType]
    LOCAL_DATE: _ClassVar[SchemaType]
    LOCAL_TIME: _ClassVar[SchemaType]
    LOCAL_DATE_TIME: _ClassVar[SchemaType]
    PROTOBUF_NATIVE: _ClassVar[SchemaType]
    AUTO_CONSUME: _ClassVar[SchemaType]
BYTES: SchemaType
STRING: SchemaType
JSON: SchemaType
PROTOBUF: SchemaType
AVRO: SchemaType
BOOLEAN: SchemaType
INT8: SchemaType
INT16: SchemaType
INT32: SchemaType
INT64: SchemaType
FLOAT: SchemaType
DOUBLE: SchemaType
DATE: SchemaType
TIME: SchemaType
TIMESTAMP: SchemaType
KEY_VALUE: SchemaType
INSTANT: SchemaType
LOCAL_DATE: SchemaType
LOCAL_TIME: SchemaType
LOCAL_DATE_TIME: SchemaType
PROTOBUF_NATIVE: SchemaType
AUTO_CONSUME: SchemaType

class Schema(_message.Message):
    __slots__ = ("type", "name", "definition", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    type: SchemaType
    name: str
    definition: bytes
    properties: _containers.ScalarMap[str, str]
    def __init__(self, type: _Optional[_Union[SchemaType, str]] = ..., name: _Optional[str] = ..., definition: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SchemaNode(_message.Message):
    __slots__ = ("versions", "deleting", "incarnation")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[SchemaVersion]
    deleting: _containers.RepeatedScalarFieldContainer[int]
    incarnation: bytes
    def __init__(self, versions: _Optional[_Iterable[_Union[SchemaVersion, _Mapping]]] = ..., deleting: _Optional[_Iterable[int]] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class SchemaVersion(_message.Message):
    __slots__ = ("version", "ledger_id", "type", "fingerprint", "created_ms", "stored_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: int
    ledger_id: int
    type: SchemaType
    fingerprint: bytes
    created_ms: int
    stored_bytes: int
    def __init__(self, version: _Optional[int] = ..., ledger_id: _Optional[int] = ..., type: _Optional[_Union[SchemaType, str]] = ..., fingerprint: _Optional[bytes] = ..., created_ms: _Optional[int] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class StoredSchema(_message.Message):
    __slots__ = ("schema", "created_ms")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    schema: Schema
    created_ms: int
    def __init__(self, schema: _Optional[_Union[Schema, _Mapping]] = ..., created_ms: _Optional[int] = ...) -> None: ...
