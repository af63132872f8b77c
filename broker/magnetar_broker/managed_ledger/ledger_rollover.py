"""Creates a topic's next ledger, and closes its current one.

Both are retried while the reason may pass: too few bookies are available, the metadata store does not answer or is
full. If ledgers fail one soon after another, the next one is created after a pause (managed_ledger/ledger_backoff.py).
`waiting_for` is the reason for the wait. Other failures are raised, and the caller unloads the topic: `TopicUnloaded`
if the list or the ledger belongs to another owner or the outcome is unknown; `LedgerError` and `MetadataError`
otherwise.
"""

from __future__ import annotations

import logging
from typing import Final

from magnetar_bookie.errors import CloseLost, LedgerNotClaimed, NotEnoughBookies, OutcomeNotKnown
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.managed_ledger.ledger_backoff import LedgerBackoff
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_metadata.errors import StoreFull, Unavailable
from magnetar_wire.clock import Clock

__all__ = ["LedgerNotNeeded", "LedgerRollover"]

_log = logging.getLogger(__name__)
_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 2.0
# The maximum number of attempts to close a ledger if each has an unknown outcome. Then the topic is unloaded.
_MAX_CLOSES: Final = 5


class LedgerNotNeeded(Exception):
    """The topic is being terminated before its next ledger was created."""


class LedgerRollover:
    """Creates and closes the ledgers of one topic, one at a time."""

    __slots__ = (
        "_backoff",
        "_client",
        "_clock",
        "_created_with",
        "_last_failure",
        "_node",
        "_pause_s",
        "_striping",
        "is_needed",
        "waiting_for",
    )

    def __init__(self, node: TopicNode, client: LedgerClient, striping: LedgerStriping, clock: Clock) -> None:
        self._node = node
        self._client = client
        self._striping = striping
        self._created_with = striping.current
        self._clock = clock
        self._pause_s = _PAUSE_S
        self._backoff = LedgerBackoff()
        # Why the last failed ledger failed.
        self._last_failure = ""
        # Whether a ledger that waits for bookies is still to be created.
        self.is_needed = True
        # Why appends wait; empty: for nothing but the bookies' answers.
        self.waiting_for = ""

    async def create_ledger(self, *, chunks: bool = False) -> LedgerWriter:
        """Create a ledger and add it to the list, which marks it if it may hold `chunks` of messages.

        If this is cancelled, the ledger may be in the list, empty. Then the next owner removes it. Raises
        `LedgerNotNeeded`, too.
        """
        await self._pause_after_failures()
        self._striping.refresh_soon()
        while True:
            new_ledger, writer = await self._create()
            try:
                await self._record(new_ledger, chunks)
            except LedgerNotClaimed:
                writer.abandon()
                continue
            except BaseException:
                writer.abandon()
                raise
            self._clear_wait()
            return writer

    @property
    def is_outdated(self) -> bool:
        """Whether the striping of the policies has changed since the last ledger was created."""
        return self._created_with != self._striping.current

    def stop(self) -> None:
        self._striping.close()

    async def _pause_after_failures(self) -> None:
        pause_s = self._backoff.pause_s(self._clock.monotonic())
        if pause_s:
            self._set_wait(
                f"ledgers failed repeatedly, so the next one is created after {pause_s:.2f} s: {self._last_failure}"
            )
            await self._clock.sleep(pause_s)

    async def _create(self) -> tuple[NewLedger, LedgerWriter]:
        while True:
            try:
                self._created_with = self._striping.current
                return await self._client.create(self._created_with, f"topic {self._node.name}")
            except NotEnoughBookies as error:
                self._set_wait(str(error))
                await self._striping.wait_for_bookies(self._client, lambda: self.is_needed)
                if not self.is_needed:
                    self._clear_wait()
                    raise LedgerNotNeeded from None
            except (Unavailable, StoreFull) as error:
                await self._pause(error)

    async def _record(self, new_ledger: NewLedger, chunks: bool) -> None:
        while True:
            try:
                change = ListChange(
                    new_ledger=new_ledger.ledger_id, chunks=chunks, empty=self._node.ledger_list.empty_ledger_id
                )
                return await self._node.change(change, new_ledger)
            except (Unavailable, StoreFull) as error:
                await self._pause(error)

    async def close_ledger(self, writer: LedgerWriter) -> None:
        """Close the ledger at its last confirmed entry, and mark it as closed in the list in memory."""
        ledger_id, name = writer.ledger_id, self._node.name
        self._striping.refresh_soon()  # for the next ledger
        for attempt in range(1, _MAX_CLOSES + 1):
            try:
                metadata = await self._close(writer)
                break
            except CloseLost as error:
                raise TopicUnloaded(f"topic {name} was taken over by another broker: {error}") from error
            except OutcomeNotKnown as error:
                if attempt == _MAX_CLOSES:
                    raise TopicUnloaded(f"unknown at which entry ledger {ledger_id} of {name} ends: {error}") from error
                await self._pause(error)
        listed = self._node.ledger_list.ledgers[-1]
        if (listed.ledger_id, listed.entries - 1) != (ledger_id, metadata.last_entry_id):
            known = f"only {listed.entries} entries of ledger {listed.ledger_id} are known"
            raise TopicUnloaded(f"ledger {ledger_id} of {name} ends at entry {metadata.last_entry_id}, but {known}")
        self._clear_wait()
        if writer.failure is not None:
            self._backoff.count_failure(self._clock.monotonic(), self._client.randomness.random())
            self._last_failure = str(writer.failure)
        self._node.ledger_list.set_closed(metadata.closed_ms)

    async def _close(self, writer: LedgerWriter) -> LedgerMetadata:
        while True:
            try:
                return await writer.close(lambda: self._node.ledger_list.properties_at_close)
            except (Unavailable, StoreFull) as error:
                await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        self._set_wait(str(error))
        await self._clock.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _set_wait(self, reason: str) -> None:
        if not self.waiting_for:
            _log.warning("Publishes to %s wait: %s", self._node.name, reason)
        self.waiting_for = reason

    def _clear_wait(self) -> None:
        self.waiting_for = ""
        self._pause_s = _PAUSE_S
