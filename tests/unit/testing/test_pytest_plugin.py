"""The pytest plugin: its imports, its documentation, and its errors if a library is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_cli.child_environment import source_roots
from magnetar_testing.clock import ManualClock
from magnetar_testing.in_process_broker import InProcessBroker
from magnetar_testing.pytest_plugin import StartBroker
from magnetar_wire.clock import Clock

_FIXTURES = (
    *("magnetar_broker", "magnetar_client", "magnetar_topic", "magnetar_empty_broker", "magnetar_start_broker"),
    *("magnetar_standalone", "magnetar_start_standalone", "magnetar_cluster", "magnetar_start_cluster"),
    *("magnetar_clock", "magnetar_settings", "magnetar_cluster_options"),
)


def _pytest(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one file with the plugin and no other."""
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "magnetar_testing.pytest_plugin", *options]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(source_roots()),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_project_without_magnetar_imports_nothing_of_it(tmp_path: Path) -> None:
    test = """
import sys

def test_nothing_is_imported(request):
    ours = {name for name in sys.modules if name.startswith("magnetar")}
    assert ours == {"magnetar_testing", "magnetar_testing.pytest_plugin"}
    assert not {"grpc", "google.protobuf", "pydantic", "asyncio"} & set(sys.modules)
    assert not [name for name in request.fixturenames if name.startswith("magnetar")]
"""
    ended = _pytest(tmp_path, test)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


def test_each_fixture_is_documented(tmp_path: Path) -> None:
    shown = _pytest(tmp_path, "", "--fixtures").stdout.splitlines()
    docs = {line.split()[0]: shown[number + 1] for number, line in enumerate(shown) if line.startswith("magnetar_")}
    assert set(docs) == set(_FIXTURES)
    assert [name for name, doc in docs.items() if not doc.startswith("    ") or "no docstring" in doc] == []
    page = (Path(__file__).parents[3] / "deploy" / "testing.md").read_text()
    assert [name for name in _FIXTURES if f"`{name}`" not in page and f"`{name}(" not in page] == []


def test_missing_extra_error_names_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rocksdict":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
""")
    ended = _pytest(tmp_path, "def test_it(magnetar_broker): pass")
    assert ended.returncode == 1
    assert "need rocksdict, which the extra 'testing' installs: run `pip install '.[testing]'`" in ended.stdout
    assert "Traceback" not in ended.stdout


def test_import_bug_is_not_reported_as_a_missing_extra(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['magnetar_testing.in_process_broker'] = None\n")
    ended = _pytest(tmp_path, "def test_it(magnetar_broker): pass")
    assert ended.returncode == 1
    assert "'testing'" not in ended.stdout


@pytest.mark.parametrize("name", ["a/b c", "ü" * 200])
def test_topics_have_valid_names(magnetar_topic: str, name: str) -> None:
    from magnetar_wire.topic_name import TopicName

    assert str(TopicName.parse(magnetar_topic)) == magnetar_topic
    assert len(magnetar_topic) < 150


def test_the_clock_is_one_of_ours(magnetar_clock: ManualClock) -> None:
    clock: Clock = magnetar_clock
    rung: list[float] = []
    clock.call_later(2, lambda: rung.append(clock.monotonic()))
    began = clock.monotonic()
    magnetar_clock.advance(1)
    assert rung == []
    magnetar_clock.advance(5)
    assert rung == [began + 2]


def test_brokers_of_one_test_are_apart(
    magnetar_start_broker: StartBroker, magnetar_empty_broker: InProcessBroker
) -> None:
    one, other = magnetar_empty_broker, magnetar_start_broker()
    assert len({one.service_url, one.pulsar_url, one.http_url, other.service_url}) == 4
    with one.admin() as admin, one.client() as client:
        client.create_producer("t").close()
        assert len(admin.topics.list("public/default")) == 1
    with other.admin() as admin:
        assert admin.topics.list("public/default") == []
