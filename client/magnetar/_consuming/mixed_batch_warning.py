"""Warns the application, once for each consumer, of batches that a Key_Shared subscription can't deliver by key."""

from __future__ import annotations

import logging

from magnetar._message import DeliveredEntry

__all__ = ["MixedBatchWarning"]

log = logging.getLogger("magnetar")


class MixedBatchWarning:
    """A broker delivers a batch as a whole, by the key of its first message."""

    __slots__ = ("_is_logged",)

    def __init__(self) -> None:
        self._is_logged = False

    def check(self, topic: str, entry: DeliveredEntry) -> None:
        """Log a warning if the entry is the first that is a batch of several keys."""
        if self._is_logged or not _has_several_keys(entry):
            return
        self._is_logged = True
        log.warning(
            "entry %s:%s of %s is a batch of several keys. Key_Shared delivers it as a whole, by the key of its first "
            "message, so the other keys are not in order, and go to several consumers. Have producers send with "
            "batching_type=BatchingType.KeyBased or batching_enabled=False. (This is logged once for a consumer.)",
            entry.ledger_id,
            entry.entry_id,
            topic,
        )


def _has_several_keys(entry: DeliveredEntry) -> bool:
    columns = entry.columns
    if entry.batch_size < 2 or (columns.keys is None and columns.ordering_keys is None):
        return False
    return len({_find_key(entry, row) for row in range(len(columns))}) > 1


def _find_key(entry: DeliveredEntry, row: int) -> bytes | None:
    """Return the key by which Key_Shared distributes the message."""
    ordering_keys = entry.columns.ordering_keys
    if ordering_keys is not None and ordering_keys[row]:
        return ordering_keys[row]
    key = entry.find_key(row)
    return key.encode() if isinstance(key, str) else key
