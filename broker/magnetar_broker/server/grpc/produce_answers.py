"""What a `produce` stream has to tell its client, gathered until it leaves: receipts as ranges, many per message.

Entries of one producer that follow each other, and lie one behind the other in one ledger, are one receipt, however
many turns of the event loop they became durable in. Within one message things count in the order opened, receipts,
refused, ended, flow, so `take` never lets one of these out before what stands before it for the same producer. Of flow
a producer's last state alone is told: there never is more than one for each.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from magnetar_broker.core.position import Position
from magnetar_protos.broker_pb2 import (
    EntryRefused,
    Problem,
    ProduceAnswer,
    ProducerEnded,
    ProducerFlow,
    ProducerOpened,
    Receipt,
)

__all__ = ["ProduceAnswers"]

# Of each kind in one message. A problem's text has some hundred bytes: a message stays far below what is sent at most.
_AT_ONCE: Final = 2_000
_MAX_TEXT: Final = 1_000


class _Range:
    """A receipt that may still grow."""

    __slots__ = ("count", "first", "first_entry_id", "ledger_id", "producer_id")

    def __init__(self, producer_id: int, number: int, position: Position) -> None:
        self.producer_id = producer_id
        self.first = number
        self.count = 1
        self.ledger_id, self.first_entry_id = position


class ProduceAnswers:
    __slots__ = ("_ended", "_flow", "_last", "_opened", "_receipts", "_refused")

    def __init__(self) -> None:
        self._opened: list[ProducerOpened] = []
        self._receipts: list[_Range] = []
        # Each producer's last receipt.
        self._last: dict[int, _Range] = {}
        self._refused: list[EntryRefused] = []
        self._ended: list[ProducerEnded] = []
        # By producer: whether it is paused, and what its topic waits for.
        self._flow: dict[int, tuple[bool, str]] = {}

    def __len__(self) -> int:
        return len(self._opened) + len(self._receipts) + len(self._refused) + len(self._ended) + len(self._flow)

    def opened(self, answer: ProducerOpened) -> None:
        self._opened.append(answer)

    def stored(self, producer_id: int, number: int, position: Position) -> None:
        last = self._last.get(producer_id)
        if (
            last is not None
            and last.first + last.count == number
            and last.first_entry_id + last.count == position[1]
            and last.ledger_id == position[0]
        ):
            last.count += 1
            return
        self._last[producer_id] = receipt = _Range(producer_id, number, position)
        self._receipts.append(receipt)

    def refused(self, producer_id: int, number: int, problem: Problem) -> None:
        self._refused.append(EntryRefused(producer_id=producer_id, number=number, problem=_short(problem)))

    def ended(self, producer_id: int, problem: Problem | None) -> None:
        self._flow.pop(producer_id, None)
        self._ended.append(ProducerEnded(producer_id=producer_id, problem=problem and _short(problem)))

    def set_flow(self, producer_id: int, paused: bool, waiting_for: str = "") -> None:
        self._flow[producer_id] = paused, waiting_for[:_MAX_TEXT]

    def take(self) -> ProduceAnswer:
        """What leaves next: all there is, or, where that is much, what stands first."""
        opened, self._opened = self._opened[:_AT_ONCE], self._opened[_AT_ONCE:]
        receipts: list[_Range] = []
        refused: list[EntryRefused] = []
        ended: list[ProducerEnded] = []
        flow: list[int] = []
        if not self._opened:
            receipts, self._receipts = self._receipts[:_AT_ONCE], self._receipts[_AT_ONCE:]
            self._last.clear()  # what has left grows no more
            if not self._receipts:
                refused, self._refused = self._refused[:_AT_ONCE], self._refused[_AT_ONCE:]
            if not self._receipts and not self._refused:
                ended, self._ended = self._ended[:_AT_ONCE], self._ended[_AT_ONCE:]
            flow = list(islice(self._flow, _AT_ONCE))
        return ProduceAnswer(
            opened=opened,
            receipts=[
                Receipt(
                    producer_id=one.producer_id,
                    first=one.first,
                    count=one.count,
                    ledger_id=one.ledger_id,
                    first_entry_id=one.first_entry_id,
                )
                for one in receipts
            ],
            refused=refused,
            ended=ended,
            flow=[self._take_flow(producer_id) for producer_id in flow],
        )

    def _take_flow(self, producer_id: int) -> ProducerFlow:
        paused, waiting_for = self._flow.pop(producer_id)
        return ProducerFlow(producer_id=producer_id, paused=paused, waiting_for=waiting_for)


def _short(problem: Problem) -> Problem:
    """Bounded: part of it may be what a client sent."""
    if len(problem.text) <= _MAX_TEXT:
        return problem
    return Problem(code=problem.code, text=problem.text[:_MAX_TEXT] + " …")
