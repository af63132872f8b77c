"""Check at start that a broker's bounds fit each other.

**Publish buffer and lag.** Published bytes are unanswered adds until bookies answer them. If the publish buffer were
larger than what a bookie may leave unanswered, producers at full speed would make every bookie lag, and wait for the
lag bound instead of the buffer that is meant to bound them.

**Topic and log.** A topic that has `max_pending_publish_bytes_per_topic` pending pauses its producers; one whose log
has `managed_ledger_max_pending_bytes` pending refuses entries, which closes producers. If the log refused before the
topic paused, a producer would be closed, reconnect, resend and be closed again. A topic accepts one more frame while it
is below its bound, so the log must have capacity for the bound and the largest frame. The log also counts the broker's
part of each entry, at most `MAX_BROKER_METADATA_BYTES`, which the topic does not.
"""

from __future__ import annotations

from typing import Final

from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.settings.topics import TopicSettings
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.limits import MAX_BROKER_METADATA_BYTES, MAX_FRAME_BYTES, MAX_FRAME_ENTRIES

__all__ = ["check_lag_bound", "check_load_seconds", "check_topic_bound", "with_lag_bound"]

_MIB: Final = 1 << 20
# Memory of the entries of the largest frame, as a topic counts it.
_FRAME_MEMORY_BYTES: Final = MAX_FRAME_BYTES + MAX_FRAME_ENTRIES * ENTRY_OVERHEAD_BYTES


def with_lag_bound(client_settings: LedgerClientSettings, settings: TopicSettings) -> LedgerClientSettings:
    """Return a broker's settings of the ledger client: `max_bookie_lag_bytes` = 0 means twice the publish buffer."""
    if client_settings.max_bookie_lag_bytes:
        return client_settings
    twice = 2 * settings.max_message_publish_buffer_size_in_mb * _MIB
    return client_settings.model_copy(update={"max_bookie_lag_bytes": twice})


def check_lag_bound(lag_bytes: int, publish_buffer_mb: int) -> None:
    """Raise `ValueError` for a `max_bookie_lag_bytes` below the publish buffer."""
    least = publish_buffer_mb * _MIB
    if 0 < lag_bytes < least:
        raise ValueError(
            f"max_bookie_lag_bytes is {lag_bytes}, below max_message_publish_buffer_size_in_mb, which is "
            f"{publish_buffer_mb} ({least} bytes): publishers could have more in flight than a bookie may "
            f"have unanswered. Set max_bookie_lag_bytes to 0 (twice the buffer) or to at least {least}, or "
            "lower max_message_publish_buffer_size_in_mb"
        )


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
