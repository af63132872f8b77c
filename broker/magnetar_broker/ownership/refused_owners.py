"""Whether a bundle's owner is gone, since its address refuses connections (OWN-2).

An owner's node stands for up to the session time-out after its process has died. If the machine at the owner's internal
address answers that no process listens there, the bundle is taken over at once. A time-out shows nothing, and the node
is waited out.

A refusal may still be wrong: a firewall that refuses, or a listener that is closed while the process goes on. The
ledgers' fences keep that safe. What is needed besides is that brokers do not take bundles from each other for ever:

1. If the owner is refused, its registration is deleted first, as it was read. So no broker assigns bundles to it.
2. A broker that lives registers again as soon as its registration vanishes (registration.py). If a registration with
   the same instance is found after step 1, the owner lives, and this broker does not believe in refusals of that
   instance any more. If it dies later its session time-out decides.

So each broker is wrong about another process once at most within a session of its own: this object ends with the
session, and the next session knows nothing of earlier verdicts. A broker that loses its session again and again, and
whose connections a living owner refuses all the time, takes the bundles that it looks up once per session. That costs
availability and no messages: every takeover fences the topics' ledgers first. To remember verdicts for longer is not
worth it, because a session's end is rarer, and costs the broker all of its own bundles.

Lookups share one probe per owner, and its result for a moment: a client that was sent to an owner which has just died
asks again within 0.1 s. A probe that was not answered is believed as long as it took, so no lookup waits for two.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.ownership.registered_brokers import RegisteredBrokers
from magnetar_broker.ownership.shared_work import SharedWork
from magnetar_broker.peers import PeersLike
from magnetar_metadata.errors import BadVersion, NoNode
from magnetar_metadata.store import MetadataStore, Node
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner
from magnetar_wire.clock import Clock

__all__ = ["RefusedOwners"]

_log = logging.getLogger(__name__)
# How long a probe's result is believed.
_ANSWERED_S: Final = 0.05
_GONE_S: Final = 0.25
# A refusal takes one round trip.
_PROBE_TIMEOUT_S: Final = 0.5
_MOST_OWNERS: Final = 1_000


@dataclass(slots=True)
class _Owner:
    """What is known of one process."""

    gone: bool = False
    # On the monotonic clock.
    believed_until: float = 0.0
    unregistered: bool = False
    # It has registered since it was unregistered.
    contradicted: bool = False


class RefusedOwners:
    def __init__(self, store: MetadataStore, peers: PeersLike, registered: RegisteredBrokers, clock: Clock) -> None:
        self._store = store
        self._peers = peers
        self._registered = registered
        self._clock = clock
        # By instance, the one that was met first comes first.
        self._owners: dict[bytes, _Owner] = {}
        self._probing: SharedWork[bytes, bool] = SharedWork()

    async def is_gone(self, owner: BundleOwner) -> bool:
        """Whether its bundle may be taken over. The owner is another process. Raises `MetadataError`."""
        if not owner.listeners or not owner.instance or not owner.broker_id:
            return False
        known = self._owners.get(owner.instance)
        if known is not None and (known.contradicted or self._clock.monotonic() < known.believed_until):
            return known.gone
        return await self._probing.result(owner.instance, lambda: self._probe(owner))

    async def close(self) -> None:
        await self._probing.close()

    async def _probe(self, owner: BundleOwner) -> bool:
        known = self._owners.get(owner.instance)
        if known is None:
            known = self._owners[owner.instance] = _Owner()
            if len(self._owners) > _MOST_OWNERS:
                del self._owners[next(iter(self._owners))]
        began = self._clock.monotonic()
        refused = await self._peers.refuses_connections(owner.listeners[0].address, _PROBE_TIMEOUT_S)
        probed = self._clock.monotonic()
        known.gone = refused and await self._unregister(owner, known)
        known.believed_until = self._clock.monotonic() + (_GONE_S if known.gone else max(_ANSWERED_S, probed - began))
        return known.gone

    async def _unregister(self, owner: BundleOwner, known: _Owner) -> bool:
        """Whether the owner has not contradicted."""
        path = paths.broker(owner.broker_id)
        node = await self._store.get_after_sync(path)
        if node is None or _instance(node) != owner.instance:
            return True
        if known.unregistered:
            known.contradicted = True
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
        except BadVersion:  # it has written a new load meanwhile
            return False
        known.unregistered = True
        self._registered.forget()
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
