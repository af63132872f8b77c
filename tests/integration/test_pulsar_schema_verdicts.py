"""The recorded verdicts on schemas, `tests/vectors/schema_verdicts.json`, are those of a standalone and of a Pulsar."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from magnetar_testing.standalone_process import StandaloneProcess
from tests import peers
from tests.peers import PeerUnavailable
from tests.schema_differences import explain_differences
from tests.vectors.capture_schemas import RECORD, capture_verdicts

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("java")]


def test_the_record_is_pulsars() -> None:
    """(SCH-2)"""
    try:
        with peers.running("pulsar") as url:
            live = capture_verdicts(urlsplit(peers.PULSAR_HTTP_URL).netloc, urlsplit(url).netloc)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    assert live == json.loads(RECORD.read_text())


def test_verdicts_of_a_standalone_are_pulsars(tmp_path: Path) -> None:
    """(SCH-2) Over Pulsar's protocol, with the policies of namespaces."""
    with StandaloneProcess(tmp_path / "data") as server:
        ours = capture_verdicts(urlsplit(server.http_url).netloc, urlsplit(server.pulsar_url).netloc)
    assert explain_differences(json.loads(RECORD.read_text()), ours) == ([], [])
