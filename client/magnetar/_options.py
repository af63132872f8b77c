"""Options of clients and producers, and how arguments become options.

Names and defaults are those of Pulsar's Python client, with two exceptions: batching is on, and a producer's pending
messages are limited in bytes, too.

A model's fields are the parameters of the methods that take them: the same names, in the same order, with the same
defaults (tests/unit/client/test_signatures.py), so that a method can check its `locals()`. If the model has a default
factory, the parameter's default is None. Options of Pulsar's client that are not supported yet are `unsupported(…)`
fields: a value other than the default raises an error that names the alternative.

The enumerations are in `_enums.py`, because importing this module imports pydantic. Options of consumers and readers
are in `_consuming/consumer_options.py`.
"""

from __future__ import annotations

import difflib
import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from magnetar._enums import BatchingType, CompressionType, HashingScheme, PartitionsRoutingMode, ProducerAccessMode
from magnetar._loggers import log_to
from magnetar.exceptions import InvalidConfiguration, InvalidTopicName, OperationNotSupported, UnknownOption
from magnetar.schema import BytesSchema
from magnetar.schema._schema_argument import to_schema
from magnetar_wire import errors
from magnetar_wire.configuration import Configuration, suggest_nearest
from magnetar_wire.topic_name import TopicName

__all__ = [
    "KEEP_ALIVE_INTERVAL_S",
    "NO_ENCRYPTION",
    "ClientOptions",
    "ProducerOptions",
    "ValueSchema",
    "check_options",
    "client_options",
    "option_fields",
    "parse_topic_name",
    "producer_options",
    "suggest_keywords",
    "unsupported",
]

C = TypeVar("C", bound=Configuration)
F = TypeVar("F", bound=Callable[..., Any])

KEEP_ALIVE_INTERVAL_S: Final = 4.0
_NO_TLS: Final = "there is no TLS, so leave it out, and run brokers on a trusted network"
NO_ENCRYPTION: Final = "encrypt payloads yourself, or leave it out"


def unsupported(
    default: Any = None, instead: str = "leave it out", *, alias: str | None = None, accepts_zero: bool = False
) -> Any:
    """Return a field that only accepts its default. If the default is false, any other false value is accepted, too.

    `instead` ends the error's sentence. `accepts_zero`: 0 means the same as leaving the option out.
    """
    return Field(
        default=default,
        alias=alias,
        json_schema_extra={"instead": instead, "accepts_false": accepts_zero or not default},
    )


def _to_schema(value: Any) -> Any:
    """Return the schema of the application's `schema`. None: values are bytes."""
    if value is None or value is bytes:
        return None
    made = to_schema(value)
    # A subclass may have an encoding of its own.
    return None if type(made) is BytesSchema else made


# The schema of a producer, consumer or reader. None: values are bytes.
ValueSchema = Annotated[Any, AfterValidator(_to_schema)]


class ClientOptions(Configuration):
    authentication: Any = unsupported(instead="leave it out, and run brokers on a trusted network")
    # How long an operation may take: creating a producer, subscribing, a lookup, a seek.
    operation_timeout_seconds: float = Field(default=30.0, gt=0)
    io_threads: int = unsupported(1, "one thread does the I/O of all clients of a process")
    # How many threads call the listeners of consumers.
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
    # How long one broker may take to answer a lookup before the client tries the next one.
    connection_timeout_ms: int = Field(default=10_000, gt=0)
    # The name of the advertised listener whose addresses this client can reach. None: the broker chooses.
    listener_name: str | None = Field(default=None, min_length=1)
    tls_private_key_file_path: Any = unsupported(instead=_NO_TLS)
    tls_certificate_file_path: Any = unsupported(instead=_NO_TLS)
    # A broker that is silent for this long is pinged, and has the same time to answer: a dead connection, or a broker
    # that hangs, is found within twice this.
    keep_alive_interval_seconds: float = Field(default=KEEP_ALIVE_INTERVAL_S, ge=1)  # brokers hang up on more pings


