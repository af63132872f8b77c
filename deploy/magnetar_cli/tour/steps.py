"""The steps of the tour in order. If one fails, its error is printed, and the exit status is 1."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from rich.table import Table

from magnetar_cli.local_java import NoJava
from magnetar_cli.tour.messaging import TOPIC, WrongResult, check, consume_failover, consume_shared, publish
from magnetar_cli.tour.narrator import Narrator
from magnetar_cli.tour.readings import ROOMS, Reading, count_by_minute, generate_readings
from magnetar_cli.tour.server import DEFAULT_PORTS, Server, ServerFailed, start_server
from magnetar_cli.tour.spark_step import SparkFailed, SparkStep

__all__ = ["run_tour"]

_OUTPUT_TIMEOUT_S: Final = 3600.0


def run_tour(narrator: Narrator, *, once: bool, messages: int) -> int:
    """Run all steps, and return the exit status. Raise `KeyboardInterrupt` before the end of the last step."""
    folder = Path(tempfile.mkdtemp(prefix="magnetar-tour-"))
    try:
        status = _Tour(narrator, folder, messages).run(once)
    except (ServerFailed, SparkFailed, NoJava, WrongResult) as error:
        narrator.failed(f"{error}\nThe logs are in {folder}.")
        return 1
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return status


class _Tour:
    def __init__(self, narrator: Narrator, folder: Path, messages: int) -> None:
        self._narrator = narrator
        self._folder = folder
        self._messages = messages
        self._readings: list[Reading] = []

    def run(self, once: bool) -> int:
        server = self._start_broker()
        with server.process:
            self._publish_and_consume(server)
            self._run_spark(server)
            if once:
                self._narrator.title(
                    "This is the end of the tour. `make run` without ONCE=1 leaves the broker running."
                )
                return 0
            return self._leave_running(server)

    def _start_broker(self) -> Server:
        narrator = self._narrator
        narrator.title("1. A broker with metadata and storage in one process: magnetar standalone")
        started = time.monotonic()
        with narrator.counting("starting", 0):
            server = start_server(self._folder / "standalone.log")
        narrator.done(f"ready after {time.monotonic() - started:.1f} s at {server.grpc}")
        if server.taken:
            *more, last = map(str, server.taken)
            one = f"Port {last} is in use, so another one was chosen."
            several = f"Ports {', '.join(more)} and {last} are in use, so others were chosen."
            narrator.say(f"[yellow]{several if more else one}[/yellow]")
        return server

    def _publish_and_consume(self, server: Server) -> None:
        import magnetar

        narrator = self._narrator
        self._readings = list(generate_readings(self._messages, int(time.time() * 1000)))
        total = len(self._readings)
        with magnetar.Client(server.grpc) as client:
            narrator.title(f"2. Publishing: {total:,} readings of thermometers in {len(ROOMS)} rooms")
            with narrator.counting("publishing", total) as count:
                published = publish(client, self._readings, count)
            narrator.done(f"all on disk after {published.seconds:.1f} s: {total / published.seconds:,.0f} a second")
            narrator.done(f"one by one, each on disk before the next: {published.median_ms:.1f} ms")

            narrator.title("3. A Shared subscription: each message goes to one of two consumers")
            started = time.monotonic()
            names = ["worker-1", "worker-2"]
            with narrator.counting("consuming", total) as count:
                received = consume_shared(client, "alerts", names, total, count)
            shares = " and ".join(f"{name} {one:,}" for name, one in zip(names, received, strict=True))
            narrator.done(f"{shares}: all in {time.monotonic() - started:.1f} s, none twice")

            narrator.title("4. A Failover subscription: one consumer gets all in order, one stands by")
            started = time.monotonic()
            with narrator.counting("consuming", total) as count:
                first, second = consume_failover(client, "archive", ["leader", "standby"], total, count)
            narrator.done(f"leader {first:,}, then it left; standby the other {second:,}; in order, none twice")

    def _run_spark(self, server: Server) -> None:
        narrator = self._narrator
        narrator.title("5. Spark: a structured stream counts readings by minute and room")
        started = time.monotonic()
        with SparkStep.start(server.grpc, TOPIC, self._folder) as spark:
            with narrator.counting("starting Spark (its JVM takes some seconds)", 0):
                version = spark.wait_version()
            narrator.done(f"Spark {version} is there after {time.monotonic() - started:.1f} s")
            started = time.monotonic()
            with narrator.counting("counting", self._messages) as count:
                found = spark.wait_counts(count)
        narrator.done(f"{found.total():,} messages in {time.monotonic() - started:.1f} s, each counted once")
        narrator.show(_make_counts_table(found))
        check(found == count_by_minute(iter(self._readings)), "the counts differ from what was published")

    def _leave_running(self, server: Server) -> int:
        narrator = self._narrator
        command = Path(sys.argv[0])
        shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
        is_default_port = server.grpc.endswith(f":{DEFAULT_PORTS['grpc']}")
        narrator.title("The broker runs until Ctrl-C; its data is deleted then.")
        table = Table.grid(padding=(0, 2))
        for name, value in (
            ("clients", server.grpc),
            ("Pulsar's clients", server.pulsar),
            ("health", f"{server.http}/health"),
            ("metrics", f"{server.http}/metrics"),
            *(() if is_default_port else (("commands", f"export MAGNETAR_URL={server.grpc}"),)),
            ("statistics", f"{shown} topics stats {TOPIC}"),
            ("next", "README.md"),
        ):
            table.add_row(name, value)
        narrator.show(table)
        try:
            while server.process.read_line(_OUTPUT_TIMEOUT_S) is not None:
                pass
        except TimeoutError:
            pass
        except KeyboardInterrupt:
            narrator.title("The broker ends.")
            return 0
        raise ServerFailed(f"the standalone has ended. It logged last:\n{server.process.read_log_end()}")


def _make_counts_table(found: Counter[tuple[int, str]]) -> Table:
    table = Table(title_justify="left")
    table.add_column("minute (UTC)")
    for room in ROOMS:
        table.add_column(room, justify="right")
    table.add_column("all", justify="right", style="bold")
    minutes = sorted({minute for minute, _ in found})
    for minute in minutes:
        each = [found[minute, room] for room in ROOMS]
        shown = time.strftime("%H:%M", time.gmtime(minute / 1000))
        table.add_row(shown, *(f"{count:,}" for count in [*each, sum(each)]))
    table.add_section()
    sums = [sum(found[minute, room] for minute in minutes) for room in ROOMS]
    table.add_row("all", *(f"{count:,}" for count in [*sums, sum(sums)]), style="bold")
    return table
