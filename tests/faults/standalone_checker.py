"""What must hold of the histories of clients, whatever befell the servers.

- Nothing that had a receipt is lost: each subscription has seen it, and so has the reader.
- Nothing is invented: every message is one that its producer may have sent.
- Order: what one producer sent to one partition comes in that order, judged on first occurrences, since what was sent
  again without an answer may be stored twice. In the log itself, as `keep` reads it; and to the reader, who sees each
  place once, in order.
- What is acknowledged with a receipt never comes again: not to a consumer that was subscribed after the receipt came.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.faults.standalone_history import Histories, Id

__all__ = ["Verdict", "check"]

# What one kind of fault is told of at most.
_SHOWN = 20


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    receipts: int = 0
    consumers: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.sent} messages had a receipt, {self.received} were received by {self.consumers} consumers, "
            f"{self.receipts} acknowledgements had a receipt; {len(self.problems)} problems"
        )


@dataclass
class _Subscription:
    # In the order in which they came: when, to which consumer, producer, number, id.
    got: list[tuple[float, str, str, int, Id]] = field(default_factory=list)
    opened: dict[str, float] = field(default_factory=dict)
    # When the acknowledgement of a place had a receipt; and, per partition, of all up to one.
    done: dict[Id, float] = field(default_factory=dict)
    done_up_to: list[tuple[float, Id]] = field(default_factory=list)


def check(histories: Histories) -> Verdict:
    verdict = Verdict()
    may: dict[str, int] = {}
    sent: dict[str, set[int]] = defaultdict(set)
    subscriptions: dict[str, _Subscription] = defaultdict(_Subscription)
    for _, line in histories.read():
        match line["what"]:
            case "will":
                may[line["producer"]] = line["to"]
            case "ok":
                sent[line["producer"]].update(line["numbers"])
            case "failed":
                _count(verdict.errors, f"send: {line['why']}")
            case "error":
                _count(verdict.errors, line["why"][:200])
            case _:
                _take(subscriptions[line["consumer"].partition("#")[0]], line)
    verdict.sent = sum(map(len, sent.values()))
    for name in sorted(subscriptions):
        found = subscriptions[name]
        verdict.received += len(found.got)
        verdict.receipts += len(found.done) + len(found.done_up_to)
        verdict.consumers += len(found.opened)
        problems: list[str] = []
        problems += _lost(name, found, sent)
        problems += _invented(name, found, may)
        problems += _came_again(name, found)
        if name.endswith((".keep", ".reader")):
            problems += _out_of_order(name, found)
        if name.endswith(".reader"):
            problems += _not_forward(name, found)
        verdict.problems += problems[:_SHOWN]
    return verdict


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1


def _take(subscription: _Subscription, line: dict[str, Any]) -> None:
    at, consumer = line["at"], line["consumer"]
    match line["what"]:
        case "opened":
            subscription.opened[consumer] = at
        case "got":
            subscription.got += [(at, consumer, producer, number, _id(one)) for producer, number, one in line["items"]]
        case "done":
            for one in line["ids"]:
                subscription.done.setdefault(_id(one), at)
        case "done_up_to":
            subscription.done_up_to.append((at, _id(line["id"])))


def _id(told: list[int]) -> Id:
    ledger_id, entry_id, partition, batch_index = told
    return ledger_id, entry_id, partition, batch_index


def _lost(name: str, found: _Subscription, sent: dict[str, set[int]]) -> list[str]:
    topic = name.partition(".")[0]
    seen = {(producer, number) for _, _, producer, number, _ in found.got}
    return [
        f"{name}: message {number} of {producer} had a receipt and never came"
        for producer, numbers in sorted(sent.items())
        if producer.partition(".")[0] == topic
        for number in sorted(numbers)
        if (producer, number) not in seen
    ]


def _invented(name: str, found: _Subscription, may: dict[str, int]) -> list[str]:
    return [
        f"{name}: message {number} of {producer} at {one} was never sent"
        for _, _, producer, number, one in found.got
        if not 0 <= number <= may.get(producer, -1)
    ]


def _came_again(name: str, found: _Subscription) -> list[str]:
    """Consumers that were subscribed after a receipt must not be sent what it was for."""
    problems = []
    highest: dict[int, list[tuple[float, tuple[int, int, int]]]] = defaultdict(list)
    for at, (ledger_id, entry_id, partition, batch_index) in sorted(found.done_up_to):
        up_to = ledger_id, entry_id, batch_index
        until_then = highest[partition][-1][1] if highest[partition] else (-1, -1, -1)
        highest[partition].append((at, max(up_to, until_then)))
    for _, consumer, producer, number, one in found.got:
        opened = found.opened[consumer]
        ledger_id, entry_id, partition, batch_index = one
        done = found.done.get(one)
        if done is not None and done < opened:
            problems.append(f"{name}: {producer} {number} at {one} came to {consumer} after its receipt")
        before = bisect_left(highest[partition], opened, key=operator.itemgetter(0))
        if before and (ledger_id, entry_id, batch_index) <= (place := highest[partition][before - 1][1]):
            problems.append(f"{name}: {producer} {number} at {one} came to {consumer} after all to {place}")
    return problems


def _out_of_order(name: str, found: _Subscription) -> list[str]:
    problems = []
    seen: set[tuple[str, int, int]] = set()
    last: dict[tuple[str, int], int] = {}
    for _, _, producer, number, (_, _, partition, _) in found.got:
        if (producer, partition, number) in seen:
            continue
        seen.add((producer, partition, number))
        before = last.get((producer, partition), -1)
        if number < before:
            problems.append(f"{name}: {producer} {number} came first after {before} in partition {partition}")
        last[producer, partition] = max(number, before)
    return problems


def _not_forward(name: str, found: _Subscription) -> list[str]:
    """Each reader for itself: the next one begins anew."""
    problems = []
    for reader in found.opened:
        places = [one for _, consumer, _, _, one in found.got if consumer == reader]
        problems += [
            f"{name}: {place} came after {before}" for before, place in itertools.pairwise(places) if place <= before
        ]
    return problems
