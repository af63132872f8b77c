"""Mutants: the code with one thing broken, to see whether the tests would notice.

Each is a file, `NAME.toml`:

    breaks = "SUB-9: a seek counts though the subscription was moved after the client had requested it"
    run = "python -m pytest -q tests/unit/broker/test_subscriptions.py -k late_seek"

    [[change]]
    in = "Subscription._check_may_seek"
    replace = "moves_and_take_overs >> _TAKE_OVER_BITS != self.cursor.moves"
    by = "moves_and_take_overs < 0"

`breaks` begins with the items of the checklist (`CHK-8, CHK-1: …`) or the points of the specification whose violation
shows it. A run that fails for another reason does not count as seeing it. Either `world` names the simulation's world
that sees it (`ledgers`, `service`, or, if only one of many faults shows it, `service:late entries`), or `run` is the
command that sees it; its status is 1 then.

A change replaces a fragment of code. `tests/source_locations.py` finds it in any file, by the qualified name of the
function or class that holds it and by its tokens. The lines of `by` get the indentation of the fragment. A mutant can
have several changes, in one function or in several; all fragments are looked up before the first is replaced.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.project_files import project_files
from tests.source_locations import FragmentNotFound, Location, Sources

__all__ = [
    "PROJECT",
    "BadMutant",
    "Change",
    "Mutant",
    "MutantDoesNotFit",
    "changed_files",
    "load",
    "mutant_tree",
    "names",
    "run_in",
]

PROJECT = Path(__file__).resolve().parents[2]
_FOLDER = Path(__file__).resolve().parent


class BadMutant(Exception):
    """The file does not say what a mutant's must."""


class MutantDoesNotFit(Exception):
    """The code that the mutant changes is not there any more, or is not changed by it."""


@dataclass(frozen=True, slots=True)
class Change:
    within: str
    replace: str
    by: str


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str
    changes: tuple[Change, ...]
    # Of the simulation; empty if `command` sees it.
    world: str
    command: tuple[str, ...]

    @property
    def expected_items(self) -> str:
        """Items and points with commas between, as the simulation takes them."""
        return ",".join(word.strip().removeprefix("CHK-") for word in self.breaks.partition(":")[0].split(","))


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load(name: str) -> Mutant:
    """Read a mutant's file. Raises `BadMutant`."""
    return parse(name, (_FOLDER / f"{name}.toml").read_text())


def parse(name: str, text: str) -> Mutant:
    try:
        table = tomllib.loads(text)
        changes = tuple(_change(entry) for entry in table.pop("change", []))
        breaks, world, run = table.pop("breaks"), table.pop("world", ""), table.pop("run", "")
        if table or not changes or bool(world) == bool(run):
            raise ValueError("a mutant has breaks, world or run, and [[change]]s")
    except (ValueError, KeyError) as error:
        raise BadMutant(f"mutant {name}: {error!r}") from error
    return Mutant(name, breaks, changes, world, tuple(run.split()))


def _change(entry: dict[str, Any]) -> Change:
    change = Change(entry.pop("in"), entry.pop("replace").strip("\n"), entry.pop("by").strip("\n"))
    if entry:
        raise ValueError(f"a change has in, replace and by, and not {', '.join(entry)}")
    return change


def changed_files(mutant: Mutant, sources: Sources) -> dict[Path, str]:
    """Return the new text of each file that the mutant changes. Raises `MutantDoesNotFit`."""
    locations: dict[Path, list[tuple[Location, str]]] = {}
    for change in mutant.changes:
        try:
            location = sources.find(change.within, change.replace)
        except FragmentNotFound as error:
            raise MutantDoesNotFit(f"mutant {mutant.name} does not fit any more: {error}") from None
        locations.setdefault(location.module.path, []).append((location, change.by))
    return {path: _changed_text(mutant, replaced) for path, replaced in locations.items()}


def _changed_text(mutant: Mutant, replaced: Sequence[tuple[Location, str]]) -> str:
    module = replaced[0][0].module
    text, end = module.text, len(module.text)
    for location, by in sorted(replaced, key=lambda one: one[0].start, reverse=True):
        if location.end > end:
            raise MutantDoesNotFit(f"mutant {mutant.name} has two changes that overlap in {module.name}")
        end = location.start
        indented = textwrap.indent(by, location.indentation).removeprefix(location.indentation)
        text = text[: location.start] + indented + text[location.end :]
    try:
        tree = ast.parse(text)
        compile(tree, module.path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise MutantDoesNotFit(f"mutant {mutant.name} leaves {module.name} with a {error!r}") from None
    if ast.dump(tree) == ast.dump(module.tree):
        raise MutantDoesNotFit(f"mutant {mutant.name} changes nothing that {module.name} does")
    return text


@contextmanager
def mutant_tree(mutant: Mutant) -> Iterator[Path]:
    """A copy of the working tree with the mutant in it, for as long as the block lasts. Raises `MutantDoesNotFit`."""
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        tree = Path(folder)
        for relative in project_files(PROJECT):
            target = tree / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / relative, target)
        for path, text in changed_files(mutant, Sources(tree)).items():
            path.write_text(text)
        yield tree


def run_in(tree: Path, command: Sequence[str], *, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run it there: the tree's own code comes before any that is installed."""
    settings = tomllib.loads((tree / "pyproject.toml").read_text())
    roots = [str(tree / root) for root in settings["tool"]["hatch"]["build"]["dev-mode-dirs"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*roots, str(tree)]), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable if word in ("python", "python3") else word for word in command[:1]] + list(command[1:])
    return subprocess.run(words, cwd=tree, env=environment, check=False, text=True, capture_output=capture)
