"""Settings of topics' logs and of cursors. Names are Pulsar's where it has the setting."""

from __future__ import annotations

from typing import Final, Self

from pydantic import field_validator, model_validator

from magnetar_bookie.read.striping import Striping
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import MAX_COUNT, Subject, check_order, setting

__all__ = ["CursorSettings", "ManagedLedgerSettings"]

_SECONDS_PER_MINUTE: Final = 60
_BYTES_PER_MB: Final = 1_048_576


class ManagedLedgerSettings(Configuration):
    managed_ledger_default_ensemble_size: int = setting(
        3,
        "Number of bookies that a topic's ledger is striped over. A namespace's policies can override it. Pulsar's "
        "default for a broker: 2.",
        subject=Subject.REPLICATION,
        unit="bookies",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_default_write_quorum: int = setting(
        3,
        "Number of copies of each entry of a topic. A namespace's policies can override it. Pulsar's default for a "
        "broker: 2.",
        subject=Subject.REPLICATION,
        unit="copies",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_default_ack_quorum: int = setting(
        2,
        "Number of copies on disk before a message is persisted. A namespace's policies can override it.",
        subject=Subject.REPLICATION,
        unit="copies",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_max_entries_per_ledger: int = setting(
        50_000,
        "Number of entries at which a topic's ledger is closed and the next one begins, once the ledger has the age "
        "managed_ledger_min_ledger_rollover_time_minutes.",
        subject=Subject.RETENTION,
        unit="entries",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_max_size_per_ledger_bytes: int = setting(
        2_147_483_648,
        "Size, in bytes, at which a topic's ledger is closed and the next one begins, once the ledger has the age "
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
    managed_ledger_inactive_ledger_rollover_time_seconds: float = setting(
        0.0,
        "Seconds without a publish after which a topic's ledger is closed, at any age, so that its messages can be "
        "deleted when they are not needed any more. The next publish creates another ledger. 0: only its age counts.",
        subject=Subject.RETENTION,
        ge=0,
        named_by="Pulsar",
        dynamic=True,
    )
    default_retention_time_in_minutes: float = setting(
        0.0,
        "Minutes for which messages that all subscriptions have acknowledged are retained, in topics without a "
        "retention policy, counted for each ledger from when it was closed. -1: no limit. 0: they are not retained.",
        subject=Subject.RETENTION,
        ge=-1,
        allow_inf_nan=False,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    default_retention_size_in_mb: int = setting(
        0,
        "Size, in MiB, of messages that are retained in each topic without a retention policy: the oldest ledgers are "
        "deleted as long as at least this size is left, even before default_retention_time_in_minutes is over. -1: no "
        "limit. 0: acknowledged messages are not retained.",
        subject=Subject.RETENTION,
        ge=-1,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    default_retention_without_subscription_minutes: float = setting(
        10_080,
        "Minutes for which a topic without a durable subscription retains messages, counted for each ledger from when "
        "it was closed. Ledgers written before the topic's first durable subscription was created are retained for "
        "the same time. -1: no limit. 0: closed ledgers are deleted at once, as Pulsar does. System topics retain "
        "nothing. Topics with a retention policy, or with default_retention_time_in_minutes and "
        "default_retention_size_in_mb, retain what these say instead.",
        subject=Subject.RETENTION,
        ge=-1,
        allow_inf_nan=False,
    )
    default_retention_without_subscription_size_mb: float = setting(
        -1,
        "Maximum size, in MiB of stored entries, of the ledgers retained by "
        "default_retention_without_subscription_minutes. Above it the oldest closed ledgers are deleted, even before "
        "their minutes are over. -1: no limit.",
        subject=Subject.RETENTION,
        ge=-1,
        allow_inf_nan=False,
    )
    managed_ledger_cache_size_mb: int = setting(
        64,
        "Maximum memory, in MiB, of cached entries: the newest ones of all topics, for consumers that are up to date, "
        "and those that wait for a consumer of a Key_Shared subscription. Each entry counts as its stored size plus "
        "512 bytes. 0: no caching. Pulsar's default: a fifth of its direct memory.",
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
        "Maximum memory, in bytes, of one topic's entries that its ledgers have not stored yet. Each entry counts as "
        "its stored size plus 512 bytes. At this bound the topic refuses entries and closes their producers, which "
        "reconnect and resend. The entry that passes the bound is still accepted.",
        subject=Subject.PUBLISHING,
        ge=1,
    )
    managed_ledger_max_leases_per_topic: int = setting(
        1000,
        "Maximum number of leases of one topic. A lease keeps the topic's ledgers from deletion while a Spark reader "
        "reads them from the bookies. Batch reads may have at most half of the leases, rounded up; streaming reads "
        "may have all of them.",
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
        "Approximate interval, in seconds, at which a broker looks for expired leases of namespaces and of deleted "
        "topics' ledgers.",
        subject=Subject.RETENTION,
        gt=0,
        formerly="managed_ledger_remains_sweep_interval_s",
    )

    @field_validator(
        "default_retention_time_in_minutes",
        "default_retention_without_subscription_minutes",
        "default_retention_without_subscription_size_mb",
    )
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
        "Maximum number of records in a cursor's ledger. Then the cursor rolls over to a new ledger, whose first "
        "record holds the whole cursor.",
        subject=Subject.DELIVERY,
        unit="entries",
        ge=1,
        named_by="Pulsar",
    )
    managed_ledger_cursor_max_size_per_ledger_bytes: int = setting(
        1_048_576,
        "Maximum size, in bytes, of a cursor's ledger, its first record not counted. Then the cursor rolls over to a "
        "new ledger. If four times the size of the first record is more, that is the maximum.",
        subject=Subject.DELIVERY,
        ge=1,
    )
    managed_ledger_cursor_idle_time_seconds: float = setting(
        300.0,
        "Seconds without a change after which a cursor's ledger is deleted, if the cursor has no individual "
        "acknowledgements: its position is in the metadata store. 0: never.",
        subject=Subject.DELIVERY,
        ge=0,
    )
    max_subscriptions_per_topic: int = setting(
        1000,
        "Maximum number of subscriptions of one topic, durable or not. Further ones are refused. 0: as many as the "
        "metadata store can list, 1000 or more: that depends on the length of their names. Pulsar's default: 0.",
        subject=Subject.DELIVERY,
        unit="subscriptions",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