class ProducerOptions(Configuration):
    # None: the broker chooses one.
    producer_name: str | None = Field(default=None, min_length=1)
    value_schema: ValueSchema = Field(default=None, alias="schema")  # pydantic's models have a method `schema`
    # The first message gets the next one. None: the next one after the last stored message of this producer's name.
    initial_sequence_id: int | None = Field(default=None, ge=-1, lt=2**63 - 1)
    # 0: pending messages never time out.
    send_timeout_millis: int = Field(default=30_000, ge=0)
    compression_type: CompressionType = CompressionType.NONE
    # For one partition, and for all partitions together.
    max_pending_messages: int = Field(default=1_000, gt=0)
    max_pending_messages_across_partitions: int = Field(default=50_000, gt=0)
    block_if_queue_full: bool = False
    batching_enabled: bool = True
    batching_max_messages: int = Field(default=1_000, gt=0)
    batching_max_allowed_size_in_bytes: int = Field(default=128 * 1024, gt=0)
    batching_max_publish_delay_ms: int = Field(default=10, ge=0)
    # Messages that are too large for an entry are sent in chunks. Needs `batching_enabled = False`.
    chunking_enabled: bool = False
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    # A partition other than the first one is opened when a message is sent to it.
    lazy_start_partitioned_producers: bool = False
    # Shown in the topic's statistics.
    properties: Mapping[str, str] = Field(default_factory=dict)
    batching_type: BatchingType = BatchingType.Default
    encryption_key: Any = unsupported(instead=NO_ENCRYPTION)
    crypto_key_reader: Any = unsupported(instead=NO_ENCRYPTION)
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    # Returns the partition, given a message and the number of partitions. Implies CustomPartition.
    message_router: Callable[[Any, int], int] | None = None
    hashing_scheme: HashingScheme = HashingScheme.JavaStringHash
    # For all partitions together, but at least 1 MiB for each.
    max_pending_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    # How often the client checks whether the topic has more partitions. 0: never.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)
    interceptors: Any = None

    @model_validator(mode="after")
    def _router_with_its_mode(self) -> ProducerOptions:
        if self.message_routing_mode is PartitionsRoutingMode.CustomPartition and self.message_router is None:
            raise ValueError("message_routing_mode is CustomPartition, and there is no message_router: pass one")
        return self

    @model_validator(mode="after")
    def _chunks_without_batches(self) -> ProducerOptions:
        if self.chunking_enabled and self.batching_enabled:
            raise ValueError(
                "batching and chunking of messages can't be enabled together: with chunking_enabled, pass "
                "batching_enabled=False"
            )
        return self


def client_options(arguments: Mapping[str, Any]) -> ClientOptions:
    options = check_options(ClientOptions, arguments)
    log_to(options.logger)
    return options


def producer_options(arguments: Mapping[str, Any]) -> ProducerOptions:
    return check_options(ProducerOptions, arguments)


def option_fields(kind: type[Configuration]) -> dict[str, FieldInfo]:
    """Return the fields by the names of their options."""
    return {field.alias or name: field for name, field in kind.model_fields.items()}


def check_options(kind: type[C], arguments: Mapping[str, Any]) -> C:
    """Return the options of this kind among a call's arguments, checked.

    Raises InvalidConfiguration, which names every wrong option, and OperationNotSupported.
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
            # pydantic puts this in front of the text of our own ValueError.
            problems.append(f"{text}: {one['msg'].removeprefix('Value error, ')}")
    if problems:
        raise InvalidConfiguration("; ".join(problems))
    return options


def _check_supported(name: str, value: Any, default: Any, *, instead: Any, accepts_false: Any) -> None:
    if value == default or (accepts_false and not value):
        return
    raise OperationNotSupported(f"{name} = {value!r} is not supported yet: {instead}")


def _nearest_member(choices: type[enum.Enum], value: Any) -> str:
    """Return the name of the member to use, for a text or a member of another library's enum."""
    names = {name.lower(): name for name in choices.__members__}
    text = str(value if isinstance(value, str) else getattr(value, "name", "")).rpartition(".")[2].lower()
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    if near:
        return f"{choices.__name__}.{names[near[0]]}"
    return "one of " + ", ".join(f"{choices.__name__}.{name}" for name in choices.__members__)


def parse_topic_name(text: str) -> TopicName:
    """Return the topic's name. Raises the SDK's InvalidTopicName."""
    if not isinstance(text, str):
        raise InvalidTopicName(f"a topic name is a str, not {type(text).__name__}")
    try:
        return TopicName.parse(text)
    except errors.InvalidTopicName as error:
        raise InvalidTopicName(str(error)) from None


def suggest_keywords(function: F) -> F:
    """Have calls with an unknown keyword argument raise UnknownOption, which names the nearest option.

    Python 3.11's TypeError names none. This wraps the function at runtime only: type checkers, help() and
    inspect.signature show the function's own parameters.
    """
    parameters = list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name == "self"
    known = frozenset(one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY)

    def check(arguments: tuple[Any, ...], given: Mapping[str, object]) -> None:
        if not known.issuperset(given):
            called = function.__qualname__
            if is_method and arguments:  # by the object's class: the function's own may be an internal base class
                called = f"{type(arguments[0]).__name__}.{function.__name__}"
            raise _unknown_option(called, given, [name for name in known if name[0] != "_"])

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*arguments: Any, **given: Any) -> Any:
            check(arguments, given)
            return await function(*arguments, **given)

        return cast(F, call_async)

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        check(arguments, given)
        return function(*arguments, **given)

    return cast(F, call)


def _unknown_option(qualname: str, given: Mapping[str, object], known: list[str]) -> UnknownOption:
    called = qualname.removesuffix(".__init__")
    options = sorted(name for name in known if name != "self")
    problems = []
    for name in given:
        if name not in known:
            hint = suggest_nearest(name, options) or f": its options are {', '.join(options)}"
            problems.append(f"{called} has no option {name!r}{hint}")
    return UnknownOption("; ".join(problems))
