"""One bit flipped in a bookie's log, with one replica: in the last ledger's ends, and in a subscription's cursor."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from magnetar import Client, InitialPosition, MessageId, Timeout
from magnetar.admin import Admin
from magnetar.exceptions import ChecksumError
from magnetar_testing.standalone_process import StandaloneProcess

pytestmark = pytest.mark.slow
_TOPIC = "rotten"
_WAIT_MS = 30_000
# Ledger id, entry id; then LAC, length and checksum, and the entry.
_IDS = struct.Struct(">QQ")
_HEADER_BYTES = 36
_LEDGERS = 100


def _flip(folder: Path, pattern: bytes, behind: int) -> int:
    """Flip the bit at this distance behind each occurrence of the pattern in the bookie's log, and count them."""
    flipped = 0
    for path in sorted(folder.rglob("records/*.log")):
        content = path.read_bytes()
        at = content.find(pattern)
        while at >= 0:
            with path.open("r+b") as file:
                file.seek(at + behind)
                file.write(bytes([content[at + behind] ^ 1]))
            flipped += 1
            at = content.find(pattern, at + 1)
    return flipped


def _flip_message(folder: Path, number: int) -> int:
    return _flip(folder, b"message %d" % number, 3)


def _flip_first_record(folder: Path, ledger_id: int) -> int:
    """Nothing is confirmed in it."""
    return _flip(folder, _IDS.pack(ledger_id, 0) + b"\xff" * 8, _HEADER_BYTES + 2)


def _written(server: StandaloneProcess) -> list[MessageId]:
    """Five messages, each an entry; `bad` has acknowledged two of them, `good` none."""
    client = Client(server.service_url)
    for name in ("good", "bad"):
        client.subscribe(_TOPIC, name, initial_position=InitialPosition.Earliest).close()
    producer = client.create_producer(_TOPIC)
    message_ids = [producer.send(b"message %d" % number) for number in range(5)]
    consumer = client.subscribe(_TOPIC, "bad")
    for number in range(5):
        message = consumer.receive(_WAIT_MS)
        if number in (1, 3):
            consumer.acknowledge(message, receipt=True)
    client.close()
    return message_ids


def _drained(client: Client, subscription: str, count: int) -> list[bytes]:
    consumer = client.subscribe(_TOPIC, subscription, initial_position=InitialPosition.Earliest)
    found = []
    for _ in range(count):
        message = consumer.receive(_WAIT_MS)
        consumer.acknowledge(message)
        found.append(message.data())
    with pytest.raises(Timeout):
        consumer.receive(200)
    consumer.close()
    return found


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_one_flipped_bit_costs_one_entry_or_one_subscription(tmp_path: Path, end: str) -> None:
    """CHK-67; ADM-3: producers and other subscriptions go on, the loss is reported, and a reset repairs a cursor."""
    with StandaloneProcess(tmp_path / "data") as server:
        message_ids = _written(server)
        server.kill() if end == "killed" else server.stop()
        ledger_id = message_ids[0].ledger_id()
        assert {message_id.ledger_id() for message_id in message_ids} == {ledger_id}
        for number in (0, 4):
            assert _flip_message(tmp_path / "data", number) == 1
        # All other ledgers with records are the cursor's.
        others = [one for one in range(1, _LEDGERS) if one != ledger_id and _flip_first_record(tmp_path / "data", one)]
        assert others
        server.start()
        client = Client(server.service_url)
        admin = Admin(server.service_url)
        message_id = client.create_producer(_TOPIC).send(b"goes on")
        assert message_id > message_ids[-1]
        assert _drained(client, "good", 4) == [b"message 1", b"message 2", b"message 3", b"goes on"]
        with pytest.raises(ChecksumError, match="is damaged, and its acknowledgements are unknown"):
            client.subscribe(_TOPIC, "bad")
        stats = admin.topics.stats(_TOPIC)
        assert {(one.ledger_id, one.entry_id) for one in stats.lost} == {(ledger_id, 0), (ledger_id, 4)}
        assert stats.lost_entries == 2
        assert stats.subscription("bad").damaged
        assert "reset" in stats.subscription("bad").blocked_by.lower()
        assert not stats.subscription("good").damaged
        assert sorted(admin.subscriptions.list(_TOPIC)) == ["bad", "good"]
        admin.subscriptions.reset(_TOPIC, "bad", MessageId.earliest)
        assert _drained(client, "bad", 4) == [b"message 1", b"message 2", b"message 3", b"goes on"]
        client.close()
        admin.close()
        server.kill()
        server.start()
        admin = Admin(server.service_url)
        client = Client(server.service_url)
        assert _drained(client, "bad", 0) == []
        assert not admin.topics.stats(_TOPIC).subscription("bad").damaged
        client.close()
        admin.close()
