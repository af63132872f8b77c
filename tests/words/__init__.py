"""How often the code and the documents use words that the glossary replaces.

    python -m tests.words                       # by package and by word
    python -m tests.words --package bookie --word told      # where
    python -m tests.words --new                 # in lines that were changed since the last commit
    python -m tests.words --write               # lower the limits to what there is

GLOSSARY.md has the words: the left column of its last table, in which `A, B` are two words and what stands in
parentheses is a remark. A row whose left column ends in `*` is not counted, since the word is right in other meanings.
All of a package counts: names, comments, docstrings, texts and documents. A name counts by its parts, so that
`told_epoch` and `ToldEpoch` have one "told".

`limits.toml` says how many each package may have. The numbers may only fall (`tests/unit/test_words.py`).
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["LIMITS", "Use", "count", "find_new_uses", "find_uses", "packages", "read_limits", "words", "write_limits"]

PROJECT: Final = Path(__file__).resolve().parents[2]
LIMITS: Final = Path(__file__).with_name("limits.toml")
_GLOSSARY: Final = PROJECT / "GLOSSARY.md"
_KINDS: Final = (".py", ".md", ".proto")
# Generated code, and the pages whose subject these words are.
_SKIPPED: Final = ("_pb2.py", "_pb2_grpc.py", "GLOSSARY.md", "CHANGELOG.md")
_ROW: Final = re.compile(r"^\| *(?P<old>[^|]+?) *\|")
_REMARK: Final = re.compile(r"\([^)]*\)")
_HUNK: Final = re.compile(r"@@ -\S+ \+(\d+)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Use:
    path: Path
    line: int
    word: str
    text: str


def packages() -> dict[str, Path]:
    """Each package's folder by its name. What is in none of them counts as `documents`."""
    return {
        "protos": PROJECT / "protos",
        "metadata": PROJECT / "metadata",
        "bookie": PROJECT / "bookie",
        "broker": PROJECT / "broker",
        "client": PROJECT / "client",
        "spark_connector": PROJECT / "spark_connector",
        "deploy": PROJECT / "deploy",
        "tests": PROJECT / "tests",
        "documents": PROJECT,
    }


@cache
def words() -> tuple[str, ...]:
    """The words and phrases that count, in the glossary's order."""
    found: dict[str, None] = {}
    _, _, table = _GLOSSARY.read_text().partition("| not | but |\n|---|---|\n")
    for line in table.splitlines():
        row = _ROW.match(line)
        if row is None or row["old"].endswith("*"):
            continue
        for word in _REMARK.sub("", row["old"]).split(","):
            found[word.strip().lower()] = None
    return tuple(word for word in found if word)


@cache
def _pattern() -> re.Pattern[str]:
    longest_first = sorted(words(), key=len, reverse=True)
    return re.compile(r"(?<![a-z])(?:" + "|".join(re.escape(word) for word in longest_first) + r")(?![a-z])")


def find_uses(package: str) -> Iterator[Use]:
    for path in _files(package):
        text = _plain(path.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            for match in _pattern().finditer(line):
                yield Use(path, number, match[0], line.strip())


def find_new_uses() -> Iterator[Use]:
    """Return the uses in lines that were added or changed since the last commit; none outside of a Git checkout."""
    command = ["git", "-C", str(PROJECT), "diff", "--unified=0", "--no-color", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path, number = PROJECT, 0
    for line in done.stdout.splitlines():
        if line.startswith("+++ "):
            path = PROJECT / line[6:]
        elif hunk := _HUNK.match(line):
            number = int(hunk[1])
        elif line.startswith("+") and _counts(path):
            for match in _pattern().finditer(_plain(line[1:])):
                yield Use(path, number, match[0], line[1:].strip())
            number += 1


def count(package: str) -> Counter[str]:
    """How often the package uses each word."""
    counts: Counter[str] = Counter()
    for path in _files(package):
        counts.update(_pattern().findall(_plain(path.read_text())))
    return counts


def read_limits() -> dict[str, int]:
    return tomllib.loads(LIMITS.read_text())


def write_limits(limits: dict[str, int]) -> None:
    head = "# How often each package may use a word that GLOSSARY.md replaces. The numbers only fall.\n"
    LIMITS.write_text(head + "".join(f"{name} = {number}\n" for name, number in limits.items()))


def _files(package: str) -> Iterator[Path]:
    folder = packages()[package]
    found = folder.glob("*") if package == "documents" else folder.rglob("*")
    for path in sorted(found):
        if _counts(path) and path.is_file():
            yield path


def _counts(path: Path) -> bool:
    return path.suffix in _KINDS and not path.name.endswith(_SKIPPED)


def _plain(text: str) -> str:
    """Lower case, and names in their parts."""
    return _CAMEL.sub(" ", text).replace("_", " ").lower()
