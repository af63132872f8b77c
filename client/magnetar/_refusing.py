"""What an application refuses, from whatever thread, until its time has come and it is asked for again."""

from __future__ import annotations

from collections.abc import Callable

from magnetar._ack_inbox import Inbox
from magnetar._consumer_part import ConsumerPart
from magnetar._message import Message
from magnetar._nacks import Nacks, RedeliveryBackoff
from magnetar._targets import Target
from magnetar_wire.clock import Clock, Timer

__all__ = ["Refusing"]


class Refusing:
    def __init__(
        self,
        backoff: RedeliveryBackoff,
        clock: Clock,
        post: Callable[[Callable[[], object]], object],
        give_acknowledged: Callable[[], object],
    ) -> None:
        """`give_acknowledged` is called before anything is asked for: it would come again with the rest."""
        self._backoff = backoff
        self._clock = clock
        self._give_acknowledged = give_acknowledged
        self._inbox: Inbox[tuple[float, Target]] = Inbox(post, self._take, self._take, 2**31)
        self._nacks: Nacks[ConsumerPart] = Nacks(backoff.min_delay_ms / 1000)
        self._timer: Timer | None = None
        self._due_s = 0.0
        self._ended = False

    def put(self, target: Target) -> None:
        """From any thread."""
        self._inbox.put((self._clock.monotonic(), target))

    def forget(self, part: ConsumerPart) -> None:
        """All that the part has comes again anyway."""
        self._nacks.forget(part)

    def end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _take(self) -> None:
        if self._ended:
            return
        for since_s, target in self._inbox.drain():
            count = 0
            if isinstance(target, Message):
                delivered = target._delivered
                part: ConsumerPart = delivered.era.origin
                if delivered.refused or delivered.era is not part.era:  # it comes again anyway
                    continue
                delivered.refused = True
                place, count = (delivered.ledger_id, delivered.entry_id), delivered.redelivery_count
            else:
                part, place = target.part, (target.ledger_id, target.entry_id)
            self._nacks.add(part, place, since_s + self._backoff.next(count) / 1000)
        self._set_timer()

    def _set_timer(self) -> None:
        due_s = self._nacks.next_due_s()
        if self._timer is not None:
            if due_s == self._due_s:
                return
            self._timer.cancel()
            self._timer = None
        if due_s is not None:
            self._due_s = due_s
            self._timer = self._clock.call_later(due_s - self._clock.monotonic(), self._ask)

    def _ask(self) -> None:
        self._timer = None
        due = self._nacks.take(self._clock.monotonic())
        if due:
            self._give_acknowledged()
        for part, places in due.items():
            part.redeliver(places)
        self._set_timer()
