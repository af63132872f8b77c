"""All settings of a broker's process: those of its parts, and its own addresses."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import field_validator, model_validator

from magnetar_broker.settings.service import ServingSettings
from magnetar_metadata.location import ZooKeeperLocation, parse_location
from magnetar_metadata.settings import MetadataLocationSettings
from magnetar_wire.process.addresses import check_address
from magnetar_wire.process.advertised_listeners import (
    PULSAR,
    AdvertisedListeners,
    parse_advertised_listeners,
    parse_bind_addresses,
    parse_pulsar_advertised_listeners,
    split_by_scheme,
)
from magnetar_wire.process.settings import ListenerSettings
from magnetar_wire.settings import REQUIRED, Subject, setting

__all__ = ["BrokerSettings"]


class BrokerSettings(ServingSettings, MetadataLocationSettings, ListenerSettings):
    worth_changing: ClassVar[tuple[str, ...]] = (
        "broker_id",
        "metadata",
        "cluster_name",
        "listen_addresses",
        "advertised_address",
        "pulsar_listen_addresses",
        "http_address",
        "log_level",
        "managed_ledger_default_ensemble_size",
        "managed_ledger_default_write_quorum",
        "managed_ledger_default_ack_quorum",
        "default_retention_without_subscription_minutes",
        "max_message_publish_buffer_size_in_mb",
        "managed_ledger_cache_size_mb",
        "allow_auto_topic_creation",
    )

    broker_id: str = setting(
        REQUIRED,
        "Name of the broker in its cluster: at most 100 letters, digits and _~:.- characters, not beginning with a "
        "dot. It must be unique, and stays the same over restarts.",
        subject=Subject.ADDRESSES,
        pattern=r"^[A-Za-z0-9_~:-][A-Za-z0-9_.~:-]{0,99}$",
    )
    listen_addresses: tuple[str, ...] = setting(
        ("127.0.0.1:6652",),
        "Addresses that a broker listens at, host:port, separated by commas; at most 16. Port 0: any free port.",
        subject=Subject.ADDRESSES,
        min_length=1,
        max_length=16,
    )
    pulsar_listen_addresses: tuple[str, ...] = setting(
        ("127.0.0.1:6650",),
        "Addresses that a broker listens at for clients of Pulsar's protocol, host:port, separated by commas; at most "
        "16. Port 0: any free port. Empty: none.",
        subject=Subject.ADDRESSES,
        max_length=16,
    )
    bind_addresses: tuple[str, ...] = setting(
        (),
        "Further addresses that a broker listens at, each for one of advertised_listeners: "
        "external:magnetar://0.0.0.0:6653,external:pulsar://0.0.0.0:6651. At most 16.",
        subject=Subject.ADDRESSES,
        max_length=16,
        named_by="Pulsar",
    )

    @property
    def advertised(self) -> AdvertisedListeners:
        """Names and addresses of the listeners, the internal one first."""
        return parse_advertised_listeners(
            split_by_scheme(self.advertised_listeners)[0], self.internal_listener_name, self.advertised_address
        )

    @property
    def pulsar_advertised(self) -> AdvertisedListeners:
        """The same for clients of Pulsar's protocol. Port 0, or no address: where it listens."""
        return parse_pulsar_advertised_listeners(
            split_by_scheme(self.advertised_listeners)[1],
            self.advertised,
            self.pulsar_advertised_address,
            next(iter(self.pulsar_listen_addresses), ""),
        )

    @property
    def bound(self) -> AdvertisedListeners:
        """Names of listeners, and the addresses that the broker listens at for them."""
        return parse_bind_addresses(split_by_scheme(self.bind_addresses)[0], self.advertised)

    @property
    def pulsar_bound(self) -> AdvertisedListeners:
        """The same for clients of Pulsar's protocol."""
        return parse_bind_addresses(split_by_scheme(self.bind_addresses)[1], self.pulsar_advertised, PULSAR)

    @field_validator("listen_addresses", "pulsar_listen_addresses", "bind_addresses", mode="before")
    @classmethod
    def _split_addresses(cls, value: Any) -> Any:
        return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value

    @field_validator("listen_addresses", "pulsar_listen_addresses")
    @classmethod
    def _check_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(check_address, value))

    @field_validator("metadata")
    @classmethod
    def _check_is_shared(cls, value: str) -> str:
        if not isinstance(parse_location(value), ZooKeeperLocation):
            raise ValueError(
                "brokers share their metadata store: set a zookeeper:// location, or run `magnetar standalone`, which "
                "has a store of its own"
            )
        return value

    @model_validator(mode="after")
    def _check_listeners(self) -> Self:
        for_brokers, for_pulsar = split_by_scheme(self.advertised_listeners)
        if for_pulsar and not for_brokers:
            raise ValueError("advertised_listeners has no magnetar://host:port, by which brokers reach each other")
        parse_advertised_listeners(
            for_brokers, self.internal_listener_name, self.advertised_address, self.listen_addresses[0]
        )
        parse_bind_addresses(split_by_scheme(self.bind_addresses)[0], self.advertised)
        if not self.pulsar_bound and not self.pulsar_listen_addresses and self.pulsar_advertised:
            raise ValueError("advertised_listeners has pulsar:// addresses, and pulsar_listen_addresses is empty")
        return self
