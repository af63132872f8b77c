"""Make a call at the owner of a topic or bundle: this broker itself, or another one as `here.<name>`.

**Repetition.** If the owner was not reached, or answers that it does not own the topic, nothing was done. The owner is
looked up again and the call is made there, until its time is over. So a call that comes while a bundle moves, or while
its broker has just died, waits for the next owner. If the answer was lost, or the topic was taken from its broker
during the call, the call is made again only if its row in the table of admin calls allows that, or the caller does.
Otherwise it is reported as unknown: only the administrator can decide whether a second attempt is right. A failure of
the owner (INTERNAL_ERROR) is never repeated: it would fail again, with a traceback in a log each time.

**Later failures.** What an owner has changed, or may have, is noted (begun_changes.py): a call that consists of
several is not reported as not started afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError, Message

from magnetar_broker.begun_changes import note_change
from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_broker.ownership.interface import Ownership, TopicOwner
from magnetar_broker.peers import Peers
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["Handler", "OwnerRpc"]

# The codes of failures at a topic's owner after which the call may have been done. As an answer to a client,
# SERVICE_NOT_READY is none of them: begun_changes.py.
_UNKNOWN_OUTCOMES: Final = (
    ErrorCode.UNKNOWN_ERROR,
    ErrorCode.METADATA_ERROR,
    ErrorCode.PERSISTENCE_ERROR,
    ErrorCode.INTERNAL_ERROR,
    ErrorCode.SERVICE_NOT_READY,
)

# Takes the decoded request and returns the response. Raises `BrokerError`, and `Refusal` if nothing was done.
Handler: TypeAlias = Callable[[Any], Awaitable[Message]]

_FIRST_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 1.0
# The first timeout of a call that may be repeated; it doubles with each attempt. Another broker may have the topics of
# one that hangs by then, and one that is slow continues with what it has begun.
_FIRST_TIMEOUT_S: Final = 3.0


class OwnerRpc:
    def __init__(
        self,
        local_handlers: Mapping[str, Handler],
        ownership: Ownership,
        peers: Peers,
        clock: Clock,
        forward_timeout_s: float,
    ) -> None:
        """`local_handlers`: those of `here.<name>` at this broker."""
        self._local_handlers = local_handlers
        self._ownership = ownership
        self._peers = peers
        self._clock = clock
        self._timeout_s = forward_timeout_s

    async def call_topic_owner(self, topic: TopicName, name: str, request: Message, *, repeat: bool = False) -> Any:
        """Make the call at the topic's owner and return its response. `repeat`: a repetition is allowed, though not by
        its row."""
        return await self.call_owner(lambda: self._ownership.find_owner(topic), name, request, repeat=repeat)

    async def call_owner(
        self, find_owner: Callable[[], Awaitable[TopicOwner]], name: str, request: Message, *, repeat: bool = False
    ) -> Any:
        """Make the call at the broker that `find_owner` returns, which is called for each attempt. It raises
        `BrokerError`, with SERVICE_NOT_READY if there may be an owner later."""
        call = ADMIN_CALLS[name]
        repeat = repeat or call.is_repeated_at_owner
        deadline = self._clock.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        attempt_timeout_s = _FIRST_TIMEOUT_S
        while True:
            is_begun = False
            try:
                owner = await find_owner()
                is_begun = True
                left_s = max(deadline - self._clock.monotonic(), _FIRST_PAUSE_S)
                answer = await self._call(owner, call, request, min(attempt_timeout_s, left_s) if repeat else left_s)
                if not call.idempotent:
                    note_change()
                return answer
            except BrokerError as error:
                problem = error
            is_unloaded = problem.code == ErrorCode.SERVICE_NOT_READY
            if is_begun and not call.idempotent and _is_unknown(problem):
                note_change()
            if isinstance(problem, RequestNotStarted) or (is_unloaded and not is_begun):
                again = True
            else:
                again = repeat and (is_unloaded or problem.code == ErrorCode.UNKNOWN_ERROR)
                if is_unloaded and not again:
                    raise BrokerError(
                        ErrorCode.UNKNOWN_ERROR, f"whether {name} was done is unknown, check it: {problem}"
                    )
            if not again or self._clock.monotonic() + pause_s >= deadline:
                raise problem.again()
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            attempt_timeout_s *= 2

    async def _call(self, owner: TopicOwner, call: AdminCall, request: Message, timeout_s: float) -> Any:
        if owner.is_local:
            return await self._local_handlers[call.name](request)
        address, method = owner.addresses.internal, f"here.{call.name}"
        answer = await self._peers.call(address, method, request.SerializeToString(), timeout_s)
        try:
            response: Any = call.response.FromString(answer)
        except DecodeError as error:
            raise BrokerError(
                ErrorCode.UNKNOWN_ERROR,
                f"the response of the broker at {address} to {method} can't be decoded: {error}",
            ) from error
        if response.HasField("problem"):
            raise BrokerError(response.problem.code, response.problem.text, response.problem.about)
        return response


def _is_unknown(problem: BrokerError) -> bool:
    """Whether the owner may have done something before it failed."""
    return not isinstance(problem, RequestNotStarted) and problem.code in _UNKNOWN_OUTCOMES
