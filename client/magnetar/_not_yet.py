"""What applications of Pulsar's client import and this one does not have yet: the names are there, and whoever uses one
is told so, in place of an import that fails."""

from __future__ import annotations

from typing import Any, NoReturn

from magnetar.exceptions import OperationNotSupported

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "CryptoKeyReader",
    "TableView",
    "not_yet",
]


def not_yet(name: str, *bases: type) -> type:
    """A class of this name that can't be made an instance of."""

    def refuse(cls: type, *args: Any, **options: Any) -> NoReturn:
        raise OperationNotSupported(f"{cls.__name__} is not supported yet: leave it out")

    return type(name, bases, {"__new__": refuse, "__module__": "magnetar", "__doc__": "Not there yet."})


Authentication = not_yet("Authentication")
AuthenticationAthenz = not_yet("AuthenticationAthenz", Authentication)
AuthenticationBasic = not_yet("AuthenticationBasic", Authentication)
AuthenticationOauth2 = not_yet("AuthenticationOauth2", Authentication)
AuthenticationTLS = not_yet("AuthenticationTLS", Authentication)
AuthenticationToken = not_yet("AuthenticationToken", Authentication)
ConsumerDeadLetterPolicy = not_yet("ConsumerDeadLetterPolicy")
ConsumerKeySharedPolicy = not_yet("ConsumerKeySharedPolicy")
CryptoKeyReader = not_yet("CryptoKeyReader")
TableView = not_yet("TableView")
