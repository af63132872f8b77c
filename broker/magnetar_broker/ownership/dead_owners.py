"""Detect owner nodes and registrations whose broker is dead, before their session expires (OWN-2).

Such a node stands for up to a session timeout after its process has died. Nothing here has to be right for data to be
safe: the ledgers' fences ensure that. It has to be right so that brokers do not take bundles from each other.

**Stale sessions of this broker.** A broker that was killed and restarted, or that has lost a session, finds nodes with
its own id and of another session. Two things prove that no other process is behind such a node:

- It has the instance of this process. So it is of an earlier session of this process, which serves nothing by it.
- A call to the address in the node is answered with the instance of this process. So the process that listened there
  before does so no longer.

Otherwise another broker may have been given the same id by mistake, and its nodes are waited out.

**Dead brokers.** If the machine at an owner's internal address answers that no process listens there (it refuses the
connection), the bundle is taken over at once. A timeout proves nothing, and the node is waited out.

A refusal may still be wrong: a firewall that refuses, or a listener that is closed while the process goes on. So that
brokers do not take bundles from each other for ever:

1. If the owner is refused, its registration is deleted first, as it was read. So no broker assigns bundles to it.
2. A broker that is alive registers again as soon as its registration vanishes (registration.py). If a registration with
   the same instance is found after step 1, the owner is alive, and this broker ignores refusals of that instance from
   then on. If the owner dies later, its session timeout decides.

So each broker is wrong about another process once at most within a session of its own: the detector ends with the
session, and that of the next session starts without these results. A broker that loses its session again and again,
and whose connections a living owner refuses all the time, takes the bundles that it looks up once per session. That
costs availability and no messages, because every take-over fences the topics' ledgers first. It is not worth
remembering results for longer, because a session's end is rarer, and costs the broker all of its own bundles.

Concurrent lookups share one probe per owner. Its result is valid for a moment, because a client that was sent to an
owner which has just died retries within 0.1 s. The result of a probe that was not answered is valid for as long as the
probe took, so no lookup waits for two.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.registered_brokers import RegisteredBrokers
from magnetar_broker.peers import Peers
from magnetar_broker.single_flight import SingleFlight
from magnetar_metadata.errors import BadVersion, NoNode
from magnetar_metadata.store import MetadataStore, Node
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner, Listener
from magnetar_wire.clock import Clock

__all__ = ["DeadOwnerDetector", "StaleSessionDetector"]

_log = logging.getLogger(__name__)
# How long a probe's result is valid.
_ALIVE_TTL_S: Final = 0.05
_DEAD_TTL_S: Final = 0.25
# A refusal takes one round trip.
_PROBE_TIMEOUT_S: Final = 0.5
_MAX_OWNERS: Final = 1_000


class StaleSessionDetector:
    """Detects nodes of stale sessions of this broker."""

    def __init__(self, broker_id: str, instance: bytes, peers: Peers, timeout_s: float) -> None:
        self._broker_id = broker_id
        self._instance = instance
        self._peers = peers
        self._timeout_s = timeout_s

    async def is_stale(self, broker_id: str, instance: bytes, listeners: Sequence[Listener]) -> bool:
        """Return whether a node that is not of the current session is of a stale session of this broker."""
        if broker_id != self._broker_id:
            return False
        if instance == self._instance:
            return True
        if not listeners:
            return False
        try:
            answer = await self._peers.call(listeners[0].address, "instance", b"", self._timeout_s)
        except BrokerError:
            return False
        return answer == self._instance


@dataclass(slots=True)
class _Process:
    """The known state of an owner's process."""

    is_dead: bool = False
    # When the result expires, on the monotonic clock.
    valid_until: float = 0.0
    # This broker has deleted its registration.
    is_unregistered: bool = False
    # It has registered again since then.
    is_contradicted: bool = False


class DeadOwnerDetector:
    """Detects owners that are dead, because their address refuses connections."""

    def __init__(self, store: MetadataStore, peers: Peers, registered: RegisteredBrokers, clock: Clock) -> None:
        self._store = store
        self._peers = peers
        self._registered = registered
        self._clock = clock
        # By instance, the oldest first.
        self._processes: dict[bytes, _Process] = {}
        self._probes: SingleFlight[bytes, bool] = SingleFlight()

    async def is_dead(self, owner: BundleOwner) -> bool:
        """Return whether the bundle of an owner, which is another process, may be taken over. Raises
        `MetadataError`."""
        if not owner.listeners or not owner.instance or not owner.broker_id:
            return False
        known = self._processes.get(owner.instance)
        if known is not None and (known.is_contradicted or self._clock.monotonic() < known.valid_until):
            return known.is_dead
        return await self._probes.run(owner.instance, lambda: self._probe(owner))

    async def close(self) -> None:
        await self._probes.close()

    async def _probe(self, owner: BundleOwner) -> bool:
        known = self._processes.get(owner.instance)
        if known is None:
            known = self._processes[owner.instance] = _Process()
            if len(self._processes) > _MAX_OWNERS:
                del self._processes[next(iter(self._processes))]
        began_at = self._clock.monotonic()
        refused = await self._peers.refuses_connections(owner.listeners[0].address, _PROBE_TIMEOUT_S)
        probed_at = self._clock.monotonic()
        known.is_dead = refused and await self._unregister(owner, known)
        ttl_s = _DEAD_TTL_S if known.is_dead else max(_ALIVE_TTL_S, probed_at - began_at)
        known.valid_until = self._clock.monotonic() + ttl_s
        return known.is_dead

    async def _unregister(self, owner: BundleOwner, known: _Process) -> bool:
        """Delete the owner's registration. Return False if the registration shows that the owner is alive."""
        path = paths.broker(owner.broker_id)
        node = await self._store.get_after_sync(path)
        if node is None or _instance(node) != owner.instance:
            return True
        if known.is_unregistered:
            known.is_contradicted = True
            _log.warning(
                "Broker %s is registered, though %s refuses connections from this broker: it owns its "
                "bundles until its session ends",
                owner.broker_id,
                owner.listeners[0].address,
            )
            return False
        try:
            with contextlib.suppress(NoNode):
                await self._store.delete(path, node.version)
        except BadVersion:  # it has written another load report since
            return False
        known.is_unregistered = True
        self._registered.clear_cache()
        _log.warning(
            "Broker %s has stopped: %s refuses connections. Its bundles are taken over when they are looked up",
            owner.broker_id,
            owner.listeners[0].address,
        )
        return True


def _instance(node: Node) -> bytes:
    try:
        return BrokerRegistration.FromString(node.value).instance
    except DecodeError:
        return b""
