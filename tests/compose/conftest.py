"""One project for all tests of this folder; where one of them fails, its containers' logs stand below the failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.compose_project import ComposeProject


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    with ComposeProject.made(tmp_path_factory.mktemp("compose")) as project:
        yield project


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    report = yield
    project = getattr(item, "funcargs", {}).get("project")
    if report.failed and report.when == "call" and project is not None:
        report.sections.append(("containers' logs", project.logs()))
    return report
