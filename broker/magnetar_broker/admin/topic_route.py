"""Declare how a call with the scope TOPIC gets to its handler, beside the handler.

The handler itself runs at the topic's owner, for one topic or one partition. `TopicRouter` does the rest at the broker
that the client asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from magnetar_broker.errors import BrokerError
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicRoute", "route_of", "routed"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE: Final = "topic_route"


def _take_first(name: TopicName, answers: Sequence[Any]) -> Message:
    """Merge answers that are equal, such as `Done`."""
    first: Message = answers[0]
    return first


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
    # The error with which a partition refuses the request if there is nothing to change. Such partitions are skipped;
    # if all of them are, the error is raised.
    skipped: Callable[[Any], BrokerError] | None = None
    # Reduces one partition's answer to the fields that `merge` needs, as soon as it is received.
    reduce: Callable[[Any], Message] = _take_all
    # Merges the partitions' answers into one.
    merge: Callable[[TopicName, Sequence[Any]], Message] = _take_first

    @property
    def merges(self) -> bool:
        """Whether answers that differ are merged. Otherwise the first partition's answer is that of all."""
        return self.merge is not _take_first


def routed(route: TopicRoute) -> Callable[[F], F]:
    """Attach a route to a handler."""

    def attach(handler: F) -> F:
        setattr(handler, _ATTRIBUTE, route)
        return handler

    return attach


def route_of(handler: Callable[..., Any]) -> TopicRoute:
    route: TopicRoute = getattr(handler, _ATTRIBUTE, TopicRoute())
    return route
