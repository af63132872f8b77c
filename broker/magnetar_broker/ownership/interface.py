"""What the rest of a broker asks about ownership, and what ownership asks of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from magnetar_broker.admin.catalog_nodes import Found
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.ownership_pb2 import Listener
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = [
    "Advertised",
    "BundleTopics",
    "Home",
    "NamespaceReader",
    "OwnedBundle",
    "Ownership",
    "advertised_as",
    "listeners_told",
]


@dataclass(frozen=True, slots=True)
class Advertised:
    """Where a broker is reached: an address by the name of each of its listeners, the internal one first; and for
    clients of Pulsar's protocol, by the names of the same listeners."""

    listeners: tuple[tuple[str, str], ...]
    pulsar: tuple[tuple[str, str], ...] = ()

    @property
    def internal(self) -> str:
        return self.listeners[0][1]

    @property
    def internal_pulsar(self) -> str:
        """Of clients of Pulsar's protocol that name no listener; empty: they can't reach it."""
        return dict(self.pulsar).get(self.listeners[0][0], "")

    def at(self, listener_name: str) -> str:
        """Empty: the internal one. Raises `BrokerError` where it has none of that name."""
        return _at(self.listeners, listener_name, ErrorCode.INVALID_ARGUMENT)

    def pulsar_at(self, listener_name: str) -> str:
        """The same, for clients of Pulsar's protocol. They are to try again: the name may be one that brokers are given
        now, one after the other, or the topic may move to one that has it."""
        if not self.pulsar:
            raise BrokerError(
                ErrorCode.SERVICE_NOT_READY,
                "the topic's broker has no listener for Pulsar's binary protocol: set "
                "pulsar_listen_addresses of that broker",
            )
        return _at(self.pulsar, listener_name or self.listeners[0][0], ErrorCode.SERVICE_NOT_READY)


def advertised_as(listeners: Iterable[Listener]) -> Advertised:
    """As a broker has written it down."""
    there = list(listeners)
    return Advertised(
        tuple((one.name, one.address) for one in there if one.address),
        tuple((one.name, one.pulsar_address) for one in there if one.pulsar_address),
    )


def listeners_told(advertised: Advertised) -> list[Listener]:
    """The same, to be written down."""
    between, pulsar = dict(advertised.listeners), dict(advertised.pulsar)
    return [
        Listener(name=name, address=between.get(name, ""), pulsar_address=pulsar.get(name, ""))
        for name in dict.fromkeys([*between, *pulsar])
    ]


def _at(listeners: tuple[tuple[str, str], ...], listener_name: str, lacking: ErrorCode) -> str:
    if not listener_name:
        return listeners[0][1]
    for name, address in listeners:
        if name == listener_name:
            return address
    names = ", ".join(name for name, _ in listeners)
    raise BrokerError(lacking, f"the topic's broker has no listener {listener_name!r:.100}: use one of {names}")


@dataclass(frozen=True, slots=True)
class Home:
    """Who serves a topic."""

    broker_id: str
    advertised: Advertised
    # This broker.
    here: bool


@dataclass(frozen=True, slots=True)
class OwnedBundle:
    """One that this broker has."""

    namespace: NamespaceName
    bundle: BundleRange
    # False: it is being given up, or looked at whether it is still this broker's.
    serving: bool


class Ownership(Protocol):
    async def home(self, topic: TopicName) -> Home:
        """Who serves the topic. Where nobody does, its bundle is given to somebody first. Raises `BrokerError`: nobody
        can be found now."""

    def check(self, topic: TopicName) -> None:
        """Raises `NothingDone` unless this broker may have the topic open now."""

    async def admit(self, topic: TopicName) -> None:
        """Returns when `check` passes. A bundle that changes hands is waited for, one that nobody has is given to
        somebody first. Raises `NothingDone` where another broker has it, and `BrokerError` where nobody can tell."""

    async def confirm(self, topic: TopicName) -> None:
        """Returns when it was read afresh that this broker has the topic's bundle. Raises `TopicUnloaded` where it does
        not, and `BrokerError` where nobody can tell."""

    def doubt(self, topic: TopicName) -> None:
        """Its log or its cursors were found to be another broker's: whether the bundle is still this one's is looked at
        before any of its topics is opened again. Otherwise two brokers of which each believes to have it would take the
        topic from each other for as long as they do."""


class BundleTopics(Protocol):
    """The topics that are open, by their bundles."""

    async def unload_within(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Closes them in peace, and returns when none is open, being opened or being deleted any more."""

    def give_up_within(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """At once: somebody else may have them already."""


class NamespaceReader(Protocol):
    async def namespace(self, name: NamespaceName, *, fresh: bool = False) -> Found[NamespaceNode]:
        """As it was a few seconds ago at most, or as it is. Raises `BrokerError`, NOT_FOUND among them."""
