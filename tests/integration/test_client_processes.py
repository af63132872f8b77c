"""The synchronous client in a process of its own: Ctrl-C, an end without closing, a broker that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import magnetar
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("processes") / "data") as started:
        yield started


def _run(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


_BLOCKED = """
import signal, sys, magnetar
signal.signal(signal.SIGINT, signal.default_int_handler)  # passed over by what a shell starts in the background
client = magnetar.Client(sys.argv[1], operation_timeout_seconds=3600)
print("blocks", flush=True)
client.create_producer("t")
"""


def test_ctrl_c_ends_a_blocking_call() -> None:
    """Nobody is at that address, and the call would wait for an hour."""
    process = _run(_BLOCKED, "magnetar://127.0.0.1:1")
    assert process.stdout is not None
    assert process.stdout.readline() == "blocks\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=GENEROUS_S)
    assert "\nKeyboardInterrupt\n" in errors
    assert process.returncode in (1, -signal.SIGINT)


_LEFT_OPEN = """
import sys, magnetar
client = magnetar.Client(sys.argv[1])
producer = client.create_producer("left-open", batching_max_publish_delay_ms=3_600_000)
producer.send_async(b"x", lambda result, message_id: print(result, flush=True))
"""


def test_process_exit_without_close_sends_pending_messages(server: StandaloneProcess) -> None:
    process = _run(_LEFT_OPEN, server.service_url)
    output, errors = process.communicate(timeout=GENEROUS_S)
    assert (process.returncode, output, errors) == (0, "Result.Ok\n", "")


def test_persisted_messages_survive_kill_of_standalone(server: StandaloneProcess) -> None:
    """PRD-9, PRD-10: a standalone is killed with -9 and started again under a producer that goes on sending; every
    receipt is true, and what is read for the first time is in order."""
    with magnetar.Client(server.service_url) as client:
        client.subscribe("killed", "keeps it").close()  # RET-1: else ledgers that are closed may go
        producer = client.create_producer("killed", block_if_queue_full=True, max_pending_messages=2_000)
        receipted: dict[bytes, magnetar.MessageId] = {}
        failed: list[magnetar.Result] = []
        stop = threading.Event()
        sent = 0

        def keep_sending() -> None:
            nonlocal sent
            while not stop.is_set():
                content = b"%d" % sent

                def on_sent(
                    result: magnetar.Result, message_id: magnetar.MessageId | None, own: bytes = content
                ) -> None:
                    if message_id is None:
                        failed.append(result)
                    else:
                        receipted[own] = message_id

                producer.send_async(content, on_sent)
                sent += 1
                if not sent % 50:
                    stop.wait(0.002)

        thread = threading.Thread(target=keep_sending)
        thread.start()
        try:
            for _ in range(2):
                before = len(receipted)
                while len(receipted) < before + 300:
                    assert thread.is_alive()
                    stop.wait(0.01)
                server.kill()
                server.start()
        finally:
            stop.set()
            thread.join(GENEROUS_S)
        producer.flush()
        assert not failed
        assert len(receipted) == sent
        reader = client.create_reader("killed", magnetar.MessageId.earliest)
        read: dict[magnetar.MessageId, bytes] = {}
        while reader.has_message_available():
            message = reader.read_next(10_000)
            read[message.message_id()] = message.data()
        assert list(dict.fromkeys(read.values())) == [b"%d" % number for number in range(sent)]
        assert all(read[message_id] == content for content, message_id in receipted.items())
