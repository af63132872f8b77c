"""All that can be set about a standalone: its own settings, and the options of all that runs in it.

Where two parts have an option of the same name it is one setting, with one default: a test keeps that. What differs
here is the striping: there is one bookie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from magnetar_bookie.auto_recovery.options import AutoRecoveryOptions
from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_bookie.server.options import BookieOptions
from magnetar_bookie.storage.rocksdb import RocksOptions
from magnetar_broker.core.namespace_leases import check_lease_bounds
from magnetar_broker.grpc_options import BrokerGrpcOptions
from magnetar_broker.lag_bound import check_lag_bound
from magnetar_broker.options import BrokerOptions
from magnetar_broker.topic_bounds import check_load_seconds, check_topic_bound
from magnetar_wire.http_options import HttpOptions
from magnetar_wire.process.addresses import check_address
from magnetar_wire.process.logs import LogOptions

__all__ = ["StandaloneSettings"]


class StandaloneSettings(
    BrokerOptions,
    BookieOptions,
    RocksOptions,
    LedgerClientOptions,
    AutoRecoveryOptions,
    BrokerGrpcOptions,
    HttpOptions,
    LogOptions,
):
    # Folder of all data. Only one process can use it at a time.
    data_folder: Path = Path("magnetar-data")
    # Keep the data in a temporary folder, which is deleted at the end. It excludes data_folder.
    ephemeral: bool = False
    # Address to listen at. 0.0.0.0: all addresses.
    host: str = "127.0.0.1"
    # Port of Magnetar's clients. 0: any free port.
    grpc_port: int = Field(default=6652, ge=0, le=65_535)
    # Port of clients of Pulsar's protocol. 0: any free port.
    pulsar_port: int = Field(default=6650, ge=0, le=65_535)
    # Port of health and metrics over HTTP. 0: any free port.
    http_port: int = Field(default=8080, ge=0, le=65_535)
    # Address that clients connect to, host:port. Empty: the address that the broker listens at, or 127.0.0.1 if it
    # listens at all addresses. Port 0: the port that it listens at.
    advertised_address: str = ""
    # Address that clients of Pulsar's protocol connect to, host:port. Empty: the host of advertised_address, with
    # pulsar_port; if the broker listens at all addresses and neither is set, the address that a client connected to.
    pulsar_advertised_address: str = ""
    # Seconds that a graceful shutdown waits for each of its steps.
    close_timeout_s: float = Field(default=10.0, gt=0)
    # Bookies that a topic's ledger is striped over. Standalone has one.
    managed_ledger_default_ensemble_size: int = Field(default=1, gt=0)
    # Copies of each entry of a topic. Standalone has one bookie.
    managed_ledger_default_write_quorum: int = Field(default=1, gt=0)
    # Copies on disk before a message is persisted. Standalone has one bookie.
    managed_ledger_default_ack_quorum: int = Field(default=1, gt=0)

    @field_validator("advertised_address", "pulsar_advertised_address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        return value and check_address(value)

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        check_lag_bound(self.max_bookie_lag_bytes, self.max_message_publish_buffer_size_in_mb)
        check_topic_bound(self.max_pending_publish_bytes_per_topic, self.managed_ledger_max_pending_bytes)
        check_lease_bounds(self.max_leases_per_namespace, self.managed_ledger_max_leases_per_topic)
        check_load_seconds(self.slow_topic_load_seconds, self.topic_load_timeout_seconds)
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.ephemeral and "data_folder" in self.model_fields_set:
            raise ValueError(
                f"ephemeral excludes data_folder, which is {self.data_folder}: leave out ephemeral (--ephemeral), or "
                "data_folder (--data)"
            )
        return self
