"""The synchronous client: a thin front over the loop that all clients of the process share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from magnetar._client_core import ClientCore, LateTransport, Member
from magnetar._enums import (
    BatchingType,
    CompressionType,
    HashingScheme,
    PartitionsRoutingMode,
    ProducerAccessMode,
)
from magnetar._loggers import log_to
from magnetar._loop import background
from magnetar._options import (
    KEEP_ALIVE_INTERVAL_S,
    NOT_YET_OF_PRODUCERS,
    ClientOptions,
    ProducerOptions,
    checked,
    refuse_unsupported,
)
from magnetar._producer import Producer
from magnetar._service_url import parse_service_url
from magnetar._subscribe import Subscribing
from magnetar.exceptions import AlreadyClosed, Timeout
from magnetar_wire.transport import Transport

__all__ = ["Client", "client_options", "producer_options"]

T = TypeVar("T")
F = TypeVar("F")

# Of Pulsar's client, and what asks for nothing: its own threads, TLS and authentication.
_NOT_YET: Final[Mapping[str, Any]] = {
    "authentication": None,
    "use_tls": False,
    "tls_trust_certs_file_path": None,
    "tls_allow_insecure_connection": False,
    "tls_validate_hostname": False,
    "tls_private_key_file_path": None,
    "tls_certificate_file_path": None,
    "io_threads": 1,
    "concurrent_lookup_requests": 50_000,
    "stats_interval_in_seconds": 600,
    "log_conf_file_path": None,
}
# Where closing was broken off, callbacks have so long to be told.
_LAST_CALLS_S: Final = 1.0


class Front(Protocol):
    """A producer, consumer or reader as the application has it."""

    @property
    def _core(self) -> Any: ...


def client_options(**given: Any) -> ClientOptions:
    log_to(given.pop("logger", None))
    refuse_unsupported({name: given.pop(name) for name in _NOT_YET if name in given}, _NOT_YET)
    return checked(ClientOptions, given)


def producer_options(**given: Any) -> ProducerOptions:
    """Of `create_producer`'s arguments; None stands for an option's default."""
    refuse_unsupported({name: given.pop(name, None) for name in NOT_YET_OF_PRODUCERS}, NOT_YET_OF_PRODUCERS)
    return checked(ProducerOptions, {name: value for name, value in given.items() if value is not None})


class Client(Subscribing):
    """A client of the service at `service_url`, `magnetar://host:port[,host:port…]`. Its producers, consumers and
    readers share its connections. Close it, or use it as a context manager.

    It connects when something is asked of it. After a fork both parent and child may go on using it: what was created
    before goes on in the parent, and is closed in the child.
    """

    def __init__(
        self,
        service_url: str,
        authentication: None = None,
        operation_timeout_seconds: float = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        *,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        keep_alive_interval_seconds: float = KEEP_ALIVE_INTERVAL_S,
        _transport: Transport | None = None,
        **unsupported: Any,
    ) -> None:
        self._url = service_url
        parse_service_url(service_url)
        self._options = client_options(
            authentication=authentication,
            operation_timeout_seconds=operation_timeout_seconds,
            io_threads=io_threads,
            connection_timeout_ms=connection_timeout_ms,
            message_listener_threads=message_listener_threads,
            listener_name=listener_name,
            keep_alive_interval_seconds=keep_alive_interval_seconds,
            **unsupported,
        )
        self._transport = _transport
        self._fronts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = False
        # Made when it is first used, by one thread of those that want to.
        self._core: ClientCore | None = None
        self._beginning = threading.Lock()

    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1_000,
        max_pending_messages_across_partitions: int = 50_000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1_000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: Mapping[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: None = None,
        crypto_key_reader: None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Any, int], int] | None = None,
        *,
        hashing_scheme: HashingScheme = HashingScheme.JavaStringHash,
        max_pending_bytes: int = 64 * 1024 * 1024,
        auto_update_partitions_interval_seconds: float = 60,
    ) -> Producer:
        """A producer on the topic, which is made if that is allowed. Returns when the broker has agreed.

        - `producer_name` is unique on the topic; without one the broker makes one.
        - `initial_sequence_id`: the first message has the next one.
        - `send_timeout_millis`: what has no receipt by then fails; 0: never.
        - `max_pending_messages` and `max_pending_bytes` bound what may be without a receipt; see `send_async`.
        - Messages are batched, up to `batching_max_messages`, `batching_max_allowed_size_in_bytes` or
          `batching_max_publish_delay_ms`, whichever comes first.
        - `message_routing_mode`, `message_router` and `hashing_scheme` say to which partition a message goes.
        """
        options = producer_options(
            producer_name=producer_name,
            schema=schema,
            initial_sequence_id=initial_sequence_id,
            send_timeout_millis=send_timeout_millis,
            compression_type=compression_type,
            max_pending_messages=max_pending_messages,
            max_pending_messages_across_partitions=max_pending_messages_across_partitions,
            block_if_queue_full=block_if_queue_full,
            batching_enabled=batching_enabled,
            batching_max_messages=batching_max_messages,
            batching_max_allowed_size_in_bytes=batching_max_allowed_size_in_bytes,
            batching_max_publish_delay_ms=batching_max_publish_delay_ms,
            chunking_enabled=chunking_enabled,
            message_routing_mode=message_routing_mode,
            lazy_start_partitioned_producers=lazy_start_partitioned_producers,
            properties=properties,
            batching_type=batching_type,
            encryption_key=encryption_key,
            crypto_key_reader=crypto_key_reader,
            access_mode=access_mode,
            message_router=message_router,
            hashing_scheme=hashing_scheme,
            max_pending_bytes=max_pending_bytes,
            auto_update_partitions_interval_seconds=auto_update_partitions_interval_seconds,
        )
        core = self._begun()
        return self._make_front(core.create_producer(topic, options), lambda made: Producer(self, made))

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions; its own, if it has none."""
        return self._run(self._begun().get_topic_partitions(topic))

    def close(self) -> None:
        """Closes everything that the client made: what is pending is sent, and acknowledgements, too."""
        self._end(lambda core: core.close(), None)

    def shutdown(self) -> None:
        """Ends everything at once: what is pending fails."""
        self._end(lambda core: core.shutdown(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # For the other fronts.

    def _begun(self) -> ClientCore:
        if self._closed:
            raise AlreadyClosed("the client is closed")
        core = self._core
        if core is None:
            with self._beginning:
                core = self._core
                if core is None:
                    transport = self._transport
                    if transport is None:
                        transport = LateTransport(self._options.keep_alive_interval_seconds)
                        transport.load()
                    background.enter(self)
                    try:
                        core = self._core = self._run(self._make(transport))
                    except BaseException:
                        background.leave(self)
                        raise
        return core

    async def _make(self, transport: Transport) -> ClientCore:
        return ClientCore(self._url, self._options, background.call_soon, transport=transport)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises, on the client's loop."""
        return background.run(work)

    def _make_front(self, work: Coroutine[Any, Any, Any], front: Callable[[Any], F]) -> F:
        core = self._begun()
        member: Member | None = None
        try:
            member = background.run(work, undo=core.discard)
            made = front(member)
            self._fronts.add(made)
            return made
        except BaseException:
            if member is not None:
                background.call_soon(partial(core.discard, member))
            raise

    @property
    def _in_callback(self) -> bool:
        return self._core is not None and self._core.callbacks.inside

    def _close_member(self, member: Member) -> None:
        core = self._core
        if core is not None and not self._closed:
            self._run(_close_member(core, member))

    def _end(self, how: Callable[[ClientCore], Coroutine[Any, Any, None]], timeout_s: float | None) -> None:
        core, self._core, self._closed = self._core, None, True
        if core is None:
            return
        try:
            background.run(how(core), timeout_s)
        except BaseException:  # struck, or late: it is left at once, whoever does not come to an end
            background.call_soon(core.end_members)
            timeout_s = _LAST_CALLS_S
            raise
        finally:
            background.leave(self)
            core.callbacks.close(timeout_s)

    # For the loop.

    async def _suspend(self) -> None:
        if self._core is not None:
            await self._core.connections.suspend()

    def _resume(self) -> None:
        if self._core is not None:
            self._core.connections.resume()

    def _forked(self) -> None:
        self._core, self._beginning = None, threading.Lock()
        error = AlreadyClosed("it was created before the process forked: create another one in the child")
        for front in list(self._fronts):
            if isinstance(front, Producer):
                front._forked(error)
            else:
                front._core.forked(error)

    def _close_at_exit(self, timeout_s: float) -> None:
        try:
            self._end(lambda core: core.close(), timeout_s)
        except TimeoutError as error:
            raise Timeout("what was pending could not be sent before the process ended") from error


async def _close_member(core: ClientCore, member: Member) -> None:
    core.remove_member(member)
    await member.close()
    await member.wait_ended()
