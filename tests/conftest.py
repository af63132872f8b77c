"""Settings of Hypothesis and of the processes that tests start.

No test fails because an example took long, as one does on a busy machine. In servers, too, warnings are errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from magnetar_testing import pytest_plugin
from magnetar_testing.standalone_process import StandaloneProcess

if TYPE_CHECKING:
    from tests.xdist_groups import ModuleGroupScheduling

settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")
StandaloneProcess.python_options = ("-W", "error")


@pytest.fixture(scope="session")
def magnetar_broker() -> None:
    """Refuse the shared broker in this process: some tests fork, which gRPC's servers don't survive."""
    pytest.fail("use magnetar_empty_broker, which is closed with its test, or magnetar_standalone", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Use the plugin also where Magnetar was installed before the plugin had an entry point."""
    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "magnetar")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ModuleGroupScheduling | None:
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.xdist_groups import ModuleGroupScheduling

    return ModuleGroupScheduling(config, log)
