"""Assign a bundle without an owner: ask the least loaded broker to claim it.

Two brokers may assign the same bundle at the same time, to different brokers. Both of those claim it, the metadata
store lets one of them succeed, and both answers name that one. A broker that can't claim it, or does not answer in
time, is skipped, and avoided for some seconds. It may have claimed the bundle all the same; then the answer of the next
broker names it. At last this broker claims the bundle itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.load_rules import Candidate, RecentAssignments, order_by_load
from magnetar_broker.ownership.registered_brokers import RegisteredBrokers
from magnetar_broker.peers import Peers
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner, ClaimAnswer, ClaimRequest
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName

__all__ = ["BundleAssigner", "BundleNotFound"]

_log = logging.getLogger(__name__)
# Maximum number of other brokers that are requested to claim one bundle.
_MAX_REQUESTED: Final = 3
# How long a broker that did not claim a bundle is avoided.
_AVOIDED_S: Final = 5.0

Claim = Callable[[NamespaceName, BundleRange], Awaitable[BundleOwner]]


class BundleNotFound(Exception):
    """The namespace has no such bundle, or no longer: it may have been split."""


class BundleAssigner:
    def __init__(
        self, broker_id: str, registered: RegisteredBrokers, peers: Peers, clock: Clock, timeout_s: float
    ) -> None:
        self._broker_id = broker_id
        self._registered = registered
        self._peers = peers
        self._clock = clock
        self._timeout_s = timeout_s
        self._recent = RecentAssignments()
        # Brokers that are avoided, until this time on the monotonic clock.
        self._avoided_until: dict[str, float] = {}

    async def assign(self, namespace: NamespaceName, bundle: BundleRange, claim: Claim) -> BundleOwner:
        """Assign the bundle, and return its owner. `claim` claims it for this broker. Raises `BrokerError`,
        `BundleNotFound`."""
        brokers = dict(await self._registered.read())
        for broker_id in self._order_brokers(brokers)[:_MAX_REQUESTED]:
            if broker_id == self._broker_id:
                break
            try:
                return await self._request_claim(broker_id, brokers[broker_id], namespace, bundle)
            except BrokerError as error:
                if error.code == ErrorCode.NOT_FOUND:
                    raise BundleNotFound(str(error)) from None
                _log.info("Broker %s does not accept bundle %s of %s: %s", broker_id, bundle, namespace, error)
                self._avoided_until[broker_id] = self._clock.monotonic() + _AVOIDED_S
        return await claim(namespace, bundle)

    async def assign_to(self, broker_id: str, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        """Request this broker to claim the bundle, and return the bundle's owner. Raises `BrokerError`."""
        registration = await self._registered.find(broker_id)
        if registration is None:
            raise BrokerError(
                ErrorCode.NOT_FOUND, f"there is no broker {broker_id:.100}: `magnetar brokers` lists the brokers"
            )
        return await self._request_claim(broker_id, registration, namespace, bundle)

    def _order_brokers(self, brokers: dict[str, BrokerRegistration]) -> list[str]:
        """Return the ids of the brokers in the order in which they are requested."""
        now = self._clock.monotonic()
        self._avoided_until = {one: until for one, until in self._avoided_until.items() if until > now}
        self._recent.forget_others(list(brokers))
        candidates = [
            _candidate(broker_id, registration)
            for broker_id, registration in brokers.items()
            if registration.listeners and broker_id not in self._avoided_until
        ]
        ordered = order_by_load(candidates, self._recent)
        if ordered:
            self._recent.add(ordered[0])
        return [one.broker_id for one in ordered]

    async def _request_claim(
        self, broker_id: str, registration: BrokerRegistration, namespace: NamespaceName, bundle: BundleRange
    ) -> BundleOwner:
        request = ClaimRequest(namespace=str(namespace), bundle=str(bundle)).SerializeToString()
        response = await self._peers.call(registration.listeners[0].address, "claim", request, self._timeout_s)
        try:
            answer = ClaimAnswer.FromString(response)
        except DecodeError as error:
            text = f"the answer of broker {broker_id} can't be decoded: {error}"
            raise BrokerError(ErrorCode.UNKNOWN_ERROR, text) from None
        if answer.HasField("problem"):
            raise BrokerError(answer.problem.code, answer.problem.text)
        return answer.owner


def _candidate(broker_id: str, registration: BrokerRegistration) -> Candidate:
    load = registration.load
    return Candidate(broker_id, (load.time_ms, registration.instance), load.cpu, load.loop_lag_s, load.bundles)
