"""The brokers that are registered. They are read when they are needed, and cached for a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.ownership.store_errors import convert_store_errors
from magnetar_broker.single_flight import SingleFlight
from magnetar_metadata.store import MetadataStore
from magnetar_protos.ownership_pb2 import BrokerRegistration
from magnetar_wire.clock import Clock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.process.addresses import check_address

__all__ = ["RegisteredBrokers", "choose_leader"]

_log = logging.getLogger(__name__)
_CACHE_TTL_S: Final = 1.0

_Brokers = list[tuple[str, BrokerRegistration]]


class RegisteredBrokers:
    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reads: SingleFlight[None, _Brokers] = SingleFlight()
        # With the time when they were read, on the monotonic clock.
        self._cached: tuple[float, _Brokers] | None = None

    async def read(self) -> _Brokers:
        """Return ids and registrations, at most a second old, in the order of the ids. Raises `BrokerError`."""
        if self._cached is None or self._clock.monotonic() - self._cached[0] >= _CACHE_TTL_S:
            return await self._reads.run(None, self._read)
        return self._cached[1]

    async def find(self, broker_id: str) -> BrokerRegistration | None:
        """Return a broker's registration; None: it is not registered. One that has just registered is found. Raises
        `BrokerError`."""
        registration = dict(await self.read()).get(broker_id)
        if registration is None:
            with convert_store_errors("the brokers"):
                await self._store.sync()
            registration = dict(await self._read()).get(broker_id)
        return registration

    def clear_cache(self) -> None:
        self._cached = None

    async def close(self) -> None:
        await self._reads.close()

    async def _read(self) -> _Brokers:
        began_at = self._clock.monotonic()
        found: _Brokers = []
        with convert_store_errors("the brokers"):
            components = await self._store.children(paths.BROKERS)
            nodes = await asyncio.gather(*(self._store.get(f"{paths.BROKERS}/{one}") for one in components))
            for component, node in zip(components, nodes, strict=True):
                if node is None:
                    continue  # it was deleted after the children were listed
                try:
                    registration = BrokerRegistration.FromString(node.value)
                    _check(registration)
                    found.append((decode_path_component(component), registration))
                except (DecodeError, ValueError) as error:
                    _log.warning("%s/%s is not a valid registration of a broker: %s", paths.BROKERS, component, error)
        found.sort(key=lambda one: one[0])
        self._cached = began_at, found
        return found


class _Started(Protocol):
    @property
    def started_ms(self) -> int: ...


def choose_leader(brokers: Sequence[tuple[str, _Started]]) -> str:
    """Return the id of the leader, which does what one broker does for all: the broker that was started first. Empty:
    there is none. Two brokers may be leaders for a moment."""
    return min(((one.started_ms, broker_id) for broker_id, one in brokers), default=(0, ""))[1]


def _check(registration: BrokerRegistration) -> None:
    """Raise `ValueError` unless addresses are valid, and the internal listener has one, at which brokers reach it."""
    for number, listener in enumerate(registration.listeners):
        if listener.address or number == 0:
            check_address(listener.address)
        if listener.pulsar_address:
            check_address(listener.pulsar_address)
