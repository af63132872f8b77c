"""Settings with tight limits and small batches, which make a run reach code that the defaults don't.

Each setting is odd in some of the seeds, independently of the others, so that all combinations occur. They are drawn
separately from the rest of the plan.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.configuration import Configuration

__all__ = ["ODD_AUTO_RECOVERY", "ODD_BOOKIE", "ODD_CLIENT", "with_odd"]

S = TypeVar("S", bound=Configuration)
_SHARE: Final = 0.12

ODD_BOOKIE: Final[dict[str, tuple[Any, ...]]] = {
    "max_pending_bytes": (200, 8000),
    "max_waiting_answers": (1, 3),
    "max_ledgers_in_memory": (1, 2, 3),
    "max_long_polls": (0, 1),
    "max_concurrent_reads": (1, 2),
    "max_read_bytes": (150, 1000),
    "max_inventory_bytes": (150, 1000),
    "max_ids_per_answer": (3,),
    # Deleted ledgers are removed at once: clients that still read or write them get an error.
    "garbage_interval_seconds": (0.3, 1.0),
    # No pass ends before its process does, or each follows the previous one at once.
    "scrub_max_bytes_per_second": (2000, 20_000),
    "scrub_interval_seconds": (0.5,),
}
ODD_CLIENT: Final[dict[str, tuple[Any, ...]]] = {
    "max_pending_entries": (1, 2),
    "max_pending_bytes": (100, 5000),
    "max_bookie_lag_bytes": (12_000,),
    "recovery_window_entries": (1, 2),
    "read_ahead_entries": (0, 1),
    # Recoveries wait for each other, and read one entry at a time.
    "max_recovery_bytes": (1, 3000),
}
ODD_AUTO_RECOVERY: Final[dict[str, tuple[Any, ...]]] = {
    "inventory_entries": (5,),
    "rereplication_batch_bytes": (100, 1000),
    "auditor_checks_per_round": (1,),
    "progress_interval_seconds": (0.0,),
}


def with_odd(settings: S, odd: dict[str, tuple[Any, ...]], draw: SeededRandomness) -> S:
    """Return the settings with some of the odd values."""
    drawn = {name: draw.choice(values) for name, values in odd.items() if draw.random() < _SHARE}
    return type(settings)(**{**settings.model_dump(), **drawn}) if drawn else settings
