"""Requirements of each kind of installation, read from pyproject.toml, and that the code needs nothing else."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from image_requirements import list_requirements
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: Final = Path(__file__).resolve().parents[2]
ROOTS: Final = ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy")
# Modules that no bare installation has.
COMMAND_LINE: Final = ("typer", "click", "rich", "pygments")
OTHERS: Final = (
    *("kazoo", "rocksdict", "starlette", "uvicorn", "prometheus_client", "re2", "psutil", "uvloop"),
    *("pyspark", "pyarrow", "numpy"),
)


def project() -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return described


def required(*extras: str) -> set[str]:
    return {
        canonicalize_name(Requirement(one).name) for one in list_requirements(PROJECT / "pyproject.toml", [*extras])
    }


def installed_with(names: set[str]) -> set[str]:
    """All distributions that come with these, by what the installed ones require."""
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(requirement.name))
    return found


def test_a_bare_installation_is_the_sdk() -> None:
    bare = required()
    assert bare == {
        "grpcio",
        "protobuf",
        "crc32c",
        "lz4",
        "zstandard",
        "cramjam",
        "mmh3",
        "pydantic",
        "fastavro",
        "typing-extensions",
    }
    assert not installed_with(bare) & {"typer", "rich", "pygments", "click"}


def test_the_server_brings_the_command_line() -> None:
    assert required("cli") - required() == {"typer", "rich"}
    assert required("cli") < required("server")
    assert {"kazoo", "rocksdict"} < required("server") - required("cli")
    assert not required("spark") & {"typer", "rich"}
    described = project()
    assert "magnetar[cli]" in described["optional-dependencies"]["server"]
    assert any(one.startswith("magnetar[server,") for one in described["optional-dependencies"]["dev"])


def test_the_pytest_plugin_is_an_entry_point_with_an_extra() -> None:
    described = project()
    assert described["entry-points"]["pytest11"] == {"magnetar": "magnetar_testing.pytest_plugin"}
    assert described["optional-dependencies"]["testing"][0] == "magnetar[server]"
    assert required("testing") - required("server") == {"pytest"}
    assert required("testing") < required("dev")


def test_grpcio_has_no_upper_bound() -> None:
    """Servers check the version (known_methods.py): a bound would conflict with other packages of an application."""
    (grpcio,) = (Requirement(one) for one in project()["dependencies"] if one.startswith("grpcio"))
    assert {one.operator for one in grpcio.specifier} == {">="}


def test_the_licence_is_named_and_included() -> None:
    described = project()
    assert described["license"] == "Apache-2.0"
    assert described["license-files"] == ["LICENSE"]
    assert "Version 2.0, January 2004" in (PROJECT / "LICENSE").read_text()
    assert "[LICENSE](LICENSE)" in (PROJECT / "README.md").read_text()
    assert not [one for one in described["classifiers"] if one.startswith("License")]  # PEP 639
    # What the images are built from has it, too.
    assert "!LICENSE" in (PROJECT / ".dockerignore").read_text().splitlines()


def python_without(modules: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` where these modules can't be imported."""
    prelude = f"""
import sys
sys.path[:0] = {[str(PROJECT / root) for root in ROOTS]!r}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
    return subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_sdk_imports_no_module_of_an_extra() -> None:
    code = """
import importlib, pkgutil
import magnetar, magnetar.aio, magnetar.admin
for module in pkgutil.walk_packages(magnetar.__path__, "magnetar."):
    importlib.import_module(module.name)
import magnetar_wire.grpc_transport
assert "magnetar_wire.grpc_transport.known_methods" not in sys.modules, "clients need no private parts of grpc.aio"
for name in magnetar.__all__:
    getattr(magnetar, name)
"""
    ended = python_without((*COMMAND_LINE, *OTHERS), code)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (["topics", "list"], COMMAND_LINE, "cli"),
        (["--version"], COMMAND_LINE, "cli"),
        (["standalone", "--ephemeral"], OTHERS, "server"),
        pytest.param(["tour", "--once"], ("pyspark", "pyarrow", "numpy"), "spark", marks=pytest.mark.slow),
    ],
)
def test_command_without_its_extra_names_the_install_command(
    arguments: list[str], missing: tuple[str, ...], extra: str
) -> None:
    code = f"""
sys.argv = ["magnetar", *{arguments!r}]
from magnetar_cli.__main__ import main
main()
"""
    ended = python_without(missing, code)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert f"pip install '.[{extra}]'" in line


def test_commands_of_clients_need_the_extra_cli_alone() -> None:
    code = """
import os
os.environ["MAGNETAR_URL"] = "ftp://no-broker"
from typer.testing import CliRunner
from magnetar_cli.command import app
for words in (["topics", "list"], ["brokers", "list"], ["bundles", "list", "public/default"], ["produce", "t", "x"],
              ["consume", "t", "-s", "s"], ["tail", "t"], ["perf", "produce", "t"]):
    ended = CliRunner().invoke(app, words)
    assert "'ftp://no-broker' does not begin" in ended.stderr, (words, ended.output, ended.exception)
"""
    ended = python_without(OTHERS, code)
    assert (ended.returncode, ended.stderr) == (0, "")
