"""Settings of Hypothesis, of the garbage collector, of the processes that tests start, and of which tests are fast.

Warnings are errors in the processes that tests start, too.
"""

from __future__ import annotations

import gc
import signal
from typing import TYPE_CHECKING

import pytest

from magnetar_testing import pytest_plugin
from magnetar_testing.standalone_process import StandaloneProcess
from tests.examples import register_profiles
from tests.xdist_groups import in_fast_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.xdist_groups import GroupScheduling

register_profiles()
StandaloneProcess.python_options = ("-W", "error")


@pytest.fixture(scope="session")
def magnetar_broker() -> None:
    """Refuse the shared broker in this process: some tests fork, which gRPC's servers don't survive."""
    pytest.fail("use magnetar_empty_broker, which is closed with its test, or magnetar_standalone", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Use the plugin also where Magnetar was installed before the plugin had an entry point.

    A shell's background job ignores SIGINT, and so would the processes that tests start there and interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "magnetar")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if not in_fast_folder(item.path.relative_to(config.rootpath)):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect tests without collecting garbage, and exempt what was imported from all later collections.

    The modules and tests are a million objects that live until the end: each full collection takes 0.3 s with them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling | None:
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.xdist_groups import GroupScheduling

    return GroupScheduling(config, log)
