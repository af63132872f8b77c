"""What can be set about clients and producers. Names and defaults are Pulsar's, but where the project's own differ:
batching is on, and a producer's pending messages are bounded in bytes, too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pydantic import Field, ValidationError, model_validator

from magnetar._enums import BatchingType, CompressionType, HashingScheme, PartitionsRoutingMode, ProducerAccessMode
from magnetar.exceptions import InvalidConfiguration, OperationNotSupported
from magnetar_wire.configuration import Configuration

__all__ = [
    "KEEP_ALIVE_INTERVAL_S",
    "NOT_YET_OF_PRODUCERS",
    "ClientOptions",
    "ProducerOptions",
    "checked",
    "refuse_unsupported",
]

C = TypeVar("C", bound=Configuration)

KEEP_ALIVE_INTERVAL_S: Final = 4.0


class ClientOptions(Configuration):
    # How long creating, subscribing, looking up and the like may take.
    operation_timeout_seconds: float = Field(default=30.0, gt=0)
    # How long one broker is waited for before the next one is asked.
    connection_timeout_ms: int = Field(default=10_000, gt=0)
    # A broker that has been silent for so long is asked whether it lives, and has as long to say so: a connection that
    # is dead, or whose broker stands still, is found within twice this.
    keep_alive_interval_seconds: float = Field(default=KEEP_ALIVE_INTERVAL_S, ge=1)  # brokers hang up on more pings
    # Of a broker's addresses the one that this client can reach: its advertised listener's name. None: the broker's own
    # choice.
    listener_name: str | None = Field(default=None, min_length=1)
    # How many threads call consumers' listeners.
    message_listener_threads: int = Field(default=1, gt=0)


class ProducerOptions(Configuration):
    # None: the broker makes one.
    producer_name: str | None = Field(default=None, min_length=1)
    # The first message has the one behind it. None: behind what is stored of this producer's name.
    initial_sequence_id: int | None = Field(default=None, ge=-1, lt=2**63 - 1)
    # 0: pending messages wait for ever.
    send_timeout_millis: int = Field(default=30_000, ge=0)
    compression_type: CompressionType = CompressionType.NONE
    # Of one partition, and of all partitions together.
    max_pending_messages: int = Field(default=1_000, gt=0)
    max_pending_messages_across_partitions: int = Field(default=50_000, gt=0)
    # Of all partitions together, but at least 1 MiB for each.
    max_pending_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    block_if_queue_full: bool = False
    batching_enabled: bool = True
    batching_max_messages: int = Field(default=1_000, gt=0)
    batching_max_allowed_size_in_bytes: int = Field(default=128 * 1024, gt=0)
    batching_max_publish_delay_ms: int = Field(default=10, ge=0)
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    # Given a message and the number of partitions, the partition. Implies CustomPartition.
    message_router: Callable[[Any, int], int] | None = None
    hashing_scheme: HashingScheme = HashingScheme.JavaStringHash
    # Partitions beyond the first one used are opened when something is sent to them.
    lazy_start_partitioned_producers: bool = False
    # How often is looked whether the topic has more partitions; 0: never.
    auto_update_partitions_interval_seconds: float = Field(default=60.0, ge=0)
    # What the broker shows of this producer.
    properties: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _router_with_its_mode(self) -> ProducerOptions:
        if self.message_routing_mode is PartitionsRoutingMode.CustomPartition and self.message_router is None:
            raise ValueError("message_routing_mode is CustomPartition, and there is no message_router")
        return self


def checked(kind: type[C], given: Mapping[str, Any]) -> C:
    """The options. Raises InvalidConfiguration, which names all that is wrong, and each value."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        wrong = []
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            name = ".".join(map(str, one["loc"]))
            top = str(one["loc"][0]) if one["loc"] else ""
            wrong.append(
                f"{name} = {given[top]!r}: {one['msg']}" if top in given else f"{name or 'options'}: {one['msg']}"
            )
        raise InvalidConfiguration("; ".join(wrong)) from None


def refuse_unsupported(given: Mapping[str, Any], harmless: Mapping[str, Any]) -> None:
    """Refuses each of `given` that asks for something: that is not its value in `harmless`."""
    for name, value in given.items():
        if name == "schema" and _is_of_bytes(value):
            continue
        if value is not None and value != harmless.get(name):
            raise OperationNotSupported(f"{name} = {value!r} is not supported yet: leave it out")


def _is_of_bytes(schema: Any) -> bool:
    module = sys.modules.get("magnetar.schema")  # without it nobody has one
    return module is not None and isinstance(schema, module.BytesSchema)


# What producers are asked for elsewhere and can't do yet, with the value that asks for nothing.
NOT_YET_OF_PRODUCERS: Final[Mapping[str, Any]] = {
    "schema": None,
    "chunking_enabled": False,
    "batching_type": BatchingType.Default,
    "encryption_key": None,
    "crypto_key_reader": None,
    "access_mode": ProducerAccessMode.Shared,
}
