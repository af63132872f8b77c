"""The checker finds nothing in histories that a correct system could have made, however odd, and finds each planted
violation by its rule and by no other.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.faults.checker import Verdict, judge, rules
from tests.faults.invented_histories import Invented, Story, invent
from tests.faults.planted_faults import PLANTS, Inapplicable

SEEDS = st.integers(min_value=0, max_value=1 << 32)
SOME = settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])


def verdict_of(story: Story) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return judge(story.write(Path(folder, "history")), times=False)


@given(seed=SEEDS)
@SOME
def test_history_of_correct_system_is_clean(seed: int) -> None:
    verdict = verdict_of(invent(seed).story)
    assert verdict.clean, str(verdict)
    assert not [text for text in verdict.not_judged if "scanned" not in text], verdict.not_judged


@pytest.mark.parametrize(("rule", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
@given(seed=SEEDS)
@settings(SOME, max_examples=10)
def test_a_planted_fault_is_found_by_its_rule_alone(
    rule: str, plant: Callable[[Invented, random.Random], None], seed: int
) -> None:
    invented = invent(seed)
    try:
        plant(invented, random.Random(seed))
    except Inapplicable:
        assume(False)
    verdict = verdict_of(invented.story)
    assert set(verdict.counts) == {rule}, str(verdict)


def test_each_rule_has_a_planted_fault() -> None:
    """Some have tests of their own instead, with histories written line by line."""
    names = {rule.name for rule in rules.all()}
    assert len(names) == len(rules.all())
    others = {"decoded", "keys", "letters", "non_persistent", "one_active", "one_producer"}
    others |= {"registry", "retained", "started", "unavailable"}
    assert {rule for rule, _ in PLANTS} == names - others
