"""Places in source are found by name and fragment after code is moved and formatted, and refused if ambiguous."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

from tests.source_locations import FragmentNotFound, Sources
from tests.source_tokens import tokens

PROJECT = Path(__file__).resolve().parents[2]

LEDGER = '''
import functools

LIMIT = max(
    2,
    3,  # not two
)


class Ledger:
    size: int = 5

    @functools.lru_cache(maxsize=8)
    def add(self, entries, *, sync=False):
        """Add them."""
        def one(entry):
            return self.store(entry)
        total = [one(entry) for entry in entries]
        if sync or \\
                self.always_sync:
            self.log.sync(
                "ä",
                total,
            )
        return total

    @property
    def state(self):
        return self._state

    @state.setter
    def state(self, value):
        self._state = value


if LIMIT:
    async def close(ledger):
        await ledger.close(); return f"{ledger.size!r}, {LIMIT}"
'''


def tree(folder: Path, **files: str) -> Sources:
    for name, text in files.items():
        path = folder.joinpath("product", *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources(folder, ["product"])


def line_of(sources: Sources, name: str, fragment: str) -> str:
    location = sources.find(name, fragment)
    return location.module.text.split("\n")[location.last_line - 1].strip()


@pytest.mark.parametrize(
    ("name", "fragment", "line"),
    [
        ("Ledger.add", "total = [one(entry) for entry in entries]", "total = [one(entry) for entry in entries]"),
        # Nested functions belong to the outer one, and have a name of their own.
        ("Ledger.add", "self.store", "return self.store(entry)"),
        ("Ledger.add.one", "return self.store(entry)", "return self.store(entry)"),
        # Decorators belong to what they decorate.
        ("Ledger.add", "maxsize = 8", "@functools.lru_cache(maxsize=8)"),
        # Line breaks, indentation, comments and trailing commas don't count; the last line of the fragment does.
        ("Ledger.add", "if sync or self.always_sync: self.log.sync", "if sync or \\"),
        ("Ledger.add", "if sync or self.always_sync:\n  self.log.sync(", "self.log.sync("),
        ("Ledger.add", 'self.log.sync("ä", total)', "self.log.sync("),
        ("Ledger.add", 'self.log.sync(\n"ä",  # a comment\ntotal,)', "total,"),
        ("Ledger.add", "total,", "total,"),
        # A class body, a module level, and what is below an `if`.
        ("Ledger", "size: int = 5", "size: int = 5"),
        ("core.ledger:", "max(2, 3)", "LIMIT = max("),
        ("close", 'return f"{ledger.size!r}, {LIMIT}"', 'await ledger.close(); return f"{ledger.size!r}, {LIMIT}"'),
        # A property and its setter share a name.
        ("Ledger.state", "return self._state", "return self._state"),
        ("Ledger.state", "self._state = value", "self._state = value"),
    ],
)
def test_source_line_is_found_by_name_and_fragment(name: str, fragment: str, line: str, tmp_path: Path) -> None:
    assert line_of(tree(tmp_path, core__ledger=LEDGER), name, fragment) == line


@pytest.mark.parametrize(
    ("name", "fragment", "message"),
    [
        ("Ledger.add", "self.delete(entry)", "0 times"),
        ("Ledger.add", "total = [one(entry) for entry in entries if entry]", "0 times"),
        ("Ledger.add", "one(entry", "2 times"),
        ("Ledger.add", "size: int = 5", "0 times"),  # in the class, and not in the method
        ("Ledger.add", "self.always_sync,", "0 times"),
        ("Ledger.add", "not two", "0 times"),
        ("Ledger.add", " # nothing\n", "is empty"),
        ("Ledger.add", ",", "is empty"),
        ("Ledger.remove", "total", r"there is no Ledger\.remove"),
        ("add", "total", "there is no add"),
        ("other:Ledger.add", "total", "there is no other:"),
        ("edger:Ledger.add", "total", "there is no edger:"),
    ],
)
def test_ambiguous_or_missing_source_line_is_refused(name: str, fragment: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FragmentNotFound, match=message):
        tree(tmp_path, core__ledger=LEDGER).find(name, fragment)


def test_a_name_in_two_modules_needs_the_end_of_a_modules_name(tmp_path: Path) -> None:
    sources = tree(tmp_path, core__ledger="def add():\n    return 1\n", shell__ledger="def add():\n    return 2\n")
    with pytest.raises(FragmentNotFound, match=r"several of add, in product\.core\.ledger, product\.shell\.ledger"):
        sources.find("add", "return")
    with pytest.raises(FragmentNotFound, match="several of ledger:add"):
        sources.find("ledger:add", "return")
    assert line_of(sources, "shell.ledger:add", "return") == "return 2"
    assert line_of(sources, "product.core.ledger:add", "return") == "return 1"


def test_a_moved_and_reformatted_function_stays_found(tmp_path: Path) -> None:
    fragment = "return first(a, b) or second(c)"
    before = tree(tmp_path / "1", one=f"def decide(a, b, c):\n    {fragment}\n", two="")
    moved = "x = 1\n\n\ndef decide(a, b, c):\n    return first(\n        a,\n        b,  # why\n    ) or second(c)\n"
    after = tree(tmp_path / "2", one="", two=moved)
    assert line_of(before, "decide", fragment) == fragment
    assert line_of(after, "decide", fragment) == "return first("


def test_a_last_element_is_found_with_and_without_its_comma(tmp_path: Path) -> None:
    source = "def f():\n    return [\n        g(1),\n        g(2),  # last, and not least\n    ]\n"
    for text in (source, source.replace("g(2),", "g(2)")):
        sources = tree(tmp_path, m=text)
        for fragment in ("g(1),", "g(2),"):
            location = sources.find("f", fragment)
            assert text[location.start : location.end] in (fragment, "g(2)")
    assert text[location.start : location.end] == "g(2)"


def test_the_lexer_agrees_with_pythons_own() -> None:
    """Compared on a part of the product. Strings are left out: `tokenize` splits some of them."""
    paths = sorted((PROJECT / "broker" / "magnetar_broker").rglob("*.py"))[::25]
    assert len(paths) > 5
    for path in [*paths, Path(__file__)]:
        text = path.read_text()
        expected: list[str] = []
        in_string = 0
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = tokenize.tok_name[token.type]
            in_string += (kind == "FSTRING_START") - (kind == "FSTRING_END")  # from Python 3.12 on
            if kind == "OP" and not in_string:
                expected += token.string
            elif kind in ("NAME", "NUMBER", "COMMENT") and not in_string:
                expected.append(token.string)
        found = [token.text for token in tokens(text) if token.kind != "string"]
        assert found == expected, path
