"""The call `claim` of another broker: serve this bundle if no broker does. See ownership.proto."""

from __future__ import annotations

from typing import Final, Protocol

from magnetar_broker.core.concurrency_limit import ConcurrencyLimit
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.lookup import decode_request
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BundleOwner, ClaimAnswer, ClaimRequest
from magnetar_wire.bundles import BundleRange
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName
from magnetar_wire.transport import Code, Refusal

__all__ = ["BundleClaims"]

# Concurrent claims. A broker whose claim is refused sends it to another broker.
_MAX_CLAIMS: Final = 1_024


class Claimant(Protocol):
    """The ownership of bundles, as far as claims need it."""

    async def claim(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner: ...


class BundleClaims:
    """The claims that are in flight at a broker."""

    def __init__(self) -> None:
        self._limit = ConcurrencyLimit(_MAX_CLAIMS, _refuse)

    async def claim(self, ownership: Claimant, data: bytes) -> bytes:
        """Answer with the bundle's owner. Raises `Refusal`."""
        request = decode_request(ClaimRequest, data)
        with self._limit.hold():
            return await self._claim(ownership, request)

    async def _claim(self, ownership: Claimant, request: ClaimRequest) -> bytes:
        answer = ClaimAnswer()
        try:
            owner = await ownership.claim(*_parse_bundle(request))
            answer.owner.CopyFrom(owner)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()


def _refuse(maximum: int) -> Refusal:
    return Refusal(Code.RESOURCE_EXHAUSTED, f"{maximum} claims are in flight at this broker, the maximum: ask another")


def _parse_bundle(request: ClaimRequest) -> tuple[NamespaceName, BundleRange]:
    try:
        return NamespaceName.parse(request.namespace), BundleRange.parse(request.bundle)
    except (InvalidTopicName, ValueError) as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None
