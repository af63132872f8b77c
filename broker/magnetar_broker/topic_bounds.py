"""Check at start that a broker's bounds on topics fit each other.

A topic that has `max_pending_publish_bytes_per_topic` pending pauses its producers; one whose log has
`managed_ledger_max_pending_bytes` pending refuses entries, which ends producers. If the log refused before the topic
paused, a producer would end, reconnect, resend and end again.

A topic takes one more frame while it is below its bound, so the log must have capacity for the bound and the largest
frame. The log also counts the broker's part of each entry, at most `MAX_BROKER_METADATA_BYTES`, which the topic does
not.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.limits import MAX_BROKER_METADATA_BYTES, MAX_FRAME_BYTES, MAX_FRAME_ENTRIES

__all__ = ["check_load_seconds", "check_topic_bound"]

# Memory of the entries of the largest frame, as a topic counts it.
_FRAME_MEMORY_BYTES: Final = MAX_FRAME_BYTES + MAX_FRAME_ENTRIES * ENTRY_OVERHEAD_BYTES


def check_topic_bound(topic_bytes: int, log_bytes: int) -> None:
    """Raise `ValueError` if the log would refuse entries before the topic pauses its producers."""
    counted_bytes = topic_bytes + _FRAME_MEMORY_BYTES
    # Each entry counts with at least its overhead, so there are at most this many broker's parts.
    least = counted_bytes + counted_bytes // ENTRY_OVERHEAD_BYTES * MAX_BROKER_METADATA_BYTES
    if log_bytes < least:
        raise ValueError(
            f"managed_ledger_max_pending_bytes is {log_bytes}, too little for "
            f"max_pending_publish_bytes_per_topic, which is {topic_bytes}: the log of a topic would refuse "
            "entries, and close their producers, before the topic pauses them. Below its limit, a topic "
            f"accepts one more frame of up to {_FRAME_MEMORY_BYTES} bytes. Set "
            f"managed_ledger_max_pending_bytes to at least {least}, or lower "
            "max_pending_publish_bytes_per_topic"
        )


def check_load_seconds(slow_seconds: float, timeout_seconds: float) -> None:
    """Raise `ValueError` if opening a topic would time out before it counts as slow."""
    if slow_seconds >= timeout_seconds:
        raise ValueError(
            f"slow_topic_load_seconds is {slow_seconds:g}, not below topic_load_timeout_seconds, which is "
            f"{timeout_seconds:g}: opening a topic would time out before it counts as slow. Lower "
            "slow_topic_load_seconds or raise topic_load_timeout_seconds"
        )
