"""The last subscribe request of each subscription of a topic that was refused: an explanation names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["Refusal", "SubscribeRefusals"]

# Clients name the subscriptions: the one that was refused first is forgotten.
_MAX_SUBSCRIPTIONS: Final = 100
_MAX_TEXT: Final = 1_000
# The topic is being moved: clients look it up and subscribe again.
_NOT_REFUSED: Final = (ErrorCode.SERVICE_NOT_READY,)


@dataclass(frozen=True, slots=True)
class Refusal:
    # How often consumers were refused since the topic was loaded, or since this one could join.
    times: int
    at_ms: int
    consumer: str
    address: str
    error: str


class SubscribeRefusals:
    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, Refusal] = {}

    def record(self, subscription: str, consumer: str, address: str, error: BrokerError, now_ms: int) -> None:
        if error.code in _NOT_REFUSED:
            return
        before = self._last.pop(subscription, None)
        times = 1 if before is None else before.times + 1
        if len(self._last) >= _MAX_SUBSCRIPTIONS:
            del self._last[next(iter(self._last))]
        cut = subscription[:_MAX_TEXT], consumer[:_MAX_TEXT], str(error)[:_MAX_TEXT]
        self._last[cut[0]] = Refusal(times, now_ms, cut[1], address, cut[2])

    def forget(self, subscription: str, consumer: str) -> None:
        """The consumer has joined: an earlier refusal of it does not matter any more."""
        found = self._last.get(subscription)
        if found is not None and found.consumer == consumer:
            del self._last[subscription]

    def find(self, subscription: str) -> Refusal | None:
        return self._last.get(subscription)
