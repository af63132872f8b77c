from magnetar_protos import broker_pb2 as _broker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerRegistration(_message.Message):
    __slots__ = ("instance", "listeners", "http_address", "version", "load", "started_ms")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    http_address: str
    version: str
    load: LoadReport
    started_ms: int
    def __init__(self, instance: _Optional[bytes] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., http_address: _Optional[str] = ..., version: _Optional[str] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ..., started_ms: _Optional[int] = ...) -> None: ...

class Listener(_message.Message):
    __slots__ = ("name", "address", "pulsar_address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PULSAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    pulsar_address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., pulsar_address: _Optional[str] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("time_ms", "cpu", "loop_lag_s", "bytes_in_per_s", "bytes_out_per_s", "bundles", "topics")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    cpu: float
    loop_lag_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    bundles: int
    topics: int
    def __init__(self, time_ms: _Optional[int] = ..., cpu: _Optional[float] = ..., loop_lag_s: _Optional[float] = ..., bytes_in_per_s: _Optional[float] = ..., bytes_out_per_s: _Optional[float] = ..., bundles: _Optional[int] = ..., topics: _Optional[int] = ...) -> None: ...

class BundleOwner(_message.Message):
    __slots__ = ("broker_id", "instance", "listeners", "namespace_incarnation")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    instance: bytes
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    namespace_incarnation: bytes
    def __init__(self, broker_id: _Optional[str] = ..., instance: _Optional[bytes] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., namespace_incarnation: _Optional[bytes] = ...) -> None: ...

class ClaimRequest(_message.Message):
    __slots__ = ("namespace", "bundle")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    bundle: str
    def __init__(self, namespace: _Optional[str] = ..., bundle: _Optional[str] = ...) -> None: ...

class ClaimAnswer(_message.Message):
    __slots__ = ("problem", "owner")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    problem: _broker_pb2.Problem
    owner: BundleOwner
    def __init__(self, problem: _Optional[_Union[_broker_pb2.Problem, _Mapping]] = ..., owner: _Optional[_Union[BundleOwner, _Mapping]] = ...) -> None: ...
