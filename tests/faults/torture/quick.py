"""Production's settings but for their patience: what takes half a minute between machines is seen within a run."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["QUICK_BOOKIES", "QUICK_BROKERS", "QUICK_LISTENERS", "SESSION_TIMEOUT_S", "SMALL_LEDGERS"]

SESSION_TIMEOUT_S: Final = 4.0
QUICK_BOOKIES: Final[dict[str, Any]] = {
    "add_entry_timeout_seconds": 3.0,
    "read_entry_timeout_seconds": 3.0,
    "speculative_read_timeout_ms": 500,
    "bookie_quarantine_time_seconds": 3.0,
    "recovery_timeout_seconds": 20.0,
    "lost_bookie_recovery_delay_seconds": 8.0,
    "lost_bookie_replacement_delay_seconds": 3.0,
    "open_ledger_rereplication_grace_period_seconds": 8.0,
    "auditor_scan_interval_seconds": 3.0,
    "auditor_periodic_check_interval_seconds": 20.0,
    "auditor_check_pause_seconds": 0.1,
    "intent_grace_period_seconds": 10.0,
    "rw_rereplicate_backoff_seconds": 0.5,
    "rw_rereplicate_backoff_max_seconds": 5.0,
    "inventory_timeout_seconds": 10.0,
    "garbage_interval_seconds": 3.0,
    "disk_check_interval_seconds": 1.0,
    "grpc_keepalive_time_ms": 3000,
    "grpc_keepalive_timeout_ms": 3000,
}
# Ledgers roll, and are trimmed, within the minute, also idle ones, and those from before a topic's first subscription.
# Messages expire, and are evicted, within seconds.
SMALL_LEDGERS: Final[dict[str, Any]] = {
    "default_retention_without_subscription_minutes": 0,
    "managed_ledger_max_entries_per_ledger": 400,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "managed_ledger_cursor_max_entries_per_ledger": 200,
    "managed_ledger_inactive_ledger_rollover_time_seconds": 8.0,
    "message_expiry_check_interval_in_minutes": 0.05,
    "backlog_quota_check_interval_in_seconds": 2.0,
}
# A client of Pulsar's protocol that is cut off, or stands still, is disconnected while that lasts.
QUICK_LISTENERS: Final[dict[str, Any]] = {
    "keep_alive_interval_seconds": 3.0,
    "connection_liveness_check_timeout_millis": 1000.0,
}
QUICK_BROKERS: Final[dict[str, Any]] = {
    **SMALL_LEDGERS,
    **QUICK_LISTENERS,
    "add_entry_timeout_seconds": 3.0,
    "read_entry_timeout_seconds": 3.0,
    "speculative_read_timeout_ms": 500,
    "bookie_quarantine_time_seconds": 3.0,
    "lost_bookie_replacement_delay_seconds": 3.0,
    "recovery_timeout_seconds": 20.0,
}
