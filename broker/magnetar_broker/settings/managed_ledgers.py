"""Settings of topics' logs and of cursors. Names are Pulsar's where it has the setting."""

from __future__ import annotations

from typing import Final, Self

from pydantic import field_validator, model_validator

from magnetar_bookie.read.striping import Striping
from magnetar_broker.core.retention import RetentionWithoutSubscription
from magnetar_broker.core.roll import RollRule
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, check_order, setting

__all__ = ["CursorSettings", "ManagedLedgerSettings"]

_SECONDS_PER_MINUTE: Final = 60
_BYTES_PER_MB: Final = 1_048_576


class ManagedLedgerSettings(Configuration):
    managed_ledger_default_ensemble_size: int = setting(
        3,
        "Bookies that a topic's ledger is striped over. A namespace's policies can override it.",
        subject=Subject.REPLICATION,
        unit="bookies",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_default_write_quorum: int = setting(
        3,
        "Copies of each entry of a topic. A namespace's policies can override it.",
        subject=Subject.REPLICATION,
        unit="copies",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_default_ack_quorum: int = setting(
        2,
        "Copies on disk before a message is persisted. A namespace's policies can override it.",
        subject=Subject.REPLICATION,
        unit="copies",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_max_entries_per_ledger: int = setting(
        50_000,
        "Entries of a topic's ledger at which the next ledger begins, once the ledger has the age "
        "managed_ledger_min_ledger_rollover_time_minutes.",
        subject=Subject.RETENTION,
        unit="entries",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_max_size_per_ledger_bytes: int = setting(
        2_147_483_648,
        "Size, in bytes, of a topic's ledger at which the next ledger begins, once the ledger has the age "
        "managed_ledger_min_ledger_rollover_time_minutes.",
        subject=Subject.RETENTION,
        ge=1,
    )
    managed_ledger_min_ledger_rollover_time_minutes: float = setting(
        10,
        "Minimum age, in minutes, at which a topic's ledger is closed because of its entries or its size.",
        subject=Subject.RETENTION,
        ge=0,
        named_by="Pulsar",
    )
    managed_ledger_max_ledger_rollover_time_minutes: float = setting(
        240,
        "Age, in minutes, at which a topic's ledger is closed in any case.",
        subject=Subject.RETENTION,
        gt=0,
        named_by="Pulsar",
    )
    default_retention_without_subscription_minutes: float = setting(
        10_080,
        "Minutes for which a topic without a durable subscription retains messages, counted for each ledger from "
        "when it was closed. Ledgers written before the topic's first durable subscription was created are "
        "retained for as long. -1: no limit. 0: closed ledgers are deleted at once, as Pulsar does. System topics "
        "retain nothing.",
        subject=Subject.RETENTION,
        ge=-1,
        allow_inf_nan=False,
    )
    default_retention_without_subscription_size_mb: float = setting(
        -1,
        "Maximum size, in MiB of stored entries, of the ledgers retained by "
        "default_retention_without_subscription_minutes. The oldest closed ledgers are deleted when they exceed "
        "it, before their time. -1: no limit.",
        subject=Subject.RETENTION,
        ge=-1,
        allow_inf_nan=False,
    )
    managed_ledger_cache_size_mb: int = setting(
        64,
        "Memory, in MiB, of the newest entries of all topics, cached for consumers that are up to date; each "
        "entry counts with 512 bytes besides what is stored of it. 0: no entry is cached.",
        subject=Subject.READING,
        ge=0,
        named_by="Pulsar",
    )
    managed_ledger_read_ahead_readers: int = setting(
        16,
        "Maximum number of readers with a backlog for which the broker reads ahead, a few MiB each.",
        subject=Subject.READING,
        unit="readers",
        ge=1,
    )
    managed_ledger_max_pending_bytes: int = setting(
        67_108_864,
        "Memory, in bytes, of the entries that one topic's log has not stored yet; each entry counts with 512 "
        "bytes besides what is stored of it. At this bound entries are refused, and their producers end and "
        "resend. The entry that passes the bound is still accepted.",
        subject=Subject.PUBLISHING,
        ge=1,
    )
    managed_ledger_max_leases_per_topic: int = setting(
        1000,
        "Maximum number of leases of one topic, which retain its ledgers for readers of bookies. Half of them, "
        "rounded up, may be shared leases, which batch reads have; all of them may be those of streams.",
        subject=Subject.RETENTION,
        unit="leases",
        ge=1,
        le=2000,
    )
    managed_ledger_max_lease_minutes: float = setting(
        1440,
        "Maximum duration of a lease, in minutes, counted from when it is granted or renewed.",
        subject=Subject.RETENTION,
        gt=0,
        le=1440,
    )
    managed_ledger_lease_sweep_interval_seconds: float = setting(
        120.0,
        "Seconds, approximately, between two rounds in which a broker looks for leases that have ended: on "
        "ledgers of deleted topics, and on namespaces.",
        subject=Subject.RETENTION,
        gt=0,
        formerly="managed_ledger_remains_sweep_interval_s",
    )

    @field_validator("default_retention_without_subscription_minutes", "default_retention_without_subscription_size_mb")
    @classmethod
    def _check_limit(cls, value: float) -> float:
        if -1 < value < 0:
            raise ValueError(f"{value} is neither -1 nor at least 0: set -1 for no limit")
        return value

    @model_validator(mode="after")
    def _check_ledgers(self) -> Self:
        check_order(self, "managed_ledger_default_write_quorum", "managed_ledger_default_ensemble_size")
        check_order(self, "managed_ledger_default_ack_quorum", "managed_ledger_default_write_quorum")
        check_order(
            self,
            "managed_ledger_min_ledger_rollover_time_minutes",
            "managed_ledger_max_ledger_rollover_time_minutes",
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
            self.managed_ledger_min_ledger_rollover_time_minutes * _SECONDS_PER_MINUTE,
            self.managed_ledger_max_ledger_rollover_time_minutes * _SECONDS_PER_MINUTE,
        )

    @property
    def retention_without_subscription(self) -> RetentionWithoutSubscription:
        minutes = self.default_retention_without_subscription_minutes
        size_mb = self.default_retention_without_subscription_size_mb
        return RetentionWithoutSubscription(
            None if minutes == -1 else int(minutes * _SECONDS_PER_MINUTE * 1000),
            None if size_mb == -1 else int(size_mb * _BYTES_PER_MB),
        )

    @property
    def max_lease_ms(self) -> int:
        return int(self.managed_ledger_max_lease_minutes * _SECONDS_PER_MINUTE * 1000)

    @property
    def cache_bytes(self) -> int:
        return self.managed_ledger_cache_size_mb * _BYTES_PER_MB


class CursorSettings(Configuration):
    managed_ledger_default_mark_delete_rate_limit: float = setting(
        1.0,
        "Maximum number of times per second that a cursor is saved while no consumer waits for the result of an "
        "acknowledgement. If one waits, the cursor is saved at once.",
        subject=Subject.DELIVERY,
        unit="saves per second",
        gt=0,
        named_by="Pulsar",
    )
    managed_ledger_cursor_max_entries_per_ledger: int = setting(
        50_000,
        "Records of a cursor's ledger after which the cursor begins another one. Each ledger's first record holds "
        "the whole cursor.",
        subject=Subject.DELIVERY,
        unit="entries",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_cursor_max_size_per_ledger_bytes: int = setting(
        1_048_576,
        "Bytes of a cursor's ledger, after its first record, at which the cursor begins another one; at least "
        "four times that record's size.",
        subject=Subject.DELIVERY,
        ge=1,
    )
    managed_ledger_cursor_idle_time_seconds: float = setting(
        300.0,
        "Seconds without a change after which a cursor without individual acknowledgements deletes its ledger; "
        "its position is in the metadata store. 0: never.",
        subject=Subject.DELIVERY,
        ge=0,
    )
    max_subscriptions_per_topic: int = setting(
        1000,
        "Maximum number of durable subscriptions of one topic. The metadata store can list 1000 names of the maximum "
        "length at a time.",
        subject=Subject.DELIVERY,
        unit="subscriptions",
        ge=1,
        named_by="Pulsar",
    )
