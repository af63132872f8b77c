"""Finds modules that import each other in a circle, from the sources, without running them.

Imports under `TYPE_CHECKING` count as well: two modules that need each other's types can't be read one after the other.
Imports within functions don't count: they are how a module is loaded late. To import a module is to import the packages
that it is in, but for the package that both modules are in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["find_circles"]


def find_circles(package: Path) -> list[list[str]]:
    """List the circles in a package, each as the names of its modules, sorted."""
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    imports = {name: set(_find_imports(name, path, paths)) for name, path in paths.items()}
    reached = {name: _reach(name, imports) for name in imports}
    circles = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in imports}
    return [list(circle) for circle in sorted(circles) if len(circle) > 1]


def _find_imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in _top_level(ast.parse(path.read_text())):
        named: list[str] = []
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for one in named:
            while one and one not in known:
                one = one.rpartition(".")[0]
            # A submodule's name stands for it and the packages around it, which are imported first.
            while one and one != name and not name.startswith(one + "."):
                yield one
                one = one.rpartition(".")[0]


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _top_level(child)


def _reach(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        for imported in sorted(imports.get(waiting.pop(), ())):
            if imported not in reached:
                reached.add(imported)
                waiting.append(imported)
    return reached
