"""Admit and load the topic of a call at its owner: a topic without partitions, or one partition.

A call begins by admitting the topic, as a producer's or consumer's request does. `NothingDone` is raised if another
broker owns it, or if it can't be loaded now. A broker that was killed and restarted is still named as the owner by
nodes of its former session, and other brokers send calls to it because of them. Admitting the topic replaces such a
node; without it the calls would be refused until that session is over.

If the topic is unloaded during the call, `TopicUnloaded` is raised, and part of the call may have been done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from google.protobuf.message import Message

from magnetar_broker.admin.call_server import Handler
from magnetar_broker.admin.names import parse_topic_name
from magnetar_broker.admin.topic_route import route_of
from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.topic.topics import Topics
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin_call import AdminCall

__all__ = ["LocalTopics"]


class LocalTopics:
    def __init__(self, topics: Topics, ownership: Ownership) -> None:
        self._topics = topics
        self._ownership = ownership

    def load_for(self, call: AdminCall, handler: Callable[..., Any]) -> Handler:
        """Return a handler that loads the request's topic and passes it on."""
        loads = route_of(handler).loads

        async def handle(request: Any) -> Message:
            name = parse_topic_name(getattr(request, call.topic_field))
            with _not_begun():
                await self._ownership.admit(name)
            if not loads:
                return cast(Message, await handler(name, request))
            # A partition that was never used is created, but not if the request names an incarnation.
            create = name.is_partition and not getattr(request, "incarnation", "")
            with _not_begun():
                topic = await self._topics.get(name, create=create)
            return cast(Message, await handler(topic, request))

        return handle


@contextmanager
def _not_begun() -> Iterator[None]:
    """Raise `NothingDone` if the topic is not served now: the call has not begun."""
    try:
        yield
    except BrokerError as error:
        if error.code != ErrorCode.SERVICE_NOT_READY:
            raise
        raise NothingDone(str(error)) from error
