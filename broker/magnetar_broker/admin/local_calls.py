"""Carry out the calls `here.<name>` of this broker's topics and bundles, for itself and for other brokers.

Another broker sends the messages that its client sent. This broker never forwards a call that it gets as `here.<name>`:
it refuses it as UNAVAILABLE if it does not own the topic or bundle (any more), and the other one looks up the owner
again. So two brokers never send a call back and forth, whichever of them each believes to be the owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.message import Message

from magnetar_broker.admin.call_server import CallServer, Handler, refuse_call
from magnetar_broker.core.concurrency_limit import ConcurrencyLimit
from magnetar_broker.errors import NothingDone
from magnetar_wire.transport import Code, Refusal

__all__ = ["LocalCalls"]

# Calls of other brokers that are served at a time. Clients' calls are counted apart, so that brokers that are busy with
# those still answer each other.
_MAX_IN_FLIGHT: Final = 256


class LocalCalls:
    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        limit = ConcurrencyLimit(_MAX_IN_FLIGHT, refuse_call)
        refusing = {name: _refuse_if_nothing_done(handler) for name, handler in handlers.items()}
        self._server = CallServer("here", refusing, lambda call: limit)

    async def run(self, name: str, request: Message) -> Message:
        """Carry out a call of one of this broker's own clients. Raises `BrokerError`."""
        return await self._handlers[name](request)

    async def serve(self, name: str, request: bytes) -> bytes:
        """Carry out a call of another broker. Raises `Refusal`."""
        return await self._server.serve(name, request)


def _refuse_if_nothing_done(handler: Handler) -> Handler:
    async def handle(request: Message) -> Message:
        try:
            return await handler(request)
        except NothingDone as error:
            raise Refusal(Code.UNAVAILABLE, str(error)) from None

    return handle
