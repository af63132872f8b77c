"""The addresses at which clients and other brokers reach a broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import Listener

__all__ = ["AdvertisedAddresses"]


@dataclass(frozen=True, slots=True)
class AdvertisedAddresses:
    # Names and addresses of the listeners, the internal one first.
    listeners: tuple[tuple[str, str], ...]
    # The addresses for clients of Pulsar's protocol, by the names of the same listeners.
    pulsar: tuple[tuple[str, str], ...] = ()

    @classmethod
    def decode(cls, listeners: Iterable[Listener]) -> AdvertisedAddresses:
        """Convert the listeners of a broker's registration or owner node."""
        registered = list(listeners)
        return cls(
            tuple((one.name, one.address) for one in registered if one.address),
            tuple((one.name, one.pulsar_address) for one in registered if one.pulsar_address),
        )

    def encode(self) -> list[Listener]:
        """Convert the addresses to the listeners of a registration or owner node."""
        addresses, pulsar = dict(self.listeners), dict(self.pulsar)
        return [
            Listener(name=name, address=addresses.get(name, ""), pulsar_address=pulsar.get(name, ""))
            for name in dict.fromkeys([*addresses, *pulsar])
        ]

    @property
    def internal(self) -> str:
        return self.listeners[0][1]

    @property
    def internal_pulsar(self) -> str:
        """The address for clients of Pulsar's protocol that name no listener; empty: they can't reach the broker."""
        return dict(self.pulsar).get(self.listeners[0][0], "")

    def find(self, listener_name: str) -> str:
        """Return the address of a listener; empty: of the internal one. Raises `BrokerError`: there is no such
        listener."""
        return _find(self.listeners, listener_name, ErrorCode.INVALID_ARGUMENT)

    def find_pulsar(self, listener_name: str) -> str:
        """Return the address of a listener for Pulsar's protocol; empty: of the internal one.

        Raises SERVICE_NOT_READY if there is none, after which clients retry: brokers may be getting a listener of that
        name one after the other, or the topic may move to a broker that has it.
        """
        if not self.pulsar:
            raise BrokerError(
                ErrorCode.SERVICE_NOT_READY,
                "the topic's broker has no listener for Pulsar's binary protocol: set "
                "pulsar_listen_addresses of that broker",
            )
        return _find(self.pulsar, listener_name or self.listeners[0][0], ErrorCode.SERVICE_NOT_READY)


def _find(listeners: tuple[tuple[str, str], ...], listener_name: str, missing: ErrorCode) -> str:
    if not listener_name:
        return listeners[0][1]
    for name, address in listeners:
        if name == listener_name:
            return address
    names = ", ".join(name for name, _ in listeners)
    raise BrokerError(missing, f"the topic's broker has no listener {listener_name!r:.100}: use one of {names}")
