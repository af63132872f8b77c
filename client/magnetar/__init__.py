"""The client of Magnetar: `magnetar.Client`, and `magnetar.aio` for asyncio.

    client = magnetar.Client("magnetar://localhost:6652")
    producer = client.create_producer("my-topic")
    producer.send(b"hello")
    client.close()

Names, parameters and behaviour are those of Pulsar's Python client: to port an application, change its import and its
URL. Each name is imported when it is first used, and gRPC at the first connection.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magnetar import aio, asyncio, exceptions, schema
    from magnetar._acknowledging.redelivery_backoff import MultiplierRedeliveryBackoff
    from magnetar._client import Client
    from magnetar._consumer import Consumer
    from magnetar._consuming.consumer_options import ConsumerBatchReceivePolicy
    from magnetar._consuming.key_shared_policy import ConsumerKeySharedPolicy
    from magnetar._enums import (
        BatchingType,
        CompressionType,
        ConsumerCryptoFailureAction,
        ConsumerType,
        DecodeFailureAction,
        HashingScheme,
        InitialPosition,
        KeySharedMode,
        PartitionsRoutingMode,
        ProducerAccessMode,
        RegexSubscriptionMode,
    )
    from magnetar._interceptors.interceptor import (
        ConsumerInterceptor,
        ProducerInterceptor,
        ProducerMessage,
        ReaderInterceptor,
    )
    from magnetar._letters.letter_rules import ConsumerDeadLetterPolicy
    from magnetar._loggers import ConsoleLogger, FileLogger, LoggerLevel
    from magnetar._message import Message
    from magnetar._producer import Producer
    from magnetar._reader import Reader
    from magnetar._table_view import TableView
    from magnetar._unsupported import (
        Authentication,
        AuthenticationAthenz,
        AuthenticationBasic,
        AuthenticationOauth2,
        AuthenticationTLS,
        AuthenticationToken,
        AutoClusterFailover,
        CryptoKeyReader,
        EncryptionContext,
        EncryptionKey,
        ServiceInfo,
        ServiceInfoProvider,
    )
    from magnetar.exceptions import *  # noqa: F403 (every exception is exported)
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
    "AutoClusterFailover",
    "BatchingType",
    "BytesSchema",
    "Client",
    "CompressionType",
    "ConsoleLogger",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerInterceptor",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "CryptoKeyReader",
    "DecodeFailureAction",
    "EncryptionContext",
    "EncryptionKey",
    "FileLogger",
    "HashingScheme",
    "InitialPosition",
    "KeySharedMode",
    "LoggerLevel",
    "MagnetarException",
    "Message",
    "MessageId",
    "MultiplierRedeliveryBackoff",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerInterceptor",
    "ProducerMessage",
    "PulsarException",
    "Reader",
    "ReaderInterceptor",
    "RegexSubscriptionMode",
    "Result",
    "ServiceInfo",
    "ServiceInfoProvider",
    "TableView",
    "aio",
    "asyncio",
    "exceptions",
    "schema",
]

# The module of each name. Names that are not here are in `exceptions`.
_MODULES: Final = {
    "Authentication": "magnetar._unsupported",
    "AuthenticationAthenz": "magnetar._unsupported",
    "AuthenticationBasic": "magnetar._unsupported",
    "AuthenticationOauth2": "magnetar._unsupported",
    "AuthenticationTLS": "magnetar._unsupported",
    "AuthenticationToken": "magnetar._unsupported",
    "AutoClusterFailover": "magnetar._unsupported",
    "BatchingType": "magnetar._enums",
    "BytesSchema": "magnetar.schema",
    "Client": "magnetar._client",
    "CompressionType": "magnetar._enums",
    "ConsoleLogger": "magnetar._loggers",
    "Consumer": "magnetar._consumer",
    "ConsumerBatchReceivePolicy": "magnetar._consuming.consumer_options",
    "ConsumerCryptoFailureAction": "magnetar._enums",
    "ConsumerDeadLetterPolicy": "magnetar._letters.letter_rules",
    "ConsumerInterceptor": "magnetar._interceptors.interceptor",
    "ConsumerKeySharedPolicy": "magnetar._consuming.key_shared_policy",
    "ConsumerType": "magnetar._enums",
    "CryptoKeyReader": "magnetar._unsupported",
    "DecodeFailureAction": "magnetar._enums",
    "EncryptionContext": "magnetar._unsupported",
    "EncryptionKey": "magnetar._unsupported",
    "FileLogger": "magnetar._loggers",
    "HashingScheme": "magnetar._enums",
    "InitialPosition": "magnetar._enums",
    "KeySharedMode": "magnetar._enums",
    "LoggerLevel": "magnetar._loggers",
    "Message": "magnetar._message",
    "MessageId": "magnetar_wire.message_id",
    "MultiplierRedeliveryBackoff": "magnetar._acknowledging.redelivery_backoff",
    "PartitionsRoutingMode": "magnetar._enums",
    "Producer": "magnetar._producer",
    "ProducerAccessMode": "magnetar._enums",
    "ProducerInterceptor": "magnetar._interceptors.interceptor",
    "ProducerMessage": "magnetar._interceptors.interceptor",
    "Reader": "magnetar._reader",
    "ReaderInterceptor": "magnetar._interceptors.interceptor",
    "RegexSubscriptionMode": "magnetar._enums",
    "ServiceInfo": "magnetar._unsupported",
    "ServiceInfoProvider": "magnetar._unsupported",
    "TableView": "magnetar._table_view",
}


if not TYPE_CHECKING:  # to a type checker, a module with `__getattr__` has every name

    def __getattr__(name: str) -> Any:
        if name in ("aio", "asyncio", "exceptions", "schema"):
            value: Any = importlib.import_module(f"{__name__}.{name}")
        elif name == "__version__":
            value = importlib.import_module("magnetar_wire.process.version").read_version()
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
