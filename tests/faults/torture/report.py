"""The report of a run: its faults, its calms, the checker's verdict, and problems of the run itself.

As text, and as JSON beside the history. The fields' names are those of the JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.mistakes import is_to_be_expected

if TYPE_CHECKING:
    from tests.faults.checker import Verdict

__all__ = ["Report", "Resumption"]


@dataclass(frozen=True, slots=True)
class Resumption:
    """A fault of one broker alone: seconds until its session was over, and from then until the last of its partitions
    had a new receipt.
    """

    strike: str
    places: int
    expired_s: float
    resumed_s: float

    def __str__(self) -> str:
        return (
            f"{self.strike}: its {self.places} partitions were free after {self.expired_s:.1f} s, and "
            f"{self.resumed_s:.1f} s later the last had a receipt"
        )


@dataclass
class Report:
    seed: str
    system: str
    # Of the rounds and the calms; all in all it took `whole_s`.
    seconds: float = 0.0
    whole_s: float = 0.0
    calm_share: float = 0.0
    calm_stretches_s: list[float] = field(default_factory=list)
    rounds: Counter[str] = field(default_factory=Counter)
    # By kind and group; and those that were drawn when there was no target.
    faults: Counter[str] = field(default_factory=Counter)
    nobody: Counter[str] = field(default_factory=Counter)
    # Possible faults that were not drawn.
    not_struck: list[str] = field(default_factory=list)
    # Processes that ended without a fault of theirs, and were started again.
    ended_by_themselves: Counter[str] = field(default_factory=Counter)
    resumptions: list[Resumption] = field(default_factory=list)
    # Until each partition took messages, all was drained, and each ledger had its replicas.
    ending_s: dict[str, float] = field(default_factory=dict)
    # That are left, and are as they should be. None: nobody looked, or they are not.
    ledgers: int | None = None
    # Mistakes in processes' output: one line of each, and how often. Some follow from faults.
    said: dict[str, int] = field(default_factory=dict)
    not_done: list[str] = field(default_factory=list)
    # What the rig itself found wrong.
    problems: list[str] = field(default_factory=list)
    verdict: Verdict | None = None

    @property
    def clean(self) -> bool:
        return not self.wrong and self.verdict is not None and self.verdict.clean

    @property
    def wrong(self) -> list[str]:
        """But for what the judge found."""
        mistakes = [one for one in self.said if not is_to_be_expected(one)]
        return [*self.problems, *(f"a process made a mistake: {one}" for one in mistakes)]

    def __str__(self) -> str:
        stretches = ", ".join(f"{one:.0f}" for one in self.calm_stretches_s)
        ending = ", ".join(f"{what} after {seconds:.0f} s" for what, seconds in self.ending_s.items())
        lines = [
            f"seed {self.seed}, {self.system}: {self.seconds:.0f} s ({self.whole_s:.0f} s with beginning and end), "
            f"{self.calm_share:.0%} calm (stretches of {stretches or 'no'} s)",
            f"rounds: {_counted(self.rounds)}",
            f"{self.faults.total()} faults: {_counted(self.faults)}",
        ]
        if self.not_struck:
            lines.append(f"not injected: {', '.join(self.not_struck)}")
        if self.nobody:
            lines.append(f"without a target: {_counted(self.nobody)}")
        if self.ended_by_themselves:
            lines.append(f"ended by themselves, and were started again: {_counted(self.ended_by_themselves)}")
        lines += [f"  {one}" for one in self.resumptions]
        whole = "nobody knows of ledgers" if self.ledgers is None else f"{self.ledgers} ledgers are left, all whole"
        lines.append(f"the end: {ending or 'not reached'}; {whole}")
        lines += [f"not done: {why}" for why in self.not_done]
        lines += [f"  {count} x logged: {what}" for what, count in self.said.items()]
        lines.append(f"the judge: {self.verdict}" if self.verdict is not None else "not judged")
        lines += [f"PROBLEM: {one}" for one in self.wrong]
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        whole: dict[str, Any] = {name: value for name, value in vars(self).items() if name != "verdict"}
        whole["resumptions"] = [asdict(one) for one in self.resumptions]
        whole["clean"] = self.clean
        whole["verdict"] = None if self.verdict is None else self.verdict.as_json()
        path.write_text(json.dumps(whole, indent=1) + "\n")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"
