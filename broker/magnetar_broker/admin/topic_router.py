"""Route a call with the scope TOPIC from the broker that the client called to its handler at the topic's owner.

    TopicRoute     the properties of the route that a handler declares with `routed`
    TopicRouter    at any broker: forwards the call to the topic's owner, or to the owners of its partitions
    TopicLoader    at the owner: loads the topic, or one partition, and calls the handler

**Changes while a topic grows.** A growth announces the new partitions, copies the subscriptions of the first
partition to them until it finds no change there, and then shows them to clients (partitioned_topic_calls.py). So a
change goes to the first partition first. Then the number of partitions is read, announced ones included, and the others
are changed. Either the growth reads the first partition after that change and copies it; or it was announced before the
number is read, and has copied all that it will, so the change reaches the new partitions, too.

**At the owner.** First the broker ensures that it owns the topic, as for a producer's or consumer's request. A broker
that was killed and restarted is still named as the owner by nodes of its stale session, and other brokers send calls to
it because of them. `ensure_owned` replaces such a node; without it the calls would be refused until that session is
over. `RequestNotStarted` is raised if another broker owns the topic, or if it can't be loaded now. If the topic is
unloaded during the call, `TopicUnloaded` is raised, and part of the call may have been done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import make_non_persistent_error, parse_topic_name
from magnetar_broker.admin.owner_rpc import Handler, OwnerRpc
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.topics.topics import Topics
from magnetar_protos.admin_pb2 import Done
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Partitions
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicLoader", "TopicRoute", "TopicRouter", "check_single_part", "routed", "take_only"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE: Final = "topic_route"


def _take_first(name: TopicName, answers: Sequence[Any]) -> Message:
    """Merge answers that are equal, such as `Done`."""
    first: Message = answers[0]
    return first


def take_only(name: TopicName, answers: Sequence[Any]) -> Message:
    """Merge the answers of a call that is for one partition."""
    (only,) = answers
    answer: Message = only
    return answer


def _take_all(answer: Any) -> Message:
    whole: Message = answer
    return whole


@dataclass(frozen=True, slots=True)
class TopicRoute:
    # The handler gets the loaded topic; False: the topic's name, and the topic need not be loaded.
    loads: bool = True
    # Checks the request before it is forwarded: `check(group, request, parts)`, where `group` is the handler's object
    # and `parts` are the topic's partitions, or the topic itself. Raises `BrokerError`.
    check: Callable[[Any, Any, Sequence[TopicName]], Awaitable[None]] | None = None
    # The error with which a partition refuses the request if there is nothing to change or read. Such partitions are
    # skipped; if all of them are, the error is raised.
    skipped: Callable[[Any], BrokerError] | None = None
    # Reduces one partition's answer to the fields that `merge` needs, as soon as it is received.
    reduce: Callable[[Any], Message] = _take_all
    # A topic that does not exist is created, if first use by a client would create it.
    creates: bool = False
    # The request may name one of the partitions (its field `partition`): then it is for that one only.
    may_name_partition: bool = False
    # It is for non-persistent topics, too.
    non_persistent: bool = False
    # Merges the partitions' answers into one.
    merge: Callable[[TopicName, Sequence[Any]], Message] = _take_first

    @property
    def merges(self) -> bool:
        """Whether different answers are merged. Otherwise the first partition's answer stands for all."""
        return self.merge is not _take_first


def routed(route: TopicRoute) -> Callable[[F], F]:
    """Attach a route to a handler."""

    def attach(handler: F) -> F:
        setattr(handler, _ATTRIBUTE, route)
        return handler

    return attach


def _route_of(handler: Callable[..., Any]) -> TopicRoute:
    route: TopicRoute = getattr(handler, _ATTRIBUTE, TopicRoute())
    return route


