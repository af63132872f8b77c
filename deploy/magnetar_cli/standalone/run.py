"""The process of a standalone: start, graceful shutdown, exit status. The statuses are those of a bookie's process.

Each step of the shutdown has a timeout. The whole shutdown has one, too, which works even if the event loop is blocked
by a disk that hangs (`StopSignals`). The caller of `run_standalone` must exit at once by `os._exit`, since threads may
hang.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Final

from magnetar_bookie.errors import BookieRefused
from magnetar_bookie.storage.interface import StorageFailed, StorageInUse
from magnetar_cli.standalone.data_folder import FolderTaken
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_cli.standalone.standalone import Standalone
from magnetar_metadata.errors import StoreDamaged, StoreInUse
from magnetar_wire.process.event_loop import new_event_loop
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.process.memory_tuning import freeze_objects_and_raise_gc_thresholds, keep_freed_memory
from magnetar_wire.process.open_files import raise_open_file_limit
from magnetar_wire.process.stop_signals import StopSignals
from magnetar_wire.transport import NotReached

__all__ = ["run_standalone"]

_log = logging.getLogger(__name__)
# HTTP, broker, bookie (deregister, stop) and two stores are closed.
_CLOSE_STEPS: Final = 6
_MARGIN_S: Final = 5.0


def run_standalone(settings: StandaloneSettings, signals: StopSignals, *, as_json: bool) -> ExitStatus:
    """Run a standalone until it ends, and return the exit status."""
    keep_freed_memory()
    raise_open_file_limit()
    loop = new_event_loop()
    return loop.run_until_complete(_run(settings, signals, as_json))


async def _run(settings: StandaloneSettings, signals: StopSignals, as_json: bool) -> ExitStatus:
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    bound_s = _CLOSE_STEPS * settings.close_timeout_seconds + settings.broker_shutdown_timeout_seconds + _MARGIN_S
    signals.start(lambda: loop.call_soon_threadsafe(stop_requested.set), bound_s)
    standalone = Standalone(settings)
    try:
        status = await _run_until_stopped(standalone, stop_requested, as_json)
        if status is ExitStatus.ENDED:
            _log.info("the standalone has shut down gracefully")
    except (FolderTaken, NotReached, BookieRefused, StorageInUse, StoreInUse, StoreDamaged) as error:
        status = ExitStatus.REFUSED
        print(f"magnetar standalone: start refused: {error}", file=sys.stderr, flush=True)
    except StorageFailed as error:
        status = ExitStatus.DISK_FAILED
        _log.critical("the standalone stops with exit status %d: %s", status, error)
    except Exception:  # noqa: BLE001 (it is logged, and the process exits)
        status = ExitStatus.BROKEN
        _log.critical("the standalone stops with exit status %d because of a bug", status, exc_info=True)
    return status


async def _run_until_stopped(standalone: Standalone, stop_requested: asyncio.Event, as_json: bool) -> ExitStatus:
    stopping = asyncio.get_running_loop().create_task(stop_requested.wait())
    tuning: asyncio.Task[None] | None = None
    try:
        starting = asyncio.get_running_loop().create_task(standalone.start())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return ExitStatus.ENDED
        starting.result()
        _print_ready(standalone, as_json)
        tuning = asyncio.get_running_loop().create_task(_tune_memory(standalone))
        failed = asyncio.get_running_loop().create_task(standalone.wait_failed())
        await asyncio.wait([failed, stopping], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        failed.cancel()
        await standalone.close()
        if standalone.hanging:
            _log.critical("%s did not finish", " and ".join(standalone.hanging))
            return ExitStatus.DISK_FAILED
        return ExitStatus.ENDED
    finally:
        stopping.cancel()
        if tuning is not None:
            tuning.cancel()


async def _tune_memory(standalone: Standalone) -> None:
    """Freeze the garbage collector's objects when all modules are imported, HTTP's as the last ones."""
    await standalone.wait_http()
    freeze_objects_and_raise_gc_thresholds()


def _print_ready(standalone: Standalone, as_json: bool) -> None:
    folder = standalone.folder
    assert folder is not None
    if as_json:
        urls = {"grpc": standalone.grpc_url, "pulsar": standalone.pulsar_url, "http": standalone.http_url}
        text = json.dumps({**urls, "data": str(folder.path), "pid": os.getpid()})
    else:
        location = "in a temporary folder, which is deleted at the end" if folder.ephemeral else f"in {folder.path}"
        served = (
            f"{standalone.grpc_url}, Pulsar's clients at {standalone.pulsar_url}, and HTTP at {standalone.http_url}"
        )
        text = f"Magnetar serves {served}. Its data is {location}."
        if standalone.pulsar_at_any_address:
            text += (
                " Pulsar's clients on other machines can connect to any address of this one. For Magnetar's own "
                "clients, set one: --set advertised_address=host:port."
            )
    print(text, flush=True)
