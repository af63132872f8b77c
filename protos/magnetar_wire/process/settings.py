"""Settings that brokers, bookies and standalones have in common: addresses, HTTP, shutdown and logs.

They are apart from what they are about, which takes long to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from magnetar_wire.configuration import Configuration
from magnetar_wire.process.addresses import check_address
from magnetar_wire.settings import REQUIRED, Subject, setting

__all__ = [
    "AdvertisedAddressSettings",
    "DataFolderSettings",
    "HttpSettings",
    "ListenerSettings",
    "LogSettings",
    "ShutdownSettings",
]


class DataFolderSettings(Configuration):
    data_folder: Path = setting(
        REQUIRED,
        "Folder of all data. Only one process can use it at a time.",
        subject=Subject.ADDRESSES,
    )


class AdvertisedAddressSettings(Configuration):
    advertised_address: str = setting(
        "",
        "Address that clients and other processes connect to, host:port. Empty: the first address that the process "
        "listens at; a standalone that listens at all addresses advertises 127.0.0.1. Port 0: the port that the "
        "process listens at.",
        subject=Subject.ADDRESSES,
        named_by="Pulsar",
    )

    @field_validator("advertised_address")
    @classmethod
    def _check_advertised_address(cls, value: str) -> str:
        return value and check_address(value)


class ListenerSettings(AdvertisedAddressSettings):
    advertised_listeners: tuple[str, ...] = setting(
        (),
        "Addresses that clients connect to, by listener name. They replace advertised_address and "
        "pulsar_advertised_address. Format: internal:magnetar://host:port,external:magnetar://host:port, and for "
        "clients of Pulsar's protocol name:pulsar://host:port. A client gets the address of the listener that it "
        "names. A client that names none gets the address of the listener in bind_addresses that it connected to, or "
        "else of the internal listener. At most 16.",
        subject=Subject.ADDRESSES,
        max_length=16,
        named_by="Pulsar",
    )
    internal_listener_name: str = setting(
        "",
        "Name of the listener in advertised_listeners that brokers and bookies use. Empty: the first.",
        subject=Subject.ADDRESSES,
        named_by="Pulsar",
    )
    http_address: str = setting(
        "127.0.0.1:8080",
        "Address of health, status and metrics over HTTP, host:port. Restrict access to a bookie's address: its "
        "clients can make the bookie read-only. Empty: no HTTP.",
        subject=Subject.ADDRESSES,
    )

    @field_validator("advertised_listeners", mode="before")
    @classmethod
    def _split_advertised_listeners(cls, value: Any) -> Any:
        return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value

    @field_validator("http_address")
    @classmethod
    def _check_http_address(cls, value: str) -> str:
        return value and check_address(value)


class HttpSettings(Configuration):
    """Each bounds what the network may take."""

    http_max_connections: int = setting(
        500,
        "Maximum number of HTTP connections. Further connections are closed.",
        subject=Subject.HTTP,
        unit="connections",
        ge=1,
    )
    http_max_head_bytes: int = setting(
        16_384,
        "Maximum size, in bytes, of the request line and the headers together.",
        subject=Subject.HTTP,
        ge=1024,
    )
    http_max_body_bytes: int = setting(
        65_536,
        "Maximum size, in bytes, of a request's body. Paths whose bodies may be larger have their maximum in "
        "/openapi.json: `x-max-bytes`.",
        subject=Subject.HTTP,
        ge=0,
    )
    http_max_pending_body_bytes: int = setting(
        33_554_432,
        "Maximum size, in bytes, of all larger bodies together, of requests that are being received and served. "
        "Requests above it are answered with 429. A single body may be larger.",
        subject=Subject.HTTP,
        ge=1,
    )
    http_exchange_timeout_seconds: float = setting(
        60.0,
        "Seconds that one request and its response may take together, counted from the previous response, or from "
        "the connection's start. Then the connection is closed. Longer than `admin_forward_timeout_seconds`, so that "
        "admin calls are answered. A change that takes longer is made nevertheless.",
        subject=Subject.HTTP,
        gt=0,
        formerly="http_exchange_timeout_s",
    )
    http_close_timeout_seconds: float = setting(
        2.0,
        "Seconds that the HTTP server, when it closes, waits for responses in flight.",
        subject=Subject.HTTP,
        ge=0,
        formerly="http_close_timeout_s",
    )


class ShutdownSettings(Configuration):
    close_timeout_seconds: float = setting(
        10.0,
        "Seconds that each step of a graceful shutdown may take, except those that have a timeout of their own.",
        subject=Subject.SHUTDOWN,
        gt=0,
        formerly="close_timeout_s",
    )


class LogSettings(Configuration):
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting(
        "INFO",
        "Lowest level that is logged: DEBUG, INFO, WARNING or ERROR, in upper or lower case.",
        subject=Subject.LOGS,
    )
    log_format: Literal["text", "json"] = setting(
        "text",
        "Format of a log line: text, or json for one JSON object per line.",
        subject=Subject.LOGS,
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_any_case(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value
