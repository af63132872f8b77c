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
from magnetar_wire.http_server import HttpOptions
from magnetar_wire.logs import LogOptions
from magnetar_wire.process.addresses import check_address
from magnetar_wire.process.listeners import AdvertisedAt, advertised_listeners

__all__ = ["BookieSettings"]


class BookieSettings(
    BookieOptions, RocksOptions, LedgerClientOptions, AutoRecoveryOptions, GrpcOptions, HttpOptions, LogOptions
):
    # Who it is, for ever: see "Identity and start" in protocol.md.
    bookie_id: str
    data_folder: Path
    # Where the metadata store is: see magnetar_metadata/location.py.
    metadata: str
    # Where it listens; port 0 is any free one.
    listen_address: str = "127.0.0.1:3181"
    # What others are told, where that differs; empty: where it listens. Port 0 in it is the port that was chosen.
    advertised_address: str = ""
    # The same by the names of its listeners, in its place: internal:magnetar://host:port,external:magnetar://host:port.
    # Who reads entries past the brokers, as Spark's tasks do, gets the address of the listener that it names, or of the
    # internal one where the bookie has none of that name.
    advertised_listeners: tuple[str, ...] = Field(default=(), max_length=16)
    # Which of them brokers and other bookies use; empty: the first.
    internal_listener_name: str = ""
    # Health, status and metrics. Whoever reaches it can turn the bookie read-only. Empty: none.
    http_address: str = "127.0.0.1:8081"
    # How long ending in peace may wait for what is under way, and then for the disk.
    drain_timeout_s: float = Field(default=15.0, gt=0)
    close_timeout_s: float = Field(default=10.0, gt=0)
    # A group that takes longer to get to the disk, a storage that takes longer to answer, or an event loop that is
    # later than that, is not healthy.
    health_max_sync_s: float = Field(default=10.0, gt=0)
    health_max_answer_s: float = Field(default=2.0, gt=0)
    health_max_lateness_s: float = Field(default=5.0, gt=0)

    @property
    def advertised(self) -> AdvertisedAt:
        """Listeners' names and addresses, the internal one first."""
        return advertised_listeners(self.advertised_listeners, self.internal_listener_name, self.advertised_address)

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
        advertised_listeners(
            self.advertised_listeners, self.internal_listener_name, self.advertised_address, self.listen_address
        )
        return self
