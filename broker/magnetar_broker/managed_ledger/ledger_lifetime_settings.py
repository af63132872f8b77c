"""Makes the rules of ledger_lifetime_rules.py from the settings, which are in other units."""

from __future__ import annotations

from typing import Final

from magnetar_broker.managed_ledger.ledger_lifetime_rules import (
    RetentionPolicy,
    RetentionWithoutSubscription,
    RollRule,
)
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings

__all__ = ["create_retention_policy", "create_retention_without_subscription", "create_roll_rule"]

_SECONDS_PER_MINUTE: Final = 60
_BYTES_PER_MB: Final = 1_048_576


def create_roll_rule(settings: ManagedLedgerSettings) -> RollRule:
    return RollRule(
        settings.managed_ledger_max_entries_per_ledger,
        settings.managed_ledger_max_size_per_ledger_bytes,
        settings.managed_ledger_min_ledger_rollover_time_minutes * _SECONDS_PER_MINUTE,
        settings.managed_ledger_max_ledger_rollover_time_minutes * _SECONDS_PER_MINUTE,
    )


def create_retention_without_subscription(settings: ManagedLedgerSettings) -> RetentionWithoutSubscription:
    minutes = settings.default_retention_without_subscription_minutes
    size_mb = settings.default_retention_without_subscription_size_mb
    return RetentionWithoutSubscription(
        None if minutes == -1 else int(minutes * _SECONDS_PER_MINUTE * 1000),
        None if size_mb == -1 else int(size_mb * _BYTES_PER_MB),
    )


def create_retention_policy(settings: ManagedLedgerSettings) -> RetentionPolicy | None:
    """Return the retention policy. None: there is none, or it retains nothing.

    Then `create_retention_without_subscription` has the rule: a policy that retains nothing sets that to nothing, too
    (catalog/policy_settings.py).
    """
    minutes, size_mb = settings.default_retention_time_in_minutes, settings.default_retention_size_in_mb
    if minutes == size_mb == 0:
        return None
    return RetentionPolicy(
        None if minutes == -1 else int(minutes * _SECONDS_PER_MINUTE * 1000),
        None if size_mb == -1 else int(size_mb * _BYTES_PER_MB),
    )
