"""The tour's steps, in order. What fails in one ends it: what was wrong is told, and the exit status is 1."""

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
from magnetar_cli.tour.messaging import TOPIC, Unexpected, consume_failover, consume_shared, must, publish
from magnetar_cli.tour.narrator import Narrator
from magnetar_cli.tour.readings import ROOMS, Reading, counts, readings
from magnetar_cli.tour.server import USUAL_PORTS, Server, ServerFailed, start_server
from magnetar_cli.tour.spark_step import SparkFailed, SparkStep

__all__ = ["tell_story"]

_LOOK_S: Final = 3600.0


def tell_story(narrator: Narrator, *, once: bool, messages: int) -> int:
    """The exit status. Raises `KeyboardInterrupt` where that came before the end of the last step."""
    folder = Path(tempfile.mkdtemp(prefix="magnetar-tour-"))
    try:
        status = _Story(narrator, folder, messages).run(once)
    except (ServerFailed, SparkFailed, NoJava, Unexpected) as error:
        narrator.failed(f"{error}\nThe logs are in {folder}.")
        return 1
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return status


class _Story:
    def __init__(self, narrator: Narrator, folder: Path, messages: int) -> None:
        self._narrator = narrator
        self._folder = folder
        self._messages = messages
        self._readings: list[Reading] = []

    def run(self, once: bool) -> int:
        server = self._broker()
        with server.process:
            self._publish_and_consume(server)
            self._spark(server)
            if once:
                self._narrator.title(
                    "This is the end of the tour. `make run` without ONCE=1 leaves the broker running."
                )
                return 0
            return self._leave_running(server)

    def _broker(self) -> Server:
        tell = self._narrator
        tell.title("1. A broker with metadata and storage in one process: magnetar standalone")
        started = time.monotonic()
        with tell.counting("starting", 0):
            server = start_server(self._folder / "standalone.log")
        tell.done(f"ready after {time.monotonic() - started:.1f} s at {server.grpc}")
        if server.taken:
            *more, last = map(str, server.taken)
            one = f"Port {last} is in use, so another one was chosen."
            several = f"Ports {', '.join(more)} and {last} are in use, so others were chosen."
            tell.say(f"[yellow]{several if more else one}[/yellow]")
        return server

    def _publish_and_consume(self, server: Server) -> None:
        import magnetar

        tell = self._narrator
        self._readings = list(readings(self._messages, int(time.time() * 1000)))
        total = len(self._readings)
        with magnetar.Client(server.grpc) as client:
            tell.title(f"2. Publishing: {total:,} readings of thermometers in {len(ROOMS)} rooms")
            with tell.counting("publishing", total) as count:
                published = publish(client, self._readings, count)
            tell.done(f"all on disk after {published.seconds:.1f} s: {total / published.seconds:,.0f} a second")
            tell.done(f"one by one, each on disk before the next: {published.median_ms:.1f} ms")

            tell.title("3. A Shared subscription: each message goes to one of two consumers")
            started = time.monotonic()
            names = ["worker-1", "worker-2"]
            with tell.counting("consuming", total) as count:
                got = consume_shared(client, "alerts", names, total, count)
            shares = " and ".join(f"{name} {one:,}" for name, one in zip(names, got, strict=True))
            tell.done(f"{shares}: all in {time.monotonic() - started:.1f} s, none twice")

            tell.title("4. A Failover subscription: one consumer gets all in order, one stands by")
            started = time.monotonic()
            with tell.counting("consuming", total) as count:
                first, second = consume_failover(client, "archive", ["leader", "standby"], total, count)
            tell.done(f"leader {first:,}, then it left; standby the other {second:,}; in order, none twice")

    def _spark(self, server: Server) -> None:
        tell = self._narrator
        tell.title("5. Spark: a structured stream counts readings by minute and room")
        started = time.monotonic()
        with SparkStep.start(server.grpc, TOPIC, self._folder) as spark:
            with tell.counting("starting Spark (its JVM takes some seconds)", 0):
                version = spark.version()
            tell.done(f"Spark {version} is there after {time.monotonic() - started:.1f} s")
            started = time.monotonic()
            with tell.counting("counting", self._messages) as count:
                found = spark.counts(count)
        tell.done(f"{found.total():,} messages in {time.monotonic() - started:.1f} s, each counted once")
        tell.show(_table(found))
        must(found == counts(iter(self._readings)), "the counts differ from what was published")

    def _leave_running(self, server: Server) -> int:
        tell = self._narrator
        command = Path(sys.argv[0])
        shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
        usual = server.grpc.endswith(f":{USUAL_PORTS['grpc']}")
        tell.title("The broker runs until Ctrl-C; its data is deleted then.")
        table = Table.grid(padding=(0, 2))
        for what, where in (
            ("clients", server.grpc),
            ("Pulsar's clients", server.pulsar),
            ("health", f"{server.http}/health"),
            ("metrics", f"{server.http}/metrics"),
            *(() if usual else (("commands", f"export MAGNETAR_URL={server.grpc}"),)),
            ("statistics", f"{shown} topics stats {TOPIC}"),
            ("next", "README.md"),
        ):
            table.add_row(what, where)
        tell.show(table)
        try:
            while server.process.line(_LOOK_S) is not None:
                pass
        except TimeoutError:
            pass
        except KeyboardInterrupt:
            tell.title("The broker ends.")
            return 0
        raise ServerFailed(f"the standalone has ended. It logged last:\n{server.process.last_words()}")


def _table(found: Counter[tuple[int, str]]) -> Table:
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
