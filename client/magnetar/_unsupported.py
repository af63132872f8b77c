"""Classes of Pulsar's Python client that are not supported yet.

Applications can import them and annotate with them. Creating one raises OperationNotSupported, which names the
alternative.
"""

from __future__ import annotations

from typing import Any, ClassVar

from magnetar.exceptions import OperationNotSupported

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AutoClusterFailover",
    "CryptoKeyReader",
    "EncryptionContext",
    "EncryptionKey",
    "ServiceInfo",
    "ServiceInfoProvider",
    "Unsupported",
]


class Unsupported:
    """A class without instances."""

    # What an application can do instead. It ends the error's sentence.
    instead: ClassVar[str] = "leave it out"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise OperationNotSupported(f"{type(self).__name__} is not supported yet: {self.instead}")


class Authentication(Unsupported):
    """Not supported yet."""

    instead = "there is no authentication, so leave it out, and run brokers on a trusted network"


class AuthenticationAthenz(Authentication):
    """Not supported yet."""


class AuthenticationBasic(Authentication):
    """Not supported yet."""


class AuthenticationOauth2(Authentication):
    """Not supported yet."""


class AuthenticationTLS(Authentication):
    """Not supported yet."""


class AuthenticationToken(Authentication):
    """Not supported yet."""


class ServiceInfo(Unsupported):
    """Not supported yet."""

    instead = "name every broker in the service URL, magnetar://host:port,host:port"


class ServiceInfoProvider(ServiceInfo):
    """Not supported yet."""


class AutoClusterFailover(ServiceInfoProvider):
    """Not supported yet."""


class CryptoKeyReader(Unsupported):
    """Not supported yet."""

    instead = "encrypt payloads before you send them"


class EncryptionContext(CryptoKeyReader):
    """Not supported yet."""


class EncryptionKey(CryptoKeyReader):
    """Not supported yet."""
