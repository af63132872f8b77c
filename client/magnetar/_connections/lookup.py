"""Lookup: which broker owns a topic, how many partitions it has, and what a version of its schema is.

    find_owner ──► retry ──► any broker of the service URL ──► LookupRequest ──► the owner's address
        ▲                          │ silent: the next one as well
        └── after a pause ─────────┘ retryable error: the next one at once; all failed

Any broker can answer a lookup. The broker that answered last comes first. One that cannot be reached, or cannot
answer now, is skipped at once. One that is silent for `PATIENCE_S` may still answer, so it is not cancelled, but the
next broker gets the lookup as well, and the first answer counts. So a broker that hangs, or a half-open connection,
delays a lookup by no more than that.

**Opening.** A broker that hangs is silent until its connection is found dead, and it may have lost the topic to
another broker. So while a producer or consumer waits to be opened (`wait_opened`), the lookup is repeated, and if it
names another broker, the wait ends with ServiceUnitNotReady.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from magnetar._connections.broker_stream import BrokerStream
from magnetar._connections.connection_pool import ConnectionPool
from magnetar._connections.operations import Operations
from magnetar._errors import is_retryable
from magnetar.exceptions import InvalidArgument, MagnetarException, ServiceUnitNotReady, Timeout, UnknownError
from magnetar_protos.broker_pb2 import (
    LastMessageAnswer,
    LastMessageRequest,
    LookupAnswer,
    LookupRequest,
    PartitionsAnswer,
    PartitionsRequest,
    SchemaAnswer,
    SchemaRequest,
)
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.limits import MAX_PARTITIONS

__all__ = ["PATIENCE_S", "REPEAT_LOOKUP_S", "AnyBroker", "Lookup"]

A = TypeVar("A")

PATIENCE_S: Final = 1.0
REPEAT_LOOKUP_S: Final = 2.0
# An error contains the reasons of this many brokers.
_NAMED: Final = 5


class Lookup:
    def __init__(
        self, pool: ConnectionPool, operations: Operations, *, connection_timeout_s: float, listener_name: str = ""
    ) -> None:
        self._pool = pool
        self._operations = operations
        self._any = AnyBroker(pool.service_addresses, operations.clock)
        # How long one broker may take to answer.
        self._connection_timeout_s = connection_timeout_s
        # The listener whose address the lookup returns. Empty: the broker chooses.
        self._listener_name = listener_name

    async def find_owner(self, topic: str, *, was_open: bool = False) -> str:
        """Return the address of the broker that owns a partition, or a topic without partitions.

        `was_open`: the caller has been served before, so its request is valid. If the owner has no listener of this
        client's name, the topic's next owner may have one, so that error is retryable.
        """
        deadline = self._operations.deadline()
        try:
            return await self._operations.retry(lambda: self._find_owner(topic, self._attempt_timeout(deadline)))
        except InvalidArgument as error:
            if was_open:
                raise ServiceUnitNotReady(str(error)) from error
            raise

    async def count_partitions(self, topic: str, create: bool = True) -> int:
        """Return how many partitions the topic has. 0: it is not partitioned.

        With `create`, the topic is created if it does not exist and the broker's configuration allows that.
        """
        request = PartitionsRequest(topic=topic, create=create).SerializeToString()
        deadline = self._operations.deadline()

        async def ask() -> PartitionsAnswer:
            return await self._ask_any("partitions", request, PartitionsAnswer.FromString, deadline)

        partitions = (await self._operations.retry(ask)).partitions
        if partitions > MAX_PARTITIONS:
            raise UnknownError(f"the broker reports {partitions:,} partitions of {topic}, above {MAX_PARTITIONS:,}")
        return partitions

    async def last_message(self, topic: str, *, find_first_chunk: bool = False) -> LastMessageAnswer:
        """Return the last message that a read would return. The topic's owner answers this."""
        request = LastMessageRequest(topic=topic, find_first_chunk=find_first_chunk).SerializeToString()
        deadline = self._operations.deadline()

        async def ask() -> LastMessageAnswer:
            timeout_s = self._attempt_timeout(deadline)
            address = await self._find_owner(topic, timeout_s)
            return await self._pool.call(address, "last_message", request, LastMessageAnswer.FromString, timeout_s)

        return await self._operations.retry(ask)

    async def schema(self, topic: str, version: bytes, incarnation: str = "") -> SchemaAnswer:
        """Return a version of the topic's schema; empty: the latest one. Raises NotFound if there is none, and
        IncarnationChanged if the topic has another incarnation than the given one."""
        request = SchemaRequest(topic=topic, schema_version=version, incarnation=incarnation).SerializeToString()
        deadline = self._operations.deadline()

        async def ask() -> SchemaAnswer:
            return await self._ask_any("schema", request, SchemaAnswer.FromString, deadline)

        return await self._operations.retry(ask)

    async def wait_opened(
        self,
        answer: asyncio.Future[None],
        topic: str,
        stream: BrokerStream[Any],
        what: str,
        why: Callable[[], str] = str,
        is_queued: Callable[[], bool] = bool,
    ) -> None:
        """Wait until the broker has answered on the stream that it has opened `what` ("a producer") of the topic.

        Raises the answer's error, Timeout after the operation's timeout, with `why` if that is known, and
        ServiceUnitNotReady if the topic has another owner in the meantime. There is no timeout while `is_queued`.
        """
        watch, received_before = _OwnerWatch(self, answer, topic, stream.address), stream.received_messages
        try:
            text = f"{stream.address} has not opened {what} of {topic}"
            await self._operations.wait_for(answer, text, why=why, is_queued=is_queued)
        except Timeout:
            stream.break_if_silent(received_before)
            raise
        finally:
            watch.end()

    async def _find_owner(self, topic: str, timeout_s: float) -> str:
        """Look the topic up once, at each broker at most."""
        request = LookupRequest(topic=topic, listener_name=self._listener_name).SerializeToString()
        answer = await self._any.ask(
            lambda address: self._pool.call(address, "lookup", request, LookupAnswer.FromString, timeout_s)
        )
        if not answer.address:
            raise UnknownError(f"the lookup of {topic} returned no broker")
        return answer.address

    async def _ask_any(self, method: str, request: bytes, parse: Callable[[bytes], A], deadline: float) -> A:
        timeout_s = self._attempt_timeout(deadline)
        return await self._any.ask(lambda address: self._pool.call(address, method, request, parse, timeout_s))

    def _attempt_timeout(self, deadline: float) -> float:
        return self._operations.time_left(deadline, self._connection_timeout_s)


