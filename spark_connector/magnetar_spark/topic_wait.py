"""Finds the topics that a query begins with, and waits for those that do not exist yet (`waitForTopic`).

A query that begins needs each topic that it names, or one that matches its pattern. It looks every `_LOOK_EVERY_S`
until all are there or the time is over, and says then which topic is missing. A stream with a pattern takes what there
is: it waits only where the option is given, and begins without any topic when the time is over. A namespace that does
not exist is waited for as a topic is, and needed in any case: it is never created by publishing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from magnetar import MessageId
from magnetar.exceptions import NotFound, TopicNotFound
from magnetar_spark.errors import NoSuchTopic
from magnetar_spark.options.topic_selection import TopicChoice
from magnetar_spark.planning.topic_discovery import ReadLog, Topics
from magnetar_spark.some_at_a_time import some_at_a_time
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["find_topics"]

_LOOK_EVERY_S: Final = 0.5


async def find_topics(
    admin: AsyncAdmin,
    topics: Topics,
    choice: TopicChoice,
    wait_s: float,
    *,
    needed: bool = True,
    before_look: Callable[[], Awaitable[None]] | None = None,
) -> Sequence[ReadLog]:
    """Return the logs of all topics. Raises NoSuchTopic where one is `needed`, or the namespace of a pattern, that does
    not exist in time. `before_look` is awaited before each look."""
    deadline = time.monotonic() + wait_s
    waited = f", and none was created within the {wait_s:g} s of waitForTopic" if wait_s else ""
    while True:
        if before_look is not None:
            await before_look()
        logs: Sequence[ReadLog] | None
        try:
            logs = await topics.find(now=True)
        except NotFound:
            logs = None
        missing = None if logs is None else await _missing(admin, choice, logs)
        if logs is not None and (missing is None or not (needed or wait_s)):
            return logs
        left = deadline - time.monotonic()
        if left <= 0:
            break
        await asyncio.sleep(min(_LOOK_EVERY_S, left))
    if logs is None:
        raise NoSuchTopic(
            f"there is no namespace {choice.namespace}{waited}: create it first, correct the pattern, or "
            "let the query wait for it with the option waitForTopic, such as 5m"
        )
    if not needed:
        return logs
    raise NoSuchTopic(
        f"there is no topic {missing}{waited}: create it or publish to it first, correct the name, or let "
        "the query wait for it with the option waitForTopic, such as 5m"
    )


async def _missing(admin: AsyncAdmin, choice: TopicChoice, logs: Sequence[ReadLog]) -> str | None:
    """None: all are there. A partition that the metadata name exists."""
    if choice.namespace is not None:
        return None if logs else f"that matches {choice}"
    named = [log for log in logs if log.partition < 0 or TopicName.parse(log.log) in choice.names]
    exist = await some_at_a_time(lambda log: _exists(admin, log.log), named)
    return next((log.log for log, exists in zip(named, exist, strict=True) if not exists), None)


async def _exists(admin: AsyncAdmin, log: str) -> bool:
    try:
        await admin.reading.place(log, MessageId.latest)
    except (NotFound, TopicNotFound):
        return False
    return True
