"""A client's ways to its brokers: one connection to each address, one link of each kind on it, and the questions that
any broker answers.

`lookup` and `partitions` go to the addresses of the service's URL in turn, beginning with the one that answered last;
one that can't be reached, or can't tell now, is passed over, and when none could it begins again after a pause, until
the operation's time is over. A link is made when somebody asks for it, and anew after it broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from magnetar._link import Link
from magnetar._problems import from_problem, from_transport, is_passing
from magnetar._retry import Backoff
from magnetar.exceptions import AlreadyClosed, ConnectError, MagnetarException, UnknownError
from magnetar_protos.broker_pb2 import (
    LastMessageAnswer,
    LastMessageRequest,
    LookupAnswer,
    LookupRequest,
    PartitionsAnswer,
    PartitionsRequest,
    Problem,
)
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Connection, Stream, Transport, TransportError

__all__ = ["Connections"]

L = TypeVar("L", bound=Link[Any])
A = TypeVar("A")


class Connections:
    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[str],
        clock: Clock,
        randomness: Randomness,
        *,
        operation_timeout_s: float = 30.0,
        connection_timeout_s: float = 10.0,
    ) -> None:
        self.clock = clock
        self.randomness = randomness
        self.operation_timeout_s = operation_timeout_s
        self._connection_timeout_s = connection_timeout_s
        self._transport = transport
        # Whom to ask next comes first.
        self._addresses = list(addresses)
        self._connections: dict[str, Connection] = {}
        self._links: dict[tuple[str, str], Link[Any]] = {}
        # Links whose tasks may not have ended yet, besides those.
        self._ending: list[Link[Any]] = []
        self._closed = False
        # Set but while the process forks: nothing is connected then.
        self._running = asyncio.Event()
        self._running.set()

    async def connection(self, address: str) -> Connection:
        """The one to this address. It connects when it is used."""
        await self._running.wait()
        return self._connection(address)

    def link(self, address: str, make: Callable[[Stream, str], L], method: str) -> L:
        """The link for `method` to this address: `link(address, ProduceLink, ProduceLink.method)`. It is not broken,
        as far as is known."""
        found: Any = self._links.get((address, method))
        if found is None or found.broken is not None:
            if found is not None:
                self._ending = [link for link in self._ending if not link.ended] + [found]
            found = self._links[address, method] = make(self._connection(address).open_stream(method), address)
        link: L = found
        return link

    async def lookup(self, topic: str) -> str:
        """The address of the broker that serves the topic, a partition or one without partitions."""
        request = LookupRequest(topic=topic).SerializeToString()
        answer = await self._ask("lookup", request, LookupAnswer.FromString)
        if not answer.address:
            raise UnknownError(f"the broker that was asked for {topic} names none that serves it")
        return answer.address

    async def partitions(self, topic: str, create: bool = True) -> int:
        """How many partitions the topic has; 0: it is not partitioned. Makes it where that is allowed and wanted."""
        request = PartitionsRequest(topic=topic, create=create).SerializeToString()
        return (await self._ask("partitions", request, PartitionsAnswer.FromString)).partitions

    async def last_message(self, topic: str) -> LastMessageAnswer:
        """The last message that a read would return. Asks the broker that serves the topic."""
        request = LastMessageRequest(topic=topic).SerializeToString()

        async def ask() -> LastMessageAnswer:
            return await self._ask_at(
                await self.lookup(topic),
                "last_message",
                request,
                LastMessageAnswer.FromString,
                self.operation_timeout_s,
            )

        return await self.retried(ask)

    async def retried(self, attempt: Callable[[], Awaitable[A]]) -> A:
        """What `attempt` returns; made again after each trouble of the moment, until the operation's time is over."""
        deadline = self.clock.monotonic() + self.operation_timeout_s
        backoff = Backoff(self.randomness)
        while True:
            await self._running.wait()
            try:
                return await attempt()
            except MagnetarException as error:
                pause_s = backoff.next()
                if not is_passing(error) or self._closed or self.clock.monotonic() + pause_s >= deadline:
                    raise
            await self.clock.sleep(pause_s)

    async def close(self) -> None:
        """Ends all links and connections: whoever waits is told, or meets the error."""
        self._closed = True
        self._running.set()
        await self._disconnect()

    async def suspend(self) -> None:
        """Ends all that there is, and makes nothing until `resume`."""
        self._running.clear()
        await self._disconnect()

    def resume(self) -> None:
        self._running.set()

    async def _disconnect(self) -> None:
        links = [*self._ending, *self._links.values()]
        self._links, self._ending = {}, []
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()
        for link in links:
            await link.wait_ended()

    def _connection(self, address: str) -> Connection:
        if self._closed:
            raise AlreadyClosed("the client is closed")
        if not self._running.is_set():
            raise ConnectError("the process is about to fork: the connection is made again afterwards")
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self._transport.connect(address)
        return found

    async def _ask(self, method: str, request: bytes, parse: Callable[[bytes], A]) -> A:
        async def ask_any() -> A:
            for turn in range(len(self._addresses)):
                address = self._addresses[0]
                try:
                    return await self._ask_at(address, method, request, parse, self._connection_timeout_s)
                except MagnetarException as error:
                    if not is_passing(error) or turn == len(self._addresses) - 1:
                        raise
                if self._addresses[0] == address:  # others may ask, too, and have moved on
                    self._addresses.append(self._addresses.pop(0))
            raise AssertionError("there is at least one address")

        return await self.retried(ask_any)

    async def _ask_at(
        self, address: str, method: str, request: bytes, parse: Callable[[bytes], A], timeout_s: float
    ) -> A:
        try:
            answer: Any = parse(await self._connection(address).call(method, request, timeout_s=timeout_s))
        except TransportError as error:
            raise from_transport(error) from error
        except DecodeError as error:
            raise UnknownError(f"the answer to {method} from {address} can't be read: {error}") from error
        if answer.HasField("problem"):
            problem: Problem = answer.problem
            raise from_problem(problem)
        parsed: A = answer
        return parsed
