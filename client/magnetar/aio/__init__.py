"""The client for asyncio, with the names of the synchronous one.

    async with magnetar.aio.Client("magnetar://localhost:6652") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")

A client, and all that it creates, belongs to the loop on which it is first used. A loop that ends before the client was
closed shuts it down. A process must not fork while such a client is open.
"""

from __future__ import annotations

from magnetar._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    DecodeFailureAction,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar._message import Message
from magnetar.aio._client import Client
from magnetar.aio._consumer import Consumer
from magnetar.aio._producer import Producer
from magnetar.aio._reader import Reader
from magnetar.aio._table_view import TableView
from magnetar.exceptions import MagnetarException, PulsarException, Result
from magnetar_wire.message_id import MessageId

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "DecodeFailureAction",
    "HashingScheme",
    "InitialPosition",
    "MagnetarException",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "TableView",
]
