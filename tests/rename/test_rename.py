"""Identifiers are renamed and modules are moved in a small tree, and what can't be followed is refused or reported."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rename.identifiers import CannotRename, is_english_word, rename_identifier
from tests.rename.modules import move_module
from tests.rename.tidy import tidy, wrap_long_lines

SETTINGS = """
[tool.hatch.build]
dev-mode-dirs = ["protos", "broker"]
[tool.hatch.build.targets.wheel]
packages = ["broker/magnetar_broker"]
[tool.ruff]
line-length = 120
"""
SEEK = '''"""How `check_seek` decides: check_seek_of is another."""

from magnetar_broker.core import limits
from magnetar_broker.core.errors import StaleSeek

__all__ = ["Seek", "check_seek"]


class Seek:
    take: int = limits.MOST

    def check_seek(self, check_seek=None):  # check_seek may be None
        limits = getattr(self, "check_seek")
        return {"check_seek": limits, "x": f"of {check_seek!r}: {self.take()} check_seek, {{check_seek}}"}
'''
FILES = {
    "pyproject.toml": SETTINGS,
    "broker/magnetar_broker/__init__.py": "",
    "broker/magnetar_broker/core/__init__.py": "",
    "broker/magnetar_broker/core/errors.py": "class StaleSeek(Exception): ...\n",
    "broker/magnetar_broker/core/limits.py": "MOST = 5\n",
    "broker/magnetar_broker/seek.py": SEEK,
    "broker/magnetar_broker/seek_pb2.py": "check_seek = 1\n",
    "broker/magnetar_broker/seek.proto": "// check_seek, see broker/magnetar_broker/seek.py\nuint64 check_seek = 1;\n",
    "broker/magnetar_broker/protocol.md": (
        "# Seeks\n`check_seek` and check_seek; `Seek.take`; take it. See [seek](seek.py), `magnetar_broker/seek.py`,\n"
        "core/limits.py, ../magnetar_broker/core/limits.py and other/core/limits.py; `core/`; `core`; `--check-seek`.\n"
        "`seek:Seek`; limits.py\n"
    ),
    "README.md": "[seek](broker/magnetar_broker/seek.py) and [how](broker/magnetar_broker/protocol.md#seeks)\n",
    "tests/mutants/a_seek.toml": (
        'breaks = "SUB-9: check_seek is broken"\nworld = "service"\n\n[[change]]\n'
        "in = \"magnetar_broker.seek:Seek.check_seek\"\nreplace = \"check_seek!r\"\nby = '''\ncheck_seek\ntake\n'''\n"
    ),
    "tests/test_seek.py": (
        "import magnetar_broker.seek\nfrom magnetar_broker import seek\n"
        "from tests.sim.reach import Branch\n\n"
        'BRANCHES = [Branch("seek:Seek.check_seek", "x\\ncheck_seek!r"), Branch("seek:Seek", "take")]\n'
        "seek.Seek().check_seek(check_seek=1)\nmagnetar_broker.seek.Seek()\nprint(f'{seek.Seek}')\n"
    ),
    "tests/data.json": '{"check_seek": "magnetar_broker.seek"}\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for arguments in (["init", "-q"], ["add", "-A"]):
        subprocess.run(
            ["git", *arguments], cwd=tmp_path, check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        )
    return tmp_path


def read(tree: Path, name: str) -> str:
    return (tree / name).read_text()


def test_a_name_is_renamed_in_code_and_in_all_that_speaks_of_it(tree: Path) -> None:
    report = rename_identifier(tree, "check_seek", "verify_seek")
    assert read(tree, "broker/magnetar_broker/seek.py") == (
        SEEK.replace("check_seek", "verify_seek").replace("verify_seek_of", "check_seek_of")
    )
    assert read(tree, "broker/magnetar_broker/protocol.md") == (
        FILES["broker/magnetar_broker/protocol.md"].replace("check_seek", "verify_seek")
    )
    mutant = FILES["tests/mutants/a_seek.toml"]
    assert read(tree, "tests/mutants/a_seek.toml") == mutant.replace("check_seek", "verify_seek")
    assert 'Branch("seek:Seek.verify_seek", "x\\nverify_seek!r")' in read(tree, "tests/test_seek.py")
    assert read(tree, "broker/magnetar_broker/seek.proto") == (
        FILES["broker/magnetar_broker/seek.proto"].replace("// check_seek", "// verify_seek")
    )
    for untouched in ("broker/magnetar_broker/seek_pb2.py", "tests/data.json"):
        assert read(tree, untouched) == FILES[untouched]
    assert report.counts == {
        "code": 7,
        "comments": 2,
        "docstrings": 1,
        "documents": 3,
        "mutants and branches": 5,
        "strings": 3,
    }


def test_ambiguous_uses_of_a_name_are_reported(tree: Path) -> None:
    warnings = "\n".join(rename_identifier(tree, "check_seek", "verify_seek", dry_run=True).warnings)
    assert '"check_seek" in a literal: 1 times (broker/magnetar_broker/seek.py:14)' in warnings
    assert "Code that uses these must keep the name: 1 times (broker/magnetar_broker/seek.proto:2)" in warnings
    assert "2 times (broker/magnetar_broker/seek_pb2.py, tests/data.json)" in warnings
    assert "--check-seek: 1 times (broker/magnetar_broker/protocol.md:3)" in warnings
    assert "longer names with it: 1 times (check_seek_of)" in warnings
    assert {name: read(tree, name) for name in FILES} == FILES  # a dry run


def test_a_setting_is_reported(tree: Path) -> None:
    (tree / "broker/magnetar_broker/settings.py").write_text("class TopicSettings(Base):\n    max_seeks: int = 5\n")
    report = rename_identifier(tree, "max_seeks", "most_seeks")
    assert report.warnings[0] == (
        "a setting that users' files may name: 1 times (broker/magnetar_broker/settings.py:2)"
    )


def test_an_english_word_is_renamed_where_it_is_code(tree: Path) -> None:
    report = rename_identifier(tree, "take", "acquire")
    assert "`Seek.acquire`; take it" in read(tree, "broker/magnetar_broker/protocol.md")
    assert "{self.acquire()} check_seek" in read(tree, "broker/magnetar_broker/seek.py")
    assert "check_seek\nacquire\n" in read(tree, "tests/mutants/a_seek.toml")
    assert 'Branch("seek:Seek", "acquire")' in read(tree, "tests/test_seek.py")
    assert any("protocol.md:2" in warning for warning in report.warnings)
    assert is_english_word("Room")
    assert not any(map(is_english_word, ("_room", "has_room", "RoomList", "room2")))


def test_a_name_is_renamed_in_some_files_and_in_their_fragments(tree: Path) -> None:
    (tree / "other.py").write_text("take = 1\n")
    rename_identifier(tree, "take", "acquire", within=["broker"])
    assert read(tree, "other.py") == "take = 1\n"
    assert "check_seek\nacquire\n" in read(tree, "tests/mutants/a_seek.toml")
    assert 'Branch("seek:Seek", "acquire")' in read(tree, "tests/test_seek.py")
    rename_identifier(tree, "acquire", "accept", within=["other.py"])
    assert "check_seek\nacquire\n" in read(tree, "tests/mutants/a_seek.toml")


def test_a_name_in_use_is_refused(tree: Path) -> None:
    with pytest.raises(CannotRename, match=r"limits is in use where take is, in broker/magnetar_broker/seek\.py"):
        rename_identifier(tree, "take", "limits")
    assert {name: read(tree, name) for name in FILES} == FILES
    assert rename_identifier(tree, "take", "limits", force=True).counts["code"] == 2
    with pytest.raises(CannotRename, match="'a b' is no identifier"):
        rename_identifier(tree, "take", "a b")


def test_a_module_is_moved_and_followed(tree: Path) -> None:
    report = move_module(tree, "magnetar_broker.seek", "magnetar_broker.subscriptions.seeking")
    assert not (tree / "broker/magnetar_broker/seek.py").exists()
    assert read(tree, "broker/magnetar_broker/subscriptions/seeking.py") == SEEK
    assert (tree / "broker/magnetar_broker/subscriptions/__init__.py").exists()
    assert read(tree, "tests/test_seek.py") == (
        "import magnetar_broker.subscriptions.seeking\nfrom magnetar_broker.subscriptions import seeking\n"
        "from tests.sim.reach import Branch\n\n"
        'BRANCHES = [Branch("seeking:Seek.check_seek", "x\\ncheck_seek!r"), Branch("seeking:Seek", "take")]\n'
        "seeking.Seek().check_seek(check_seek=1)\nmagnetar_broker.subscriptions.seeking.Seek()\nprint(f'{seeking.Seek}')\n"
    )
    assert 'in = "magnetar_broker.subscriptions.seeking:Seek.check_seek"' in read(tree, "tests/mutants/a_seek.toml")
    assert "[seek](subscriptions/seeking.py), `magnetar_broker/subscriptions/seeking.py`" in (
        read(tree, "broker/magnetar_broker/protocol.md")
    )
    assert read(tree, "README.md").startswith(
        "[seek](broker/magnetar_broker/subscriptions/seeking.py) and [how](broker/"
    )
    assert "see broker/magnetar_broker/subscriptions/seeking.py" in read(tree, "broker/magnetar_broker/seek.proto")
    assert "`seeking:Seek`" in read(tree, "broker/magnetar_broker/protocol.md")
    assert report.counts["files moved"] == 1
    assert "not changed: tests/data.json names magnetar_broker.seek" in report.warnings


def test_a_module_is_moved_to_below_its_own_name(tree: Path) -> None:
    move_module(tree, "magnetar_broker.seek", "magnetar_broker.seek.rules")
    assert read(tree, "broker/magnetar_broker/seek/rules.py") == SEEK
    assert read(tree, "tests/test_seek.py").startswith(
        "import magnetar_broker.seek.rules\nfrom magnetar_broker.seek import rules\n"
    )
    assert 'in = "magnetar_broker.seek.rules:Seek.check_seek"' in read(tree, "tests/mutants/a_seek.toml")
    with pytest.raises(CannotRename, match="below itself"):
        move_module(tree, "magnetar_broker.core", "magnetar_broker.core.rules")


def test_a_package_is_moved_with_its_modules(tree: Path) -> None:
    report = move_module(tree, "magnetar_broker.core", "magnetar_broker.rules")
    seek = read(tree, "broker/magnetar_broker/seek.py")
    assert "from magnetar_broker.rules import limits\nfrom magnetar_broker.rules.errors import StaleSeek\n" in seek
    assert "\nrules/limits.py, ../magnetar_broker/rules/limits.py and other/core/limits.py" in (
        read(tree, "broker/magnetar_broker/protocol.md")
    )
    assert "`rules/`; `core`;" in read(tree, "broker/magnetar_broker/protocol.md")
    assert any(warning.endswith("not changed: broker/magnetar_broker/protocol.md:3") for warning in report.warnings)
    assert sorted(path.name for path in (tree / "broker/magnetar_broker/rules").iterdir()) == (
        ["__init__.py", "errors.py", "limits.py"]
    )


def test_imported_name_with_another_meaning_is_preserved(tree: Path) -> None:
    report = move_module(tree, "magnetar_broker.core.limits", "magnetar_broker.core.bounds")
    assert "from magnetar_broker.core import bounds as limits\n" in read(tree, "broker/magnetar_broker/seek.py")
    assert any("keeps the name limits" in warning for warning in report.warnings)
    assert read(tree, "broker/magnetar_broker/protocol.md").endswith("; bounds.py\n")


def test_a_file_name_that_others_have_too_is_reported(tree: Path) -> None:
    (tree / "tests/limits.py").touch()
    report = move_module(tree, "magnetar_broker.core.limits", "magnetar_broker.core.bounds")
    assert read(tree, "broker/magnetar_broker/protocol.md").endswith("; limits.py\n")
    assert any("not changed: broker/magnetar_broker/protocol.md:4" in warning for warning in report.warnings)


def test_an_import_of_several_modules_is_split(tree: Path) -> None:
    path = tree / "broker/magnetar_broker/other.py"
    path.write_text("def f():\n    from magnetar_broker.core import errors, limits\n    return limits.MOST, errors\n")
    move_module(tree, "magnetar_broker.core.limits", "magnetar_broker.bounds")
    assert path.read_text() == (
        "def f():\n    from magnetar_broker.core import errors\n    from magnetar_broker import bounds\n"
        "    return bounds.MOST, errors\n"
    )


def test_a_move_that_can_not_be_followed_is_refused(tree: Path) -> None:
    with pytest.raises(CannotRename, match="there is no module magnetar_broker"):
        move_module(tree, "magnetar_broker.sek", "magnetar_broker.seeking")
    with pytest.raises(CannotRename, match="is there already"):
        move_module(tree, "magnetar_broker.seek", "magnetar_broker.core.limits")
    (tree / "broker/magnetar_broker/core/more.py").write_text("from . import limits\n")
    with pytest.raises(CannotRename, match="make them absolute"):
        move_module(tree, "magnetar_broker.seek", "magnetar_broker.seeking")
    assert {name: read(tree, name) for name in FILES} == FILES


def test_changed_files_are_sorted_formatted_and_wrapped(tree: Path) -> None:
    path = tree / "broker" / "magnetar_broker" / "wide.py"
    comment = f"    # {'word ' * 22}continued\n    # and more\n"
    path.write_text(f"from b import x\nfrom a import y\n\n\ndef f( z ):\n{comment}    return x, y\n")
    assert tidy(tree, [path]) == ""
    comment = f"    # {'word ' * 22}\n    # continued and more\n".replace(" \n", "\n")
    assert path.read_text() == f"from a import y\nfrom b import x\n\n\ndef f(z):\n{comment}    return x, y\n"


def test_long_comments_and_docstrings_are_wrapped() -> None:
    words = "word " * 22
    assert wrap_long_lines(f'def f():\n    """{words}continued."""\n') == (
        f'def f():\n    """{words.strip()}\n    continued."""\n'
    )
    assert (
        wrap_long_lines(f"    # {words}mores\n    # next\n\n# x\n")
        == f"    # {words.strip()}\n    # mores next\n\n# x\n"
    )
    assert (
        wrap_long_lines(f"    # {words}mores\n    # - next\n") == f"    # {words.strip()}\n    # mores\n    # - next\n"
    )
    assert wrap_long_lines(f"    x = 1  # {words}x\n") == f"    # {words}x\n    x = 1\n"
