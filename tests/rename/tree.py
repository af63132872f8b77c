"""The files of the tree, split into code, comments, strings and text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tests.project_files import project_files
from tests.source_tokens import Token, tokens

__all__ = ["File", "Kind", "Part", "Report", "docstring_lines", "files_of"]

Kind = Literal["code", "fragment", "comment", "docstring", "string", "name string", "document", "marked"]

_GENERATED: Final = re.compile(r"_pb2\.pyi?$")
# Other languages and recorded data. Names found there are reported.
_UNTOUCHED: Final = re.compile(r"(_pb2\.pyi?|\.json|\.java|\.c|/LICENSE|^LICENSE)$")
_NAME: Final = re.compile(r"[\w.:/-]+")
_ATTRIBUTE_FUNCTIONS: Final = frozenset({"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller"})
# Where an f-string's expressions begin and end, outside and inside of one.
_IN_TEXT: Final = re.compile(r"\{\{|\}\}|\{")
_IN_BRACES: Final = re.compile(r"""[{}]|"[^"]*"|'[^']*'""")
# A value of a mutant's change.
_VALUE: Final = re.compile(r"^(?:in|replace|by) = ('''.*?'''|\"\"\".*?\"\"\"|[^\n]*)", re.DOTALL | re.MULTILINE)


class Part(NamedTuple):
    """A piece of a text: a token of code, or text of one kind.

    `fragment` is code in a mutant or a branch; `name string` a literal without blanks, which may be a name on the wire;
    `marked` is code in a document.
    """

    kind: Kind
    start: int
    end: int


@dataclass(slots=True)
class Report:
    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    changed: list[Path] = field(default_factory=list)

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times


class File:
    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.path = root / name
        self.text = self.path.read_text()
        self.written = self.text

    @property
    def is_python(self) -> bool:
        return self.name.endswith((".py", ".pyi")) and not self.is_untouched

    @property
    def is_mutant(self) -> bool:
        return self.name.startswith("tests/mutants/") and self.name.endswith(".toml")

    @property
    def is_untouched(self) -> bool:
        return bool(_UNTOUCHED.search(self.name))

    @property
    def is_generated(self) -> bool:
        return bool(_GENERATED.search(self.name))

    @cached_property
    def parts(self) -> list[Part]:
        """The parts in order. Text outside of them is never changed."""
        if self.is_untouched:
            return []
        if self.is_python:
            return list(_python_parts(self.text, docstring_lines(self.text)))
        if self.name.endswith(".proto"):
            return [Part("comment", *found.span()) for found in re.finditer(r"//[^\n]*", self.text)]
        if self.is_mutant:
            return list(_mutant_parts(self.text))
        if self.name.endswith(".md"):
            return list(_markdown_parts(self.text))
        return [Part("document", 0, len(self.text))]

    def line(self, offset: int) -> str:
        """Return where it is, as `file:line`."""
        return f"{self.name}:{self.text.count(chr(10), 0, offset) + 1}"

    def write(self) -> bool:
        if self.written == self.text:
            return False
        self.path.write_text(self.written)
        return True


def files_of(root: Path) -> Iterator[File]:
    """Yield the files that git knows, those not yet added among them."""
    for name in project_files(root):
        try:
            yield File(root, str(name))
        except UnicodeDecodeError:
            continue


def docstring_lines(text: str) -> set[int]:
    """Return the lines, from 1, on which there is a string that is a statement."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {
        line
        for node in statements
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _python_parts(text: str, docstrings: set[int]) -> Iterator[Part]:
    before: list[Token] = []
    exported = False
    # The depth in brackets, and that of a `Branch(…)`, whose strings are code.
    depth = branch_depth = 0
    line, counted = 1, 0
    for token in tokens(text):
        line, counted = line + text.count("\n", counted, token.start), token.start
        last = before[-1].text if before else ""
        if token.kind == "name":
            yield Part("code", token.start, token.end)
        elif token.kind == "comment":
            yield Part("comment", token.start, token.end)
        elif token.kind == "string":
            if exported or branch_depth or _is_attribute_name(before):
                yield Part("fragment" if branch_depth else "code", token.start, token.end)
            elif line in docstrings and last not in ("=", "(", ","):
                yield Part("docstring", token.start, token.end)
            else:
                yield from _string_parts(token)
        elif token.text in "([{":
            depth += 1
            if last == "Branch" and token.text == "(":
                branch_depth = branch_depth or depth
            exported = exported or (token.text == "[" and "__all__" in [one.text for one in before[-3:]])
        elif token.text in ")]}":
            branch_depth = 0 if depth == branch_depth else branch_depth
            depth -= 1
            exported = exported and token.text != "]"
        before = [*before[-5:], token]


def _is_attribute_name(before: list[Token]) -> bool:
    """Whether the string is an argument like that of `getattr(topic, "…")`."""
    return any(token.text in _ATTRIBUTE_FUNCTIONS for token in before)


def _string_parts(token: Token) -> Iterator[Part]:
    """Yield the text of a literal, and code and text of an f-string by turns."""
    quote = min(at for at in (token.text.find('"'), token.text.find("'")) if at >= 0)
    prefix = token.text[:quote].lower()
    size = 3 if token.text[quote : quote + 3] in ('"""', "'''") else 1
    start, end = token.start + quote + size, token.end - size
    content = token.text[quote + size : len(token.text) - size]
    if "f" not in prefix:
        yield Part("name string" if _NAME.fullmatch(content) else "string", start, end)
        return
    for text_start, text_end, is_code in _split_f_string(content):
        words = re.finditer(r"[^\W\d]\w*", content[text_start:text_end]) if is_code else ()
        yield from (Part("code", start + text_start + word.start(), start + text_start + word.end()) for word in words)
        if not is_code:
            yield Part("string", start + text_start, start + text_end)


def _split_f_string(content: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start, end and whether it is code, of the texts between braces and between nested quotes."""
    depth = at = position = 0
    while found := (_IN_BRACES if depth else _IN_TEXT).search(content, position):
        position = found.end()
        if not depth and len(found[0]) == 2:
            continue
        yield at, found.start(), depth > 0
        at = position
        depth += {"{": 1, "}": -1}.get(found[0], 0)
    yield at, len(content), depth > 0


def _mutant_parts(text: str) -> Iterator[Part]:
    head = text.find("[[change]]")
    yield Part("document", 0, head)
    for value in _VALUE.finditer(text, head):
        yield Part("fragment", *value.span(1))


def _markdown_parts(text: str) -> Iterator[Part]:
    """Yield blocks of code and code in backticks as marked, and the text between them."""
    at = 0
    for found in re.finditer(r"^```.*?^```|^    \S[^\n]*|`[^`\n]+`", text, re.DOTALL | re.MULTILINE):
        yield Part("document", at, found.start())
        yield Part("marked", *found.span())
        at = found.end()
    yield Part("document", at, len(text))