class TopicRouter:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc, is_loaded: Callable[[TopicName], bool]) -> None:
        """`is_loaded`: whether this broker serves the topic now."""
        self._catalog = catalog
        self._owner_rpc = owner_rpc
        self._is_loaded = is_loaded

    def forward(self, call: AdminCall, handler: Callable[..., Any]) -> Handler:
        """Return the call's handler at the broker that the client called. `handler` is that of the owner.

        Raises ValueError if the partitions' answers may differ and the handler's route does not merge them.
        """
        route = _route_of(handler)
        if call.partitions is Partitions.EACH and call.response is not Done and not route.merges:
            raise ValueError(
                f"the answers of partitions to {call.name} would be lost, except the first one's: add a merge to the "
                "route of its handler"
            )
        group = getattr(handler, "__self__", None)

        async def handle(request: Any) -> Message:
            name = parse_topic_name(getattr(request, call.topic_field))
            if not (name.is_persistent or route.non_persistent):
                raise make_non_persistent_error(name)
            refused = call.partitions is Partitions.REFUSED
            # A loaded topic has no partitions. The reads of the catalog would take 5 % of a request for statistics.
            is_part = refused or self._is_loaded(name)
            parts = [name] if is_part else await self._list_parts(name, create=route.creates)
            is_whole = True
            if route.may_name_partition and parts != [name] and request.HasField("partition"):
                parts, is_whole = [_get_partition(parts, request.partition)], False
            if route.check is not None:
                await route.check(group, request, parts)
            if refused:
                return await self._call_topic(call, name, request)
            if parts == [name] or not is_whole:
                return await self._call_part(call, parts[0], request)
            if call.partitions is Partitions.SINGLE:
                check_single_part(call.name, parts)
                return await self._call_part(call, parts[0], request)
            if call.idempotent:
                return await self._read_parts(call, route, name, parts, request)
            return await self._change_parts(call, route, name, parts[0], request)

        return handle

    async def _list_parts(self, name: TopicName, *, create: bool) -> list[TopicName]:
        partitions = await self._catalog.resolve_partitions(name, create) if create else 0
        if partitions or not create:
            return await self._catalog.expand_partitions(name)
        return [name]

    async def _call_topic(self, call: AdminCall, name: TopicName, request: Message) -> Message:
        try:
            return cast(Message, await self._owner_rpc.call_topic_owner(name, call.name, request))
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_NOT_FOUND or name.is_partition:
                raise
            parts = await self._catalog.expand_partitions(name)
            if parts == [name]:
                raise
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} has partitions: ask for each of its partitions, from {parts[0]} on"
            ) from error

    async def _call_part(self, call: AdminCall, part: TopicName, request: Message) -> Message:
        copy = type(request)()
        copy.CopyFrom(request)
        setattr(copy, call.topic_field, str(part))
        return cast(Message, await self._owner_rpc.call_topic_owner(part, call.name, copy))

    async def _read_parts(
        self, call: AdminCall, route: TopicRoute, name: TopicName, parts: Sequence[TopicName], request: Message
    ) -> Message:
        nothing_found = route.skipped(request) if route.skipped is not None else None

        async def read(part: TopicName) -> list[Message]:
            try:
                return [route.reduce(await self._call_part(call, part, request))]
            except BrokerError as error:
                if nothing_found is None or error.code != nothing_found.code:
                    raise
                return []

        answers = [answer for found in await map_bounded(parts, read) for answer in found]
        if not answers:
            assert nothing_found is not None
            raise nothing_found
        return route.merge(name, answers)

    async def _change_parts(
        self, call: AdminCall, route: TopicRoute, name: TopicName, first: TopicName, request: Message
    ) -> Message:
        nothing_changed = route.skipped(request) if route.skipped is not None else None

        async def change(part: TopicName) -> list[Message]:
            try:
                return [await self._call_part(call, part, request)]
            except BrokerError as error:
                if nothing_changed is None or error.code != nothing_changed.code:
                    raise
                return []

        answers = await change(first)
        try:
            others = (await self._catalog.partitioned.list_announced(name))[1:]
            for found in await map_bounded(others, change):
                answers += found
        except BrokerError as error:
            if call.is_repeated_at_owner:
                raise
            raise _partly_done(error) from error
        if not answers:
            assert nothing_changed is not None
            raise nothing_changed
        return route.merge(name, answers)


class TopicLoader:
    def __init__(self, topics: Topics, ownership: Ownership) -> None:
        self._topics = topics
        self._ownership = ownership

    def load_for(self, call: AdminCall, handler: Callable[..., Any]) -> Handler:
        """Return a handler that loads the request's topic and passes it on."""
        route = _route_of(handler)

        async def handle(request: Any) -> Message:
            name = parse_topic_name(getattr(request, call.topic_field))
            with _not_started():
                await self._ownership.ensure_owned(name)
            if not route.loads:
                return cast(Message, await handler(name, request))
            # A partition that was never used is created, but not if the request names an incarnation.
            create = route.creates or (name.is_partition and not getattr(request, "incarnation", ""))
            with _not_started():
                topic = await self._topics.get(name, create=create)
            return cast(Message, await handler(topic, request))

        return handle


@contextmanager
def _not_started() -> Iterator[None]:
    """Raise `RequestNotStarted` if the topic is not served now: the handler was not called."""
    try:
        yield
    except BrokerError as error:
        if error.code != ErrorCode.SERVICE_NOT_READY:
            raise
        raise RequestNotStarted(str(error)) from error


def check_single_part(call: str, parts: Sequence[TopicName]) -> None:
    """Raise `BrokerError` if the topic has several partitions."""
    if len(parts) > 1:
        raise BrokerError(
            ErrorCode.NOT_ALLOWED, f"{parts[0].base} has {len(parts):,} partitions: call {call} for one of them"
        )


def _get_partition(parts: Sequence[TopicName], number: int) -> TopicName:
    if not 0 <= number < len(parts):
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"{parts[0].base} has no partition {number}: it has {len(parts):,} partitions"
        )
    return parts[number]


def _partly_done(error: BrokerError) -> BrokerError:
    """Return the error to raise after other partitions were changed: that this one can't be changed now does not say
    that nothing was done."""
    if error.code != ErrorCode.SERVICE_NOT_READY:
        return error
    return BrokerError(ErrorCode.UNKNOWN_ERROR, f"it may have been done on some of the partitions only: {error}")
