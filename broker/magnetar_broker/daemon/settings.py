"""All that can be set about a broker's process: its own settings, and the options of all that runs in it.

Where two parts have an option of the same name it is one setting, with one default: a test keeps that.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_broker.core.namespace_leases import check_lease_bounds
from magnetar_broker.grpc_options import BrokerGrpcOptions
from magnetar_broker.lag_bound import check_lag_bound
from magnetar_broker.options import BrokerOptions
from magnetar_broker.topic_bounds import check_load_seconds, check_topic_bound
from magnetar_metadata.location import ZooKeeperLocation, parse_location
from magnetar_wire.http_options import HttpOptions
from magnetar_wire.process.addresses import check_address
from magnetar_wire.process.advertised_listeners import (
    PULSAR,
    AdvertisedListeners,
    parse_advertised_listeners,
    parse_bind_addresses,
    parse_pulsar_advertised_listeners,
    split_by_scheme,
)
from magnetar_wire.process.logs import LogOptions

__all__ = ["BrokerSettings"]


class BrokerSettings(BrokerOptions, LedgerClientOptions, BrokerGrpcOptions, HttpOptions, LogOptions):
    # Name of the broker in its cluster. It must be unique, and stays the same over restarts.
    broker_id: str = Field(pattern=r"^[A-Za-z0-9_~:-][A-Za-z0-9_.~:-]{0,99}$")
    # Location of the metadata store: zookeeper://host:port,host:port/chroot?session_timeout_s=10.
    metadata: str
    # Addresses to listen at, host:port, separated by commas. Port 0: any free port.
    listen_addresses: tuple[str, ...] = Field(default=("127.0.0.1:6652",), min_length=1, max_length=16)
    # Address that clients and other brokers connect to, host:port. Empty: the first of listen_addresses. Port 0: the
    # port that the broker listens at.
    advertised_address: str = ""
    # Addresses to listen at for clients of Pulsar's protocol, host:port, separated by commas. Empty: none.
    pulsar_listen_addresses: tuple[str, ...] = Field(default=("127.0.0.1:6650",), max_length=16)
    # Address that clients of Pulsar's protocol connect to, host:port. Empty: the host of advertised_address, or of the
    # internal listener in advertised_listeners, with the port of the first of pulsar_listen_addresses; if neither is
    # set, the first of pulsar_listen_addresses.
    pulsar_advertised_address: str = ""
    # Addresses that clients connect to, by listener name, instead of advertised_address and pulsar_advertised_address:
    # internal:magnetar://host:port,external:magnetar://host:port, and pulsar:// for clients of Pulsar's protocol. A
    # client gets the address of the listener that it names; if it names none, of the listener in bind_addresses that it
    # connected to, else of the internal one.
    advertised_listeners: tuple[str, ...] = Field(default=(), max_length=16)
    # Name of the listener in advertised_listeners that other brokers use. Empty: the first.
    internal_listener_name: str = ""
    # Further addresses to listen at, each for one of advertised_listeners:
    # external:magnetar://0.0.0.0:6653,external:pulsar://0.0.0.0:6651.
    bind_addresses: tuple[str, ...] = Field(default=(), max_length=16)
    # Address of health, status and metrics over HTTP, host:port. Empty: no HTTP.
    http_address: str = "127.0.0.1:8080"
    # Seconds that a graceful shutdown waits for each of its steps. Topics are closed within broker_shutdown_timeout_s.
    close_timeout_s: float = Field(default=10.0, gt=0)

    @property
    def advertised(self) -> AdvertisedListeners:
        """Listeners' names and addresses, the internal one first."""
        return parse_advertised_listeners(
            split_by_scheme(self.advertised_listeners)[0], self.internal_listener_name, self.advertised_address
        )

    @property
    def pulsar_advertised(self) -> AdvertisedListeners:
        """The same for clients of Pulsar's protocol. An address with port 0, or empty, is where it listens for them."""
        return parse_pulsar_advertised_listeners(
            split_by_scheme(self.advertised_listeners)[1],
            self.advertised,
            self.pulsar_advertised_address,
            next(iter(self.pulsar_listen_addresses), ""),
        )

    @property
    def bound(self) -> AdvertisedListeners:
        """Listeners' names, and where it listens for who comes to them."""
        return parse_bind_addresses(split_by_scheme(self.bind_addresses)[0], self.advertised)

    @property
    def pulsar_bound(self) -> AdvertisedListeners:
        """The same for clients of Pulsar's protocol."""
        return parse_bind_addresses(split_by_scheme(self.bind_addresses)[1], self.pulsar_advertised, PULSAR)

    @field_validator(
        "listen_addresses", "pulsar_listen_addresses", "advertised_listeners", "bind_addresses", mode="before"
    )
    @classmethod
    def _with_commas(cls, value: Any) -> Any:
        return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value

    @field_validator("metadata")
    @classmethod
    def _names_a_store(cls, value: str) -> str:
        if not isinstance(parse_location(value), ZooKeeperLocation):
            raise ValueError("a broker shares its metadata store with others: `magnetar standalone` has one of its own")
        return value

    @field_validator("listen_addresses", "pulsar_listen_addresses")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(check_address, value))

    @field_validator("advertised_address", "pulsar_advertised_address", "http_address")
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
    def _can_be_told(self) -> Self:
        between_brokers, of_pulsar = split_by_scheme(self.advertised_listeners)
        if of_pulsar and not between_brokers:
            raise ValueError("advertised_listeners has no magnetar://host:port, by which brokers reach each other")
        parse_advertised_listeners(
            between_brokers, self.internal_listener_name, self.advertised_address, self.listen_addresses[0]
        )
        parse_bind_addresses(split_by_scheme(self.bind_addresses)[0], self.advertised)
        if not self.pulsar_bound and not self.pulsar_listen_addresses and self.pulsar_advertised:
            raise ValueError("advertised_listeners has pulsar:// addresses, and pulsar_listen_addresses is empty")
        return self
