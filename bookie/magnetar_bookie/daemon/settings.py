"""All that can be set about a bookie's process: its own settings, and the options of all that runs in it.

Where two parts have an option of the same name it is one setting, with one default: a test keeps that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from magnetar_bookie.auto_recovery.options import AutoRecoveryOptions
from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_bookie.server.options import BookieOptions
from magnetar_bookie.storage.rocksdb import RocksOptions
from magnetar_metadata.location import parse_location
from magnetar_wire.grpc_transport import GrpcOptions
from magnetar_wire.process.addresses import check_address
from magnetar_wire.process.advertised_listeners import AdvertisedListeners, parse_advertised_listeners
from magnetar_wire.process.http_server import HttpOptions
from magnetar_wire.process.logs import LogOptions

__all__ = ["BookieSettings"]


class BookieSettings(
    BookieOptions, RocksOptions, LedgerClientOptions, AutoRecoveryOptions, GrpcOptions, HttpOptions, LogOptions
):
    # Name of the bookie in its cluster. It must be unique, and stays the same for as long as the data exists.
    bookie_id: str
    # Folder of all data. Only one process can use it at a time, always with the same bookie_id.
    data_folder: Path
    # Location of the metadata store: zookeeper://host:port,host:port/chroot?session_timeout_s=10, or
    # embedded:///folder.
    metadata: str
    # Address to listen at, host:port. Port 0: any free port.
    listen_address: str = "127.0.0.1:3181"
    # Address that clients connect to, host:port. Empty: listen_address. Port 0: the port that the bookie listens at.
    advertised_address: str = ""
    # Addresses that clients connect to, by listener name, instead of advertised_address:
    # internal:magnetar://host:port,external:magnetar://host:port. Clients that read entries from bookies, as Spark's
    # tasks do, get the address of the listener that they name, or of the internal one if the bookie has none of that
    # name.
    advertised_listeners: tuple[str, ...] = Field(default=(), max_length=16)
    # Name of the listener in advertised_listeners that brokers and other bookies use. Empty: the first.
    internal_listener_name: str = ""
    # Address of health, status and metrics over HTTP, host:port. Clients that reach it can turn the bookie read-only.
    # Empty: no HTTP.
    http_address: str = "127.0.0.1:8081"
    # Seconds that a graceful shutdown waits for adds in flight.
    drain_timeout_s: float = Field(default=15.0, gt=0)
    # Seconds that a graceful shutdown waits for each step after the adds in flight: the service's end and the storage's
    # close.
    close_timeout_s: float = Field(default=10.0, gt=0)
    # Seconds for which a group of entries may be in flight to the disk before the bookie reports itself as unhealthy.
    health_max_sync_s: float = Field(default=10.0, gt=0)
    # Seconds that the storage may take to answer before the bookie reports itself as unhealthy.
    health_max_answer_s: float = Field(default=2.0, gt=0)
    # Seconds by which the event loop may be late before the bookie reports itself as unhealthy.
    health_max_lateness_s: float = Field(default=5.0, gt=0)

    @property
    def advertised(self) -> AdvertisedListeners:
        """Listeners' names and addresses, the internal one first."""
        return parse_advertised_listeners(
            self.advertised_listeners, self.internal_listener_name, self.advertised_address
        )

    @field_validator("advertised_listeners", mode="before")
    @classmethod
    def _with_commas(cls, value: Any) -> Any:
        return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value

    @field_validator("metadata")
    @classmethod
    def _names_a_store(cls, value: str) -> str:
        parse_location(value)
        return value

    @field_validator("listen_address", "advertised_address", "http_address")
    @classmethod
    def _is_an_address(cls, value: str, info: object) -> str:
        if not value and getattr(info, "field_name", "") != "listen_address":
            return value
        return check_address(value)

    @model_validator(mode="after")
    def _can_be_told(self) -> Self:
        parse_advertised_listeners(
            self.advertised_listeners, self.internal_listener_name, self.advertised_address, self.listen_address
        )
        return self
