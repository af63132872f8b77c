"""Applies changes of policies to loaded topics: reads the policies of each topic every few seconds.

Both the namespace's policies and the topics' own are cached for `metadata_cache_ttl_seconds`, so a round over ten
thousand topics reads each namespace once. A topic whose policies can't be read keeps those that it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.topics.live_settings import FindPolicies
from magnetar_broker.topics.topic import Topic
from magnetar_wire.clock import Clock

__all__ = ["MIN_INTERVAL_S", "PolicyRefresh"]

_log = logging.getLogger(__name__)
_TOPICS_PER_TURN: Final = 100
_TURN_PAUSE_S: Final = 0.001
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

    async def run(self) -> None:
        """Refresh the policies of all topics at intervals, until this is cancelled."""
        while True:
            for number, topic in enumerate(self._loaded(), 1):
                await self.refresh(topic)
                if number % _TOPICS_PER_TURN == 0:
                    await self._clock.sleep(_TURN_PAUSE_S)
            await self._clock.sleep(max(MIN_INTERVAL_S, self._settings.metadata_cache_ttl_seconds))

    async def refresh(self, topic: Topic) -> None:
        if topic.ended is not None:
            return
        try:
            policies = await self._find_policies(topic.name)
        except BrokerError as error:
            _log.info("The policies of %s can't be read now, the known ones apply: %s", topic.name, error)
            return
        except Exception:  # noqa: BLE001 (the other topics are refreshed)
            _log.exception("The policies of %s can't be read because of an internal error", topic.name)
            return
        if policies is not None:
            topic.live_settings.update(policies)
