import select

import pytest

from magnetar_metadata.zookeeper.kazoo_wake_up import KazooWakeUp


def test_a_thread_that_takes_no_requests_blocks_nobody() -> None:
    """A socket pair is full after some 270 bytes: the event loop hung until kazoo had a connection again."""
    wake_up = KazooWakeUp()
    for _ in range(2_000):
        wake_up.send(b"\0")
    for _ in range(2_000):
        assert _readable(wake_up)
        assert wake_up.recv(1) == b"\0"
    assert not _readable(wake_up)
    with pytest.raises(BlockingIOError):
        wake_up.recv(1)
    wake_up.send(b"\0")
    assert _readable(wake_up)
    wake_up.close()
    with pytest.raises(OSError, match="closed"):
        wake_up.send(b"\0")
    wake_up.close()


def _readable(wake_up: KazooWakeUp) -> bool:
    return bool(select.select([wake_up], [], [], 0)[0])
