"""A client on its event loop: what the synchronous front and the asyncio one have in common.

It has the connections, the thread of callbacks, and its members: every producer, consumer and reader that is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from magnetar._callbacks import CallbackThread
from magnetar._connections import Connections
from magnetar._endpoint_probe import describe_endpoints
from magnetar._options import KEEP_ALIVE_INTERVAL_S, ClientOptions
from magnetar._service_url import parse_service_url
from magnetar.exceptions import AlreadyClosed, InvalidTopicName, MagnetarException
from magnetar_wire import errors
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.randomness import Randomness, SystemRandomness
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Transport

__all__ = ["ClientCore", "LateTransport", "Member", "topic_name"]


class Member(Protocol):
    """A producer, consumer or reader."""

    async def close(self) -> None:
        """Leaves in good order."""

    def end(self, error: MagnetarException) -> None:
        """Leaves at once: who waits for something of it meets the error."""

    async def wait_ended(self) -> None:
        """Returns when an ended member's tasks have ended."""


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
        self.callbacks = CallbackThread()
        self.connections = Connections(
            transport or LateTransport(options.keep_alive_interval_seconds),
            parse_service_url(service_url),
            self.clock,
            self.randomness,
            operation_timeout_s=options.operation_timeout_seconds,
            connection_timeout_s=options.connection_timeout_ms / 1000,
            listener_name=options.listener_name or "",
        )
        self._call_soon = call_soon
        # In the order in which they were made.
        self._members: dict[Member, None] = {}
        # Those whose tasks may not have ended yet when the client is closed.
        self._ended: list[Member] = []
        self.closed = False

    def call_soon(self, callback: Callable[[], object]) -> None:
        """On the client's loop, from any thread."""
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
        """Close one member, and return when its tasks have ended."""
        self.remove_member(member)
        await member.close()
        await member.wait_ended()

    def discard(self, member: Member) -> None:
        """At once: it was made, and nobody has it."""
        self.remove_member(member)
        member.end(AlreadyClosed("nobody waited for it"))
        self._ended.append(member)

    def check_open(self) -> None:
        if self.closed:
            raise AlreadyClosed("the client is closed")

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions; its own, if it has none."""
        self.check_open()
        name = topic_name(topic)
        count = await self.connections.partitions(str(name))
        return [str(name.partition(index)) for index in range(count)] if count else [str(name)]

    async def close(self) -> None:
        """Closes every member, all at once, and then the connections."""
        if self.closed:
            return
        self.closed = True
        closing = [asyncio.get_running_loop().create_task(member.close()) for member in self._members]
        try:
            if closing:
                await asyncio.wait(closing)
        finally:
            for task in closing:
                task.cancel()
            await self.shutdown()

    def end_members(self) -> None:
        """At once: whatever is pending fails. `shutdown` does the rest."""
        self.closed = True
        members, self._members = list(self._members), {}
        for member in members:
            member.end(AlreadyClosed("the client is closed"))
        self._ended += members

    async def shutdown(self) -> None:
        """At once: whatever is pending fails."""
        self.end_members()
        await self.connections.close()
        for member in self._ended:
            await member.wait_ended()


class LateTransport:
    """gRPC, which is imported when somebody connects: that takes longer than all the rest of the SDK."""

    def __init__(self, keep_alive_interval_s: float = KEEP_ALIVE_INTERVAL_S) -> None:
        """A broker that has been silent for so long is asked whether it lives, and has as long to say so."""
        self._keep_alive_ms = round(keep_alive_interval_s * 1000)
        self._transport: Any = None

    def connect(self, address: str) -> Any:
        self.load()
        return self._transport.connect(address)

    def load(self) -> None:
        """From any thread: one that waits, better than the loop on which others live."""
        if self._transport is None:
            from magnetar_wire.grpc_transport import GrpcOptions, GrpcTransport

            self._transport = GrpcTransport(
                GrpcOptions(grpc_keepalive_time_ms=self._keep_alive_ms, grpc_keepalive_timeout_ms=self._keep_alive_ms)
            )

    async def describe_endpoints(self, addresses: Sequence[str], *, failed: bool) -> str:
        return await describe_endpoints(addresses, failed=failed)

    async def listen(self, address: str, service: Any) -> Any:
        raise NotImplementedError("a client does not listen")


def topic_name(text: str) -> TopicName:
    """Raises the SDK's InvalidTopicName."""
    if not isinstance(text, str):
        raise InvalidTopicName(f"a topic's name is text, not {type(text).__name__}")
    try:
        return TopicName.parse(text)
    except errors.InvalidTopicName as error:
        raise InvalidTopicName(str(error)) from None