class _OwnerWatch:
    """Repeats the lookup of a topic while a broker has not answered."""

    def __init__(self, lookup: Lookup, answer: asyncio.Future[None], topic: str, address: str) -> None:
        self._lookup = lookup
        self._answer = answer
        self._topic = topic
        self._address = address
        self._pause_s = REPEAT_LOOKUP_S
        # A task only if the answer takes long: it nearly never does.
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer = self._call_later()

    def _call_later(self) -> Timer:
        return self._lookup._operations.clock.call_later(self._pause_s, self._begin)

    def _begin(self) -> None:
        if not self._answer.done():
            self._task = asyncio.get_running_loop().create_task(self._repeat_lookup())

    async def _repeat_lookup(self) -> None:
        try:
            address = await self._lookup._find_owner(self._topic, self._lookup._connection_timeout_s)
        except MagnetarException:
            address = self._address  # no broker knows another owner
        if self._answer.done():
            return
        if address != self._address:
            self._answer.set_exception(
                ServiceUnitNotReady(f"{self._topic} has moved from {self._address}, which did not answer, to {address}")
            )
            return
        # A topic that takes long to open should not make thousands of partitions repeat their lookups frequently.
        self._pause_s *= 2
        self._timer = self._call_later()

    def end(self) -> None:
        """End without waiting: the caller goes on in this step of the loop, before anything else can close it."""
        self._timer.cancel()
        if self._task is not None:
            self._lookup._pool.cancel(self._task)


class AnyBroker:
    """Asks several brokers that can all answer the same request.

    A request that must not be done twice is sent to one after the other, as long as nothing was done (`ask_in_turn`).
    """

    def __init__(self, addresses: Sequence[str], clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        # In the order in which they are tried.
        self._addresses = list(addresses)
        self._clock = clock

    async def ask(self, ask_at: Callable[[str], Coroutine[Any, Any, A]]) -> A:
        """Return the first answer.

        Raises a broker's error at once if it is not retryable. If all brokers failed, the error has the text of each.
        """
        if len(self._addresses) == 1:
            return await ask_at(self._addresses[0])
        left = deque(self._addresses)
        asking: list[tuple[str, asyncio.Task[A]]] = []
        errors: list[MagnetarException] = []
        try:
            while left or asking:
                if left:
                    address = left.popleft()
                    asking.append((address, asyncio.get_running_loop().create_task(ask_at(address))))
                await self._wait_for_any([task for _, task in asking], self._patience_s if left else None)
                for address, task in [one for one in asking if one[1].done()]:
                    try:
                        answer = task.result()
                    except MagnetarException as error:
                        if not is_retryable(error):
                            raise
                        errors.append(error)
                        asking.remove((address, task))
                        self._move_to_end(address)
                    else:
                        self._move_to_front(address)
                        return answer
        finally:
            await _cancel_all([task for _, task in asking])
        raise _join_errors(errors)

    async def ask_in_turn(
        self, ask_at: Callable[[str], Coroutine[Any, Any, A]], nothing_done: Callable[[MagnetarException], bool]
    ) -> A:
        """Ask one broker after the other, and return the first answer.

        Raises the first error after which the request may have been done. If no broker has done it, the error has the
        text of each.
        """
        errors: list[MagnetarException] = []
        for address in list(self._addresses):
            try:
                answer = await ask_at(address)
            except MagnetarException as error:
                if is_retryable(error):
                    self._move_to_end(address)
                if not nothing_done(error):
                    raise
                errors.append(error)
            else:
                self._move_to_front(address)
                return answer
        raise _join_errors(errors)

    async def _wait_for_any(self, tasks: Sequence[asyncio.Task[Any]], patience_s: float | None) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        for task in tasks:
            task.add_done_callback(wake)
        timer = None if patience_s is None else self._clock.call_later(patience_s, wake)
        try:
            await ended
        finally:
            if timer is not None:
                timer.cancel()
            for task in tasks:
                task.remove_done_callback(wake)

    def _move_to_front(self, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.insert(0, address)

    def _move_to_end(self, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.append(address)


def _join_errors(errors: Sequence[MagnetarException]) -> MagnetarException:
    """Return an error of the last one's class, with the text of each."""
    last = errors[-1]
    if len(errors) == 1:
        return last
    error = type(last)("; ".join(dict.fromkeys(map(str, errors[:_NAMED]))))
    error.__cause__ = last.__cause__
    return error


async def _cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks whose answers are not needed any more."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        task.cancelled() or task.exception()  # asyncio logs exceptions that are never retrieved
