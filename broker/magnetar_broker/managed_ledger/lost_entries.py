"""The entries of one topic that will never be read, as this life of it has met them: reported, counted, for stats."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from magnetar_broker.core.position import Position
from magnetar_broker.errors import UnreadableEntry
from magnetar_wire.topic_name import TopicName

__all__ = ["LostEntries"]

_log = logging.getLogger(__name__)
# Kept for the stats. Those beyond are counted each time that they are met.
_MOST: Final = 1000


class LostEntries:
    __slots__ = ("_name", "_on_found", "_reasons", "count")

    def __init__(self, name: TopicName, on_found: Callable[[], object] = lambda: None) -> None:
        """`on_found` is called for each entry that is found lost."""
        self._name = name
        self._on_found = on_found
        self._reasons: dict[Position, str] = {}
        self.count = 0

    def note(self, error: UnreadableEntry) -> None:
        if error.position in self._reasons:
            return
        if len(self._reasons) < _MOST:
            self._reasons[error.position] = str(error)
        self.count += 1
        self._on_found()
        _log.error("topic %s has lost an entry, and goes on without it: %s", self._name, error)

    def known(self) -> list[tuple[Position, str]]:
        """Where, and why, in the order of the log."""
        return sorted(self._reasons.items())

    def forget_up_to(self, position: Position) -> None:
        """Ledgers were deleted."""
        for one in [one for one in self._reasons if one <= position]:
            del self._reasons[one]
