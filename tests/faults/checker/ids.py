"""Pack an id within a partition into one number with the same order: `ledger`, `entry`, `batch index` (-1 first)."""

from __future__ import annotations

from typing import Final

__all__ = ["ENTRIES", "INDEXES", "end_of_entry", "id_text", "is_whole_entry", "ledger_of", "pack", "whole_entry"]

_INDEX_BITS: Final = 24
_ENTRY_BITS: Final = 40
INDEXES: Final = (1 << _INDEX_BITS) - 2
ENTRIES: Final = 1 << _ENTRY_BITS
_INDEX: Final = (1 << _INDEX_BITS) - 1


def pack(ledger: int, entry: int, index: int) -> int:
    if not (ledger >= 0 <= entry < ENTRIES and -1 <= index < INDEXES):
        raise ValueError(f"[{ledger}, {entry}, {index}] is no id")
    return ((ledger << _ENTRY_BITS | entry) << _INDEX_BITS) | (index + 1)


def whole_entry(packed: int) -> int:
    return packed & ~_INDEX


def is_whole_entry(packed: int) -> bool:
    return not packed & _INDEX


def end_of_entry(packed: int) -> int:
    return packed | _INDEX


def ledger_of(packed: int) -> int:
    return packed >> (_ENTRY_BITS + _INDEX_BITS)


def id_text(packed: int) -> str:
    entry = packed >> _INDEX_BITS
    return f"[{entry >> _ENTRY_BITS}, {entry & (ENTRIES - 1)}, {(packed & _INDEX) - 1}]"
