"""Periodic maintenance of all loaded topics, in one task: ten thousand idle topics need no tasks of their own.

Each interval is one round over the topics, in ten steps. Each step handles a tenth of the topics, up to a limit. With
very many topics a round takes longer, and the cost per second stays the same (CHK-59). For each topic:

- The log is ticked, which rolls its ledger over by age. Cursors are ticked, which deletes the ledgers of idle cursors.
- The log is trimmed if its first ledger is not needed by a durable cursor, not retained and not held by a lease, or if
  a trimmed ledger is not deleted yet.
- Messages that are too old are acknowledged (message_expiry.py).
- Subscriptions that are not used are deleted (subscription_expiry.py).
- Expired leases are removed from the topic's node, and counted.
- Backlog quotas are enforced (backlog_quotas.py), at an interval of their own.
- A topic that is not used is deleted (inactive_topics.py) or unloaded, if the settings enable that. A
  non-persistent one, which then does not exist any more, is unloaded in any case.

Topics that are not loaded are visited now and then (topic_visits.py).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.inactive_topics import is_deletable, record_activity
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topics import Topics
from magnetar_wire.clock import Clock
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["Housekeeping"]

_log = logging.getLogger(__name__)
_STEPS: Final = 10
_MAX_TOPICS_PER_STEP: Final = 200
# For a topic that is loaded for a moment: runs of its work, the pause while other work on it goes on, and how long it
# waits for cursors.
_MAX_RUNS: Final = 5
_PAUSE_S: Final = 0.1
_CURSORS_OPEN_S: Final = 10.0
# Topics that are trimmed, deleted or closed at a time.
_MAX_AT_WORK: Final = 16


class Housekeeping:
    def __init__(
        self,
        topics: Topics,
        settings: TopicSettings,
        clock: Clock,
        counters: BrokerCounters | None = None,
        delete_empty_partitioned: Callable[[TopicName], Awaitable[None]] | None = None,
    ) -> None:
        """`delete_empty_partitioned` deletes a partitioned topic of which no partition exists."""
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._counters = counters or BrokerCounters()
        self._delete_empty_partitioned = delete_empty_partitioned
        # Topics that are being trimmed, deleted or closed.
        self._at_work: dict[Topic, None] = {}
        # Topics whose backlog quotas are being enforced.
        self._enforcing: dict[Topic, None] = {}

    async def run(self) -> None:
        """Maintain the topics until this is cancelled."""
        pause_s = self._settings.topic_housekeeping_interval_seconds / _STEPS
        async with OrderedTaskGroup() as tasks:
            left: list[Topic] = []
            size = 0
            next_round = self._clock.monotonic()
            while True:
                await self._clock.sleep(pause_s)
                if not left:
                    if self._clock.monotonic() < next_round:
                        continue
                    next_round = self._clock.monotonic() + self._settings.topic_housekeeping_interval_seconds
                    left = self._topics.loaded()
                    size = min(-(-len(left) // _STEPS), _MAX_TOPICS_PER_STEP)
                step, left = left[:size], left[size:]
                for topic in step:
                    self.maintain_topic(topic, tasks)

    def maintain_topic(self, topic: Topic, tasks: OrderedTaskGroup) -> None:
        now = self._clock.monotonic()
        self._begin_enforcing(topic, now, tasks)
        if topic.ended is not None or topic in self._at_work:
            return
        topic.log.tick()
        topic.cursors.tick(now)
        topic.deduplication.tick(now)
        topic.producers.report_waiting()
        topic.report_terminated()
        record_activity(topic, now)
        self._count_lapsed_leases(topic)
        if len(self._at_work) < _MAX_AT_WORK and self._needs_work(topic, now):
            self._at_work[topic] = None
            tasks.create_task(self._work(topic, now), name="housekeeping")

    async def work_through(self, topic: Topic) -> None:
        """Do all that is due for a topic that is loaded for a moment only."""
        await self._wait_until_open(topic)
        for _ in range(_MAX_RUNS):
            now = self._clock.monotonic()
            if topic.ended is not None:
                return
            if topic in self._at_work or topic in self._enforcing:
                await self._clock.sleep(_PAUSE_S)
                continue
            record_activity(topic, now)
            if topic.quotas.is_due(now):
                self._enforcing[topic] = None
                await self._enforce_quotas(topic)
            self._count_lapsed_leases(topic)
            if topic.ended is not None or topic in self._at_work or not self._needs_work(topic, now):
                return
            self._at_work[topic] = None
            await self._work(topic, now)
            # What has expired is trimmed when that is saved.
            await topic.cursors.flush()

    async def _wait_until_open(self, topic: Topic) -> None:
        """Wait a while for the cursors: what is not known of them prevents nearly all work."""
        deadline = self._clock.monotonic() + _CURSORS_OPEN_S
        while topic.ended is None and self._clock.monotonic() < deadline:
            if all(one.is_damaged for one in topic.cursors.unopened_cursors()):
                return
            await self._clock.sleep(_PAUSE_S)

    def _begin_enforcing(self, topic: Topic, now: float, tasks: OrderedTaskGroup) -> None:
        if topic.ended is not None or topic in self._enforcing or len(self._enforcing) == _MAX_AT_WORK:
            return
        if topic.quotas.is_due(now):
            self._enforcing[topic] = None
            tasks.create_task(self._enforce_quotas(topic), name="backlog quotas")

    async def _enforce_quotas(self, topic: Topic) -> None:
        try:
            await topic.quotas.enforce()
        except BrokerError as error:
            _log.info("The backlog quotas of %s can't be enforced now: %s", topic.name, error)
        except Exception:  # noqa: BLE001 (the other topics go on)
            _log.exception("The backlog quotas of %s can't be enforced because of an internal error", topic.name)
        finally:
            del self._enforcing[topic]

    def _count_lapsed_leases(self, topic: Topic) -> None:
        lapsed = topic.log.leases.lapsed
        if lapsed > topic.counted_lapsed_leases:
            more = lapsed - topic.counted_lapsed_leases
            _log.info("%s: removed %d leases, which were not renewed in time", topic.name, more)
            self._counters.leases_lapsed += more
            topic.counted_lapsed_leases = lapsed

    def _needs_work(self, topic: Topic, now: float) -> bool:
        if topic.log.leases.has_lapsed or topic.message_expiry.is_due(now) or topic.subscription_expiry.is_due(now):
            return True
        return self._can_trim(topic) or self._is_idle(topic, now) or is_deletable(topic, now)

    def _can_trim(self, topic: Topic) -> bool:
        log = topic.log
        return (log.closed_ledgers > 0 or log.has_ledgers_to_delete) and log.may_trim(
            topic.cursors.find_slowest_position()
        )

    def _is_idle(self, topic: Topic, now: float) -> bool:
        after_s = self._settings.unload_idle_topics_after_seconds
        if not after_s and not topic.name.is_persistent:
            # Nothing is lost with it.
            after_s = topic.live_settings.current.broker_delete_inactive_topics_max_inactive_duration_seconds
        return after_s > 0 and now - topic.unused_since >= after_s

    async def _work(self, topic: Topic, now: float) -> None:
        try:
            if topic.log.leases.has_lapsed:
                await topic.log.leases.remove_lapsed()
            if topic.message_expiry.is_due(now):
                await topic.message_expiry.run()
            if topic.subscription_expiry.is_due(now):
                await topic.subscription_expiry.run()
            if self._can_trim(topic):
                await self._trim(topic)
            elif is_deletable(topic, now):
                await self._delete_inactive(topic)
            elif self._is_idle(topic, now):
                await self._topics.unload(topic.name, TopicUnloaded(f"{topic.name} was closed, since it was idle"))
        except BrokerError as error:
            _log.info("The housekeeping of %s failed: %s", topic.name, error)
        except Exception:  # noqa: BLE001 (the other topics go on)
            _log.exception("The housekeeping of %s failed because of an internal error", topic.name)
        finally:
            del self._at_work[topic]

    async def _delete_inactive(self, topic: Topic) -> None:
        _log.info("Deleting %s, which is inactive", topic.name)
        await self._topics.delete(topic.name, force=False, only_if=lambda one: self._may_delete(topic, one))
        deletes_partitioned = topic.live_settings.current.broker_delete_inactive_partitioned_topic_metadata_enabled
        if topic.name.is_partition and deletes_partitioned and self._delete_empty_partitioned is not None:
            await self._delete_empty_partitioned(topic.name.base)

    def _may_delete(self, chosen: Topic, found: Topic | None) -> bool:
        """Return whether the topic is still the chosen one, and inactive, and no reader has got a lease since."""
        return found is chosen and is_deletable(chosen, self._clock.monotonic())

    async def _trim(self, topic: Topic) -> None:
        if await topic.log.trim(topic.cursors.find_slowest_position):
            topic.drop_trimmed_ledgers()
