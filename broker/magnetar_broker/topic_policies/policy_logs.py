"""The events topics that this broker owns, opened when they are needed."""

from __future__ import annotations

from magnetar_broker.topic_policies.policy_log import FindIncarnation, PolicyLog
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_broker.topics.topics import Topics
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["PolicyLogs"]


class PolicyLogs:
    def __init__(self, topics: Topics, find_incarnation: FindIncarnation, clock: Clock) -> None:
        self._topics = topics
        self._find_incarnation = find_incarnation
        self._clock = clock
        self._tasks = TopicTasks()
        # Of topics that are loaded, or were when they were used last.
        self._logs: dict[TopicName, PolicyLog] = {}

    async def open(self, name: TopicName, *, create: bool) -> PolicyLog:
        """Return the events topic of this name, which is created if `create` is set. Raises `BrokerError`,
        TOPIC_NOT_FOUND among them."""
        topic = await self._topics.get(name, create=create, explicit=create)
        found = self._logs.get(name)
        if found is None or found.topic is not topic:
            self._logs = {key: one for key, one in self._logs.items() if one.topic.ended is None}
            found = self._logs[name] = PolicyLog(topic, self._find_incarnation, self._clock, self._tasks)
        await found.load()
        return found

    async def close(self) -> None:
        """Cancel all changes. Their topics are closed."""
        self._logs = {}
        await self._tasks.cancel()
