"""The recorded verdicts on schemas are those of a Pulsar that runs now: `tests/vectors/schema_verdicts.json`."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from tests import peers
from tests.peers import PeerUnavailable
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
