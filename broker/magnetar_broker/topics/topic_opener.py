"""Opens one topic: from what is stored of it, or by creating it.

Nearly all topics that are opened exist. So the topic is opened first without a check whether it exists. If it does not,
and the request may create it, the catalog checks whether it may exist (`TopicCatalog.prepare_creation`). The
transaction that creates the topic includes that check. If a change of the namespace has prevented it, it is repeated.

`Topics` ensures that a topic is opened once at a time, and only while this broker owns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.errors import BrokerError, NamespaceChanged
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.interface import TopicCatalog, TopicStorage
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.topic_name import TopicName

__all__ = ["OPEN_EXISTING", "Creation", "TopicOpener"]

# The maximum number of attempts if changes of the namespace prevent the creation. Then the request fails: nothing was
# done.
_MAX_CREATION_ATTEMPTS: Final = 30


@dataclass(frozen=True, slots=True)
class Creation:
    """Whether a request may create the topic that it opens."""

    is_allowed: bool
    # A request creates the topic, so its creation on first use need not be allowed.
    is_explicit: bool = False
    # What the topic has when this request creates it.
    properties: Mapping[str, bytes] = field(default_factory=dict)

    def exceeds(self, other: Creation) -> bool:
        """Return whether this request may create a topic that the other one may not create."""
        return (self.is_allowed, self.is_explicit) > (other.is_allowed, other.is_explicit)


OPEN_EXISTING: Final = Creation(is_allowed=False)


class TopicOpener:
    def __init__(
        self,
        storage: TopicStorage,
        non_persistent: TopicStorage | None,
        catalog: TopicCatalog,
        settings: TopicSettings,
        read_topic_policies: Callable[[TopicName], Awaitable[Policies]] | None,
    ) -> None:
        """The arguments are those of `Topics`."""
        self._storage = storage
        self._non_persistent = non_persistent
        self._catalog = catalog
        self._settings = settings
        self._read_topic_policies = read_topic_policies

    def get_storage(self, name: TopicName) -> TopicStorage:
        """Raises `BrokerError` if topics of that kind are not served."""
        if name.is_persistent:
            if not self._settings.enable_persistent_topics and not is_system_topic(name):
                raise _not_enabled(name, "enable_persistent_topics")
            return self._storage
        if self._non_persistent is None or not self._settings.enable_non_persistent_topics:
            raise _not_enabled(name, "enable_non_persistent_topics")
        return self._non_persistent

    async def read_own_policies(self, name: TopicName) -> Policies:
        """Return the policies of the topic without its namespace's, at most a few seconds old."""
        return Policies() if self._read_topic_policies is None else await self._read_topic_policies(name)

    def begin_reading_policies(self, name: TopicName) -> asyncio.Task[Policies] | None:
        """Read the topic's own policies in a task, while the topic waits for its turn and is recovered. The caller
        cancels it. None: topics have no policies of their own."""
        if self._read_topic_policies is None:
            return None
        return asyncio.get_running_loop().create_task(self.read_own_policies(name))

    async def open(
        self,
        name: TopicName,
        creation: Creation,
        own_policies: asyncio.Task[Policies] | None,
        log_opened: Callable[[Topic], object],
    ) -> Topic:
        """Open the topic. `log_opened` is called with it as soon as it accepts messages. Raises `BrokerError`."""
        storage = self.get_storage(name)
        # Nothing is changed before the catalog has agreed. What is prefetched may be stale, as any read may be.
        policies, prefetched = await asyncio.gather(self._catalog.check_topic(name), storage.prefetch(name))
        try:
            return await storage.open(
                name,
                policies=policies,
                own_policies=own_policies,
                prefetched=prefetched,
                log_opened=log_opened,
            )
        except BrokerError as error:
            if not creation.is_allowed or error.code != ErrorCode.TOPIC_NOT_FOUND:
                raise
        return await self._create(storage, name, creation, policies, own_policies, log_opened)

    async def _create(
        self,
        storage: TopicStorage,
        name: TopicName,
        creation: Creation,
        policies: Policies,
        own_policies: asyncio.Task[Policies] | None,
        log_opened: Callable[[Topic], object],
    ) -> Topic:
        attempts = 0
        async with self._catalog.creation_turn(name, policies):
            while True:
                checks = await self._catalog.prepare_creation(name, explicit=creation.is_explicit)
                try:
                    return await storage.open(
                        name,
                        policies=policies,
                        if_absent=NewTopic(checks, creation.properties),
                        own_policies=own_policies,
                        log_opened=log_opened,
                    )
                except NamespaceChanged:
                    # Each change of a policy changes the namespace.
                    attempts += 1
                    if attempts == _MAX_CREATION_ATTEMPTS:
                        raise
                    policies = await self._catalog.check_topic(name)


def _not_enabled(name: TopicName, setting: str) -> BrokerError:
    kind = "persistent" if name.is_persistent else "non-persistent"
    return BrokerError(
        ErrorCode.NOT_ALLOWED, f"{name} is not served: {kind} topics are switched off at this broker ({setting})"
    )
