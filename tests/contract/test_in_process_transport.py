from __future__ import annotations

from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Transport
from tests.contract.transport_contract import TransportContract


class TestInProcessTransport(TransportContract):
    def make(self) -> Transport:
        return InProcessTransport()
