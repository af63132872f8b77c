"""The catalog that most tests of the catalog use."""

from __future__ import annotations

import pytest

from tests.unit.broker.admin.catalog_scene import CatalogScene


@pytest.fixture
async def scene() -> CatalogScene:
    """A catalog with the default options, a tenant and a namespace."""
    scene = CatalogScene()
    await scene.start()
    return scene
