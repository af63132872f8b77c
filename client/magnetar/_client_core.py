"""What all producers, consumers and readers of one client share, on the client's event loop.

It has the connections, the lookup, the definitions of schemas, the callback thread, and the client's members: every
producer, consumer and reader that is open. The synchronous client and the asyncio client have one each.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Protocol

from magnetar._connections.connection_pool import ConnectionPool, LazyGrpcTransport
from magnetar._connections.endpoint_check import EndpointCheck
from magnetar._connections.lookup import Lookup
from magnetar._connections.operations import Operations
from magnetar._connections.schema_cache import SchemaCache
from magnetar._connections.service_url import parse_service_url
from magnetar._options import ClientOptions, parse_topic_name
from magnetar._threads.callback_thread import CallbackThread
from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.process.version import read_version
from magnetar_wire.randomness import Randomness, SystemRandomness
from magnetar_wire.transport import Transport

__all__ = ["ClientCore", "Member", "client_version"]


@functools.cache
def client_version() -> str:
    """Return the name and version of this library, which brokers show in statistics."""
    return f"Magnetar-Python-v{read_version()}"


class Member(Protocol):
    """A producer, consumer or reader."""

    async def close(self) -> None:
        """Send what is pending, and leave the broker."""

    def end(self, error: MagnetarException) -> None:
        """Leave the broker at once. Callers that wait for something of the member get the error."""

    async def wait_ended(self) -> None:
        """Return when the tasks of an ended member have ended."""


class ClientCore:
    def __init__(
        self,
        service_url: str,
        options: ClientOptions,
        call_soon: Callable[[Callable[[], object]], object],
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.options = options
        self.clock = clock or SystemClock()
        self.randomness = randomness or SystemRandomness()
        self._call_soon = call_soon
        self.callbacks = CallbackThread()
        transport = transport or LazyGrpcTransport(options.keep_alive_interval_seconds)
        addresses = parse_service_url(service_url)
        self.pool = ConnectionPool(transport, addresses, self.clock)
        self._endpoint_check = EndpointCheck(addresses, self.clock, transport)
        self.operations = Operations(
            self.pool, self._endpoint_check, self.clock, self.randomness, options.operation_timeout_seconds
        )
        self.lookup = Lookup(
            self.pool,
            self.operations,
            connection_timeout_s=options.connection_timeout_ms / 1000,
            listener_name=options.listener_name or "",
        )
        self.schemas = SchemaCache(self.lookup)
        # In the order in which they were created.
        self._members: dict[Member, None] = {}
        # Members that are being closed. Each future ends with that.
        self._closing: dict[Member, asyncio.Future[None]] = {}
        # Members that were ended, and whose tasks may still run.
        self._ended: list[Member] = []
        self.closed = False

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the client's loop. Any thread of a synchronous client may call this."""
        self._call_soon(callback)

    def add_member(self, member: Member) -> None:
        """Have the client close the member, unless it is removed before. If the client is closed, end the member, and
        raise AlreadyClosed."""
        try:
            self.check_open()
        except AlreadyClosed as error:
            member.end(error)
            raise
        self._members[member] = None

    def remove_member(self, member: Member) -> None:
        self._members.pop(member, None)

    async def close_member(self, member: Member) -> None:
        """Close one member, and return when its tasks have ended. If it is being closed already, wait for that."""
        if (closing := self._closing.get(member)) is not None:
            await asyncio.wait([closing])
            return
        closed = self._closing[member] = asyncio.get_running_loop().create_future()
        try:
            await member.close()
            await member.wait_ended()
        finally:
            self.remove_member(member)
            del self._closing[member]
            closed.set_result(None)

    def discard(self, member: Member) -> None:
        """End a member that was created for a caller who has stopped waiting for it."""
        self.remove_member(member)
        member.end(AlreadyClosed("its creation was interrupted"))
        self._ended.append(member)

    def check_open(self) -> None:
        if self.closed:
            raise AlreadyClosed("the client is closed")

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the names of the topic's partitions, or the topic's own name if it has none."""
        self.check_open()
        name = parse_topic_name(topic)
        count = await self.lookup.count_partitions(str(name))
        return [str(name.partition(index)) for index in range(count)] if count else [str(name)]

    async def close(self) -> None:
        """Close every member, all at the same time, and then the connections."""
        if self.closed:
            return
        self.closed = True
        closing = [asyncio.get_running_loop().create_task(self.close_member(member)) for member in self._members]
        try:
            if closing:
                await asyncio.wait(closing)
        finally:
            for task in closing:
                task.cancel()
            await self.shutdown()

    def end_members(self) -> None:
        """End every member. What is pending fails. `shutdown` does the rest."""
        self.closed = True
        members, self._members = list(self._members), {}
        for member in members:
            member.end(AlreadyClosed("the client is closed"))
        self._ended += members

    async def shutdown(self) -> None:
        """End every member, and close the connections. What is pending fails."""
        self.end_members()
        self._endpoint_check.stop(self.pool.cancel)
        await self.pool.close()
        for member in self._ended:
            await member.wait_ended()

    async def suspend(self) -> None:
        """Close all connections before a fork, and open none until `resume`."""
        self._endpoint_check.stop(self.pool.cancel)
        await self.pool.suspend()

    def resume(self) -> None:
        self.pool.resume()
