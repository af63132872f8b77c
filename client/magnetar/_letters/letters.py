"""The retry and dead letters of one consumer, on the client's event loop.

Each letter is stored durably in its topic, and then the message that it is made from is acknowledged. If the client
dies in between, the message is redelivered, and there are two letters of it; none is lost. If a letter can't be stored,
the message is redelivered after the delay of a negative acknowledgement.

- `reconsume_later` stores a message in the retry letter topic, to which the consumer itself is subscribed, or in the
  dead letter topic if it was retried too often.
- A message that is negatively acknowledged at its last delivery becomes a dead letter at once (`take_nacked`).
- An entry that was delivered too often isn't handed out. Its messages become dead letters (`move`, which the
  `LetterStage` of its partition calls). That is the way of those whose acknowledgement timed out. A message whose
  letter would be too large is handed out, and an error is logged: it would be redelivered forever otherwise.

**Bounds.** Entries of the last kind count in the receiver queue until their letters are stored, so a dead letter topic
that stores nothing stops the deliveries. Of negatively acknowledged messages, `MAX_NACKED` become letters at a time.
Others are redelivered, and take the way of the entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magnetar._acknowledging.ack_grouping import AckGroupingTracker
from magnetar._acknowledging.ack_targets import AckTarget
from magnetar._acknowledging.negative_acks import NegativeAcksTracker
from magnetar._client_core import ClientCore
from magnetar._connections.operations import Backoff
from magnetar._letters.held_letters import HeldBytes
from magnetar._letters.letter_producers import LetterProducers, get_properties
from magnetar._letters.letter_rules import LetterRules, Origin
from magnetar._message import DeliveredEntry, Message
from magnetar.exceptions import AlreadyClosed, InvalidMessage, MagnetarException, MessageTooBig

__all__ = ["DeadEntry", "Letters", "OnMoved"]

log = logging.getLogger("magnetar")

MAX_NACKED: Final = 1_000
# The letter would be too large: by its origin, for example, or since its batch was compressed better.
_NEVER_STORED: Final = (MessageTooBig, InvalidMessage)


@dataclass(slots=True)
class DeadEntry:
    """An entry of which messages become dead letters."""

    # Replaced when it is delivered again in the meantime: the last delivery is acknowledged.
    entry: DeliveredEntry
    # How many of its messages count in the receiver queue.
    queued: int


# Called with the rows of the messages that can never be letters, and are to be handed out.
OnMoved = Callable[[DeadEntry, Sequence[int]], object]


class Letters:
    def __init__(
        self,
        rules: LetterRules,
        client: ClientCore,
        name: str,
        acks: AckGroupingTracker,
        nacks: NegativeAcksTracker,
        *,
        max_held_bytes: int,
    ) -> None:
        """`name`: the consumer's."""
        self.rules = rules
        self.held_bytes: Final = HeldBytes(max_held_bytes)
        # Called with each message that is acknowledged, because its dead letter is stored.
        self.on_dead: Callable[[Message[Any]], object] = lambda message: None
        self._clock = client.clock
        self._operations = client.operations
        self._acks = acks
        self._nacks = nacks
        self._producers = LetterProducers(client, f"{rules.subscription}-{name}")
        self._backoff = Backoff(client.randomness)
        self._tasks: set[asyncio.Task[None]] = set()
        # Of messages that could not be stored as letters, and wait for their redelivery.
        self._pauses: set[asyncio.Future[None]] = set()
        # Messages that were negatively acknowledged, and become letters.
        self._nacked = 0
        # The last letter could not be stored, which was logged.
        self._is_failing = False
        self._is_closing = False

    # Retries.

    async def reconsume_later(
        self,
        message: Message[Any],
        target: AckTarget,
        delay_ms: int,
        properties: Mapping[str, str] | None,
        *,
        with_receipt: bool,
    ) -> None:
        """Store a letter, and acknowledge `target`, the message. A cancellation doesn't stop that."""
        task = self._start(self._retry(message, target, delay_ms, properties, with_receipt))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise AlreadyClosed("the consumer is closed, and the message will be redelivered") from None
            raise

    async def _retry(
        self,
        message: Message[Any],
        target: AckTarget,
        delay_ms: int,
        added: Mapping[str, str] | None,
        with_receipt: bool,
    ) -> None:
        if (timeouts := self._acks.timeouts) is not None:
            timeouts.find_received()
            timeouts.remove(target)
        rules = self.rules
        properties, is_dead = rules.retry(message.properties(), _find_origin(message), added, delay_ms)
        try:
            if is_dead:
                await self._send_dead(message, properties)
            else:
                await self._producers.send(str(rules.retry_letter_topic), message, properties)
        except Exception:
            self._nacks.redeliver_later(target)
            raise
        if with_receipt:
            receipt = self._acks.send_with_receipt([target])
            await self._operations.wait_for(receipt, "the broker has not answered an acknowledgement")
        else:
            self._acks.add(target)

    # Dead letters.

    def take_nacked(self, message: Message[Any]) -> bool:
        """Make a dead letter of a message that was negatively acknowledged, if that was its last delivery. Return False
        if the message is to be redelivered."""
        entry, row = message._entry, message._row
        if not self.rules.is_last_delivery(entry.redelivery_count):
            return False
        self._acks.distribute()
        if entry.acknowledged & (entry.make_bits([row]) if entry.batch_size else 1) or entry.moved_rows >> row & 1:
            return True
        if self._nacked >= MAX_NACKED or self._is_closing:
            return False
        entry.moved_rows |= 1 << row
        self._nacked += 1
        self._start(self._move(DeadEntry(entry, 0), [row], self._count_nacked))
        return True

    def _count_nacked(self, dead: DeadEntry, rows: Sequence[int]) -> None:
        self._nacked -= 1

    def move(self, dead: DeadEntry, on_moved: OnMoved) -> None:
        """Make dead letters of all messages of the entry that are not acknowledged. `on_moved` is called when they are
        stored, or will be redelivered."""
        self._start(self._move(dead, list(dead.entry.remaining), on_moved))

    async def _move(self, dead: DeadEntry, rows: list[int], on_moved: OnMoved) -> None:
        first = dead.entry
        results = await asyncio.gather(
            *(self._make_dead_letter(Message[Any](first, row)) for row in rows), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        handed_out: list[int] = []
        if dead.queued and errors and all(isinstance(error, _NEVER_STORED) for error in errors):
            text = "entry %s:%s of %s can't become a dead letter, so it is received again: %s"
            log.error(text, first.ledger_id, first.entry_id, first.epoch.origin.topic, errors[0])
            handed_out = [row for row, result in zip(rows, results, strict=True) if isinstance(result, BaseException)]
        elif errors:
            await self._pause_failed(first, errors[0])
        else:
            self._is_failing = False
            self._backoff.reset()
        for row, result in zip(rows, results, strict=True):
            if not isinstance(result, BaseException):
                message = Message[Any](dead.entry, row)
                self._acks.add(message)
                self.on_dead(message)
        if errors and not handed_out:
            self._nacks.redeliver_later(Message[Any](dead.entry, rows[0]))
        on_moved(dead, handed_out)

    async def _make_dead_letter(self, message: Message[Any]) -> None:
        await self._send_dead(message, self.rules.add_origin(get_properties(message), _find_origin(message)))

    async def _send_dead(self, message: Message[Any], properties: Mapping[str, str]) -> None:
        topic = self.rules.find_dead_letter_topic(message.topic_name())
        await self._producers.send(topic, message, properties, self.rules.initial_subscription or "")

    async def _pause_failed(self, entry: DeliveredEntry, error: BaseException) -> None:
        """Wait before the messages are redelivered, so that they don't come in a tight circle."""
        level = logging.DEBUG if self._is_failing else logging.ERROR
        text = "entry %s:%s of %s can't become a dead letter, and will be redelivered: %s"
        log.log(level, text, entry.ledger_id, entry.entry_id, entry.epoch.origin.topic, error)
        self._is_failing = True
        if not self._is_closing:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._pauses.add(over)
            timer = self._clock.call_later(self._backoff.next(), lambda: _end_pause(over))
            try:
                await over
            finally:
                timer.cancel()
                self._pauses.discard(over)

    # The consumer's end.

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, since the caller may have been cancelled

    async def close(self) -> None:
        """Wait until the letters that were begun are stored. What they acknowledge is then to be sent."""
        self._is_closing = True
        for pause in list(self._pauses):
            _end_pause(pause)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._operations.timeout_s)
        await self._producers.close()

    def end(self, error: MagnetarException) -> None:
        """End at once. Callers that wait get the error."""
        self._is_closing = True
        self._producers.end(error)
        for task in self._tasks:
            task.cancel()

    async def wait_ended(self) -> None:
        """Return when all tasks have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._producers.wait_ended()


def _end_pause(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _find_origin(message: Message[Any]) -> Origin:
    entry = message._entry
    origin = entry.epoch.origin
    return Origin.make(origin.topic, entry.ledger_id, entry.entry_id, origin.partition, entry.batch_index(message._row))
