"""What a client asks of transactions, of which there are none: refused, as Pulsar does it with transactions off.

The answer is an ERROR to the request, and the connection goes on: an application that asks for a transaction is told
so, and whatever else the client does stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar_broker.server.pulsar.replies import error_frame
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError, TransactionRequest

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["transaction_commands"]

_NAMES: Final = {
    BaseCommand.NEW_TXN: "new_txn",
    BaseCommand.ADD_PARTITION_TO_TXN: "add_partition_to_txn",
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: "add_subscription_to_txn",
    BaseCommand.END_TXN: "end_txn",
    BaseCommand.END_TXN_ON_PARTITION: "end_txn_on_partition",
    BaseCommand.END_TXN_ON_SUBSCRIPTION: "end_txn_on_subscription",
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: "tc_client_connect_request",
}


def transaction_commands(connection: PulsarConnection) -> dict[int, Callable[[BaseCommand], None]]:
    def refuse(command: BaseCommand) -> None:
        asked: TransactionRequest = getattr(command, _NAMES[command.type])
        text = "this broker has no transactions: publish and acknowledge without"
        connection.write(error_frame(asked.request_id, ServerError.NOT_ALLOWED_ERROR, text))

    return dict.fromkeys(_NAMES, refuse)
