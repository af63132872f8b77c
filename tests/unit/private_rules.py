"""Finds uses of private names of other modules in tests, from the sources, without running them.

A use is
- an attribute `x._name`, read, written or deleted,
- the string of one, given to `getattr`, `setattr`, `monkeypatch.setattr` and similar functions,
- an import of a name with a leading underscore.

A module may use the private names that its own classes and functions define, but for those of a `Protocol`, which only
says what others have. A method may use those of its class's bases in `tests`, by `self`, `cls` or `super()`. Names with
two leading underscores at both ends are Python's, not private. A module whose name, or whose package's name, has a
leading underscore (`magnetar._acknowledging.pending_acks`) is not for users of the SDK, and open to the project: other
packages import such modules too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

__all__ = ["find_private_uses", "find_private_uses_in"]

# Names with a leading underscore that have no public way, and why tests use them.
_ALLOWED: Final = {
    "_exit": "os._exit is the documented way to end a process without clean-up",
    "_getframe": "sys._getframe is documented",
    "_current_frames": "sys._current_frames is documented",
    "_replace": "documented, of named tuples",
    "_fields": "documented, of named tuples",
    "_make": "documented, of named tuples",
    "_asdict": "documented, of named tuples",
}
# Those of one file.
_ALLOWED_IN: Final = {
    ("tests/sim/loop.py", "_set_running_loop"): "asyncio keeps it for event loops, and the simulation has one",
    ("tests/sim/loop.py", "_log_destroy_pending"): "asyncio would log each task that a killed process has left",
    ("tests/sim/loop.py", "_log_traceback"): "asyncio would log each error that a killed process has left",
    ("tests/compose/compose_project.py", "_run_command"): "testcontainers runs only some commands of Compose by itself",
    ("tests/integration/test_guide.py", "_protected_args"): "click warns of its public name",
    ("tests/integration/test_pulsar_consumers.py", "_client"): "pulsar-client can't set the period of a pattern",
    ("tests/integration/test_pulsar_producers.py", "_message"): "pulsar-client does not say that there is no value",
    ("tests/integration/test_spark_batch.py", "_jdf"): "PySpark has no metrics of an executed plan",
    ("tests/faults/torture/connections.py", "_core"): "Magnetar's consumers do not say how they are connected",
}
_BY_NAME: Final = frozenset({"getattr", "setattr", "delattr", "hasattr", "attrgetter", "patch", "object"})


@dataclass(slots=True)
class _Use:
    """A private name in the source, whether it is another module's or not."""

    line: int
    name: str
    shown: str
    # The class in which it is used by `self`, `cls` or `super()`; empty: it is used otherwise.
    of_class: str = ""
    is_import: bool = False


@dataclass(slots=True)
class _Class:
    # As written.
    bases: list[str]
    names: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Module:
    path: str
    # Local names, and the qualified ones that they were imported as.
    imports: dict[str, str] = field(default_factory=dict)
    classes: dict[str, _Class] = field(default_factory=dict)
    # Names of functions and classes.
    names: set[str] = field(default_factory=set)
    uses: list[_Use] = field(default_factory=list)


def _is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not (name.startswith("__") and name.endswith("__"))


def _read_module(path: str, source: str) -> _Module:
    """Read it in one pass, since there are many."""
    module = _Module(path)
    tree = ast.parse(source)
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, of_class = waiting.pop()
        kind = type(node)
        if kind is ast.Attribute:
            _read_attribute(module, cast(ast.Attribute, node), of_class)
        elif kind is ast.Call:
            _read_call(module, cast(ast.Call, node))
        elif isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).split("[")[0] for base in node.bases]
            module.classes[node.name] = _Class(bases, set(_names_in(node)))
            of_class = node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            _read_import(module, node)
        waiting += [(child, of_class) for child in ast.iter_child_nodes(node)]
    module.names.update(_names_in(tree, variables=False))
    return module


def _names_in(node: ast.ClassDef | ast.Module, *, variables: bool = True) -> Iterator[str]:
    """Names that the statements directly in it define."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.AnnAssign | ast.Assign) and variables:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _read_attribute(module: _Module, node: ast.Attribute, of_class: str) -> None:
    if not _is_private(node.attr):
        return
    match node.value:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")) if of_class:
            if isinstance(node.ctx, ast.Store):
                module.classes[of_class].names.add(node.attr)
            module.uses.append(_Use(node.lineno, node.attr, ast.unparse(node), of_class))
        case _:
            module.uses.append(_Use(node.lineno, node.attr, ast.unparse(node)))


def _read_call(module: _Module, node: ast.Call) -> None:
    match node.func:
        case ast.Name(id=function) | ast.Attribute(attr=function) if function in _BY_NAME:
            for argument in node.args:
                match argument:
                    case ast.Constant(value=str(text)):
                        name = text.rpartition(".")[2]
                        if name.isidentifier() and _is_private(name):
                            module.uses.append(_Use(node.lineno, name, f"{function}({name!r})"))
                    case _:
                        pass
        case _:
            pass


def _read_import(module: _Module, node: ast.ImportFrom | ast.Import) -> None:
    origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        if origin or alias.asname:
            module.imports[alias.asname or alias.name] = origin + alias.name
        if origin and _is_private(alias.name):
            shown = f"from {origin.rstrip('.')} import {alias.name}"
            module.uses.append(_Use(node.lineno, alias.name, shown, is_import=True))


class _TestModules:
    """All test modules by their names."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._modules: dict[str, _Module] = {}
        for path, source in sources.items():
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self._modules[name] = _read_module(path, source)

    def find_uses(self) -> dict[str, list[str]]:
        found = {}
        for module in self._modules.values():
            own = set(_ALLOWED) | {name for path, name in _ALLOWED_IN if path == module.path} | module.names
            for known in module.classes.values():
                own |= set() if "Protocol" in known.bases else known.names
            uses = [use for use in module.uses if use.is_import or use.name not in own | self._inherited(module, use)]
            if uses:
                uses.sort(key=lambda use: use.line)
                found[module.path] = [f"{use.line}: {use.shown}" for use in uses]
        return found

    def _inherited(self, module: _Module, use: _Use) -> set[str]:
        return self._names_of(module, use.of_class, set()) if use.of_class else set()

    def _names_of(self, module: _Module, name: str, seen: set[tuple[str, str]]) -> set[str]:
        """Names that a class and its bases in `tests` define."""
        known = module.classes.get(name)
        if known is None or (module.path, name) in seen:
            return set()
        seen.add((module.path, name))
        names = set(known.names)
        for base in known.bases:
            if base in module.classes:
                names |= self._names_of(module, base, seen)
                continue
            head, _, rest = base.partition(".")
            origin, _, base_name = ".".join(filter(None, [module.imports.get(head, head), rest])).rpartition(".")
            if origin in self._modules:
                names |= self._names_of(self._modules[origin], base_name, seen)
        return names


def find_private_uses_in(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return the uses of private names by the path of their module, as in `sources`."""
    return _TestModules(sources).find_uses()


def find_private_uses(project: Path) -> dict[str, list[str]]:
    """Return the uses of private names in all tests of the project, by the path of their module."""
    paths = sorted((project / "tests").rglob("*.py"))
    return find_private_uses_in({path.relative_to(project).as_posix(): path.read_text() for path in paths})
