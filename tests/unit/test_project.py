"""The project's own order: who imports whom, generated code in step, documents without dead links."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.unit.import_circles import find_circles
from tests.unit.import_rules import RULES, modules, source_roots, violations

PROJECT = Path(__file__).resolve().parents[2]


def test_packages_and_rules_import_only_allowed_modules() -> None:
    roots = source_roots(PROJECT)
    assert roots
    assert modules(PROJECT, roots).keys() >= RULES
    assert violations(PROJECT, roots) == []


# How many circles of modules that import each other are left in a package. A number may only fall.
_CIRCLES_LEFT: Final = {
    "magnetar_bookie": 1,
    "magnetar_broker": 1,
    "magnetar_cli": 1,
}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """In a circle it depends on which module is imported first whether the package can be imported at all."""
    for root in source_roots(PROJECT):
        for path in sorted((PROJECT / root).iterdir()):
            if (path / "__init__.py").exists():
                circles = find_circles(path)
                assert len(circles) <= _CIRCLES_LEFT.get(path.name, 0), circles


def test_the_listeners_have_no_import_circle() -> None:
    """Handlers import no connection, so each module can be read before those that use it."""
    circles = find_circles(PROJECT / "broker/magnetar_broker")
    assert [circle for circle in circles if any("magnetar_broker.server" in name for name in circle)] == []


def test_a_circle_of_imports_is_found(tmp_path: Path) -> None:
    sources = {
        "__init__.py": "def f():\n    from thing import user",
        "user.py": "from thing.inner import part",
        "inner/__init__.py": "from thing.inner.part import Part",
        "inner/part.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import thing.other",
        "other.py": "from thing import inner",
        "late.py": "import thing.user",
    }
    for name, source in sources.items():
        path = tmp_path / "thing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert find_circles(tmp_path / "thing") == [["thing.inner", "thing.inner.part", "thing.other"]]


PLANTED = {
    "magnetar_wire/frame.py": ("import asyncio", "magnetar_wire.frame reaches asyncio through magnetar_wire.frame"),
    "magnetar_metadata/x.py": ("import magnetar_bookie.rules", "magnetar_metadata.x imports magnetar_bookie.rules"),
    "magnetar_metadata/tree.py": (
        "from magnetar_metadata import y",
        "magnetar_metadata.tree reaches time through magnetar_metadata.y",
    ),
    "magnetar_metadata/y.py": ("def f():\n    import time", None),
    "magnetar_bookie/read/ranges.py": (
        "from magnetar_metadata import store",
        "magnetar_bookie.read.ranges imports magnetar_metadata",
    ),
    "magnetar_bookie/read/other.py": ("from magnetar_bookie import rules", "magnetar_bookie.read.other imports"),
    "magnetar_bookie/rules.py": ("from magnetar_bookie.read import ranges", None),
    "magnetar_broker/counters.py": ("import magnetar\nfrom magnetar_bookie import rules", None),
    "magnetar/client.py": ("from magnetar_broker import counters", "magnetar.client imports magnetar_broker"),
    "magnetar_spark/source.py": ("from magnetar_bookie.read import ranges", None),
    "magnetar_spark/sink.py": ("from magnetar_bookie import rules", "magnetar_spark.sink imports magnetar_bookie"),
    "magnetar_bookie/cli.py": ("import magnetar_cli", "magnetar_bookie.cli imports magnetar_cli"),
    "magnetar_cli/all.py": ("import magnetar_broker, magnetar_spark", None),
    "magnetar_broker/fake.py": ("import magnetar_testing.metadata", "magnetar_broker.fake imports magnetar_testing"),
    "magnetar_cli/fake.py": ("from magnetar_testing import clock", "magnetar_cli.fake imports magnetar_testing"),
    "magnetar_testing/x.py": ("import magnetar_cli, magnetar_broker, magnetar", None),
    "magnetar_utils/x.py": ("", "the package magnetar_utils is not in the table"),
    "magnetar_wire/typing_only.py": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", None),
    "magnetar_wire/relative.py": ("from .clock import Clock", "magnetar_wire.relative reaches time"),
    "magnetar_wire/clock.py": ("import time", None),
    "magnetar_broker/server/pulsar/lookup.py": (
        "def f():\n    from magnetar_broker.server.grpc import lookup",
        "magnetar_broker.server.pulsar.lookup imports magnetar_broker.server.grpc.lookup: the packages stand apart",
    ),
    "magnetar_broker/server/grpc/lookup.py": ("from magnetar_broker.server import context", None),
    "magnetar_broker/server/context.py": ("", None),
    "magnetar_broker/topics/topic.py": ("from magnetar_broker.cursors import cursor", None),
    "magnetar_broker/cursors/cursor.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from magnetar_broker.topics.topic import Topic",
        "magnetar_broker.cursors.cursor imports magnetar_broker.topics.topic: its layer is not below that of cursors",
    ),
    "magnetar/_producing/batch.py": (
        "from magnetar._letters import letters",
        "magnetar._producing.batch imports magnetar._letters: its layer is not below that of _producing",
    ),
    "magnetar/_letters/letters.py": ("from magnetar._producing import batch", None),
    "magnetar_broker/utils.py": ("", "magnetar_broker.utils: utils is in no layer of magnetar_broker"),
}


def test_import_rules_detect_violations(tmp_path: Path) -> None:
    for name, (source, _) in PLANTED.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    found = violations(tmp_path, ["src"])
    for expected in (expected for _, expected in PLANTED.values() if expected):
        assert any(line.startswith(expected) or expected in line for line in found), (expected, found)
    innocent = {name.removesuffix(".py").replace("/", ".") for name, (_, expected) in PLANTED.items() if not expected}
    assert not [line for line in found if line.split()[0].rstrip(":") in innocent], found


def test_every_tool_names_the_same_source_roots() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]
    roots = source_roots(PROJECT)
    assert settings["mypy"]["mypy_path"] == roots
    assert settings["pyright"]["extraPaths"] == roots
    assert settings["pytest"]["ini_options"]["pythonpath"] == [*roots, "."]
    packages = [path for root in roots for path in (PROJECT / root).iterdir() if (path / "__init__.py").exists()]
    for package in packages:
        assert (package / "py.typed").exists(), package
    shipped = settings["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(shipped) == sorted(package.relative_to(PROJECT).as_posix() for package in packages)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the pinned protobuf compiler has no wheel for this Python")
def test_generated_code_is_in_step_with_its_source(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="the protobuf compiler (grpcio-tools) is not installed")
    sys.path.insert(0, str(PROJECT / "protos"))
    try:
        from generate import generate
    finally:
        sys.path.remove(str(PROJECT / "protos"))
    written = generate(tmp_path)
    assert written
    for path in written:
        checked_in = PROJECT / "protos" / path.relative_to(tmp_path)
        same = checked_in.read_text() == path.read_text()
        assert same, f"{checked_in.name} is out of step with its source: run `python protos/generate.py`"
    stale = {path.name for path in (PROJECT / "protos/magnetar_protos").glob("*_pb2.py*")} - {p.name for p in written}
    assert not stale, f"no source makes these: {stale}"


# A line of a package's docstring that begins with a file of the package: a list of its files, which may be a tree.
_LISTED_FILE: Final = re.compile(r"^[ │├└─]*(\w+\.py)(?:$|,| {2,})", re.MULTILINE)


def test_lists_of_files_in_docstrings_of_packages_are_complete() -> None:
    incomplete = {}
    for root in source_roots(PROJECT):
        for init in sorted((PROJECT / root).rglob("__init__.py")):
            docstring = ast.get_docstring(ast.parse(init.read_text())) or ""
            files = {path.name for path in init.parent.glob("*.py")} - {"__init__.py"}
            listed = _LISTED_FILE.findall(docstring)
            missing = sorted(name for name in files if not re.search(rf"\b{re.escape(name)}", docstring))
            stale = sorted(set(listed) - files)
            if len(listed) >= 3 and (missing or stale):  # fewer are examples
                incomplete[str(init.relative_to(PROJECT))] = (missing, stale)
    assert incomplete == {}


def test_internals_of_the_client_name_each_of_its_private_folders_and_files() -> None:
    """That page is their index. Public packages are described by themselves."""
    named = (PROJECT / "client/internals.md").read_text()
    sdk = PROJECT / "client/magnetar"
    files = {*sdk.glob("_[!_]*.py"), *sdk.glob("_[!_]*/[!_]*.py")}
    assert files
    in_folders = {path for path in files if path.parent != sdk}
    missing = {path.name for path in files} - set(re.findall(r"`(?:\w+/)?(\w+\.py)`", named))
    missing |= {f"{path.parent.name}/" for path in in_folders} - set(re.findall(r"`(\w+/)`", named))
    assert sorted(missing) == []


def test_documents_have_no_dead_links() -> None:
    documents = [path for path in PROJECT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts)]
    assert documents
    dead = []
    for document in documents:
        targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
        here = [target for target in targets if "://" not in target]
        dead += [f"{document.name}: {target}" for target in here if not (document.parent / target).exists()]
    assert dead == []
