"""Check a history in one pass: each line updates the facts and goes to the rules that want its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.faults.checker import rules
from tests.faults.checker.facts import Facts
from tests.faults.checker.history import Line, read
from tests.faults.checker.reused_sequence_ids import withdraw_receipts
from tests.faults.checker.things import is_persistent
from tests.faults.checker.verdict import Verdict

__all__ = ["LIMIT_S", "judge"]

LIMIT_S: Final = 10.0


def judge(folder: Path, *, times: bool = True, limit_s: float = LIMIT_S) -> Verdict:
    """Raises `BrokenHistory` if it can't be checked. Without `times`, long waits are reported, but are no findings."""
    verdict, facts = Verdict(), Facts()
    judges = [rule(facts, verdict, times=times, limit_s=limit_s) for rule in rules.all()]
    seeing: dict[str, list[Callable[[Line], None]]] = {}
    for one in judges:
        for kind, handler in one.handlers().items():
            seeing.setdefault(kind, []).append(handler)
    strange: Counter[str] = Counter()
    lines = 0
    for line in read(folder):
        lines += 1
        if not line.known and line.what not in seeing:
            strange[line.what] += 1
        _count_writer_errors(verdict, line)
        facts.take(line)
        for handler in seeing.get(line.what, ()):
            handler(line)
    withdraw_receipts(facts)
    _open_questions(verdict, facts)
    _figures(verdict, facts, lines, strange)
    for one in judges:
        one.end()
    return verdict


def _count_writer_errors(verdict: Verdict, line: Line) -> None:
    if line.what in ("error", "unknown", "refused", "ack_unknown", "undecoded"):
        verdict.error(line.what, line.fields["why"])
    elif line.what == "offered" and line.fields["result"] != "registered":
        verdict.error(f"definition {line.fields['result']}", line.fields["why"])
    elif line.what == "act" and line.fields["result"] != "done":
        verdict.error(f"{line.fields['act']} {line.fields['result']}", line.fields["why"])


def _open_questions(verdict: Verdict, facts: Facts) -> None:
    if facts.ended is None:
        verdict.not_judged.append("the end: the run did not come to it")
    verdict.not_judged += [
        f"lost: {name}, which was not drained"
        for name, subscription in sorted(facts.subscriptions.items())
        if name not in facts.drained and subscription.durable
    ]
    scanned = {scan.partition.name for scan in facts.complete_scans()}
    scanned |= {topic for one in facts.letters.values() for topic in (one.retry, one.dead)}  # letters.py
    verdict.not_judged += [
        f"{'lost' if facts.is_known(partition) else 'lost and order'} in {partition.name}, of which nothing was scanned"
        for partition in sorted(facts.partition_list, key=lambda one: one.name)
        if partition.name not in scanned and is_persistent(partition.name)
    ]


def _figures(verdict: Verdict, facts: Facts, lines: int, strange: Counter[str]) -> None:
    verdict.figures["seconds"] = facts.now - (facts.began or 0.0)
    verdict.figures["lines"] = lines
    verdict.figures["topics"] = len(facts.topics)
    verdict.figures["places"] = len(facts.partition_list)
    verdict.figures["subscriptions"] = len(facts.subscriptions)
    verdict.figures["producers"] = len(facts.producers)
    verdict.figures |= dict(sorted(facts.counts.items()))
    if strange:
        verdict.figures["lines of kinds that the judge doesn't know"] = dict(strange)
