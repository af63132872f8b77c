"""The call `claim`, of one broker to another: serve this bundle, if nobody does. See ownership.proto."""

from __future__ import annotations

from typing import Final, Protocol

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.lookup import read_request
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BundleOwner, ClaimAnswer, ClaimRequest
from magnetar_wire.bundles import BundleRange
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName
from magnetar_wire.transport import Code, Refusal

__all__ = ["BundleClaims"]

# At a time. Whoever is refused asks somebody else.
_AT_A_TIME: Final = 1_024


class _Claims(Protocol):
    async def claim(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner: ...


class BundleClaims:
    def __init__(self, ownership: _Claims) -> None:
        self._ownership = ownership
        self._serving = 0

    async def claim(self, request: bytes) -> bytes:
        asked = read_request(ClaimRequest, request)
        if self._serving >= _AT_A_TIME:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"{_AT_A_TIME} claims of other brokers are being served")
        self._serving += 1
        try:
            return await self._claim(asked)
        finally:
            self._serving -= 1

    async def _claim(self, asked: ClaimRequest) -> bytes:
        answer = ClaimAnswer()
        try:
            owner = await self._ownership.claim(*_named(asked))
            answer.owner.CopyFrom(owner)
        except BrokerError as error:
            answer.problem.CopyFrom(error.problem)
        return answer.SerializeToString()


def _named(asked: ClaimRequest) -> tuple[NamespaceName, BundleRange]:
    try:
        return NamespaceName.parse(asked.namespace), BundleRange.parse(asked.bundle)
    except (InvalidTopicName, ValueError) as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None
