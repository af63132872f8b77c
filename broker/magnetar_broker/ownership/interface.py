"""Interfaces of ownership: `Ownership`, which other packages call, and what ownership needs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["BundleTopics", "OwnedBundle", "Ownership", "TopicOwner"]


@dataclass(frozen=True, slots=True)
class TopicOwner:
    """The broker that serves a topic."""

    broker_id: str
    addresses: AdvertisedAddresses
    # It is this broker.
    is_local: bool


@dataclass(frozen=True, slots=True)
class OwnedBundle:
    """A bundle that this broker owns."""

    namespace: NamespaceName
    bundle: BundleRange
    # False: the bundle is being unloaded, or its owner node is being read again.
    is_serving: bool


class Ownership(Protocol):
    async def find_owner(self, topic: TopicName) -> TopicOwner:
        """Return the topic's owner. If its bundle has none, assign it to a broker first.

        Raises `BrokerError` if no owner can be found now.
        """

    def check_owned(self, topic: TopicName) -> None:
        """Raise `NotOwner` unless this broker may open the topic, or have it open, now."""

    async def ensure_owned(self, topic: TopicName) -> None:
        """Return when `check_owned` passes. Wait for a bundle that changes its owner, and assign one without an owner.

        Raises `NotOwner` if another broker owns the bundle, and `BrokerError` if the owner can't be found now.
        """

    async def verify_owned(self, topic: TopicName) -> None:
        """Read the owner node afresh. Raises `NotOwner` if it isn't this broker's, and `BrokerError` if it can't be
        read."""

    def reverify(self, topic: TopicName) -> None:
        """Begin to read the owner node again, because the topic's log or cursors were found to be another broker's.

        None of the bundle's topics is opened until that is done. Otherwise two brokers that each believe to own the
        bundle would take the topic from each other again and again.
        """


class BundleTopics(Protocol):
    """The open topics, by bundle."""

    async def unload_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Close the topics gracefully. Return when none is open, being opened or being deleted any more."""

    def abort_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Close the topics at once, because another broker may already own them."""
