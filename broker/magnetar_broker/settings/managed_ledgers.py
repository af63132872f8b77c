"""What can be set about topics' logs."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from magnetar_bookie.read.striping import Striping
from magnetar_broker.core.retention import RetentionWithoutSubscription
from magnetar_broker.core.roll import RollRule
from magnetar_wire.configuration import Configuration

__all__ = ["ManagedLedgerSettings"]

_S_PER_MINUTE = 60
_BYTES_PER_MB = 1_048_576


class ManagedLedgerSettings(Configuration):
    # Bookies that a topic's ledger is striped over. A namespace's policies can override it.
    managed_ledger_default_ensemble_size: int = Field(default=3, gt=0)
    # Copies of each entry of a topic. A namespace's policies can override it.
    managed_ledger_default_write_quorum: int = Field(default=3, gt=0)
    # Copies on disk before a message is persisted. A namespace's policies can override it.
    managed_ledger_default_ack_quorum: int = Field(default=2, gt=0)
    # Entries of a topic's ledger at which the next ledger begins, once the ledger has the age
    # managed_ledger_min_ledger_rollover_time_minutes.
    managed_ledger_max_entries_per_ledger: int = Field(default=50_000, gt=0)
    # Size, in bytes, of a topic's ledger at which the next ledger begins, once the ledger has the age
    # managed_ledger_min_ledger_rollover_time_minutes.
    managed_ledger_max_size_per_ledger_bytes: int = Field(default=2_147_483_648, gt=0)
    # Minimum age, in minutes, at which a topic's ledger is closed because of its entries or its size.
    managed_ledger_min_ledger_rollover_time_minutes: float = Field(default=10, ge=0)
    # Age, in minutes, at which a topic's ledger is closed in any case.
    managed_ledger_max_ledger_rollover_time_minutes: float = Field(default=240, gt=0)
    # Minutes for which a topic without a durable subscription retains messages, counted for each ledger from when it
    # was closed. Ledgers written before the topic's first durable subscription was created are retained for as long.
    # -1: no limit. 0: closed ledgers are deleted at once, as Pulsar does. System topics retain nothing.
    default_retention_without_subscription_minutes: float = Field(default=10_080, ge=-1, allow_inf_nan=False)
    # Maximum size, in MiB of stored entries, of the ledgers retained by default_retention_without_subscription_minutes.
    # The oldest closed ledgers are deleted when they exceed it, before their time. -1: no limit.
    default_retention_without_subscription_size_mb: float = Field(default=-1, ge=-1, allow_inf_nan=False)
    # Memory, in MiB, of the newest entries of all topics, cached for consumers that are up to date; each entry counts
    # with 512 bytes besides what is stored of it. 0: no entry is cached.
    managed_ledger_cache_size_mb: int = Field(default=64, ge=0)
    # Maximum number of readers with a backlog for which the broker reads ahead, a few MiB each.
    managed_ledger_read_ahead_readers: int = Field(default=16, gt=0)
    # Memory, in bytes, of the entries that one topic's log has not stored yet; each entry counts with 512 bytes besides
    # what is stored of it. At this bound entries are refused, and their producers end and resend. The entry that passes
    # the bound is still accepted.
    managed_ledger_max_pending_bytes: int = Field(default=67_108_864, gt=0)
    # Maximum number of leases of one topic, which retain its ledgers for readers of bookies. Half of them, rounded up,
    # may be shared leases, which batch reads have; all of them may be those of streams.
    managed_ledger_max_leases_per_topic: int = Field(default=1000, gt=0, le=2000)
    # Maximum duration of a lease, in minutes, counted from when it is granted or renewed.
    managed_ledger_max_lease_minutes: float = Field(default=1440, gt=0, le=1440)
    # Seconds, approximately, between two rounds in which a broker looks for leases that have ended: on ledgers of
    # deleted topics, and on namespaces.
    managed_ledger_remains_sweep_interval_s: float = Field(default=120.0, gt=0)

    @field_validator("default_retention_without_subscription_minutes", "default_retention_without_subscription_size_mb")
    @classmethod
    def _is_a_bound(cls, value: float) -> float:
        if -1 < value < 0:
            raise ValueError(f"must be -1 (no limit), 0 or more, not {value}")
        return value

    @model_validator(mode="after")
    def _holds(self) -> Self:
        self.striping  # noqa: B018 (raises where the three don't go together)
        if self.managed_ledger_min_ledger_rollover_time_minutes > self.managed_ledger_max_ledger_rollover_time_minutes:
            raise ValueError(
                "managed_ledger_min_ledger_rollover_time_minutes is at most "
                "managed_ledger_max_ledger_rollover_time_minutes, not "
                f"{self.managed_ledger_min_ledger_rollover_time_minutes} of "
                f"{self.managed_ledger_max_ledger_rollover_time_minutes}"
            )
        return self

    @property
    def striping(self) -> Striping:
        return Striping(
            self.managed_ledger_default_ensemble_size,
            self.managed_ledger_default_write_quorum,
            self.managed_ledger_default_ack_quorum,
        )

    @property
    def roll_rule(self) -> RollRule:
        return RollRule(
            self.managed_ledger_max_entries_per_ledger,
            self.managed_ledger_max_size_per_ledger_bytes,
            self.managed_ledger_min_ledger_rollover_time_minutes * _S_PER_MINUTE,
            self.managed_ledger_max_ledger_rollover_time_minutes * _S_PER_MINUTE,
        )

    @property
    def retention_without_subscription(self) -> RetentionWithoutSubscription:
        minutes = self.default_retention_without_subscription_minutes
        size_mb = self.default_retention_without_subscription_size_mb
        return RetentionWithoutSubscription(
            None if minutes == -1 else int(minutes * _S_PER_MINUTE * 1000),
            None if size_mb == -1 else int(size_mb * _BYTES_PER_MB),
        )

    @property
    def max_lease_ms(self) -> int:
        return int(self.managed_ledger_max_lease_minutes * _S_PER_MINUTE * 1000)

    @property
    def cache_bytes(self) -> int:
        return self.managed_ledger_cache_size_mb * _BYTES_PER_MB
