"""Fixtures for pytest, which finds them by the entry point `magnetar` of the group `pytest11`.

The plugin costs other projects nothing: this module imports pytest only, no fixture is used unless a test requests it,
and the imports of a fixture are made then.

Fixtures of the scope "session" are shared by all tests of a run (with pytest-xdist: of a worker). Tests that share them
don't interfere if each uses a topic of its own (`magnetar_topic`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    import magnetar
    from magnetar_cli.cluster import LocalCluster
    from magnetar_testing.clock import ManualClock
    from magnetar_testing.in_process_broker import InProcessBroker
    from magnetar_testing.standalone_process import StandaloneProcess

__all__ = ["StartBroker", "StartCluster", "StartStandalone"]


class StartBroker(Protocol):
    """The type of `magnetar_start_broker`."""

    def __call__(self, **settings: Any) -> InProcessBroker: ...


class StartStandalone(Protocol):
    """The type of `magnetar_start_standalone`."""

    def __call__(self, **settings: Any) -> StandaloneProcess: ...


class StartCluster(Protocol):
    """The type of `magnetar_start_cluster`."""

    def __call__(self, bookies: int = 3, brokers: int = 2, **options: Any) -> LocalCluster: ...


@pytest.fixture(scope="session")
def magnetar_settings() -> dict[str, Any]:
    """Settings of the shared broker and standalone; override this fixture in conftest.py to set any."""
    return {}


@pytest.fixture(scope="session")
def magnetar_broker(magnetar_settings: dict[str, Any]) -> Iterator[InProcessBroker]:
    """A broker in this process, shared by all tests: it has service_url, client(), aio_client(), admin() and more.

    Tests use topics of their own (`magnetar_topic`), and don't stop the broker.
    """
    with _extra_installed():
        from magnetar_testing.in_process_broker import InProcessBroker

        broker = InProcessBroker(**magnetar_settings).start()
    with contextlib.closing(broker):
        yield broker


@pytest.fixture
def magnetar_client(magnetar_broker: InProcessBroker) -> Iterator[magnetar.Client]:
    """A client of `magnetar_broker`, closed after the test."""
    with magnetar_broker.client() as client:
        yield client


@pytest.fixture
def magnetar_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test and no other run uses: persistent://public/default/TEST-RANDOM."""
    import secrets

    test = re.sub(r"\W+", "-", request.node.name).strip("-")[:60]
    return f"persistent://public/default/{test}-{secrets.token_hex(8)}"


@pytest.fixture
def magnetar_start_broker() -> Iterator[StartBroker]:
    """Start a broker in this process for this test alone: magnetar_start_broker(max_message_size=1000)."""
    with contextlib.ExitStack() as brokers:

        def start(**settings: Any) -> InProcessBroker:
            with _extra_installed():
                from magnetar_testing.in_process_broker import InProcessBroker

                broker = InProcessBroker(**settings)
                brokers.callback(broker.close)
                return broker.start()

        yield start


@pytest.fixture
def magnetar_empty_broker(magnetar_start_broker: StartBroker) -> InProcessBroker:
    """A broker in this process for this test alone: empty at first, and the test may stop and start it."""
    return magnetar_start_broker()


@pytest.fixture(scope="session")
def magnetar_standalone(
    magnetar_settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneProcess]:
    """A broker in a process of its own (`magnetar standalone`), shared by all tests: don't kill it."""
    with _extra_installed():
        from magnetar_testing.standalone_process import StandaloneProcess
    folder = tmp_path_factory.mktemp("magnetar-standalone")
    with StandaloneProcess(folder / "data", **magnetar_settings) as server:
        yield server


@pytest.fixture
def magnetar_start_standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartStandalone]:
    """Start `magnetar standalone` for this test alone, with settings; the test may kill() and start() it again."""
    with contextlib.ExitStack() as servers:

        def start(**settings: Any) -> StandaloneProcess:
            with _extra_installed():
                from magnetar_testing.standalone_process import StandaloneProcess
            folder = tmp_path_factory.mktemp("magnetar-standalone")
            return servers.enter_context(StandaloneProcess(folder / "data", **settings))

        yield start


@pytest.fixture(scope="session")
def magnetar_cluster_options() -> dict[str, Any]:
    """Arguments of the shared cluster; override this fixture in conftest.py: {'bookies': 5}."""
    return {}


@pytest.fixture(scope="session")
def magnetar_cluster(
    magnetar_cluster_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """ZooKeeper, three bookies and two brokers as processes, shared by all tests: don't stop any. Skip without Java."""
    with _extra_installed():
        from magnetar_testing.quick_cluster import running_cluster
    options = {"bookies": 3, "brokers": 2, **magnetar_cluster_options}
    with running_cluster(tmp_path_factory.mktemp("magnetar-cluster"), **options) as cluster:
        yield cluster


@pytest.fixture
def magnetar_start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCluster]:
    """Start a cluster for this test alone: magnetar_start_cluster(bookies=3, brokers=2). Skip without Java."""
    with contextlib.ExitStack() as clusters:

        def start(bookies: int = 3, brokers: int = 2, **options: Any) -> LocalCluster:
            with _extra_installed():
                from magnetar_testing.quick_cluster import running_cluster
            folder = tmp_path_factory.mktemp("magnetar-cluster")
            return clusters.enter_context(running_cluster(folder, bookies, brokers, **options))

        yield start


@pytest.fixture
def magnetar_clock() -> ManualClock:
    """A clock that stands still until the test calls advance(seconds); it is a magnetar_wire.clock.Clock."""
    from magnetar_testing.clock import ManualClock

    return ManualClock()


@contextlib.contextmanager
def _extra_installed() -> Iterator[None]:
    """Explain how to install a missing library, instead of raising a traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not module or module.startswith("magnetar"):
            raise
        pytest.fail(
            f"Magnetar's fixtures need {module}, which the extra 'testing' installs: "
            "run `pip install '.[testing]'` in Magnetar's source folder",
            pytrace=False,
        )
