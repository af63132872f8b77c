"""Mutants: the code with one thing broken, to see whether the tests would notice.

Each is a patch, `NAME.patch`. Its first line says what it breaks, behind the items of the checklist whose violation
shows it: `CHK-8, CHK-1: …` or, of points of the specification, `OWN-2: …`. A run that fails for another reason does not
count as seeing it. The simulation's world that sees it is that of ledgers; another one is named by the second line,
`world: service`, or, where of many faults only one can show it, `world: service:late entries`. Where none runs what is
broken, the second line is the command that sees it, behind `run: `; its status is 1 then. The rest is what git diff
prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "PROJECT",
    "PatchFailed",
    "expected_items",
    "mutant_tree",
    "names",
    "run_in",
    "seen_by",
    "what_it_breaks",
    "world_of",
]

PROJECT = Path(__file__).resolve().parents[2]
_PATCHES = Path(__file__).resolve().parent


class PatchFailed(Exception):
    """The patch does not fit the code any more."""


def names() -> list[str]:
    return sorted(path.stem for path in _PATCHES.glob("*.patch"))


def what_it_breaks(name: str) -> str:
    return (_PATCHES / f"{name}.patch").read_text().split("\n", 1)[0].lstrip("# ")


def seen_by(name: str) -> list[str] | None:
    """The command; None: the simulation."""
    second = (_PATCHES / f"{name}.patch").read_text().split("\n", 2)[1]
    return second.removeprefix("run: ").split() if second.startswith("run: ") else None


def world_of(name: str) -> str:
    """Of the simulation."""
    second = (_PATCHES / f"{name}.patch").read_text().split("\n", 2)[1]
    return second.removeprefix("world: ").strip() if second.startswith("world: ") else "ledgers"


def expected_items(name: str) -> str:
    """With commas between."""
    return ",".join(word.strip().removeprefix("CHK-") for word in what_it_breaks(name).partition(":")[0].split(","))


@contextmanager
def mutant_tree(name: str) -> Iterator[Path]:
    """A copy of the working tree with the mutant in it, for as long as the block lasts."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    )
    with tempfile.TemporaryDirectory(prefix=f"mutant-{name}-") as folder:
        tree = Path(folder)
        for relative in filter(None, listed.stdout.split("\0")):
            source, target = PROJECT / relative, tree / relative
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        apply(tree, name)
        yield tree


def apply(tree: Path, name: str, *, only_look: bool = False) -> None:
    patch = (_PATCHES / f"{name}.patch").resolve()
    # Outside of any repository, so that git takes the paths as they stand.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *(["--check"] if only_look else []), str(patch)],
        cwd=tree,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise PatchFailed(f"{name}.patch does not apply: {done.stderr.strip()}")


def run_in(tree: Path, command: Sequence[str], *, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs it there: the tree's own code comes before any that is installed."""
    settings = tomllib.loads((tree / "pyproject.toml").read_text())
    roots = [str(tree / root) for root in settings["tool"]["hatch"]["build"]["dev-mode-dirs"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*roots, str(tree)]), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable if word in ("python", "python3") else word for word in command[:1]] + list(command[1:])
    return subprocess.run(words, cwd=tree, env=environment, check=False, text=True, capture_output=capture)
