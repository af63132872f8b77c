"""A short run of hostile clients of Pulsar's protocol; `python -m tests.property.pulsar_fuzz` makes long ones."""

from __future__ import annotations

import pytest

from tests.property.pulsar_fuzz import fuzz_part


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_clients_harm_nobody_else(seed: int) -> None:
    """WIRE-1: malformed, oversized and hostile frames close that one connection, and touch nothing else."""
    seen = fuzz_part(seed, 2_000)
    assert seen.frames >= 2_000
    assert seen.honest_messages > 10
    assert seen.refused > 3
    # It comes deep enough: messages were stored and delivered, and most of what can be answered was.
    assert len(seen.answers) > 12
