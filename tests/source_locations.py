"""Find a place in the product's source by a qualified name and a fragment of code, whichever file it is in.

`find("Subscription._check_may_seek", "moves >> _TAKE_OVER_BITS != self.cursor.moves")` searches the product packages
for a function or class with this qualified name (`outer.inner` if it is nested), and searches that for the fragment. If
several modules have the name, the end of a module's name goes before it (`topics.subscription:Subscription.seek`);
alone this stands for the whole module (`managed_ledger.lease_rules:`). The fragment must be there exactly once. It is
compared token by token: line breaks, indentation, comments and trailing commas don't count. So a place is still found
after a definition is moved or formatted, or something else in it is edited. If the fragment itself changes, the error
says so.

Mutants (`tests/mutants`) and the reach test (`tests/sim/reach.py`) name their places so.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.source_tokens import CLOSING_BRACKETS, Token, code_tokens, tokens

__all__ = ["FragmentNotFound", "Location", "Module", "Sources", "product_packages"]

# First and last line, from 1.
_Lines = tuple[int, int]


class FragmentNotFound(Exception):
    """A qualified name or a fragment is nowhere, or is in several places."""


@dataclass(frozen=True, slots=True)
class Location:
    module: Module
    # Offsets in the module's text.
    start: int
    end: int
    # Where the last line of the fragment begins, as the caller wrote it.
    last_line_start: int

    @property
    def last_line(self) -> int:
        """The number of the line in the file, from 1."""
        return self.module.text.count("\n", 0, self.last_line_start) + 1

    @property
    def indentation(self) -> str:
        """The indentation of the line on which the place begins."""
        line = self.module.text[self.module.text.rfind("\n", 0, self.start) + 1 : self.start]
        return line[: len(line) - len(line.lstrip())]


class Module:
    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.text = path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def definitions(self) -> dict[str, list[_Lines]]:
        """Functions and classes by qualified name. A property and its setter, or overloads, share one."""
        return _definitions(self.tree)

    def is_called(self, ending: str) -> bool:
        return f".{self.name}".endswith(f".{ending}")

    def offsets(self, qualified_name: str) -> list[tuple[int, int]]:
        if not qualified_name:
            return [(0, len(self.text))]
        starts = self._line_starts
        return [(starts[first - 1], starts[last]) for first, last in self.definitions[qualified_name]]

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        starts[-1] = len(self.text)
        return starts


class Sources:
    """The modules of the packages in a tree. Each is read once, and parsed once if it may hold a wanted name."""

    def __init__(self, root: Path, packages: Iterable[str] | None = None) -> None:
        """`packages` are folders below `root`; by default those that the project ships."""
        paths = product_packages(root) if packages is None else packages
        self._modules = [module for package in paths for module in _modules(root / package)]

    def find(self, name: str, fragment: str) -> Location:
        """Return the only place. Raises `FragmentNotFound`."""
        module, qualified_name = self.resolve(name)
        wanted = code_tokens(fragment)
        comma = bool(wanted) and wanted[-1].text == ","
        words = [token.text for token in (wanted[:-1] if comma else wanted)]
        if not words:
            raise FragmentNotFound(f"the fragment {fragment!r} in {name} is empty: give an expression or a statement")
        line_break = fragment.rfind("\n", 0, wanted[len(words) - 1].start)
        on_last_line = next(at for at, token in enumerate(wanted) if token.start > line_break)
        found = []
        for start, end in module.offsets(qualified_name):
            held = code_tokens(module.text, start, end)
            for at in _occurrences([token.text for token in held], words):
                last = held[at + len(words) - 1]
                stop = _end_with_comma(module.text, last, end) if comma else last.end
                if stop is not None:
                    found.append(Location(module, held[at].start, stop, held[at + on_last_line].start))
        if len(found) != 1:
            raise FragmentNotFound(
                f"{name} in {module.name} holds the fragment {fragment!r} {len(found)} times: it must hold it once; "
                + ("make the fragment longer" if found else "look what became of it")
            )
        return found[0]

    def resolve(self, name: str) -> tuple[Module, str]:
        """Return the module that a name stands for, and the rest of the name. Raises `FragmentNotFound`."""
        ending, colon, qualified_name = name.rpartition(":")
        modules = [module for module in self._modules if not colon or module.is_called(ending)]
        if qualified_name:
            # Parsing takes most of the time.
            last = qualified_name.rpartition(".")[2]
            modules = [module for module in modules if f"def {last}" in module.text or f"class {last}" in module.text]
            modules = [module for module in modules if qualified_name in module.definitions]
        if not modules:
            raise FragmentNotFound(f"there is no {name}: look where it went, or what it is called now")
        if len(modules) > 1:
            which = ", ".join(module.name for module in modules)
            raise FragmentNotFound(f"there are several of {name}, in {which}: put the end of a module's name before it")
        return modules[0], qualified_name


def product_packages(root: Path) -> list[str]:
    """Return the folders of the packages that the project ships."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    packages: list[str] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return packages


def _modules(package: Path) -> Iterator[Module]:
    for path in sorted(package.rglob("*.py")):
        if not path.stem.endswith("_pb2"):  # generated
            parts = path.relative_to(package.parent).with_suffix("").parts
            yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)


def _definitions(tree: ast.Module) -> dict[str, list[_Lines]]:
    found: dict[str, list[_Lines]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                found.setdefault(prefix + child.name, []).append((first, child.end_lineno or first))
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                visit(child, prefix)

    visit(tree, "")
    return found


def _occurrences(held: list[str], words: list[str]) -> Iterator[int]:
    for at in range(len(held) - len(words) + 1):
        if held[at] == words[0] and held[at : at + len(words)] == words:
            yield at


def _end_with_comma(text: str, last: Token, scope_end: int) -> int | None:
    """Return where a fragment that ends with a comma ends: behind the comma, or, of the last element of a list that has
    no trailing comma, behind the element. None if no element ends there."""
    for token in tokens(text, last.end, scope_end):
        if token.kind != "comment":
            if token.text == ",":
                return token.end
            return last.end if token.text in CLOSING_BRACKETS else None
    return None
