"""The table of handlers, compared with the listener's README."""

from __future__ import annotations

import re
from pathlib import Path

import magnetar_broker.server.pulsar
from magnetar_protos.pulsar_pb2 import BaseCommand
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_PAGE = Path(magnetar_broker.server.pulsar.__path__[0]) / "README.md"


async def test_the_readme_lists_every_command_that_has_a_handler() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        handled = {
            BaseCommand.Type.Name(BaseCommand.Type.ValueType(kind)) for kind in client.connection.handlers.by_command
        }
        rows = [row for row in _PAGE.read_text().splitlines() if re.match(r"\| [A-Z_]{3,}", row)]
        listed = {name for row in rows for name in re.findall(r"[A-Z_]{3,}", row.split("|")[1])}
        assert listed == handled | {"SEND"}
