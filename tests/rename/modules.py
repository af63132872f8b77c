"""Move a module or a package, and rewrite all references to it.

These are absolute imports, dotted names anywhere, the ends of modules' names in mutants and branches
(`topic.subscription:Topic.seek`), paths from any folder on (`topics/subscription.py`), and links of Markdown. A tree
with relative imports is refused.

If the last part of the name changes, uses of the imported module are renamed with it (`from package import module`). If
a file has something else of the old or the new name, its import says `as` the old name instead.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from tests.rename.identifiers import CannotRename
from tests.rename.tree import File, Report, files_of
from tests.source_locations import FragmentNotFound, Sources
from tests.source_tokens import tokens

__all__ = ["move_module"]

_DOTTED: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)")
_BY_END: Final = re.compile(r"""(?<=(["'`]))([\w.]+):(?=([\w.]*)\1)""")


def move_module(root: Path, old: str, new: str, *, dry_run: bool = False) -> Report:
    """Move it. Raises `CannotRename`, and changes nothing then."""
    for name in (old, new):
        if not _DOTTED.fullmatch(name):
            raise CannotRename(f"{name!r} is no module's name")
    files = list(files_of(root))
    moves = _moves(root, files, old, new)
    if relative := [file.line(0) for file in files if file.is_python and _relative_imports(file.text)]:
        raise CannotRename(f"relative imports are not followed: make them absolute in {', '.join(relative)}")
    # A module may move to below its own name: then the new name begins with the old one, and is not to be rewritten.
    below = re.escape(new.removeprefix(old)) if new.startswith(f"{old}.") else r"\w"
    dotted = re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w|{below})")
    report = Report()
    sources = Sources(root)
    names = [file.name for file in files]
    paths = moves | _moved_folders(moves, names)
    mentions = _Mentions(paths, names)
    for file in files:
        if file.is_untouched:
            if dotted.search(file.text):
                report.warnings.append(f"not changed: {file.name} names {old}")
            continue
        text = _rewrite_locations(file.text, sources, old, new, report)
        text, times = dotted.subn(new, text)
        report.count("dotted names", times)
        if file.is_python:
            text = _rewrite_imports(text, old, new, report)
            if file.name in moves and "__file__" in text:
                report.warnings.append(f"{file.name} uses __file__: see whether it is as deep in the tree as before")
        if file.name.endswith(".md"):
            text = _rewrite_links(text, file.name, moves.get(file.name, file.name), paths, report)
        text = mentions.rewrite(text, file, report)
        file.written = text
        if text != file.text:
            report.changed.append(root / moves.get(file.name, file.name))
    leaf = old.rpartition(".")[2]
    if leaf != new.rpartition(".")[2]:
        in_backticks = re.compile(rf"`{leaf}`")
        package = os.path.commonpath([PurePosixPath(path).parent for path in moves]).removesuffix(f"/{leaf}")
        for file in (one for one in files if one.name.startswith(f"{package}/")):
            mentions.left += [file.line(found.start()) for found in in_backticks.finditer(file.text)]
    if mentions.left:
        report.warnings.append(f"may mean what was moved, and is not changed: {', '.join(mentions.left)}")
    report.count("files moved", len(moves))
    if not dry_run:
        for file in files:
            file.write()
        _move_files(root, moves, new, report)
    return report


def _moves(root: Path, files: Sequence[File], old: str, new: str) -> dict[str, str]:
    """Return the new path of each file that moves."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    names = {file.name for file in files}
    for source_root in [*settings["tool"]["hatch"]["build"]["dev-mode-dirs"], ""]:
        path, target = (f"{source_root}/{name.replace('.', '/')}".lstrip("/") for name in (old, new))
        if f"{path}.py" in names:
            moves = {f"{path}.py": f"{target}.py"}
        else:
            if f"{path}/__init__.py" in names and new.startswith(f"{old}."):
                raise CannotRename(f"the package {old} can't be moved to below itself")
            moves = {name: target + name.removeprefix(path) for name in names if name.startswith(f"{path}/")}
        if not moves or (f"{path}.py" not in names and f"{path}/__init__.py" not in names):
            continue
        if (root / f"{target}.py").exists() or (root / target).exists():
            raise CannotRename(f"{target} is there already")
        return moves
    raise CannotRename(f"there is no module {old} below the source roots")


def _relative_imports(text: str) -> bool:
    return bool(re.search(r"^\s*from \.", text, re.MULTILINE))


def _rewrite_imports(text: str, old: str, new: str, report: Report) -> str:
    """Rewrite `from parent import module`; the others hold the dotted name."""
    parent, _, leaf = old.rpartition(".")
    new_parent, _, new_leaf = new.rpartition(".")
    if not parent or not re.search(rf"\bfrom {re.escape(parent)} import\b", text):
        return text
    tree = ast.parse(text)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == parent
        and any(alias.name == leaf for alias in node.names)
    ]
    if not found:
        return text
    plain = any(alias.name == leaf and alias.asname is None for node in found for alias in node.names)
    use_as = leaf != new_leaf and plain and not _only_imported(tree, leaf, new_leaf)
    if use_as:
        report.warnings.append(f"an import of {new} keeps the name {leaf}: something else is called so, or {new_leaf}")
    lines = text.split("\n")
    for node in sorted(found, key=lambda node: node.lineno, reverse=True):
        first = lines[node.lineno - 1]
        indentation = first[: len(first) - len(first.lstrip())]
        others = [ast.unparse(alias) for alias in node.names if alias.name != leaf]
        statements = [f"from {parent} import {', '.join(others)}"] if others else []
        for alias in node.names:
            if alias.name == leaf:
                name = alias.asname or (leaf if use_as else None)
                statements.append(f"from {new_parent} import {new_leaf}" if new_parent else f"import {new_leaf}")
                statements[-1] += f" as {name}" if name else ""
        end = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :].decode()
        lines[node.lineno - 1 : node.end_lineno] = [
            f"{indentation}{statement}{end if at == 0 else ''}" for at, statement in enumerate(statements)
        ]
        report.count("imports")
    text = "\n".join(lines)
    return text if use_as or not plain or leaf == new_leaf else _rename_uses(text, leaf, new_leaf, report)


def _only_imported(tree: ast.Module, leaf: str, new_leaf: str) -> bool:
    """Whether imports alone give something the old name, and nothing has the new one."""
    members = {statement for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for statement in node.body}
    for node in ast.walk(tree):
        name = _name(node)
        is_use = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        # Members of a class are used behind a dot.
        if name == new_leaf or (name == leaf and not is_use and node not in members):
            return False
    return True


def _name(node: ast.AST) -> str | None:
    """Return the name that the node uses or binds."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.alias(asname=str(name)):
            return name
    return None


def _rename_uses(text: str, leaf: str, new_leaf: str, report: Report) -> str:
    pieces, at, last = [], 0, ""
    listed = list(tokens(text))
    for number, token in enumerate(listed):
        after = listed[number + 1 : number + 3]
        is_keyword = [one.text for one in after[:1]] == ["="] and last in ("(", ",")
        is_definition = last in ("def", "class", "import", "as")
        if token.kind == "name" and token.text == leaf and last != "." and not is_keyword and not is_definition:
            pieces += [text[at : token.start], new_leaf]
            at = token.end
            report.count("uses of the imported module")
        elif token.kind == "string" and token.text[0] in "fF":
            changed, times = re.subn(rf"(?<=[{{( ]){leaf}(?=\.)", new_leaf, token.text)
            pieces += [text[at : token.start], changed]
            at = token.end
            report.count("uses of the imported module", times)
        last = token.text
    return "".join([*pieces, text[at:]])


def _rewrite_locations(text: str, sources: Sources, old: str, new: str, report: Report) -> str:
    """Rewrite the ends of modules' names before qualified names: as many parts as before."""

    def rewritten(found: re.Match[str]) -> str:
        _, ending, qualified_name = found.groups()
        try:
            module, _ = sources.resolve(f"{ending}:{qualified_name}")
        except FragmentNotFound:
            return found[0]
        if module.name != old and not module.name.startswith(f"{old}."):
            return found[0]
        name = new + module.name.removeprefix(old)
        parts = name.split(".")
        report.count("places of mutants and branches")
        return (name if ending == module.name else ".".join(parts[-ending.count(".") - 1 :])) + ":"

    return _BY_END.sub(rewritten, text)


def _rewrite_links(text: str, name: str, new_name: str, paths: dict[str, str], report: Report) -> str:
    """Rewrite a document's links to what moves, and all of its links if it moves itself."""
    folder, new_folder = PurePosixPath(name).parent, PurePosixPath(new_name).parent

    def rewritten(found: re.Match[str]) -> str:
        target = os.path.normpath(folder / found[2])
        if "://" in found[2] or (target not in paths and folder == new_folder):
            return found[0]
        report.count("links")
        return found[1] + os.path.relpath(paths.get(target, target), new_folder)

    return _LINK.sub(rewritten, text)


def _moved_folders(moves: dict[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the new path of each folder of which every file goes to the same place."""
    found: dict[str, str] = {}
    for path, target in moves.items():
        for parent in map(str, PurePosixPath(path).parents):
            rest = path.removeprefix(parent)
            whole = all(name in moves for name in names if name.startswith(f"{parent}/"))
            if parent not in found and parent != "." and whole and target.endswith(rest):
                found[parent] = target.removesuffix(rest)
    return found


class _Mentions:
    """Paths in texts: whole, or from any folder on."""

    def __init__(self, paths: dict[str, str], names: Collection[str]) -> None:
        ends: dict[str, set[str]] = {}
        for path in {parent for name in names for parent in (name, *map(str, PurePosixPath(name).parents))}:
            for end in _ends(path):
                ends.setdefault(end, set()).add(path)
        self._new: dict[str, str] = {}
        unclear: set[str] = set()
        for old, new in paths.items():
            for end in _ends(old):
                is_one = "/" not in end
                if is_one and PurePosixPath(old).name == PurePosixPath(new).name:
                    continue
                # The name of a folder alone could be any word.
                mention = f"{end}/" if is_one and old not in names else end
                if len(ends[end]) > 1:
                    unclear.add(mention)
                else:
                    before = old.removesuffix(end)
                    target = new.removeprefix(before) if new.startswith(before) else new
                    self._new[mention] = target + mention.removeprefix(end)
        self._pattern = _matching(self._new)
        self._unclear = _matching(unclear)
        # Where another file of the same name may be meant.
        self.left: list[str] = []

    def rewrite(self, text: str, file: File, report: Report) -> str:
        if self._unclear is not None and file.name.endswith(".md"):
            self.left += [file.line(found.start()) for found in self._unclear.finditer(file.text)]
        if self._pattern is None:
            return text
        text, times = self._pattern.subn(lambda match: self._new[match[1]], text)
        report.count("paths", times)
        return text


def _matching(ends: Collection[str]) -> re.Pattern[str] | None:
    longest_first = "|".join(map(re.escape, sorted(ends, key=lambda end: (-len(end), end))))
    return re.compile(rf"(?<![\w-])(?<![\w-][/.])({longest_first})(?![\w-]|\.\w)") if ends else None


def _ends(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]


def _move_files(root: Path, moves: dict[str, str], new: str, report: Report) -> None:
    in_package = (root / min(moves)).parent.joinpath("__init__.py").exists()
    for path, target in moves.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        known = subprocess.run(["git", "ls-files", "--error-unmatch", path], cwd=root, check=False, capture_output=True)
        if known.returncode:
            (root / path).rename(root / target)
        else:
            subprocess.run(["git", "mv", path, target], cwd=root, check=True, capture_output=True)
    shallowest = min((root / target for target in moves.values()), key=lambda path: len(path.parts))
    module = shallowest.parent if shallowest.name == "__init__.py" else shallowest
    for package in list(module.parents)[: new.count(".")]:
        initial = package / "__init__.py"
        if in_package and not initial.exists():
            initial.touch()
            report.warnings.append(f"{initial.relative_to(root)} is new and empty: say there what the package is")
    for folder in sorted({(root / path).parent for path in moves}):
        left = [path.name for path in folder.iterdir()] if folder.exists() else []
        if [name for name in left if name != "__pycache__"] == ["__init__.py"]:
            report.warnings.append(f"{folder.relative_to(root)} has nothing but its __init__.py any more: delete it")
