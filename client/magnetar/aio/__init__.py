"""The client for asyncio, with the names of the synchronous one.

    async with magnetar.aio.Client("magnetar://localhost:6652") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")

Everything belongs to the loop that it was first used on. A loop that ends before the client was closed cancels its
tasks: one of them stands for the client, and has it end then, as with `shutdown`, lest it connect again on a loop that
is over. A process must not fork while such a client is open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from magnetar._client_core import ClientCore, Member
from magnetar._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar._keywords import suggest_keywords
from magnetar._loggers import ConsoleLogger, FileLogger
from magnetar._message import Message
from magnetar._options import KEEP_ALIVE_INTERVAL_S, client_options, producer_options
from magnetar._service_url import check_service_url
from magnetar._unpicklable import Unpicklable
from magnetar._unsupported import Authentication, CryptoKeyReader, ServiceInfo, TableView
from magnetar.aio._consumer import Consumer
from magnetar.aio._producer import Producer
from magnetar.aio._reader import Reader
from magnetar.aio._subscribe import AioSubscribing
from magnetar.exceptions import AlreadyClosed, MagnetarException, PulsarException, Result
from magnetar.schema import Schema
from magnetar_wire.clock import Clock
from magnetar_wire.message_id import MessageId
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "HashingScheme",
    "InitialPosition",
    "MagnetarException",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
]


class Client(AioSubscribing, Unpicklable):
    """A client of the service at `service_url`, `magnetar://host:port[,host:port…]`, on the running event loop.

    Options are those of `magnetar.Client`. It connects when something is asked of it.
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
        _clock: Clock | None = None,
        _randomness: Randomness | None = None,
    ) -> None:
        options = client_options(locals())
        check_service_url(service_url)
        self._url = service_url
        self._options = options
        self._parts = {"transport": _transport, "clock": _clock, "randomness": _randomness}
        self._closed = False
        self._core: ClientCore | None = None
        # The process in which it was.
        self._made_by = 0
        self._standing: asyncio.Task[None] | None = None
        # What a shutdown leaves behind ends in it.
        self._ending: asyncio.Task[None] | None = None

    @suggest_keywords
    async def create_producer(
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
          `Producer.send`.
        - Messages are batched, up to `batching_max_messages`, `batching_max_allowed_size_in_bytes` or
          `batching_max_publish_delay_ms`, whichever comes first.
        - `message_routing_mode`, `message_router` and `hashing_scheme` say to which partition a message goes.
        - What is not supported yet raises OperationNotSupported, which says what to do instead.
        """
        options = producer_options(locals())
        core = await self._begun()
        return Producer(self, await core.create_producer(topic, options))

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions; its own, if it has none."""
        return await (await self._begun()).get_topic_partitions(topic)

    async def close(self) -> None:
        """Closes everything that the client made: what is pending is sent, and acknowledgements, too. After `shutdown`
        it returns when the connections are closed."""
        if (core := self._take_core()) is not None:
            await core.close()
        if self._ending is not None:
            await asyncio.wait([self._ending])

    def shutdown(self) -> None:
        """Ends everything at once: what is pending fails. The connections close while the loop goes on; `close` waits
        for that."""
        if (core := self._take_core()) is not None:
            core.end_members()
            self._ending = asyncio.get_running_loop().create_task(core.shutdown())

    async def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema | None = None
    ) -> TableView:
        """Not supported yet."""
        return TableView(topic)

    def get_service_info(self) -> ServiceInfo:
        """Not supported yet."""
        return ServiceInfo()

    def __repr__(self) -> str:
        return f"aio.Client({self._url!r}{', closed' if self._closed else ''})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begun(self) -> ClientCore:
        if self._closed:
            raise AlreadyClosed("the client is closed")
        if self._core is not None and self._made_by != os.getpid():
            raise AlreadyClosed("the client was used before the process forked: make another one in the child")
        if self._core is None:
            self._made_by = os.getpid()
            parts: dict[str, Any] = self._parts
            loop = asyncio.get_running_loop()
            self._core = ClientCore(self._url, self._options, _call_soon(loop), **parts)
            self._standing = loop.create_task(self._end_with_loop(loop.create_future()))
        return self._core

    def _take_core(self) -> ClientCore | None:
        """The client is closed by whoever asks."""
        core, self._core, self._closed = self._core, None, True
        if core is not None and self._made_by != os.getpid():  # all that there is of it is the parent's
            self._standing = None
            return None
        if self._standing is not None:
            self._standing.cancel()
        return core

    async def _end_with_loop(self, never: asyncio.Future[None]) -> None:
        try:
            await never
        finally:
            core, self._core, self._closed = self._core, None, True
            if core is not None:
                text = f"the client of {self._url} was not closed before its loop ended"
                warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
                await core.shutdown()

    async def _close_member(self, member: Member) -> None:
        core = self._core
        if core is not None:
            core.remove_member(member)
            await member.close()
            await member.wait_ended()


def _call_soon(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], object]], object]:
    """Whoever calls is on the loop; the thread of callbacks is not."""

    def call(callback: Callable[[], object]) -> None:
        loop.call_soon(callback)

    return call
