"""Real ZooKeeper servers, each ensemble started once for all tests that use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar_cli.local_java import NoJava, find_java
from magnetar_testing.local_zookeeper import LocalZooKeeper


def _started(servers: int, factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    with LocalZooKeeper(factory.mktemp(f"zookeeper-{servers}"), servers) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    """One server."""
    yield from _started(1, tmp_path_factory)


@pytest.fixture(scope="session")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    """Three servers."""
    yield from _started(3, tmp_path_factory)
