"""Scenes with four bookies, for tests that ask for no other number and no other settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.bookie import repair_scene, writer_scene


@pytest.fixture
async def of() -> AsyncIterator[repair_scene.Scene]:
    """Real bookies on simulated disks, for tests of auto-recovery."""
    async with repair_scene.Scene() as of:
        yield of


@pytest.fixture
async def scene() -> AsyncIterator[writer_scene.Scene]:
    """Fake bookies that misbehave on demand, for tests of writers."""
    async with writer_scene.Scene() as scene:
        yield scene
