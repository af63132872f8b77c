"""Withholds entries of one partition from the receiver queue: dead letters, and retry letters that are not due.

Most entries are handed out. An entry that was delivered too often goes to the dead letter topic (`letters.py`), and a
letter of the retry topic that is not due yet is held (`held_letters.py`). Neither is handed out before, and neither is
acknowledged before it is stored elsewhere, or by the application.

A letter that was held is handed out when it is due, however often it was delivered: if the application has everything
redelivered, that counts for letters that are held, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from magnetar._letters.held_letters import HeldLetter, HeldLetters
from magnetar._letters.letter_producers import get_properties
from magnetar._letters.letter_rules import find_due_ms
from magnetar._letters.letters import DeadEntry, Letters
from magnetar._message import DeliveredEntry, Message
from magnetar._prefetching.partition_queue import PartitionQueue
from magnetar._prefetching.permits import Permits
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar_wire.clock import Clock, Timer

__all__ = ["LetterStage"]

# A timer for a letter that is due later is set again.
_LONGEST_TIMER_S: Final = 3_600.0


class LetterStage:
    def __init__(
        self,
        topic: str,
        letters: Letters,
        clock: Clock,
        permits: Permits,
        queue: ReceiverQueue,
        partition_queue: PartitionQueue,
        on_change: Callable[[], object],
    ) -> None:
        """`on_change`: entries were added to the receiver queue, or there is capacity for more."""
        self._letters = letters
        self._clock = clock
        self._permits = permits
        self._queue = queue
        self._partition_queue = partition_queue
        self._on_change = on_change
        self._is_retry_letter_topic = letters.rules.is_retry_letter_topic(topic)
        self._held = HeldLetters(letters.held_bytes)
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        # By position.
        self._moving: dict[tuple[int, int], DeadEntry] = {}

    def withhold(self, entry: DeliveredEntry) -> bool:
        """Return whether an entry isn't to be handed out now, and hold it or move it to the dead letter topic. Its
        messages count in the receiver queue."""
        if self._is_retry_letter_topic:
            now_ms = self._clock.time_ms()
            due_ms = max(_find_due_ms(Message[Any](entry, row), now_ms) for row in entry.remaining)
            first_ms = self._held.next_due_ms
            # One that is held may be due, while its timer has not fired yet: it is handed out first.
            if due_ms > now_ms or (first_ms is not None and first_ms <= due_ms):
                self._hold(entry, due_ms)
                return True
        if self._letters.rules.is_dead(entry.redelivery_count):
            self._move(entry)
            return True
        return False

    def drop_entries(self, positions: Container[tuple[int, int]]) -> None:
        """Drop letters with these ledger and entry ids, which will be redelivered."""
        for held in self._held.drop(positions):
            if not held.is_beside_queue:
                self._permits.count_handed_out(len(held.entry.remaining))
        self._set_timer()

    def clear(self) -> None:
        """Drop what is held, and forget what counts in the receiver queue, which was cleared."""
        self._held.clear()
        self._set_timer()
        for dead in self._moving.values():
            dead.queued = 0

    # Dead letters.

    def _move(self, entry: DeliveredEntry) -> None:
        position = (entry.ledger_id, entry.entry_id)
        dead = self._moving.get(position)
        if dead is not None:  # it was redelivered while its letters are stored
            dead.entry = entry
            dead.queued += len(entry.remaining)
            return
        dead = self._moving[position] = DeadEntry(entry, len(entry.remaining))
        self._letters.move(dead, self._on_moved)

    def _on_moved(self, dead: DeadEntry, handed_out: Sequence[int]) -> None:
        entry = dead.entry
        del self._moving[entry.ledger_id, entry.entry_id]
        if handed_out and dead.queued:  # otherwise it was dropped, and will be redelivered
            entry.remaining = handed_out
            self._queue.add_entries(self._partition_queue, [entry])
            dead.queued -= len(handed_out)
        self._permits.count_handed_out(dead.queued)
        self._on_change()

    # Letters that are not due.

    def _hold(self, entry: DeliveredEntry, due_ms: int) -> None:
        if self._held.add(entry, due_ms).is_beside_queue:
            self._permits.count_handed_out(len(entry.remaining))
        self._set_timer()

    def _set_timer(self) -> None:
        due_ms = self._held.next_due_ms
        if self._timer is not None:
            if due_ms == self._timer_due_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            self._timer_due_ms = due_ms
            delay_s = min(max(0.0, (due_ms - self._clock.time_ms()) / 1000), _LONGEST_TIMER_S)
            self._timer = self._clock.call_later(delay_s, self._hand_out_due)

    def _hand_out_due(self) -> None:
        self._timer = None
        due = self._held.pop_due(self._clock.time_ms())
        self._set_timer()
        if due:
            self._count_queued(due)
            self._queue.add_entries(self._partition_queue, [one.entry for one in due])
            self._on_change()

    def _count_queued(self, due: list[HeldLetter]) -> None:
        for one in due:
            if one.is_beside_queue:
                self._permits.count_queued(len(one.entry.remaining))


def _find_due_ms(letter: Message[Any], now_ms: int) -> int:
    stored_at_ms = letter.broker_publish_timestamp() or letter.publish_timestamp()
    return find_due_ms(get_properties(letter), letter._entry.metadata.deliver_at_time, stored_at_ms, now_ms)
