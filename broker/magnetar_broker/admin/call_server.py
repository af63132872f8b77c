"""Serve admin calls: decode the request, run the handler, and encode the response.

A `BrokerError` and an unexpected exception become the response's `problem`. A request that can't be decoded, or one
above the limit of calls in flight, is refused by the transport: nothing was done. A request with fields that this
broker does not know is answered with UNSUPPORTED, since what they ask for would not be done.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message

from magnetar_broker.core.concurrency_limit import ConcurrencyLimit
from magnetar_broker.core.policies import check_known
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.admin_call import AdminCall
from magnetar_wire.admin_calls import ADMIN_CALLS
from magnetar_wire.transport import Code, Refusal

__all__ = ["CallServer", "Handler", "check_complete", "find_handlers", "refuse_call"]

_log = logging.getLogger(__name__)

# Takes the decoded request and returns the response. Raises `BrokerError`, and `Refusal` if nothing was done.
Handler: TypeAlias = Callable[[Any], Awaitable[Message]]


def refuse_call(maximum: int) -> Refusal:
    """Return the refusal of a call above the maximum number in flight."""
    return Refusal(Code.RESOURCE_EXHAUSTED, f"{maximum} administrative calls are being served: try again later")


class CallServer:
    def __init__(
        self, prefix: str, handlers: Mapping[str, Handler], limit_of: Callable[[AdminCall], ConcurrencyLimit]
    ) -> None:
        """`prefix`: "admin" or "here"."""
        self._prefix = prefix
        self._handlers = handlers
        self._limits = {name: limit_of(ADMIN_CALLS[name]) for name in handlers}

    async def serve(self, name: str, request: bytes) -> bytes:
        """Raises `Refusal`."""
        handler = self._handlers.get(name)
        if handler is None:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no call {self._prefix}.{name!r:.100}")
        call = ADMIN_CALLS[name]
        try:
            decoded = call.request.FromString(request)
        except DecodeError as error:
            text = f"the request of {self._prefix}.{name} can't be decoded: {error}"
            raise Refusal(Code.INVALID_ARGUMENT, text) from None
        with self._limits[name].hold():
            return (await self._answer(call, handler, decoded)).SerializeToString()

    async def _answer(self, call: AdminCall, handler: Handler, request: Message) -> Message:
        response: Any = call.response
        try:
            check_known(request, call.name)
            return await handler(request)
        except Refusal:
            raise
        except BrokerError as error:
            problem = error.problem
        except Exception as error:  # noqa: BLE001 (a bug of this broker: the log has the traceback)
            _log.exception("%s.%s failed", self._prefix, call.name)
            problem = Problem(code=ErrorCode.INTERNAL_ERROR, text=f"the broker failed: {type(error).__name__}")
        failed: Message = response(problem=problem)
        return failed


def find_handlers(groups: Iterable[object]) -> dict[str, Callable[..., Any]]:
    """Return the public methods of the groups. Raises ValueError if two groups have one of the same name."""
    found: dict[str, Callable[..., Any]] = {}
    for group in groups:
        for name in vars(type(group)):
            if name.startswith("_"):
                continue
            if name in found:
                raise ValueError(f"the call {name} has two handlers, one of them in {type(group).__name__}")
            found[name] = getattr(group, name)
    return found


def check_complete(handlers: Mapping[str, Handler], calls: Iterable[AdminCall]) -> None:
    """Raise ValueError unless each of the calls has a handler, and each handler a call."""
    names = [call.name for call in calls]
    lacking = [name for name in names if name not in handlers]
    unknown = [name for name in handlers if name not in names]
    if lacking or unknown:
        raise ValueError(
            f"admin calls without a handler: {lacking}; handlers without a row in the table of admin calls: {unknown}"
        )
