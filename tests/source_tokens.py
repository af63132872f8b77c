"""Split Python source into tokens, whole files and fragments alike.

The standard library's `tokenize` needs balanced brackets, and splits f-strings from Python 3.12 on. This lexer takes
any piece of source that doesn't begin inside a string. An f-string is one token, and each character of an operator is
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

__all__ = ["CLOSING_BRACKETS", "Kind", "Token", "code_tokens", "tokens"]

Kind = Literal["string", "comment", "name", "number", "operator"]

_TOKEN: Final = re.compile(
    r'''(?P<string>(?i:[bfru]{0,2})(?:"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))'''
    r"""|(?P<comment>\#[^\n]*)"""
    r"""|(?P<name>[^\W\d]\w*)"""
    r"""|(?P<number>\d[\w.]*|\.\d[\w.]*)"""
    r"""|(?P<operator>[^\s\w\\])""",
    re.DOTALL,
)
CLOSING_BRACKETS: Final = frozenset(")]}")


class Token(NamedTuple):
    kind: Kind
    text: str
    # Offsets in the source.
    start: int
    end: int


def tokens(source: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Yield the tokens between two offsets. Line breaks, indentation and backslashes at line ends are none."""
    for match in _TOKEN.finditer(source, start, len(source) if end is None else end):
        kind: Kind = match.lastgroup  # type: ignore[assignment]
        yield Token(kind, match[0], match.start(), match.end())


def code_tokens(source: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the tokens without comments and trailing commas, which formatting may add and remove."""
    found: list[Token] = []
    for token in tokens(source, start, end):
        if token.kind == "comment":
            continue
        if token.text in CLOSING_BRACKETS and found and found[-1].text == ",":
            found.pop()
        found.append(token)
    return found
