"""What is asked of the broker that serves a topic: of one topic without partitions, or one partition.

A call begins by admitting the topic, as a producer's or consumer's request does: `NothingDone` where another broker
serves it, or it can't be opened now. A broker that was killed and restarted is still named as the owner by nodes of its
former session, and other brokers send calls here because of them. Admitting the topic replaces such a node; without
it the calls would be refused until that session is over.

What takes the topic away in the middle of a call is `TopicUnloaded`, and then part of it may have been done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.here_calls import HereCall
from magnetar_broker.admin.names import topic_named
from magnetar_broker.admin.topic_stats import internal_stats, topic_stats
from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.topic.topic import Topic
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.managed_ledger_pb2 import TopicState
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicsHere"]

M = TypeVar("M", bound=Message)


class TopicsHere:
    def __init__(self, topics: Topics, catalog: Catalog, ownership: Ownership, broker_id: Callable[[], str]) -> None:
        self._topics = topics
        self._catalog = catalog
        self._ownership = ownership
        self._broker_id = broker_id

    def calls(self) -> dict[str, HereCall]:
        return {
            "create_topic": self._named(pb.TopicRequest, pb.Done, self._create),
            "delete_topic": HereCall(pb.DeleteRequest, pb.Done, self._delete),
            "unload_topic": self._named(pb.TopicRequest, pb.Done, self._unload),
            "check_unused": self._named(pb.TopicRequest, pb.Done, self._check_unused),
            "truncate_topic": self.on_topic(pb.TopicRequest, pb.Done, self._truncate),
            "topic_stats": self.on_topic(pb.TopicRequest, pb.TopicStatsAnswer, self._stats),
            "internal_stats": self.on_topic(pb.TopicRequest, pb.InternalStatsAnswer, self._internal_stats),
        }

    def on_topic(
        self, request: type[M], answer: type[Message], do: Callable[[Topic, M], Awaitable[Message]]
    ) -> HereCall:
        """A call for which the topic, named in the request's `topic`, is loaded; in whichever incarnation there is,
        but none is made for who names one in `incarnation`."""

        async def opened(asked: Any) -> Message:
            create = not getattr(asked, "incarnation", "")
            return await do(await self._opened(topic_named(asked.topic), create=create), asked)

        return HereCall(request, answer, opened)

    def _named(
        self, request: type[M], answer: type[Message], do: Callable[[TopicName], Awaitable[Message]]
    ) -> HereCall:
        async def checked(asked: Any) -> Message:
            name = topic_named(asked.topic)
            await self._admit(name)
            return await do(name)

        return HereCall(request, answer, checked)

    async def _admit(self, name: TopicName) -> None:
        with _not_begun():
            await self._ownership.admit(name)

    async def _opened(self, name: TopicName, *, create: bool) -> Topic:
        """A partition that nobody has used yet is made."""
        await self._admit(name)
        with _not_begun():
            return await self._topics.get(name, create=create and name.is_partition)

    async def _create(self, name: TopicName) -> pb.Done:
        if await self._catalog.topic_state(name) == TopicState.LIVE:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a topic {name} already")
        await self._topics.get(name, create=True, asked=True)
        return pb.Done()

    async def _delete(self, request: pb.DeleteRequest) -> pb.Done:
        name = topic_named(request.name)
        if await self._catalog.topic_state(name) is None:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
        await self._admit(name)
        await self._topics.delete(name, force=request.force)
        return pb.Done()

    async def _unload(self, name: TopicName) -> pb.Done:
        await self._topics.unload(name)
        return pb.Done()

    async def _check_unused(self, name: TopicName) -> pb.Done:
        topic = self._topics.get_loaded(name)
        if topic is not None and topic.in_use:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} has producers or consumers: close them, or use force")
        return pb.Done()

    async def _truncate(self, topic: Topic, request: pb.TopicRequest) -> pb.Done:
        for name in topic.subscriptions.names:
            try:
                await topic.subscriptions.skip_all(name)
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
                # It was deleted while others were skipped.
        await topic.log.truncate()
        topic.cursors.log_was_trimmed()
        return pb.Done()

    async def _stats(self, topic: Topic, request: pb.TopicRequest) -> pb.TopicStatsAnswer:
        stats = await topic_stats(topic)
        stats.owner_broker = self._broker_id()
        return pb.TopicStatsAnswer(stats=stats)

    async def _internal_stats(self, topic: Topic, request: pb.TopicRequest) -> pb.InternalStatsAnswer:
        return pb.InternalStatsAnswer(stats=internal_stats(topic))


@contextmanager
def _not_begun() -> Iterator[None]:
    """What says that a topic is not served here (now) says here that nothing was begun."""
    try:
        yield
    except BrokerError as error:
        if error.code != ErrorCode.SERVICE_NOT_READY:
            raise
        raise NothingDone(str(error)) from error
