"""Where a metadata store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar_metadata.errors import InvalidLocation, NoStore
from magnetar_metadata.location import EmbeddedLocation, ZooKeeperLocation, open_metadata, parse_location
from magnetar_metadata.store import ABSENT
from magnetar_wire.clock import SystemClock
from tests.running import run


@pytest.mark.parametrize(
    ("location", "means"),
    [
        ("zookeeper://h:1", ZooKeeperLocation("h:1")),
        ("zookeeper://a:1,b.example:2,c", ZooKeeperLocation("a:1,b.example:2,c")),
        ("zookeeper://[::1]:2181/a/b/", ZooKeeperLocation("[::1]:2181", "/a/b")),
        ("zookeeper://h:1/c?session_timeout_seconds=4", ZooKeeperLocation("h:1", "/c", session_timeout_seconds=4.0)),
        ("zookeeper://h:1?connect_timeout_seconds=2.5", ZooKeeperLocation("h:1", "/", connect_timeout_seconds=2.5)),
        ("embedded:///a/b", EmbeddedLocation(Path("/a/b"))),
        ("embedded:///with%20space", EmbeddedLocation(Path("/with space"))),
    ],
)
def test_valid_locations_are_parsed(location: str, means: object) -> None:
    assert parse_location(location) == means


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("", "it has no scheme"),
        ("localhost:2181", "the scheme 'localhost' is unknown"),
        ("etcd://h:1", "the scheme 'etcd' is unknown"),
        ("zookeeper:///chroot", "it has no server"),
        ("zookeeper://h:1,,h:2", "'' is not host:port"),
        ("zookeeper://h:0", "'h:0' is not host:port"),
        ("zookeeper://h:65536", "'h:65536' is not host:port"),
        ("zookeeper://user@h:1", "'user@h:1' is not host:port"),
        ("zookeeper://h:1/a//b", "component ''"),
        ("zookeeper://h:1/zookeeper", "reserved"),
        (
            "zookeeper://h:1?timeout=1",
            "there is no parameter 'timeout': use session_timeout_seconds or",
        ),
        ("zookeeper://h:1?session_timeout_seconds=soon", "is not a number: set a number of seconds"),
        ("zookeeper://h:1?session_timeout_seconds=0", "is out of range: set a number of seconds above 0"),
        ("zookeeper://h:1?session_timeout_seconds=nan", "is out of range"),
        ("zookeeper://h:1?session_timeout_s=4", "session_timeout_s was renamed: use session_timeout_seconds"),
        ("zookeeper://h:1?connect_timeout_s=4", "connect_timeout_s was renamed: use connect_timeout_seconds"),
        ("zookeeper://h:1#x", "'#' is not allowed"),
        ("embedded://a/b", "a folder begins with a third '/'"),
        ("embedded:///", "it has no folder"),
        ("embedded:a", "it has no folder"),
        ("embedded:///a?b=1", "the embedded store has no parameters"),
        ("embedded:///a%00b", "it has no folder"),
        ("zookeeper://[::1", "is not a metadata store"),
    ],
)
def test_invalid_location_error_gives_reason_and_valid_format(location: str, problem: str) -> None:
    with pytest.raises(InvalidLocation) as invalid:
        parse_location(location)
    assert problem in str(invalid.value)
    assert "zookeeper://host:port,host:port/chroot or embedded:///folder" in str(invalid.value)


async def test_embedded_store_is_opened_in_the_given_folder(tmp_path: Path) -> None:
    for round_ in range(2):
        async with await open_metadata(f"embedded://{tmp_path}/meta", SystemClock()) as store:
            if not round_:
                await store.put("/a", b"value", ABSENT)
            node = await store.get("/a")
            assert node is not None
            assert node.value == b"value"


def test_a_store_that_does_not_exist_is_created_only_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "typo" / "meta"

    async def open_it(create: bool) -> None:
        await (await open_metadata(f"embedded://{folder}", SystemClock(), create=create)).close()

    with pytest.raises(NoStore, match=str(folder)):
        run(open_it(create=False))
    assert not list(tmp_path.iterdir())
    # Nor in a folder that holds something else.
    folder.mkdir(parents=True)
    (folder / "notes").write_text("mine")
    with pytest.raises(NoStore):
        run(open_it(create=False))
    assert [one.name for one in folder.iterdir()] == ["notes"]
    run(open_it(create=True))
    run(open_it(create=False))
