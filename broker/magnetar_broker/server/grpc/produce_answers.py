"""The answers that wait to be sent on a `produce` stream: results as ranges, many per message.

One `Receipt` covers consecutive entries of one producer at consecutive positions of one ledger, even if the entries
became durable in different turns of the event loop. The client handles the parts of a message in the order opened,
receipts, refused, ended, flow, grown, queued. So `compose` never puts a part into a message in which the client would
handle it before an earlier part of the same producer. Only the last flow state of each producer is sent.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import (
    EntryRefused,
    Problem,
    ProduceAnswer,
    ProducerEnded,
    ProducerFlow,
    ProducerOpened,
    ProducerQueued,
    Receipt,
    TopicGrown,
)

__all__ = ["ProduceAnswers"]

# Parts of each kind in one message. An error text has some hundred bytes, so a message stays far below its maximum
# size.
_MAX_PARTS: Final = 2_000
_MAX_TEXT_LENGTH: Final = 1_000


class _Range:
    """A `Receipt` that may grow until it is sent."""

    __slots__ = ("count", "duplicates", "first", "first_entry_id", "ledger_id", "producer_id")

    def __init__(self, producer_id: int, number: int, position: Position, duplicates: int) -> None:
        self.producer_id = producer_id
        self.first = number
        self.count = 1
        self.ledger_id, self.first_entry_id = position
        # As in `Receipt`.
        self.duplicates = duplicates


class ProduceAnswers:
    __slots__ = ("_ended", "_flow", "_grown", "_last", "_opened", "_queued", "_receipts", "_refused")

    def __init__(self) -> None:
        self._opened: list[ProducerOpened] = []
        self._receipts: list[_Range] = []
        # Each producer's last `Receipt`.
        self._last: dict[int, _Range] = {}
        self._refused: list[EntryRefused] = []
        self._ended: list[ProducerEnded] = []
        # By producer: whether it is paused, and the reason for which its topic waits.
        self._flow: dict[int, tuple[bool, str]] = {}
        # By producer: how many partitions its topic has.
        self._grown: dict[int, int] = {}
        # Producers whose opening waits.
        self._queued: dict[int, None] = {}

    def __len__(self) -> int:
        listed = len(self._opened) + len(self._receipts) + len(self._refused) + len(self._ended)
        return listed + len(self._flow) + len(self._grown) + len(self._queued)

    def add_queued(self, producer_id: int) -> None:
        self._queued[producer_id] = None

    def add_opened(self, answer: ProducerOpened) -> None:
        self._queued.pop(answer.producer_id, None)
        self._opened.append(answer)

    def add_stored(self, producer_id: int, number: int, position: Position, duplicates: int = 0) -> None:
        last = self._last.get(producer_id)
        if (
            last is not None
            and last.first + last.count == number
            and last.ledger_id == position[0]
            and (last.first_entry_id + last.count == position[1] or position[0] < 0)  # duplicates have no position
            and not (duplicates or last.duplicates)
        ):
            last.count += 1
            return
        self._last[producer_id] = receipt = _Range(producer_id, number, position, duplicates)
        self._receipts.append(receipt)

    def add_refused(self, producer_id: int, number: int, problem: Problem) -> None:
        self._refused.append(EntryRefused(producer_id=producer_id, number=number, problem=_shorten(problem)))

    def add_ended(self, producer_id: int, problem: Problem | None, topic_epoch: int | None = None) -> None:
        self._flow.pop(producer_id, None)
        self._grown.pop(producer_id, None)
        self._queued.pop(producer_id, None)
        self._ended.append(
            ProducerEnded(producer_id=producer_id, problem=problem and _shorten(problem), topic_epoch=topic_epoch)
        )

    def set_flow(self, producer_id: int, paused: bool, waiting_for: str = "") -> None:
        self._flow[producer_id] = paused, waiting_for[:_MAX_TEXT_LENGTH]

    def set_grown(self, producer_id: int, partitions: int) -> None:
        self._grown[producer_id] = partitions

    def compose(self) -> ProduceAnswer:
        """Return and remove the next message: all parts, or the first if there are many."""
        opened, self._opened = self._opened[:_MAX_PARTS], self._opened[_MAX_PARTS:]
        receipts: list[_Range] = []
        refused: list[EntryRefused] = []
        ended: list[ProducerEnded] = []
        flow: list[int] = []
        grown: list[int] = []
        if not self._opened:
            receipts, self._receipts = self._receipts[:_MAX_PARTS], self._receipts[_MAX_PARTS:]
            self._last.clear()  # a `Receipt` that is sent can't grow
            if not self._receipts:
                refused, self._refused = self._refused[:_MAX_PARTS], self._refused[_MAX_PARTS:]
            if not self._receipts and not self._refused:
                ended, self._ended = self._ended[:_MAX_PARTS], self._ended[_MAX_PARTS:]
            flow = list(islice(self._flow, _MAX_PARTS))
            grown = list(islice(self._grown, _MAX_PARTS))
        queued = list(islice(self._queued, _MAX_PARTS))
        for producer_id in queued:
            del self._queued[producer_id]
        return ProduceAnswer(
            opened=opened,
            receipts=[
                Receipt(
                    producer_id=one.producer_id,
                    first=one.first,
                    count=one.count,
                    ledger_id=one.ledger_id,
                    first_entry_id=one.first_entry_id,
                    duplicates=one.duplicates,
                )
                for one in receipts
            ],
            refused=refused,
            ended=ended,
            flow=[self._take_flow(producer_id) for producer_id in flow],
            grown=[
                TopicGrown(channel_id=producer_id, partitions=self._grown.pop(producer_id)) for producer_id in grown
            ],
            queued=[ProducerQueued(producer_id=producer_id) for producer_id in queued],
        )

    def _take_flow(self, producer_id: int) -> ProducerFlow:
        paused, waiting_for = self._flow.pop(producer_id)
        return ProducerFlow(producer_id=producer_id, paused=paused, waiting_for=waiting_for)


def _shorten(problem: Problem) -> Problem:
    """Limit the length of the text, since parts of it may come from a client."""
    if len(problem.text) <= _MAX_TEXT_LENGTH:
        return problem
    return Problem(code=problem.code, text=problem.text[:_MAX_TEXT_LENGTH] + " …")
