"""The way to whoever serves a topic or owns a bundle: this broker itself, or another one that is asked.

**What may be asked again.** Where nobody was reached, or the one that was asked says that it has it not, nothing was
done: its owner is found out anew, and asked, until the call's time is over; so a call that comes while a bundle moves,
or its broker has just died, waits for the next one. Where the answer was lost, or the topic was taken from its broker
in the middle of it, only what does no harm when it is done twice is asked again. All else is told as unknown, since
only the administrator can tell whether a second attempt would be right. An error of the broker's own
(INTERNAL_ERROR) is not asked for again in any case: it would come again, with a traceback in a log each time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_broker.admin.here_calls import HereCalls
from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_broker.ownership.interface import Home, Ownership
from magnetar_broker.peers import PeersLike
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["OwnerCalls"]

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
# How long a broker that is asked for something harmless has at first, twice as long each time: one that hangs has lost
# its topics to another one by then, perhaps, and one that is slow goes on with what it has begun.
_PATIENCE_S: Final = 3.0

A = TypeVar("A", bound=Message)


class OwnerCalls:
    def __init__(
        self, here: HereCalls, ownership: Ownership, peers: PeersLike, clock: Clock, forward_timeout_s: float
    ) -> None:
        self._here = here
        self._ownership = ownership
        self._peers = peers
        self._clock = clock
        self._timeout_s = forward_timeout_s

    async def of_topic(
        self, topic: TopicName, name: str, request: Message, answer: type[A], *, harmless: bool = False
    ) -> A:
        """What its owner answers to `here.<name>`. `harmless`: it may be done twice."""
        return await self.ask(lambda: self._ownership.home(topic), name, request, answer, harmless=harmless)

    async def ask(
        self,
        find: Callable[[], Awaitable[Home]],
        name: str,
        request: Message,
        answer: type[A],
        *,
        harmless: bool = False,
    ) -> A:
        """The same for whatever has an owner. `find` raises `BrokerError`, SERVICE_NOT_READY where it may be found
        later."""
        deadline = self._clock.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        patience_s = _PATIENCE_S
        while True:
            begun = False
            try:
                home = await find()
                begun = True
                left_s = max(deadline - self._clock.monotonic(), _FIRST_PAUSE_S)
                return await self._asked(home, name, request, answer, min(patience_s, left_s) if harmless else left_s)
            except BrokerError as error:
                problem = error
            taken_away = problem.code == ErrorCode.SERVICE_NOT_READY
            if isinstance(problem, NothingDone) or (taken_away and not begun):
                again = True
            else:
                again = harmless and (taken_away or problem.code == ErrorCode.UNKNOWN_ERROR)
                if taken_away and not again:
                    raise BrokerError(
                        ErrorCode.UNKNOWN_ERROR, f"what became of {name} is not known, look at it: {problem}"
                    )
            if not again or self._clock.monotonic() + pause_s >= deadline:
                raise problem.again()
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            patience_s *= 2

    async def _asked(self, home: Home, name: str, request: Message, answer: type[A], timeout_s: float) -> A:
        if home.here:
            done = await self._here.do(name, request)
            assert isinstance(done, answer)
            return done
        address = home.advertised.internal
        told = await self._peers.call(address, f"here.{name}", request.SerializeToString(), timeout_s)
        try:
            parsed: Any = answer.FromString(told)
        except DecodeError as error:
            raise BrokerError(
                ErrorCode.UNKNOWN_ERROR, f"the answer of the broker at {address} to here.{name} can't be read: {error}"
            ) from error
        if parsed.HasField("problem"):
            raise BrokerError(parsed.problem.code, parsed.problem.text)
        read: A = parsed
        return read
