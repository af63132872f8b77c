"""Which brokers there are: read when it is needed, and kept for a moment, since those who need it come in crowds."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.ownership.shared_work import SharedWork
from magnetar_broker.ownership.store_errors import told
from magnetar_metadata.store import MetadataStore
from magnetar_protos.ownership_pb2 import BrokerRegistration
from magnetar_wire.clock import Clock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.process.addresses import check_address

__all__ = ["RegisteredBrokers"]

_log = logging.getLogger(__name__)
_KEPT_S: Final = 1.0

_Brokers = list[tuple[str, BrokerRegistration]]


class RegisteredBrokers:
    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reading: SharedWork[None, _Brokers] = SharedWork()
        # When they were read, on the monotonic clock.
        self._kept: tuple[float, _Brokers] | None = None

    async def read(self) -> _Brokers:
        """In the order of their ids, as of a moment ago. Raises `BrokerError`."""
        if self._kept is None or self._clock.monotonic() - self._kept[0] >= _KEPT_S:
            return await self._reading.result(None, self._read)
        return self._kept[1]

    def forget(self) -> None:
        """The next `read` asks the metadata store."""
        self._kept = None

    async def close(self) -> None:
        await self._reading.close()

    async def _read(self) -> _Brokers:
        began = self._clock.monotonic()
        found: _Brokers = []
        with told("the brokers"):
            components = await self._store.children(paths.BROKERS)
            nodes = await asyncio.gather(*(self._store.get(f"{paths.BROKERS}/{one}") for one in components))
            for component, node in zip(components, nodes, strict=True):
                if node is None:
                    continue  # it went in between
                try:
                    registration = BrokerRegistration.FromString(node.value)
                    _check(registration)
                    found.append((decode_path_component(component), registration))
                except (DecodeError, ValueError) as error:
                    _log.warning("%s/%s is not a valid registration of a broker: %s", paths.BROKERS, component, error)
        found.sort(key=lambda one: one[0])
        self._kept = began, found
        return found


def _check(registration: BrokerRegistration) -> None:
    """The internal listener, by which other brokers reach it, has an address for them. Raises `ValueError`."""
    for number, listener in enumerate(registration.listeners):
        if listener.address or number == 0:
            check_address(listener.address)
        if listener.pulsar_address:
            check_address(listener.pulsar_address)
