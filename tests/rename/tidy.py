"""Leave the tree as `ruff check` and `ruff format` want it: imports sorted, code formatted, long comments wrapped."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.rename.tree import docstring_lines
from tests.source_tokens import tokens

__all__ = ["tidy", "wrap_long_lines"]

WIDTH: Final = 120
_DIRECTIVE: Final = re.compile(r"# (type|noqa|pragma|fmt|mypy|ruff)\b")


def tidy(root: Path, changed: Sequence[Path]) -> str:
    """Tidy the Python files, and return what `ruff check` still finds in them."""
    files = [str(path) for path in changed if path.suffix in (".py", ".pyi")]
    if not files:
        return ""
    fixes = ["check", "--quiet", "--fix", "--select", "I,RUF022"]
    for arguments in (fixes, ["format", "--quiet"]):
        _ruff(root, [*arguments, "--force-exclude", *files])
    for path in map(Path, files):
        path.write_text(wrap_long_lines(path.read_text()))
    return _ruff(root, ["check", "--quiet", "--output-format", "concise", "--force-exclude", *files])


def _ruff(root: Path, arguments: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments], cwd=root, check=False, capture_output=True, text=True
    )
    return (done.stdout + done.stderr).strip()


def wrap_long_lines(text: str) -> str:
    """Move words of comments and docstrings that are beyond the width to the next line, or to a new one."""
    lines = _above_their_lines(text).split("\n")
    in_docstring = docstring_lines("\n".join(lines))
    at = 0
    while at < len(lines):
        line = lines[at]
        if len(line) > WIDTH and (found := re.match(r"( *)(# )?", line)) and (found[2] or at + 1 in in_docstring):
            lead = found[0]
            cut = line.rfind(" ", len(lead), WIDTH + 1)
            if cut > len(lead):
                rest = line[cut + 1 :]
                lines[at] = line[:cut].rstrip()
                following = lines[at + 1] if at + 1 < len(lines) else ""
                if _continues(following, lead, is_comment=bool(found[2])) and '"""' not in rest:
                    lines[at + 1] = f"{lead}{rest} {following[len(lead) :]}"
                else:
                    lines.insert(at + 1, lead + rest)
                    in_docstring = docstring_lines("\n".join(lines))
        at += 1
    return "\n".join(lines)


def _above_their_lines(text: str) -> str:
    """Put comments behind code above it where the line is too long."""
    for token in reversed(list(tokens(text))):
        line_start = text.rfind("\n", 0, token.start) + 1
        code = text[line_start : token.start].rstrip()
        if token.kind == "comment" and token.end - line_start > WIDTH and code and not _DIRECTIVE.match(token.text):
            indentation = code[: len(code) - len(code.lstrip())]
            text = f"{text[:line_start]}{indentation}{token.text}\n{code}{text[token.end :]}"
    return text


def _continues(line: str, lead: str, *, is_comment: bool) -> bool:
    """Whether the line goes on with a paragraph whose lines begin with `lead`."""
    text = line[len(lead) :]
    return line.startswith(lead) and bool(re.match(r'[^\s"\-*|>#]', text)) and (is_comment or not text.startswith("#"))
