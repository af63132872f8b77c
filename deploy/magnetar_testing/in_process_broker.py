"""The production broker in the test's own process: `magnetar standalone`, without a process of its own.

    with InProcessBroker() as broker, broker.client() as client:
        client.create_producer("orders").send(b"one")
        broker.restart()        # the same data at the same addresses

It listens at free ports of 127.0.0.1 and has its data in a temporary folder, which `close` deletes. It starts in some
40 ms, plus most of a second in a process that has not imported Magnetar's servers yet. Its event loop has a thread of
its own (broker_loop.py), so that tests may block, and tests with asyncio have a loop of their own.

It shares its process with the test. A test that kills the broker, forks, or measures its memory needs a
`StandaloneProcess`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from magnetar_testing.broker_endpoints import BrokerEndpoints
from magnetar_testing.broker_loop import run_on_broker_loop

if TYPE_CHECKING:
    from magnetar_cli.standalone.settings import StandaloneSettings
    from magnetar_cli.standalone.standalone import Standalone

__all__ = ["InProcessBroker"]

_START_SECONDS: Final = 60.0
# Standalone.close has a timeout for each part. This is one for all of them.
_STOP_SECONDS: Final = 120.0
_PREFIX: Final = "magnetar-test-"
# An unlocked temporary folder that is older than this was abandoned. A newer one may just be created.
_ABANDONED_SECONDS: Final = 60.0
_RESERVED: Final = {
    "data_folder": "pass `folder` instead",
    "ephemeral": "the folder is a temporary one unless you pass `folder`",
}


class InProcessBroker(BrokerEndpoints):
    """A metadata store, a bookie and a broker; `settings` are those of `magnetar standalone --options`.

    With `folder`, the data stays there after `close`.
    """

    def __init__(self, folder: Path | None = None, **settings: Any) -> None:
        for name in settings:
            if name in _RESERVED:
                raise TypeError(f"InProcessBroker has no setting {name}: {_RESERVED[name]}")
        self.settings = {"grpc_port": 0, "pulsar_port": 0, "http_port": 0, **settings}
        self.folder = folder
        self._is_temporary = folder is None
        # The descriptor of the temporary folder, which holds a lock on it while this process uses it.
        self._lock = -1
        self._standalone: Standalone | None = None

    @property
    def is_running(self) -> bool:
        return self._standalone is not None

    def start(self) -> Self:
        """Return when the broker serves clients; again, after `stop`, with the same data and ports.

        Raise `InvalidConfiguration` for a wrong setting.
        """
        from magnetar_cli.standalone.standalone import Standalone

        if self._standalone is not None:
            raise RuntimeError(f"the broker at {self.service_url} is running already")

        async def start(settings: StandaloneSettings) -> Standalone:
            standalone = Standalone(settings)
            await standalone.start()
            return standalone

        try:
            self._standalone = standalone = run_on_broker_loop(start(self._load_settings()), _START_SECONDS)
        except BaseException:
            if not self.service_url:
                self.close()
            raise
        self.service_url, self.pulsar_url = standalone.grpc_url, standalone.pulsar_url
        self.http_url = standalone.http_url
        for name, url in (
            ("grpc_port", self.service_url),
            ("pulsar_port", self.pulsar_url),
            ("http_port", self.http_url),
        ):
            self.settings[name] = int(url.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stop the broker gracefully and keep its data. Clients wait until it is started again."""
        standalone, self._standalone = self._standalone, None
        if standalone is None:
            return
        run_on_broker_loop(standalone.close(), _STOP_SECONDS)
        if standalone.hanging:
            hanging = ", ".join(standalone.hanging)
            raise RuntimeError(f"the broker at {self.service_url} did not stop: {hanging} timed out")

    def restart(self) -> None:
        """Stop the broker gracefully, and start it with the same data and ports."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker, and delete its data unless the caller has chosen the folder."""
        try:
            self.stop()
        finally:
            if self._is_temporary and self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder = None
                os.close(self._lock)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load_settings(self) -> StandaloneSettings:
        from magnetar_cli.standalone.settings import StandaloneSettings
        from magnetar_wire.configuration import check_settings

        # A wrong setting is refused before the folder is created.
        settings = check_settings(StandaloneSettings, self.settings)
        if self.folder is None:
            _remove_abandoned()
            self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        return settings.model_copy(update={"data_folder": self.folder})

    def __repr__(self) -> str:
        return f"<InProcessBroker {self.service_url or 'not started'}>"


def _remove_abandoned() -> None:
    """Delete the temporary folders of processes that ended without calling `close`."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                about = os.fstat(lock)
                if about.st_uid == os.getuid() and about.st_ctime < time.time() - _ABANDONED_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
