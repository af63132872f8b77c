"""The calls `here.<name>`: what is asked of the broker that serves a topic, or owns a bundle, and of no other.

Another broker asks by the same messages as its administrator used. A call is never passed on from here: `NothingDone`
says that the topic or bundle is not here (any more), and whoever asked finds out anew where it is. So no two brokers
send a call back and forth, whatever each of them believes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.transport import Code, Refusal

__all__ = ["HereCall", "HereCalls"]

_log = logging.getLogger(__name__)
# Of other brokers, served at a time. Administrators' own are counted apart (admin_calls.py), so that brokers that are
# busy with those still answer each other.
_AT_A_TIME: Final = 256


@dataclass(frozen=True, slots=True)
class HereCall:
    request: type[Message]
    answer: type[Message]
    # Raises `BrokerError`.
    do: Callable[[Any], Awaitable[Message]]


class HereCalls:
    def __init__(self, calls: Mapping[str, HereCall]) -> None:
        self._calls = dict(calls)
        self._serving = 0

    async def do(self, name: str, request: Message) -> Message:
        """For this broker's own administrators."""
        return await self._calls[name].do(request)

    async def serve(self, name: str, request: bytes) -> bytes:
        """For another broker."""
        if name not in self._calls:
            raise Refusal(Code.UNIMPLEMENTED, f"a broker has no call here.{name!r:.100}")
        call = self._calls[name]
        try:
            asked = call.request.FromString(request)
        except DecodeError as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the request for here.{name} can't be read: {error}") from None
        if self._serving >= _AT_A_TIME:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"{_AT_A_TIME} calls of other brokers are being served")
        self._serving += 1
        try:
            answer = await call.do(asked)
        except NothingDone as error:
            raise Refusal(Code.UNAVAILABLE, str(error)) from None
        except BrokerError as error:
            answer = _telling(call.answer, error.problem)
        except Exception as error:  # noqa: BLE001 (a fault of ours, whose caller is told no more of it)
            _log.exception("here.%s failed", name)
            text = f"the broker failed at it: {type(error).__name__}"
            answer = _telling(call.answer, Problem(code=ErrorCode.INTERNAL_ERROR, text=text))
        finally:
            self._serving -= 1
        return answer.SerializeToString()


def _telling(kind: type[Message], problem: Problem) -> Message:
    answer: Any = kind()
    answer.problem.CopyFrom(problem)
    made: Message = answer
    return made
