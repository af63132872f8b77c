"""Stores the snapshots of a topic's ids in the internal cursor, as often as is due. snapshots.py has their form.

A snapshot has all names, so it takes time in proportion to them. It is due after as many entries as the setting
demands, or as the last one had names, if that is more: so an entry costs no more than one name. Large entries, such as
chunks, take long to read: it is also due after `SNAPSHOT_BYTES`, or `_BYTES_PER_NAME` for each name, if that is more.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from magnetar_broker.cursors.ack_state import MAX_ATTACHMENT_BYTES
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.cursors.subscription_limits import DEDUPLICATION_CURSOR
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.topics.deduplication.snapshots import Snapshot, encode_stored_ids
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_wire.clock import Clock

__all__ = ["SNAPSHOT_BYTES", "SnapshotSchedule"]

SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
# It takes longer to read so much than to write one name.
_BYTES_PER_NAME: Final = 16_384


class SnapshotSchedule:
    __slots__ = (
        "_clock",
        "_cursors",
        "_live_settings",
        "_log",
        "_names",
        "_new_bytes",
        "_new_entries",
        "_unsaved",
        "_will_take",
        "is_active",
        "last_names",
        "taken_at",
    )

    def __init__(
        self, log: Log, cursors: TopicCursors, names: ProducerNames[Any], live_settings: LiveSettings, clock: Clock
    ) -> None:
        self._log = log
        self._cursors = cursors
        self._names = names
        self._live_settings = live_settings
        self._clock = clock
        # Deduplication is on.
        self.is_active = False
        # The number and the size of entries whose ids are in no snapshot; when the last one was taken, and how many
        # names it has.
        self._new_entries = self._new_bytes = 0
        self.taken_at = clock.monotonic()
        self.last_names = 0
        self._will_take = False
        # Snapshots that are being saved: a second one if the topic is closed, or at the interval.
        self._unsaved = 0

    def begin(self, new_entries: int, new_bytes: int) -> None:
        """Begin with entries whose ids are in no snapshot, besides those that were counted."""
        self.is_active = True
        self.taken_at = self._clock.monotonic()
        self.count_new(new_entries, new_bytes)

    def count_new(self, entries: int, size_bytes: int = 0) -> None:
        """Count stored entries, or other changes, that are in no snapshot."""
        self._new_entries += entries
        self._new_bytes += size_bytes
        if self._is_due and not self._will_take:
            # Not at once: results of other producers, up to the log's last entry, are being reported.
            self._will_take = True
            asyncio.get_running_loop().call_soon(self._take_soon)

    @property
    def _is_due(self) -> bool:
        names = self.last_names
        if self._new_bytes >= max(SNAPSHOT_BYTES, names * _BYTES_PER_NAME):
            return True
        return self._new_entries >= max(self._live_settings.current.broker_deduplication_entries_interval, names)

    def _take_soon(self) -> None:
        self._will_take = False
        if not self._unsaved:
            self.take()

    def take(self) -> None:
        """Store a snapshot, if there is something new."""
        cursor = self._cursors.get_internal(DEDUPLICATION_CURSOR)
        if not self.is_active or not self._new_entries or cursor is None:
            return
        self._new_entries = self._new_bytes = 0
        self.taken_at = self._clock.monotonic()
        snapshot: Snapshot = encode_stored_ids(self._names.ids(self._clock.time_ms()), MAX_ATTACHMENT_BYTES)
        self.last_names = snapshot.names
        cursor.attach(self._log.last, snapshot.encoded)
        self._unsaved += 1
        cursor.call_when_saved(self._saved)

    def _saved(self, error: BrokerError | None) -> None:
        self._unsaved -= 1
        if error is None:
            self.count_new(0)
