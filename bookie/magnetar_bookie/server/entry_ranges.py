"""Entries as an inventory names them: by ranges."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_protos.ledger_pb2 import EntryRange

__all__ = ["ranges_of"]


def ranges_of(entry_ids: Sequence[int]) -> list[EntryRange]:
    ranges: list[EntryRange] = []
    for entry_id in entry_ids:
        if ranges and ranges[-1].last_entry_id + 1 == entry_id:
            ranges[-1].last_entry_id = entry_id
        else:
            ranges.append(EntryRange(first_entry_id=entry_id, last_entry_id=entry_id))
    return ranges
