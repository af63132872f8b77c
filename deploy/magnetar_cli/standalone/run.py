"""A standalone as a process: started, told to end, and what its end says. The statuses are those of a bookie's process.

Ending in peace has a bound for each of its steps, and the process one of its own, which holds where the event loop
stands still in a disk that hangs (`StopSignals`). Whoever calls `run_standalone` ends the process with the status at
once, by `os._exit`: threads may hang.
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
# Closing HTTP, broker, bookie (leaving, ending) and two stores, and a margin.
_STEPS: Final = 6
_MARGIN_S: Final = 5.0


def run_standalone(settings: StandaloneSettings, signals: StopSignals, *, as_json: bool) -> ExitStatus:
    """Runs it until it ends. End the process with the status at once: threads may hang."""
    keep_freed_memory()
    raise_open_file_limit()
    loop = new_event_loop()
    return loop.run_until_complete(_run(settings, signals, as_json))


async def _run(settings: StandaloneSettings, signals: StopSignals, as_json: bool) -> ExitStatus:
    told_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    bound_s = _STEPS * settings.close_timeout_s + settings.broker_shutdown_timeout_s + _MARGIN_S
    signals.start(lambda: loop.call_soon_threadsafe(told_to_end.set), bound_s)
    standalone = Standalone(settings)
    try:
        status = await _live(standalone, told_to_end, as_json)
        if status is ExitStatus.ENDED:
            _log.info("the standalone has shut down gracefully")
    except (FolderTaken, NotReached, BookieRefused, StorageInUse, StoreInUse, StoreDamaged) as error:
        status = ExitStatus.REFUSED
        _say(f"magnetar standalone: start refused: {error}")
    except StorageFailed as error:
        status = ExitStatus.DISK_FAILED
        _log.critical("the standalone stops with exit status %d: %s", status, error)
    except Exception:  # noqa: BLE001 (the last line of defence)
        status = ExitStatus.BROKEN
        _log.critical("the standalone stops with exit status %d because of a bug", status, exc_info=True)
    return status


async def _live(standalone: Standalone, told_to_end: asyncio.Event, as_json: bool) -> ExitStatus:
    told = asyncio.get_running_loop().create_task(told_to_end.wait())
    settling: asyncio.Task[None] | None = None
    try:
        starting = asyncio.get_running_loop().create_task(standalone.start())
        await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return ExitStatus.ENDED
        starting.result()
        _tell_ready(standalone, as_json)
        settling = asyncio.get_running_loop().create_task(_settle(standalone))
        failed = asyncio.get_running_loop().create_task(standalone.wait_failed())
        await asyncio.wait([failed, told], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        failed.cancel()
        await standalone.close()
        if standalone.hanging:
            _log.critical("%s did not finish", " and ".join(standalone.hanging))
            return ExitStatus.DISK_FAILED
        return ExitStatus.ENDED
    finally:
        told.cancel()
        if settling is not None:
            settling.cancel()


async def _settle(standalone: Standalone) -> None:
    """When all is imported that it works with, it is looked through a last time; messages go through long since."""
    await standalone.wait_http()
    freeze_objects_and_raise_gc_thresholds()


def _tell_ready(standalone: Standalone, as_json: bool) -> None:
    folder = standalone.folder
    assert folder is not None
    if as_json:
        urls = {"grpc": standalone.grpc_url, "pulsar": standalone.pulsar_url, "http": standalone.http_url}
        said = json.dumps({**urls, "data": str(folder.path), "pid": os.getpid()})
    else:
        kept = "in a temporary folder, which is deleted at the end" if folder.ephemeral else f"in {folder.path}"
        served = (
            f"{standalone.grpc_url}, Pulsar's clients at {standalone.pulsar_url}, and HTTP at {standalone.http_url}"
        )
        said = f"Magnetar serves {served}. Its data is {kept}."
        if standalone.pulsar_at_any_address:
            said += (
                " Pulsar's clients on other machines can connect to any address of this one. For Magnetar's own "
                "clients, set one: --set advertised_address=host:port."
            )
    print(said, flush=True)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
