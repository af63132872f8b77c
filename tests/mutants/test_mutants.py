"""Every mutant fits the code as it is, and changes it; and names what sees it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import PROJECT, BadMutant, MutantDoesNotFit, changed_files, load, names, parse
from tests.mutants.__main__ import failures
from tests.sim.__main__ import violates
from tests.sim.worlds import world_named
from tests.source_locations import Sources


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources(PROJECT)


@pytest.mark.parametrize("name", names())
def test_the_mutant_fits(name: str, sources: Sources) -> None:
    mutant = load(name)
    assert re.match(r"[A-Z]{3}-\d+(, [A-Z]{3}-\d+)*: .{10}", mutant.breaks)
    assert not mutant.world or world_named(mutant.world)
    assert changed_files(mutant, sources)


def test_mutants_use_no_undefined_names(sources: Sources, tmp_path: Path) -> None:
    """A `NameError` would be found by any test, and prove nothing."""
    for name in names():
        for path, text in changed_files(load(name), sources).items():
            (tmp_path / f"{name}-{path.name}").write_text(text)
    assert find_undefined_names(tmp_path) == ""


def test_an_undefined_name_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "mutant.py").write_text("def f() -> int:\n    return count\n")
    assert "`count`" in find_undefined_names(tmp_path)


def find_undefined_names(folder: Path) -> str:
    command = ["check", "--isolated", "--no-cache", "--select", "F821", "--output-format", "concise", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [name for name in names() if load(name).command])
def test_the_command_exists(name: str) -> None:
    """A test that was moved or renamed would end with another status than 1, or with no test run."""
    command = load(name).command
    assert command[:2] == ("python", "-m")
    if command[2] == "pytest":
        assert unknown_tests(command[3:]) == []
    else:
        folder = PROJECT.joinpath(*command[2].split("."))
        assert folder.with_suffix(".py").is_file() or (folder / "__main__.py").is_file()


def unknown_tests(arguments: tuple[str, ...]) -> list[str]:
    """Return those of pytest's arguments that choose no test: paths, test ids and the word behind -k."""
    files = [word.partition("::")[0] for word in arguments if word.startswith("tests/")]
    missing = [file for file in files if not (PROJECT / file).is_file()]
    if missing or not files:
        return missing or ["no path"]
    text = "".join((PROJECT / file).read_text() for file in files)
    known = re.findall(r"^\s*(?:async )?def (test\w*)", text, re.MULTILINE)
    chosen = [word.split("::")[-1].partition("[")[0] for word in arguments if "::" in word]
    missing = [name for name in chosen if name not in known]
    if "-k" in arguments:
        word = arguments[arguments.index("-k") + 1]
        missing += [] if any(word in name for name in known) else [word]
    return missing


def test_a_test_that_is_not_there_is_noticed() -> None:
    here = Path(__file__).relative_to(PROJECT).as_posix()
    assert unknown_tests((here, "-k", "is_noticed")) == []
    assert unknown_tests((here, "-k", "is_passed" + "_over")) == ["is_passed_over"]
    assert unknown_tests((f"{here}::test_the_mutant_fits[x]",)) == []
    assert unknown_tests((f"{here}::test_nothing",)) == ["test_nothing"]
    assert unknown_tests(("tests/mutants/test_nowhere.py",)) == ["tests/mutants/test_nowhere.py"]


def test_mutants_cover_the_required_items() -> None:
    mutants = [load(name) for name in names()]
    items = {item for mutant in mutants for item in mutant.expected_items.split(",")}
    assert {"7", "8", "11", "13", "18", "21", "22", "62"} <= items
    assert len(mutants) >= 20
    of_service = {
        item for mutant in mutants if mutant.world.startswith("service") for item in mutant.expected_items.split(",")
    }
    assert {"30", "33", "34", "40", "52", "54", "57", "58"} <= of_service


HEAD = 'breaks = "CHK-1: it doubles"\nworld = "ledgers"\n'


def change(within: str, replace: str, by: str) -> str:
    return f"[[change]]\nin = '{within}'\nreplace = '''\n{replace}\n'''\nby = '''\n{by}\n'''\n"


@pytest.fixture
def small(tmp_path: Path) -> Sources:
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "sums.py").write_text(
        "class Sum:\n    def add(self, a, b):\n        if a:\n            total = a + b  # why\n        return total\n"
    )
    return Sources(tmp_path, ["product"])


def test_changes_are_made_where_they_belong_and_indented(small: Sources) -> None:
    text = change("Sum.add", "total = a + b", "total = a\nif b:\n    total -= b") + change("sums:Sum", "if a", "if b")
    (changed,) = changed_files(parse("m", HEAD + text), small).values()
    assert changed == (
        "class Sum:\n    def add(self, a, b):\n        if b:\n            total = a\n            if b:\n"
        "                total -= b  # why\n        return total\n"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (change("Sum.add", "a - b", "a"), r"mutant m does not fit any more: Sum\.add .* 'a - b' 0 times"),
        (change("Sum.add", "total", "x"), r"Sum\.add .* 'total' 2 times"),
        (change("Sum.subtract", "a", "b"), r"there is no Sum\.subtract"),
        (change("Sum.add", "a + b", "(a + b)"), "changes nothing"),
        (change("Sum.add", "a + b", "a +"), "SyntaxError"),
        (change("Sum.add", "return total", "break"), "SyntaxError"),
        (change("Sum.add", "a + b", "a") + change("Sum.add", "total = a + b", "b"), "overlap"),
    ],
)
def test_mutant_that_does_not_fit_raises_the_reason(changes: str, message: str, small: Sources) -> None:
    with pytest.raises(MutantDoesNotFit, match=message):
        changed_files(parse("m", HEAD + changes), small)


@pytest.mark.parametrize(
    "text",
    [
        "breaks = 'CHK-1: it doubles'\n" + change("f", "a", "b"),
        HEAD + "run = 'python -m pytest'\n" + change("f", "a", "b"),
        HEAD,
        HEAD + "seeds = 5\n" + change("f", "a", "b"),
        HEAD + change("f", "a", "b") + "file = 'x.py'\n",
        HEAD + "[[change]]\nin = 'f'\nby = ''\n",
        "not toml",
    ],
)
def test_a_file_that_is_no_mutant_is_refused(text: str) -> None:
    with pytest.raises(BadMutant, match="mutant m: "):
        parse("m", text)


def test_only_violations_of_the_expected_items_count() -> None:
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
