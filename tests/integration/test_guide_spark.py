"""What README.md shows from its beginning to its end, and Spark's page of the guide: in one Spark session for both.

It is run as the pages say: the environment's programs come first on the PATH, and nothing else shows Spark where its
workers and the data source are. If the installed modules are another checkout, Python gets the path of these.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar_cli.local_java import NoJava, java_home_for_spark
from magnetar_testing.standalone_process import StandaloneProcess
from tests.guide import PROJECT, SHOWN_URL, Interpreter, blocks, command_lines
from tests.running_spark import BRIEF_JAVA
from tests.shell import Shell

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("guide of Spark")]

_LONGEST_S = 240.0
# Of the tables that their queries show, without blanks: a row. README.md's command line publishes one without a key.
_SHOWN = {"README.md": "|amy|100|", "spark_connector/README.md": "|amy|249500|"}
# Where there is much to do besides, a Python worker takes its time to come up.
_PATIENT = "--conf spark.python.authenticate.socketTimeout=120s"
_SUBMIT = (
    f"--driver-java-options '{BRIEF_JAVA}' --conf spark.ui.enabled=false {_PATIENT} --master local[2] pyspark-shell"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("guide") / "data") as running:
        yield running


def _is_installed() -> bool:
    """This checkout, so that its modules are found without a path."""
    paths = [
        line for file in Path(sysconfig.get_path("purelib")).glob("*.pth") for line in file.read_text().splitlines()
    ]
    return str(PROJECT / "spark_connector") in paths


@pytest.fixture(scope="module")
def monkeypatch_of_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def interpreter(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch_of_module: pytest.MonkeyPatch
) -> Iterator[Interpreter]:
    pytest.importorskip("pyspark")
    folder = tmp_path_factory.mktemp("spark")
    try:
        java_home = java_home_for_spark(folder / "java")
    except NoJava as error:
        pytest.skip(str(error))
    environment = {
        "JAVA_HOME": str(java_home),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYSPARK_SUBMIT_ARGS": _SUBMIT,
        "SPARK_LAUNCHER_OPTS": BRIEF_JAVA,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Where they are not: what the examples say themselves goes first.
        "MAGNETAR_URL": "magnetar://localhost:1",
        "PYTHONPATH": str(PROJECT) if _is_installed() else os.pathsep.join(path for path in sys.path if path),
    }
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch_of_module.delenv(name, raising=False)
    with Interpreter(folder, environment) as process:
        yield process


@pytest.mark.timeout(_LONGEST_S)
@pytest.mark.parametrize("document", ["README.md", "spark_connector/README.md"])
def test_spark_examples_in_document_run(
    document: str, server: StandaloneProcess, interpreter: Interpreter, tmp_path: Path
) -> None:
    """README.md is read by who has nothing yet: each of its blocks stands for itself."""
    shell = Shell(tmp_path, server)
    for block in blocks(document):
        namespace = str(block) if document == "README.md" else document
        if block.kind == "python":
            interpreter.run(block, namespace, block.text.replace(SHOWN_URL, server.service_url), _LONGEST_S)
        elif block.kind == "sh":
            for line in command_lines(block):
                shell.run(line, block)
    assert _SHOWN[document] in interpreter.printed.read_text().replace(" ", "")
