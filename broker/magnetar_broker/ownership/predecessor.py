"""Whether a node that names this broker, and is another session's, was left behind by somebody who is gone.

Sessions outlive processes: a broker that was killed and started again finds the nodes of its former self, which would
stand for up to a session's time-out. Two proofs that nobody is behind them any more:

- They have this process' own instance: a session of its own that it has lost. It serves nothing by that any more.
- The address that they advertise leads here: whoever listened there before does so no more, and this process answers
  with its own instance.

Otherwise another broker may have been given the same id by mistake, and be alive: its nodes are waited out. None of
this has to be right for data to be safe, which the ledgers' fences see to; it has to be right for brokers not to take
bundles from each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.peers import PeersLike
from magnetar_protos.ownership_pb2 import Listener

__all__ = ["Predecessor"]


class Predecessor:
    def __init__(self, broker_id: str, instance: bytes, peers: PeersLike, timeout_s: float) -> None:
        self._broker_id = broker_id
        self._instance = instance
        self._peers = peers
        self._timeout_s = timeout_s

    async def is_gone(self, broker_id: str, instance: bytes, listeners: Sequence[Listener]) -> bool:
        """Whether that was a former self of this broker. The node that says so is not of the present session."""
        if broker_id != self._broker_id:
            return False
        if instance == self._instance:
            return True
        if not listeners:
            return False
        try:
            answered = await self._peers.call(listeners[0].address, "instance", b"", self._timeout_s)
        except BrokerError:
            return False
        return answered == self._instance
