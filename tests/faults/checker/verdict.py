"""The result of checking a history: findings by rule, figures, and what was not checked."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

__all__ = ["Finding", "Verdict"]

# What one rule shows of its findings at most. All are counted.
_SHOWN: Final = 20
_ERRORS_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    text: str


@dataclass
class Verdict:
    findings: list[Finding] = field(default_factory=list)
    # By rule, those that aren't shown among them.
    counts: Counter[str] = field(default_factory=Counter)
    not_judged: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    # The errors that writers recorded, with digits masked.
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not self.counts

    def found(self, rule: str, text: str) -> None:
        self.counts[rule] += 1
        if self.counts[rule] <= _SHOWN:
            self.findings.append(Finding(rule, text))

    def error(self, what: str, why: str) -> None:
        self.errors[f"{what}: {re.sub('[0-9]+', 'N', why)[:200]}"] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "clean": self.clean,
            "counts": dict(self.counts),
            "findings": [asdict(finding) for finding in self.findings],
            "not_judged": self.not_judged,
            "figures": self.figures,
            "errors": dict(self.errors),
        }

    def __str__(self) -> str:
        lines = []
        for rule, count in sorted(self.counts.items()):
            lines.append(f"{rule}: {count} findings")
            shown = [finding.text for finding in self.findings if finding.rule == rule]
            lines += [f"  {text}" for text in shown]
            if count > len(shown):
                lines.append(f"  and {count - len(shown)} more")
        lines += [f"not judged: {text}" for text in self.not_judged]
        lines += [f"{name}: {_figure(value)}" for name, value in self.figures.items()]
        lines += [f"{count} times: {text}" for text, count in self.errors.most_common(_ERRORS_SHOWN)]
        lines.append("clean" if self.clean else f"NOT CLEAN: {self.counts.total()} findings")
        return "\n".join(lines)


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_figure(part)}" for name, part in value.items())
    return f"{value:.1f}" if isinstance(value, float) else str(value)
