"""Giving a bundle that nobody has to somebody: the least loaded broker is asked to claim it.

Two brokers may do so at once, and choose differently: both of those chosen claim, the metadata store lets one do so,
and both answers name that one. A broker that does not answer in time, or can't, is passed over, and not asked first
again for a while; it may have claimed the bundle all the same, and then the next one's answer names it. At last this
broker claims the bundle itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker.core.broker_choice import Candidate, RecentChoices, by_load
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.registered_brokers import RegisteredBrokers
from magnetar_broker.peers import PeersLike
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner, ClaimAnswer, ClaimRequest
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName

__all__ = ["Assigning", "NoSuchBundle"]

_log = logging.getLogger(__name__)
# Others that are asked for one bundle.
_MOST_ASKED: Final = 3
_PASSED_OVER_S: Final = 5.0

Claim = Callable[[NamespaceName, BundleRange], Awaitable[BundleOwner]]


class NoSuchBundle(Exception):
    """The namespace has no such bundle (any more): it was split, say."""


class Assigning:
    def __init__(
        self, broker_id: str, registered: RegisteredBrokers, peers: PeersLike, clock: Clock, timeout_s: float
    ) -> None:
        self._broker_id = broker_id
        self._registered = registered
        self._peers = peers
        self._clock = clock
        self._timeout_s = timeout_s
        self._recent = RecentChoices()
        # Until when, on the monotonic clock.
        self._passed_over: dict[str, float] = {}

    async def assign(self, namespace: NamespaceName, bundle: BundleRange, claim: Claim) -> BundleOwner:
        """Who has it then. `claim` has this broker take it. Raises `BrokerError`, `NoSuchBundle`."""
        brokers = dict(await self._registered.read())
        for broker_id in self._order(brokers)[:_MOST_ASKED]:
            if broker_id == self._broker_id:
                break
            try:
                return await self._ask(broker_id, brokers[broker_id], namespace, bundle)
            except BrokerError as error:
                if error.code == ErrorCode.NOT_FOUND:
                    raise NoSuchBundle(str(error)) from None
                _log.info("Broker %s does not accept bundle %s of %s: %s", broker_id, bundle, namespace, error)
                self._passed_over[broker_id] = self._clock.monotonic() + _PASSED_OVER_S
        return await claim(namespace, bundle)

    async def ask_by_id(self, broker_id: str, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        """To take it. Raises `BrokerError`."""
        registration = dict(await self._registered.read()).get(broker_id)
        if registration is None:
            raise BrokerError(
                ErrorCode.NOT_FOUND, f"there is no broker {broker_id:.100}: `magnetar brokers` lists the brokers"
            )
        return await self._ask(broker_id, registration, namespace, bundle)

    def _order(self, brokers: dict[str, BrokerRegistration]) -> list[str]:
        """Whom to ask, in turn."""
        now = self._clock.monotonic()
        self._passed_over = {one: until for one, until in self._passed_over.items() if until > now}
        self._recent.forget_all_but(list(brokers))
        candidates = [
            _candidate(broker_id, registration)
            for broker_id, registration in brokers.items()
            if registration.listeners and broker_id not in self._passed_over
        ]
        ordered = by_load(candidates, self._recent)
        if ordered:
            self._recent.count(ordered[0])
        return [one.broker_id for one in ordered]

    async def _ask(
        self, broker_id: str, registration: BrokerRegistration, namespace: NamespaceName, bundle: BundleRange
    ) -> BundleOwner:
        request = ClaimRequest(namespace=str(namespace), bundle=str(bundle)).SerializeToString()
        answered = await self._peers.call(registration.listeners[0].address, "claim", request, self._timeout_s)
        try:
            answer = ClaimAnswer.FromString(answered)
        except DecodeError as error:
            text = f"the answer of broker {broker_id} can't be decoded: {error}"
            raise BrokerError(ErrorCode.UNKNOWN_ERROR, text) from None
        if answer.HasField("problem"):
            raise BrokerError(answer.problem.code, answer.problem.text)
        return answer.owner


def _candidate(broker_id: str, registration: BrokerRegistration) -> Candidate:
    load = registration.load
    return Candidate(broker_id, (load.time_ms, registration.instance), load.cpu, load.loop_lag_s, load.bundles)
