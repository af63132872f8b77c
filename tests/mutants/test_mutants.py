"""Every mutant's patch fits the code as it is, and changes it; and its first line says what it breaks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.mutants import PROJECT, apply, expected_items, names, what_it_breaks, world_of
from tests.mutants.__main__ import failures
from tests.sim.__main__ import violates
from tests.sim.worlds import world_named


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    for root in ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy"):
        shutil.copytree(PROJECT / root, tree / root, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


@pytest.mark.parametrize("name", names() or [pytest.param("", marks=pytest.mark.skip("there are no mutants yet"))])
def test_the_patch_applies(name: str, tree: Path) -> None:
    assert re.match(r"[A-Z]{3}-\d+(, [A-Z]{3}-\d+)*: .{10}", what_it_breaks(name))
    assert world_named(world_of(name))
    apply(tree, name, only_look=True)  # git refuses one that changes nothing, too


def test_there_are_mutants_of_what_matters_most() -> None:
    items = {item for name in names() for item in expected_items(name).split(",")}
    assert {"7", "8", "11", "13", "18", "21", "22", "62"} <= items
    assert len(names()) >= 20
    of_service = {
        item for name in names() if world_of(name).startswith("service") for item in expected_items(name).split(",")
    }
    assert {"30", "33", "34", "40", "52", "54", "57", "58"} <= of_service


def test_only_a_violation_of_what_a_mutant_names_counts() -> None:
    printed = (
        "seed 3: TypeError: no such argument (at 1.0 s)\n"
        "seed 4: Violation: item 2, 3: ledger 1 lacks an entry (at 2.0 s)\nof three lines\n"
        "seed 5: Violation: item 13: ledger 8 is closed (at 2.0 s)\n"
        "seed 6: Violation: item 34, CON-3: it comes again: or so (at 2.0 s)\n"
        "6 seeds in 1.0 s: 6.0 seeds/s on 2 cores, 3 seeds failed\n"
    )
    found = failures(printed)
    assert [(seed, item) for seed, item, _ in found] == [(3, "TypeError"), (4, "2, 3"), (5, "13"), (6, "34, CON-3")]
    assert [seed for seed, item, _ in found if violates(item, "3,8")] == [4]
    assert [seed for seed, item, _ in found if violates(item, "CON-3")] == [6]
    assert not any(violates(item, "1") for _, item, _ in found)
