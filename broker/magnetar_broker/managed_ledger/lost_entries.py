"""The lost entries of one topic that were found since its broker opened it: logged, counted and listed in its stats.

Consumers and readers report a lost entry each time that they pass it, so the set of known ones decides whether an entry
is new: each is counted once. The first 1,000 are logged one by one. The set is a bitmap in blocks of 1,024 entries of
one ledger, and has at most 4,096 blocks, about 1 MB: a lost ledger takes few of them. With all blocks in use an entry
outside of them is not counted, so the count is a lower bound: it is never more than what is lost. Up to 1,000 are
listed with the reason, until their ledgers are deleted. A read in flight can report an entry of a ledger that has been
deleted: the report is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import UnreadableEntry
from magnetar_broker.position import Position
from magnetar_wire.topic_name import TopicName

__all__ = ["LostEntries"]

_log = logging.getLogger(__name__)
_MAX_LISTED: Final = 1_000
_MAX_LOGGED: Final = 1_000
_MAX_BLOCKS: Final = 4_096
_BLOCK_ENTRIES: Final = 1_024


class LostEntries:
    __slots__ = ("_blocks", "_forgotten_up_to", "_full", "_name", "_on_found", "_reasons", "count")

    def __init__(self, name: TopicName, on_found: Callable[[], object] = lambda: None) -> None:
        """`on_found` is called for each entry that is counted."""
        self._name = name
        self._on_found = on_found
        self._reasons: dict[Position, str] = {}
        # (ledger id, entry id // _BLOCK_ENTRIES) to the bits of the known entries; never 0.
        self._blocks: dict[tuple[int, int], int] = {}
        # It was logged that there was no block for an entry.
        self._full = False
        # The last ledger whose entries were forgotten.
        self._forgotten_up_to = -1
        # The entries that were counted, those of ledgers that were deleted since among them.
        self.count = 0

    def report(self, error: UnreadableEntry) -> None:
        """Log and count the entry, unless it is known."""
        if error.position.ledger_id <= self._forgotten_up_to:
            return
        number, bit = divmod(error.position.entry_id, _BLOCK_ENTRIES)
        key = (error.position.ledger_id, number)
        bits = self._blocks.get(key, 0)
        if bits >> bit & 1:
            return
        if not bits and len(self._blocks) >= _MAX_BLOCKS:
            if not self._full:
                self._full = True
                _log.error(
                    "Topic %s has lost more entries than can be counted: %d were counted, and others only if they are "
                    "near those", self._name, self.count,
                )  # fmt: skip
            return
        self._blocks[key] = bits | 1 << bit
        if len(self._reasons) < _MAX_LISTED:
            self._reasons[error.position] = str(error)
        self.count += 1
        self._on_found()
        if self.count <= _MAX_LOGGED:
            _log.error("Topic %s has lost an entry, and continues without it: %s", self._name, error)
        elif self.count == _MAX_LOGGED + 1:
            _log.error(
                "Topic %s has lost more than %d entries: further ones are counted, but not logged",
                self._name,
                _MAX_LOGGED,
            )

    def list_known(self) -> list[tuple[Position, str]]:
        """Return the position of each listed entry and the reason, in the order of the log."""
        return sorted(self._reasons.items())

    def forget_ledgers(self, last_ledger_id: int) -> None:
        """Forget the entries of ledgers up to this one, which were deleted. Later reports of them are ignored."""
        self._forgotten_up_to = max(self._forgotten_up_to, last_ledger_id)
        for position in [one for one in self._reasons if one.ledger_id <= last_ledger_id]:
            del self._reasons[position]
        for key in [one for one in self._blocks if one[0] <= last_ledger_id]:
            del self._blocks[key]
