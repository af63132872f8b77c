"""The handler of all commands of transactions, which are not supported.

Each is answered with ERROR, as by Pulsar with transactions disabled, and the connection stays open. The application
gets the error where it begins a transaction; its other producers and consumers go on.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError, TransactionRequest

__all__ = ["refuse_transaction"]

_FIELDS: Final = {
    BaseCommand.NEW_TXN: "new_txn",
    BaseCommand.ADD_PARTITION_TO_TXN: "add_partition_to_txn",
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: "add_subscription_to_txn",
    BaseCommand.END_TXN: "end_txn",
    BaseCommand.END_TXN_ON_PARTITION: "end_txn_on_partition",
    BaseCommand.END_TXN_ON_SUBSCRIPTION: "end_txn_on_subscription",
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: "tc_client_connect_request",
}


def refuse_transaction(session: ClientSession, command: BaseCommand) -> None:
    request: TransactionRequest = getattr(command, _FIELDS[command.type])
    text = "transactions are not supported: publish and acknowledge without them"
    session.fail(request.request_id, ServerError.NOT_ALLOWED_ERROR, text)
