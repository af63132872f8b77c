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
import os
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from magnetar._aio_consumer import Consumer
from magnetar._aio_producer import Producer
from magnetar._aio_reader import Reader
from magnetar._client import client_options, producer_options
from magnetar._client_core import ClientCore, Member
from magnetar._enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar._message import Message
from magnetar._service_url import parse_service_url
from magnetar._subscribe import AioSubscribing
from magnetar.exceptions import AlreadyClosed, MagnetarException, PulsarException, Result
from magnetar_wire.clock import Clock
from magnetar_wire.message_id import MessageId
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
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


class Client(AioSubscribing):
    """A client of the service at `service_url`, `magnetar://host:port[,host:port…]`, on the running event loop.

    Options are those of `magnetar.Client`. It connects when something is asked of it.
    """

    def __init__(
        self,
        service_url: str,
        *,
        _transport: Transport | None = None,
        _clock: Clock | None = None,
        _randomness: Randomness | None = None,
        **options: Any,
    ) -> None:
        parse_service_url(service_url)
        self._url = service_url
        self._options = client_options(**options)
        self._parts = {"transport": _transport, "clock": _clock, "randomness": _randomness}
        self._closed = False
        self._core: ClientCore | None = None
        # The process in which it was.
        self._made_by = 0
        self._standing: asyncio.Task[None] | None = None
        # What a shutdown leaves behind ends in it.
        self._ending: asyncio.Task[None] | None = None

    async def create_producer(self, topic: str, **options: Any) -> Producer:
        """A producer on the topic. Options are those of `magnetar.Client.create_producer`."""
        core = await self._begun()
        return Producer(self, await core.create_producer(topic, producer_options(**options)))

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
