"""All settings of a standalone: those of a broker, of a bookie, and its own."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import model_validator

from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.settings.storage import StorageSettings
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.settings.service import ServingSettings
from magnetar_wire.process.settings import DataFolderSettings
from magnetar_wire.settings import Subject, change_default, setting

__all__ = ["StandaloneSettings"]

_ONE_BOOKIE: Final = "a standalone has one bookie"


class StandaloneSettings(
    ServingSettings, BookieServerSettings, StorageSettings, AutoRecoverySettings, DataFolderSettings
):
    worth_changing: ClassVar[tuple[str, ...]] = (
        "data_folder",
        "host",
        "grpc_port",
        "pulsar_port",
        "http_port",
        "advertised_address",
        "log_level",
        "log_format",
        "default_retention_without_subscription_minutes",
        "default_retention_without_subscription_size_mb",
        "max_disk_bytes",
        "max_message_publish_buffer_size_in_mb",
        "managed_ledger_cache_size_mb",
        "allow_auto_topic_creation",
        "max_unacked_messages_per_consumer",
    )

    data_folder: Path = change_default(
        DataFolderSettings, "data_folder", Path("magnetar-data"), because="a standalone starts without configuration"
    )
    ephemeral: bool = setting(
        False,
        "Store the data in a temporary folder, which is deleted when the process stops. It excludes data_folder.",
        subject=Subject.ADDRESSES,
    )
    host: str = setting(
        "127.0.0.1",
        "Address that a standalone listens at, without a port. 0.0.0.0: all addresses.",
        subject=Subject.ADDRESSES,
    )
    grpc_port: int = setting(
        6652,
        "Port of a standalone for Magnetar's clients. 0: any free port.",
        subject=Subject.ADDRESSES,
        unit="port",
        ge=0,
        le=65_535,
    )
    pulsar_port: int = setting(
        6650,
        "Port of a standalone for clients of Pulsar's protocol. 0: any free port.",
        subject=Subject.ADDRESSES,
        unit="port",
        ge=0,
        le=65_535,
    )
    http_port: int = setting(
        8080,
        "Port of a standalone for health and metrics over HTTP. 0: any free port.",
        subject=Subject.ADDRESSES,
        unit="port",
        ge=0,
        le=65_535,
    )
    managed_ledger_default_ensemble_size: int = change_default(
        ManagedLedgerSettings, "managed_ledger_default_ensemble_size", 1, because=_ONE_BOOKIE
    )
    managed_ledger_default_write_quorum: int = change_default(
        ManagedLedgerSettings, "managed_ledger_default_write_quorum", 1, because=_ONE_BOOKIE
    )
    managed_ledger_default_ack_quorum: int = change_default(
        ManagedLedgerSettings, "managed_ledger_default_ack_quorum", 1, because=_ONE_BOOKIE
    )

    @model_validator(mode="after")
    def _check_folder(self) -> Self:
        if self.ephemeral and "data_folder" in self.model_fields_set:
            raise ValueError(
                f"ephemeral excludes data_folder, which is {self.data_folder}: leave out ephemeral (--ephemeral), or "
                "data_folder (--data)"
            )
        return self
