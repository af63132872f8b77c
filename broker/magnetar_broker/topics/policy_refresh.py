"""Applies changes of policies to loaded topics: reads the policies of each topic every few seconds.

Both the namespace's policies and the topics' own are cached for `metadata_cache_ttl_seconds`, and a round over ten
thousand topics reads each namespace once. It reads several namespaces at a time, and waits for none: one that can't be
read is left out of further rounds until its topics have had their turn, and the others follow their policies. A topic
whose policies can't be read keeps those that it has.

A change may be as old as what is cached when a round uses it, and the next round comes an interval later. Together that
is less than twice `metadata_cache_ttl_seconds`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.topics.live_settings import FindPolicies
from magnetar_broker.topics.topic import Topic
from magnetar_wire.clock import Clock
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import NamespaceName

__all__ = ["MIN_INTERVAL_S", "PolicyRefresh"]

_log = logging.getLogger(__name__)
_TOPICS_PER_TURN: Final = 100
_TURN_PAUSE_S: Final = 0.001
_NAMESPACES_AT_A_TIME: Final = 32
# The interval as a part of the time for which policies are cached. The rest is for the round itself.
_SHARE: Final = 0.75
MIN_INTERVAL_S: Final = 1.0


class PolicyRefresh:
    def __init__(
        self,
        loaded: Callable[[], list[Topic]],
        find_policies: FindPolicies,
        settings: CatalogSettings,
        clock: Clock,
    ) -> None:
        self._loaded = loaded
        self._find_policies = find_policies
        self._settings = settings
        self._clock = clock
        # Namespaces whose topics are being refreshed.
        self._at_work: dict[NamespaceName, None] = {}

    async def run(self) -> None:
        """Refresh the policies of all topics at intervals, until this is cancelled."""
        async with OrderedTaskGroup() as tasks:
            slots = asyncio.Semaphore(_NAMESPACES_AT_A_TIME)
            while True:
                next_round = self._clock.monotonic() + self._interval_s
                for namespace, topics in self._list_by_namespace().items():
                    if namespace not in self._at_work:
                        await slots.acquire()
                        self._at_work[namespace] = None
                        tasks.create_task(self._refresh_all(namespace, topics, slots), name="policies")
                await self._clock.sleep(max(_TURN_PAUSE_S, next_round - self._clock.monotonic()))

    @property
    def _interval_s(self) -> float:
        return max(MIN_INTERVAL_S, _SHARE * self._settings.metadata_cache_ttl_seconds)

    def _list_by_namespace(self) -> dict[NamespaceName, list[Topic]]:
        found: dict[NamespaceName, list[Topic]] = {}
        for topic in self._loaded():
            found.setdefault(topic.name.namespace_name, []).append(topic)
        return found

    async def _refresh_all(self, namespace: NamespaceName, topics: list[Topic], slots: asyncio.Semaphore) -> None:
        try:
            for number, topic in enumerate(topics, 1):
                if not await self.refresh(topic):
                    break
                if number % _TOPICS_PER_TURN == 0:
                    await self._clock.sleep(_TURN_PAUSE_S)
        finally:
            del self._at_work[namespace]
            slots.release()

    async def refresh(self, topic: Topic) -> bool:
        """Return whether the policies of the namespace can be read."""
        if topic.ended is not None:
            return True
        try:
            policies = await self._find_policies(topic.name, topic.log.incarnation)
        except BrokerError as error:
            namespace = topic.name.namespace_name
            _log.info("The policies of %s can't be read now, the known ones apply: %s", namespace, error)
            return False
        except Exception:  # noqa: BLE001 (the other topics are refreshed)
            _log.exception("The policies of %s can't be read because of an internal error", topic.name)
            return True
        if policies is not None:
            topic.live_settings.update(policies)
        return True
