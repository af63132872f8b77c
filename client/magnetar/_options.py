"""Options of clients and producers, and how arguments become options. Names and defaults are Pulsar's, except where
the project's own differ: batching is on, and a producer's pending messages are bounded in bytes, too.

A model's fields are the parameters of the methods that take them: the same names, in the same order, with the same
defaults (tests/unit/client/test_signatures.py), so a method checks its `locals()`. A default that is made anew for each
model is None in the signature. Options of Pulsar's client that are not supported yet are `unsupported(…)` fields:
a value that asks for anything is refused with what to do instead.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from magnetar._enums import BatchingType, CompressionType, HashingScheme, PartitionsRoutingMode, ProducerAccessMode
from magnetar._loggers import log_to
from magnetar.exceptions import InvalidConfiguration, OperationNotSupported
from magnetar.schema import BytesSchema
from magnetar_wire.configuration import Configuration

__all__ = [
    "KEEP_ALIVE_INTERVAL_S",
    "NO_ENCRYPTION",
    "NO_SCHEMA",
    "ClientOptions",
    "ProducerOptions",
    "check_options",
    "client_options",
    "option_fields",
    "producer_options",
    "unsupported",
]

C = TypeVar("C", bound=Configuration)

KEEP_ALIVE_INTERVAL_S: Final = 4.0
_NO_TLS: Final = "there is no TLS, so leave it out, and run brokers on a trusted network"
NO_SCHEMA: Final = "encode values to bytes yourself, or leave it out"
NO_ENCRYPTION: Final = "encrypt payloads yourself, or leave it out"


def unsupported(
    default: Any = None, instead: str = "leave it out", *, alias: str | None = None, accepts_zero: bool = False
) -> Any:
    """A field that only accepts its default. Where the default is false, any other false value is accepted, too.

    `instead` ends the error's sentence. `accepts_zero`: 0 means the same as leaving the option out.
    """
    return Field(
        default=default,
        alias=alias,
        json_schema_extra={"instead": instead, "accepts_false": accepts_zero or not default},
    )


class ClientOptions(Configuration):
    authentication: Any = unsupported(instead="leave it out, and run brokers on a trusted network")
    # How long creating, subscribing, looking up and the like may take.
    operation_timeout_seconds: float = Field(default=30.0, gt=0)
    io_threads: int = unsupported(1, "one thread does the I/O of all clients of a process")
    # How many threads call consumers' listeners.
    message_listener_threads: int = Field(default=1, gt=0)
    concurrent_lookup_requests: int = unsupported(50_000)
    log_conf_file_path: Any = unsupported(instead="configure Python's logging, or pass a logger")
    stats_interval_in_seconds: int = unsupported(
        600, "leave it out, and read magnetar.admin's statistics", accepts_zero=True
    )
    use_tls: bool = unsupported(False, _NO_TLS)
    tls_trust_certs_file_path: Any = unsupported(instead=_NO_TLS)
    tls_allow_insecure_connection: bool = unsupported(False, _NO_TLS)
    tls_validate_hostname: bool = unsupported(False, _NO_TLS)
    # Gets what the client logs: a logging.Logger, ConsoleLogger or FileLogger.
    logger: Any = None
    # How long one broker is waited for before the next one is asked.
    connection_timeout_ms: int = Field(default=10_000, gt=0)
    # Of a broker's addresses the one that this client can reach: its advertised listener's name. None: the broker's own
    # choice.
    listener_name: str | None = Field(default=None, min_length=1)
    tls_private_key_file_path: Any = unsupported(instead=_NO_TLS)
    tls_certificate_file_path: Any = unsupported(instead=_NO_TLS)
    # A broker that has been silent for so long is asked whether it lives, and has as long to say so: a connection that
    # is dead, or whose broker stands still, is found within twice this.
    keep_alive_interval_seconds: float = Field(default=KEEP_ALIVE_INTERVAL_S, ge=1)  # brokers hang up on more pings


class ProducerOptions(Configuration):
    # None: the broker makes one.
    producer_name: str | None = Field(default=None, min_length=1)
    value_schema: Any = unsupported(instead=NO_SCHEMA, alias="schema")  # pydantic's models have a method `schema`
    # The first message has the one behind it. None: behind what is stored of this producer's name.
    initial_sequence_id: int | None = Field(default=None, ge=-1, lt=2**63 - 1)
    # 0: pending messages wait for ever.
    send_timeout_millis: int = Field(default=30_000, ge=0)
    compression_type: CompressionType = CompressionType.NONE
    # Of one partition, and of all partitions together.
    max_pending_messages: int = Field(default=1_000, gt=0)
    max_pending_messages_across_partitions: int = Field(default=50_000, gt=0)
    block_if_queue_full: bool = False
    batching_enabled: bool = True
    batching_max_messages: int = Field(default=1_000, gt=0)
    batching_max_allowed_size_in_bytes: int = Field(default=128 * 1024, gt=0)
    batching_max_publish_delay_ms: int = Field(default=10, ge=0)
    chunking_enabled: bool = unsupported(False, "split large messages yourself, or leave it out")
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    # Partitions beyond the first one used are opened when something is sent to them.
    lazy_start_partitioned_producers: bool = False
    # What the broker shows of this producer.
    properties: Mapping[str, str] = Field(default_factory=dict)
    batching_type: BatchingType = unsupported(BatchingType.Default, "use BatchingType.Default")
    encryption_key: Any = unsupported(instead=NO_ENCRYPTION)
    crypto_key_reader: Any = unsupported(instead=NO_ENCRYPTION)
    access_mode: ProducerAccessMode = unsupported(ProducerAccessMode.Shared, "use ProducerAccessMode.Shared")
    # Given a message and the number of partitions, the partition. Implies CustomPartition.
    message_router: Callable[[Any, int], int] | None = None
    hashing_scheme: HashingScheme = HashingScheme.JavaStringHash
    # Of all partitions together, but at least 1 MiB for each.
    max_pending_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    # How often is looked whether the topic has more partitions; 0: never.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)

    @model_validator(mode="after")
    def _router_with_its_mode(self) -> ProducerOptions:
        if self.message_routing_mode is PartitionsRoutingMode.CustomPartition and self.message_router is None:
            raise ValueError("message_routing_mode is CustomPartition, and there is no message_router")
        return self


def client_options(arguments: Mapping[str, Any]) -> ClientOptions:
    options = check_options(ClientOptions, arguments)
    log_to(options.logger)
    return options


def producer_options(arguments: Mapping[str, Any]) -> ProducerOptions:
    return check_options(ProducerOptions, arguments)


def option_fields(kind: type[Configuration]) -> dict[str, FieldInfo]:
    """The fields under the names of their options."""
    return {field.alias or name: field for name, field in kind.model_fields.items()}


def check_options(kind: type[C], arguments: Mapping[str, Any]) -> C:
    """Pick the options of this kind out of a call's arguments, and check them.

    Raises InvalidConfiguration, which names everything that is wrong, and OperationNotSupported.
    """
    given: dict[str, Any] = {}
    problems = []
    for name, field in option_fields(kind).items():
        if name not in arguments or (arguments[name] is None and field.default_factory is not None):
            continue
        value, choices = arguments[name], field.annotation
        if isinstance(choices, type) and issubclass(choices, enum.Enum) and not isinstance(value, choices):
            problems.append(f"{name} = {value!r}: use {_nearest_member(choices, value)}")
        elif isinstance(field.json_schema_extra, dict):
            _check_supported(name, value, field.default, **field.json_schema_extra)
        else:
            given[name] = value
    try:
        options = kind.model_validate(given)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            name, top = ".".join(map(str, one["loc"])), str(one["loc"][0]) if one["loc"] else ""
            text = f"{name} = {given[top]!r}" if top in given else name or "options"
            # A ValueError of our own: its text alone.
            problems.append(f"{text}: {one['msg'].removeprefix('Value error, ')}")
    if problems:
        raise InvalidConfiguration("; ".join(problems))
    return options


def _check_supported(name: str, value: Any, default: Any, *, instead: Any, accepts_false: Any) -> None:
    if value == default or (accepts_false and not value):
        return
    if name == "schema" and isinstance(value, BytesSchema):
        return
    raise OperationNotSupported(f"{name} = {value!r} is not supported yet: {instead}")


def _nearest_member(choices: type[enum.Enum], value: Any) -> str:
    """Name the member to use: by a text, or by the name of a member of another library's enum."""
    names = {name.lower(): name for name in choices.__members__}
    text = str(value if isinstance(value, str) else getattr(value, "name", "")).rpartition(".")[2].lower()
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    if near:
        return f"{choices.__name__}.{names[near[0]]}"
    return "one of " + ", ".join(f"{choices.__name__}.{name}" for name in choices.__members__)
