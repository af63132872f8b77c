"""All settings of a bookie's process: those of its parts, and its own."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import field_validator, model_validator

from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.settings.storage import StorageSettings
from magnetar_metadata.settings import MetadataLocationSettings
from magnetar_wire.grpc_transport import GrpcSettings
from magnetar_wire.process.addresses import check_address
from magnetar_wire.process.advertised_listeners import AdvertisedListeners, parse_advertised_listeners
from magnetar_wire.process.settings import (
    DataFolderSettings,
    HttpSettings,
    ListenerSettings,
    LogSettings,
    ShutdownSettings,
)
from magnetar_wire.settings import REQUIRED, Subject, change_default, setting

__all__ = ["BookieSettings"]


class BookieSettings(
    BookieServerSettings,
    StorageSettings,
    LedgerClientSettings,
    AutoRecoverySettings,
    GrpcSettings,
    MetadataLocationSettings,
    DataFolderSettings,
    ListenerSettings,
    HttpSettings,
    ShutdownSettings,
    LogSettings,
):
    worth_changing: ClassVar[tuple[str, ...]] = (
        "bookie_id",
        "metadata",
        "data_folder",
        "listen_address",
        "advertised_address",
        "advertised_listeners",
        "http_address",
        "log_level",
        "log_format",
        "max_disk_bytes",
        "reserve_disk_bytes",
        "block_cache_bytes",
        "max_pending_bytes",
        "lost_bookie_recovery_delay_seconds",
        "scrub_max_bytes_per_second",
    )

    bookie_id: str = setting(
        REQUIRED,
        "Name of the bookie in its cluster: at most 100 letters, digits and _~:.- characters. It must be unique, and "
        "stays the same for as long as the data exists.",
        subject=Subject.ADDRESSES,
        named_by="BookKeeper",
    )
    listen_address: str = setting(
        "127.0.0.1:3181",
        "Address that a bookie listens at, host:port. Port 0: any free port.",
        subject=Subject.ADDRESSES,
    )
    http_address: str = change_default(
        ListenerSettings, "http_address", "127.0.0.1:8081", because="a broker on the same machine has port 8080"
    )
    drain_timeout_seconds: float = setting(
        15.0,
        "Seconds that a graceful shutdown of a bookie waits for adds in flight.",
        subject=Subject.SHUTDOWN,
        gt=0,
        formerly="drain_timeout_s",
    )
    health_max_sync_seconds: float = setting(
        10.0,
        "Seconds for which a group of entries may be in flight to the disk before the bookie reports itself as "
        "unhealthy.",
        subject=Subject.HEALTH,
        gt=0,
        formerly="health_max_sync_s",
    )
    health_max_answer_seconds: float = setting(
        2.0,
        "Seconds that the storage may take to answer before the bookie reports itself as unhealthy.",
        subject=Subject.HEALTH,
        gt=0,
        formerly="health_max_answer_s",
    )
    health_max_lateness_seconds: float = setting(
        5.0,
        "Seconds by which the event loop may be late before the bookie reports itself as unhealthy.",
        subject=Subject.HEALTH,
        gt=0,
        formerly="health_max_lateness_s",
    )

    @property
    def advertised(self) -> AdvertisedListeners:
        """Names and addresses of the listeners, the internal one first."""
        return parse_advertised_listeners(
            self.advertised_listeners, self.internal_listener_name, self.advertised_address
        )

    @field_validator("listen_address")
    @classmethod
    def _check_listen_address(cls, value: str) -> str:
        return check_address(value)

    @model_validator(mode="after")
    def _check_listeners(self) -> Self:
        parse_advertised_listeners(
            self.advertised_listeners, self.internal_listener_name, self.advertised_address, self.listen_address
        )
        return self
