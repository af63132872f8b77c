"""The client of Magnetar: `magnetar.Client`, and `magnetar.aio` for asyncio.

    client = magnetar.Client("magnetar://localhost:6652")
    producer = client.create_producer("my-topic")
    producer.send(b"hello")
    client.close()

Names, parameters and behaviour are those of Pulsar's Python client, so that an application moves by changing its
import. What is here is imported when it is first used, and gRPC when something is connected.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magnetar import aio, asyncio, exceptions, schema
    from magnetar._client import Client
    from magnetar._consumer import Consumer
    from magnetar._consumer_options import ConsumerBatchReceivePolicy
    from magnetar._enums import (
        BatchingType,
        CompressionType,
        ConsumerType,
        HashingScheme,
        InitialPosition,
        PartitionsRoutingMode,
        ProducerAccessMode,
        RegexSubscriptionMode,
    )
    from magnetar._loggers import ConsoleLogger, FileLogger, LoggerLevel
    from magnetar._message import Message
    from magnetar._nacks import MultiplierRedeliveryBackoff
    from magnetar._not_yet import (
        Authentication,
        AuthenticationAthenz,
        AuthenticationBasic,
        AuthenticationOauth2,
        AuthenticationTLS,
        AuthenticationToken,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
        CryptoKeyReader,
        TableView,
    )
    from magnetar._producer import Producer
    from magnetar._reader import Reader
    from magnetar.exceptions import MagnetarException, PulsarException, Result
    from magnetar.schema import BytesSchema
    from magnetar_wire.message_id import MessageId

    __version__: str

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "BatchingType",
    "BytesSchema",
    "Client",
    "CompressionType",
    "ConsoleLogger",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "CryptoKeyReader",
    "FileLogger",
    "HashingScheme",
    "InitialPosition",
    "LoggerLevel",
    "MagnetarException",
    "Message",
    "MessageId",
    "MultiplierRedeliveryBackoff",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "TableView",
    "aio",
    "asyncio",
    "exceptions",
    "schema",
]

# Where each name comes from. What is not here is one of `exceptions`.
_MODULES: Final = {
    "Authentication": "magnetar._not_yet",
    "AuthenticationAthenz": "magnetar._not_yet",
    "AuthenticationBasic": "magnetar._not_yet",
    "AuthenticationOauth2": "magnetar._not_yet",
    "AuthenticationTLS": "magnetar._not_yet",
    "AuthenticationToken": "magnetar._not_yet",
    "BatchingType": "magnetar._enums",
    "BytesSchema": "magnetar.schema",
    "Client": "magnetar._client",
    "CompressionType": "magnetar._enums",
    "ConsoleLogger": "magnetar._loggers",
    "Consumer": "magnetar._consumer",
    "ConsumerBatchReceivePolicy": "magnetar._consumer_options",
    "ConsumerDeadLetterPolicy": "magnetar._not_yet",
    "ConsumerKeySharedPolicy": "magnetar._not_yet",
    "ConsumerType": "magnetar._enums",
    "CryptoKeyReader": "magnetar._not_yet",
    "FileLogger": "magnetar._loggers",
    "HashingScheme": "magnetar._enums",
    "InitialPosition": "magnetar._enums",
    "LoggerLevel": "magnetar._loggers",
    "Message": "magnetar._message",
    "MessageId": "magnetar_wire.message_id",
    "MultiplierRedeliveryBackoff": "magnetar._nacks",
    "PartitionsRoutingMode": "magnetar._enums",
    "Producer": "magnetar._producer",
    "ProducerAccessMode": "magnetar._enums",
    "Reader": "magnetar._reader",
    "RegexSubscriptionMode": "magnetar._enums",
    "TableView": "magnetar._not_yet",
}


def __getattr__(name: str) -> Any:
    if name in ("aio", "asyncio", "exceptions", "schema"):
        value: Any = importlib.import_module(f"{__name__}.{name}")
    elif name == "__version__":
        value = importlib.import_module("magnetar_wire.version").magnetar_version()
    elif name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    elif name in importlib.import_module("magnetar.exceptions").__all__:
        value = getattr(sys.modules["magnetar.exceptions"], name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
