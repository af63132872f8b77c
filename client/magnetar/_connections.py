"""A client's ways to its brokers: one connection to each address, one link of each kind on it, and the questions that
any broker answers.

`lookup` and `partitions` go to the addresses of the service's URL (_any_broker.py); when none could tell they begin
again after a pause, until the operation's time is over. A link is made when somebody asks for it, and anew after it
broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from magnetar._any_broker import AnyBroker
from magnetar._link import Link
from magnetar._problems import from_problem, from_transport, is_passing
from magnetar._reachability import Reachability, is_unreachable
from magnetar._retry import Backoff
from magnetar.exceptions import (
    AlreadyClosed,
    ConnectError,
    InvalidArgument,
    MagnetarException,
    ServiceUnitNotReady,
    UnknownError,
)
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

# Where hardly any time is left a broker has so long all the same.
LEAST_WAIT_S: Final = 0.1

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
        listener_name: str = "",
    ) -> None:
        self.clock = clock
        self.randomness = randomness
        self.operation_timeout_s = operation_timeout_s
        self.connection_timeout_s = connection_timeout_s
        # Of the addresses that a broker has, the one that is asked for; empty: the broker chooses.
        self._listener_name = listener_name
        self._transport = transport
        self._any = AnyBroker(addresses, clock)
        self._reachability = Reachability(addresses, clock, transport)
        self._connections: dict[str, Connection] = {}
        self._links: dict[tuple[str, str], Link[Any]] = {}
        # Links whose tasks may not have ended yet, besides those.
        self._ending: list[Link[Any]] = []
        # Tasks, likewise: those that were cancelled, and those that close connections.
        self._ending_tasks: dict[asyncio.Task[Any], None] = {}
        # Calls that are being answered, by address.
        self._asking: dict[str, int] = {}
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
            made = make(self._connection(address).open_stream(method), address)
            if found is not None:
                self._ending.append(found)
            found = self._links[address, method] = made
            self._drop_what_broke()
        link: L = found
        return link

    async def lookup(self, topic: str, *, was_open: bool = False) -> str:
        """The address of the broker that serves the topic, a partition or one without partitions.

        `was_open`: whoever asks has been served before, so that nothing is wrong with what he asks for. Where a broker
        has no listener of the name, the next that has the topic may.
        """
        try:
            return await self.retried(self._until_late(lambda timeout_s: self.look(topic, timeout_s)))
        except InvalidArgument as error:
            if was_open:
                raise ServiceUnitNotReady(str(error)) from error
            raise

    async def look(self, topic: str, timeout_s: float) -> str:
        """The same, asked once, of each broker at most."""
        request = LookupRequest(topic=topic, listener_name=self._listener_name).SerializeToString()
        answer = await self._any.ask(
            lambda address: self._ask_at(address, "lookup", request, LookupAnswer.FromString, timeout_s)
        )
        if not answer.address:
            raise UnknownError(f"the broker that was asked for {topic} names none that serves it")
        return answer.address

    async def partitions(self, topic: str, create: bool = True) -> int:
        """How many partitions the topic has; 0: it is not partitioned. Makes it where that is allowed and wanted."""
        request = PartitionsRequest(topic=topic, create=create).SerializeToString()

        def ask(timeout_s: float) -> Coroutine[Any, Any, PartitionsAnswer]:
            return self._any.ask(
                lambda address: self._ask_at(address, "partitions", request, PartitionsAnswer.FromString, timeout_s)
            )

        return (await self.retried(self._until_late(ask))).partitions

    async def last_message(self, topic: str) -> LastMessageAnswer:
        """The last message that a read would return. Asks the broker that serves the topic."""
        request = LastMessageRequest(topic=topic).SerializeToString()

        async def ask(timeout_s: float) -> LastMessageAnswer:
            address = await self.look(topic, timeout_s)
            return await self._ask_at(address, "last_message", request, LastMessageAnswer.FromString, timeout_s)

        return await self.retried(self._until_late(ask))

    async def retried(self, attempt: Callable[[], Awaitable[A]]) -> A:
        """Return what `attempt` returns. It is made again after each error that may pass, until the operation's time is
        over. An error of brokers none of which could be reached says what is at their addresses."""
        began, answers = self.clock.monotonic(), self._reachability.answers
        deadline = began + self.operation_timeout_s
        backoff = Backoff(self.randomness)
        with self._reachability.operation():
            while True:
                await self._running.wait()
                try:
                    result = await attempt()
                except MagnetarException as error:
                    self._reachability.failed(error)
                    pause_s = backoff.next()
                    if self._closed and is_passing(error):
                        raise AlreadyClosed("the client was closed meanwhile") from error
                    now = self.clock.monotonic()
                    if not is_passing(error):
                        raise
                    if now + pause_s >= deadline:
                        if is_unreachable(error) and self._reachability.answers == answers:
                            explained = await self._reachability.explain(error, now - began, deadline - now)
                            raise explained from error.__cause__
                        raise
                else:
                    self._reachability.answered()
                    return result
                await self.clock.sleep(pause_s)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """It is waited for before the connections are closed."""
        if not task.done():
            task.cancel()
            self._keep_until_ended(task)

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
        self._reachability.stop(self.cancel)
        links = [*self._ending, *self._links.values()]
        self._links, self._ending = {}, []
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()
        for link in links:
            await link.wait_ended()
        if self._ending_tasks:
            await asyncio.wait(list(self._ending_tasks))

    def _drop_what_broke(self) -> None:
        """Brokers that come back do so under other addresses, where each has one of its own each time, and a client may
        live longer than any of them: of an address that no link leads to, and nobody asks, nothing is kept."""
        for key, link in list(self._links.items()):
            if link.broken is not None:
                self._ending.append(self._links.pop(key))
        self._ending = [link for link in self._ending if not link.ended]
        led_to = {address: None for address, _ in self._links}
        for address in list(self._connections):
            if not (address in led_to or address in self._asking or self._any.knows(address)):
                closing = self._connections.pop(address).close()
                self._keep_until_ended(asyncio.get_running_loop().create_task(closing))

    def _keep_until_ended(self, task: asyncio.Task[Any]) -> None:
        self._ending_tasks[task] = None
        task.add_done_callback(lambda _: self._ending_tasks.pop(task))

    def _connection(self, address: str) -> Connection:
        if self._closed:
            raise AlreadyClosed("the client is closed")
        if not self._running.is_set():
            raise ConnectError("the process is about to fork: the connection is made again afterwards")
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self._transport.connect(address)
        return found

    def _until_late(self, ask: Callable[[float], Awaitable[A]]) -> Callable[[], Awaitable[A]]:
        """The question with the time that a broker has for it now: a connection's, and no more than is left."""
        deadline = self.clock.monotonic() + self.operation_timeout_s
        return lambda: ask(min(self.connection_timeout_s, max(deadline - self.clock.monotonic(), LEAST_WAIT_S)))

    async def _ask_at(
        self, address: str, method: str, request: bytes, parse: Callable[[bytes], A], timeout_s: float
    ) -> A:
        connection = self._connection(address)
        self._asking[address] = self._asking.get(address, 0) + 1
        try:
            answer: Any = parse(await connection.call(method, request, timeout_s=timeout_s))
        except TransportError as error:
            raise from_transport(error) from error
        except DecodeError as error:
            raise UnknownError(f"the answer to {method} from {address} can't be read: {error}") from error
        finally:
            self._asking[address] -= 1
            if not self._asking[address]:
                del self._asking[address]
        if answer.HasField("problem"):
            problem: Problem = answer.problem
            raise from_problem(problem)
        parsed: A = answer
        return parsed
