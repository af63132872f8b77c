"""The synchronous client: a thin front over the loop that all clients of the process share."""

from __future__ import annotations

import logging
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
from magnetar._keywords import suggest_keywords
from magnetar._loggers import ConsoleLogger, FileLogger
from magnetar._loop import background
from magnetar._options import KEEP_ALIVE_INTERVAL_S, client_options, producer_options
from magnetar._producer import Producer
from magnetar._service_url import check_service_url
from magnetar._subscribe import Subscribing
from magnetar._unpicklable import Unpicklable
from magnetar._unsupported import Authentication, CryptoKeyReader, ServiceInfo, TableView
from magnetar.exceptions import AlreadyClosed, Timeout
from magnetar.schema import Schema
from magnetar_wire.transport import Transport

__all__ = ["Client"]

T = TypeVar("T")
F = TypeVar("F")

# Where closing was broken off, callbacks have so long to be told.
_LAST_CALLS_S: Final = 1.0


class Front(Protocol):
    """A producer, consumer or reader as the application has it."""

    @property
    def _core(self) -> Any: ...


class Client(Subscribing, Unpicklable):
    """A client of the service at `service_url`, `magnetar://host:port[,host:port…]`. Its producers, consumers and
    readers share its connections. Close it, or use it as a context manager.

    It connects when something is asked of it. After a fork both parent and child may go on using it: what was created
    before goes on in the parent, and is closed in the child.
    """

    @suggest_keywords
    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        operation_timeout_seconds: float = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50_000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: logging.Logger | ConsoleLogger | FileLogger | None = None,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        *,
        keep_alive_interval_seconds: float = KEEP_ALIVE_INTERVAL_S,
        _transport: Transport | None = None,
    ) -> None:
        options = client_options(locals())
        self._url = service_url
        check_service_url(service_url)
        self._options = options
        self._transport = _transport
        self._fronts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = False
        # Made when it is first used, by one thread of those that want to.
        self._core: ClientCore | None = None
        self._beginning = threading.Lock()

    @suggest_keywords
    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
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
        encryption_key: str | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Any, int], int] | None = None,
        *,
        hashing_scheme: HashingScheme = HashingScheme.JavaStringHash,
        max_pending_bytes: int = 64 * 1024 * 1024,
        auto_update_partitions_interval_seconds: float = 60,
    ) -> Producer:
        """Create a producer on the topic, which is created if that is allowed. Returns when the broker has agreed.

        - `producer_name` is unique on the topic; without one the broker makes one.
        - `initial_sequence_id`: the first message has the next one.
        - `send_timeout_millis`: a message that is not known to be stored by then fails; 0: never.
        - `max_pending_messages` and `max_pending_bytes` bound the messages that are not known to be stored; see
          `send_async`.
        - Messages are batched, up to `batching_max_messages`, `batching_max_allowed_size_in_bytes` or
          `batching_max_publish_delay_ms`, whichever comes first.
        - `message_routing_mode`, `message_router` and `hashing_scheme` say to which partition a message goes.
        - What is not supported yet raises OperationNotSupported, which says what to do instead.
        """
        options = producer_options(locals())
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

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema | None = None
    ) -> TableView:
        """Not supported yet."""
        return TableView(topic)

    def get_service_info(self) -> ServiceInfo:
        """Not supported yet."""
        return ServiceInfo()

    def __repr__(self) -> str:
        return f"Client({self._url!r}{', closed' if self._closed else ''})"

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
