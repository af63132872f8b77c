from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Run(_message.Message):
    __slots__ = ("channel", "first", "count")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    channel: int
    first: int
    count: int
    def __init__(self, channel: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("runs", "entries")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., entries: _Optional[_Iterable[bytes]] = ...) -> None: ...
