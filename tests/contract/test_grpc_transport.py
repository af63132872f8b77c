from __future__ import annotations

from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.transport import Transport
from tests.contract.transport_contract import TransportContract


class TestGrpcTransport(TransportContract):
    def make(self) -> Transport:
        return GrpcTransport()
